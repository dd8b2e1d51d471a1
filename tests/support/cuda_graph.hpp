// SPDX-License-Identifier: Apache-2.0
// Streams and captured graphs that clean up after themselves. Needs CUDA.
#pragma once

#include "support/device_array.hpp"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <vector>

namespace ddtree_test {

/// A stream that does not wait for the legacy default stream.
class owned_stream {
 public:
  owned_stream() { check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  owned_stream(owned_stream const&) = delete;
  owned_stream& operator=(owned_stream const&) = delete;
  ~owned_stream() { (void)cudaStreamDestroy(stream_); }
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

/// What `enqueue` put on a stream, captured in global mode: a call that allocates or synchronises
/// fails it.
class captured_graph {
 public:
  template <class Enqueue>
  captured_graph(cudaStream_t stream, Enqueue const& enqueue) : stream_(stream) {
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    try {
      enqueue();
    } catch (...) {
      (void)cudaStreamEndCapture(stream, &graph_);
      if (graph_ != nullptr) (void)cudaGraphDestroy(graph_);
      throw;
    }
    check_cuda(cudaStreamEndCapture(stream, &graph_));
  }
  captured_graph(captured_graph const&) = delete;
  captured_graph& operator=(captured_graph const&) = delete;
  ~captured_graph() {
    if (instance_ != nullptr) (void)cudaGraphExecDestroy(instance_);
    if (graph_ != nullptr) (void)cudaGraphDestroy(graph_);
  }

  std::vector<cudaGraphNodeType> nodes() const {
    std::size_t count = 0;
    check_cuda(cudaGraphGetNodes(graph_, nullptr, &count));
    std::vector<cudaGraphNode_t> all(count);
    if (count != 0) check_cuda(cudaGraphGetNodes(graph_, all.data(), &count));
    std::vector<cudaGraphNodeType> types;
    for (cudaGraphNode_t const node : all) {
      cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
      check_cuda(cudaGraphNodeGetType(node, &type));
      types.push_back(type);
    }
    return types;
  }

  /// Enqueues the graph on the stream that it was captured from.
  void replay() {
    if (instance_ == nullptr) check_cuda(cudaGraphInstantiate(&instance_, graph_, 0));
    check_cuda(cudaGraphLaunch(instance_, stream_));
  }

 private:
  cudaStream_t stream_;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t instance_ = nullptr;
};

/// Whether there are nodes, and all are kernels or memsets.
inline bool is_kernels_and_memsets(std::vector<cudaGraphNodeType> const& nodes) {
  for (cudaGraphNodeType const type : nodes) {
    if (type != cudaGraphNodeTypeKernel && type != cudaGraphNodeTypeMemset) return false;
  }
  return !nodes.empty();
}

}  // namespace ddtree_test
