// SPDX-License-Identifier: Apache-2.0
// Every format on a GPU: captured in global mode as kernels, replayed over changed batches, with
// the CPU's results.
#include "ddtree/formats/flashinfer.hpp"
#include "ddtree/formats/sglang.hpp"
#include "ddtree/formats/tensorrt_llm.hpp"
#include "ddtree/formats/vllm.hpp"
#include "ddtree/formats/xgrammar.hpp"

#include "formats/scene.hpp"
#include "support/catch.hpp"
#include "support/cuda_graph.hpp"
#include "support/device.hpp"

#include <deque>
#include <functional>

namespace {

using namespace ddtree_test;
using namespace ddtree_test::formats;
using ddtree::context;
using ddtree::dtype;
using ddtree::index_t;
using ddtree::status;

/// A batch in a context's memory and the arrays that one call reads and writes besides.
struct scene {
  scene(context const& c, host_batch const& host) : ctx(c), h(host), d(c, host) {}

  /// An array that the call writes.
  template <class T>
  T* take(index_t count) {
    written.emplace_back(ctx, sized(count) * sizeof(T));
    return reinterpret_cast<T*>(written.back().data());
  }
  /// An array of slots or other ids that the call reads.
  std::int64_t* give(id_list const& values) {
    read.emplace_back(ctx, values);
    return read.back().data();
  }
  ddtree::accepted take_path() {
    ddtree::accepted out;
    out.path = take<std::int32_t>(h.shape.batch * steps());
    out.num_accepted = take<std::int32_t>(h.shape.batch);
    out.token = take<std::int32_t>(h.shape.batch * steps());
    out.bonus = take<std::int32_t>(h.shape.batch);
    out.flags = take<std::uint32_t>(h.shape.batch);
    return out;
  }
  /// A block table of pages of 16.
  ddtree::kv_table give_table() {
    id_list entries(sized(h.shape.requests) * 30);
    std::iota(entries.begin(), entries.end(), 1);
    ddtree::kv_table table;
    table.entries = give(entries);
    table.columns = 30;
    table.page_size = 16;
    return table;
  }
  void poison() {
    for (auto& array : written) array.poison();
  }
  index_t nodes() const { return h.shape.batch * h.shape.width(); }
  index_t steps() const { return index_t{h.shape.depth} + 1; }

  context ctx;
  host_batch h;
  device_batch d;
  std::deque<buffer<unsigned char>> written;
  std::deque<buffer<std::int64_t>> read;
};

using prepared = std::function<status()>;

/// Takes the arrays of a call from the scene; what is returned makes the call.
struct format_call {
  char const* name;
  prepared (*prepare)(scene&);
};

prepared sglang_verify(scene& s) {
  namespace sglang = ddtree::formats::sglang;
  sglang::verify_buffers out;
  out.draft_token = s.take<std::int64_t>(s.nodes());
  out.positions = s.take<std::int64_t>(s.nodes());
  out.retrieve_index = s.take<std::int64_t>(s.nodes());
  out.retrieve_next_token = s.take<std::int64_t>(s.nodes());
  out.retrieve_next_sibling = s.take<std::int64_t>(s.nodes());
  out.retrieve_parent_token = s.take<std::int32_t>(s.nodes());
  out.custom_mask_bytes = s.nodes() * 400;
  out.custom_mask = s.take<std::uint8_t>(out.custom_mask_bytes);
  out.mask_indptr = s.take<std::int64_t>(s.h.shape.batch + 1);
  out.kv_slots = s.take<std::int32_t>(s.nodes() * s.h.shape.width());
  out.kv_lens = s.take<std::int32_t>(s.nodes());
  std::int64_t* const slots = s.give(make_slots(s.h));
  return [&s, out, slots] {
    return sglang::write_verify_buffers(s.ctx, s.h.shape, s.d.view(), s.d.tree.view(), slots, out);
  };
}

prepared sglang_accept(scene& s) {
  namespace sglang = ddtree::formats::sglang;
  sglang::accept_buffers out;
  out.predicts = s.take<std::int32_t>(s.nodes());
  out.accept_index = s.take<std::int32_t>(s.h.shape.batch * s.steps());
  out.accept_token_num = s.take<std::int32_t>(s.h.shape.batch);
  out.tgt_cache_loc = s.take<std::int64_t>(s.h.shape.batch * s.steps());
  out.src_cache_loc = s.take<std::int64_t>(s.h.shape.batch * s.steps());
  out.evict_mask = s.take<std::uint8_t>(s.nodes());
  std::int64_t* const slots = s.give(make_slots(s.h));
  return [&s, out, slots] {
    return sglang::write_accept_buffers(s.ctx, s.h.shape, s.d.view(), s.d.path.view(), slots, out);
  };
}

prepared sglang_read(scene& s) {
  namespace sglang = ddtree::formats::sglang;
  sglang::accept_results in;
  id_list predicts(sized(s.nodes()), 5), index, count;
  for (index_t b = 0; b < s.h.shape.batch; ++b) {
    for (index_t u = 0; u < s.steps(); ++u) index.push_back(b * s.h.shape.width() + u);
    count.push_back(b % s.steps());
  }
  in.predicts = s.give(predicts);
  in.accept_index = s.give(index);
  in.accept_token_num = s.give(count);
  ddtree::accepted const out = s.take_path();
  return
      [&s, in, out] { return sglang::read_accept_results(s.ctx, s.h.shape, s.d.view(), in, out); };
}

prepared flashinfer_plan(scene& s) {
  namespace flashinfer = ddtree::formats::flashinfer;
  flashinfer::plan_buffers out;
  out.qo_indptr = s.take<std::int32_t>(s.h.shape.batch + 1);
  out.paged_kv_indptr = s.take<std::int32_t>(s.h.shape.batch + 1);
  out.max_pages = s.h.shape.batch * 30;
  out.paged_kv_indices = s.take<std::int32_t>(out.max_pages);
  out.paged_kv_last_page_len = s.take<std::int32_t>(s.h.shape.batch);
  out.custom_mask_bytes = s.nodes() * 50;
  out.custom_mask = s.take<std::uint8_t>(out.custom_mask_bytes);
  out.mask_indptr = s.take<std::int32_t>(s.h.shape.batch + 1);
  ddtree::kv_table const table = s.give_table();
  return [&s, out, table] {
    return flashinfer::write_plan_buffers(s.ctx, s.h.shape, s.d.view(), s.d.tree.view(), table, out,
                                          {ddtree::formats::query_rows::nodes, 3});
  };
}

prepared tensorrt_llm_verify(scene& s) {
  namespace tensorrt_llm = ddtree::formats::tensorrt_llm;
  tensorrt_llm::verify_buffers out;
  out.generation_lengths = s.take<std::int32_t>(s.h.shape.batch);
  out.cu_generation_lengths = s.take<std::int64_t>(s.h.shape.batch + 1);
  out.position_offsets = s.take<std::int32_t>(s.nodes());
  out.packed_mask = s.take<std::uint32_t>(s.nodes() * s.h.shape.words());
  out.dense_packed_mask = s.take<std::uint32_t>(s.nodes() * s.h.shape.words());
  out.first_sparse_mask_offset_kv = s.take<std::int32_t>(s.h.shape.batch);
  out.draft_ids = s.take<std::int32_t>(s.nodes() - s.h.shape.batch);
  out.retrieve_index = s.take<std::int32_t>(s.nodes());
  out.retrieve_next_token = s.take<std::int32_t>(s.nodes());
  out.retrieve_next_sibling = s.take<std::int32_t>(s.nodes());
  out.paths = s.take<std::int32_t>(s.nodes() * s.steps());
  return [&s, out] {
    return tensorrt_llm::write_verify_buffers(s.ctx, s.h.shape, s.d.view(), s.d.tree.view(), out);
  };
}

prepared tensorrt_llm_accept(scene& s) {
  namespace tensorrt_llm = ddtree::formats::tensorrt_llm;
  index_t const batch = s.h.shape.batch;
  tensorrt_llm::accept_buffers out;
  out.accept_index = s.take<std::int64_t>(batch * s.steps());
  out.accept_token = s.take<std::int64_t>(batch * s.steps());
  out.accept_token_num = s.take<std::int64_t>(batch);
  out.accepted_lengths = s.take<std::int32_t>(batch);
  out.accepted_lengths_cumsum = s.take<std::int32_t>(batch + 1);
  out.paths_offsets = s.take<std::int32_t>(batch * s.h.shape.depth);
  out.accepted_indices = s.take<std::int32_t>(batch * s.h.shape.depth);
  return [&s, out] {
    return tensorrt_llm::write_accept_buffers(s.ctx, s.h.shape, s.d.view(), s.d.path.view(), out);
  };
}

prepared tensorrt_llm_read(scene& s) {
  namespace tensorrt_llm = ddtree::formats::tensorrt_llm;
  tensorrt_llm::accept_results in;
  id_list index, count;
  for (index_t b = 0; b < s.h.shape.batch; ++b) {
    for (index_t u = 0; u < s.steps(); ++u) index.push_back(2 * u);
    count.push_back(b % s.steps());
  }
  in.accept_index = s.give(index);
  in.accept_token = s.give(index);
  in.accept_token_num = s.give(count);
  ddtree::accepted const out = s.take_path();
  return [&s, in, out] {
    return tensorrt_llm::read_accept_results(s.ctx, s.h.shape, s.d.view(), in, out);
  };
}

prepared vllm_verify(scene& s) {
  namespace vllm = ddtree::formats::vllm;
  vllm::verify_buffers out;
  out.query_start_loc = s.take<std::int32_t>(s.h.shape.batch + 1);
  out.seq_lens = s.take<std::int32_t>(s.h.shape.batch);
  out.input_ids = s.take<std::int32_t>(s.nodes());
  out.positions = s.take<std::int64_t>(s.nodes());
  out.slot_mapping = s.take<std::int64_t>(s.nodes());
  out.row_request = s.take<std::int32_t>(s.nodes());
  out.row_node = s.take<std::int32_t>(s.nodes());
  vllm::verify_options options;
  options.slots.table = s.give_table();
  return [&s, out, options] {
    return vllm::write_verify_buffers(s.ctx, s.h.shape, s.d.view(), s.d.tree.view(), out, options);
  };
}

prepared vllm_row_offsets(scene& s) {
  std::int32_t* const offset = s.take<std::int32_t>(s.h.shape.batch);
  return [&s, offset] {
    return ddtree::formats::vllm::write_row_offsets(s.ctx, s.h.shape, s.d.view(), s.d.tree.view(),
                                                    offset);
  };
}

prepared vllm_output(scene& s) {
  namespace vllm = ddtree::formats::vllm;
  vllm::output_buffers out;
  out.output_token_ids = s.take<std::int32_t>(s.h.shape.batch * s.steps());
  out.num_sampled_tokens = s.take<std::int32_t>(s.h.shape.batch);
  out.num_rejected_tokens = s.take<std::int32_t>(s.h.shape.batch);
  out.num_accepted_tokens = s.take<std::int32_t>(s.h.shape.batch);
  out.state_from = s.take<std::int32_t>(s.h.shape.requests);
  out.state_to = s.take<std::int32_t>(s.h.shape.requests);
  std::int64_t* const states = s.give(make_slots(s.h));
  return [&s, out, states] {
    return vllm::write_output_buffers(s.ctx, s.h.shape, s.d.view(), s.d.tree.view(),
                                      s.d.path.view(), states, out);
  };
}

prepared xgrammar_traversal(scene& s) {
  std::int64_t* const out = s.take<std::int64_t>(3 * s.nodes());
  return [&s, out] {
    return ddtree::formats::xgrammar::write_traversal(s.ctx, s.h.shape, s.d.view(), s.d.tree.view(),
                                                      out);
  };
}

format_call const calls[] = {
    {"flashinfer::write_plan_buffers", flashinfer_plan},
    {"sglang::write_verify_buffers", sglang_verify},
    {"sglang::write_accept_buffers", sglang_accept},
    {"sglang::read_accept_results", sglang_read},
    {"tensorrt_llm::write_verify_buffers", tensorrt_llm_verify},
    {"tensorrt_llm::write_accept_buffers", tensorrt_llm_accept},
    {"tensorrt_llm::read_accept_results", tensorrt_llm_read},
    {"vllm::write_verify_buffers", vllm_verify},
    {"vllm::write_row_offsets", vllm_row_offsets},
    {"vllm::write_output_buffers", vllm_output},
    {"xgrammar::write_traversal", xgrammar_traversal},
};

host_batch batch_of(unsigned seed) {
  random_numbers rng(seed);
  return make_batch(rng, {6, 33, 7, {0, 1, 17, 300}, seed % 2 == 1});
}

}  // namespace

TEST_CASE("every format can be captured and replayed over changed batches",
          "[formats][contract][cuda][small]") {
  if (!has_cuda_device()) DDTREE_SKIP("no CUDA device");
  for (format_call const& call : calls) {
    CAPTURE(call.name);
    scene gpu(cuda_context(), batch_of(0)), cpu(context::cpu(), batch_of(0));
    prepared const on_gpu = call.prepare(gpu), on_cpu = call.prepare(cpu);
    captured_graph graph(gpu.ctx.stream, [&] {
      status const s = on_gpu();
      CAPTURE(s.message);
      REQUIRE(s);
    });
    CHECK((graph.nodes() == std::vector<cudaGraphNodeType>{cudaGraphNodeTypeKernel}));
    for (unsigned seed = 0; seed < 4; ++seed) {
      CAPTURE(seed);
      for (scene* const s : {&gpu, &cpu}) {
        s->d.assign(batch_of(seed));
        s->poison();
      }
      graph.replay();
      REQUIRE(on_cpu());
      for (std::size_t i = 0; i < gpu.written.size(); ++i) {
        CAPTURE(i);
        CHECK((gpu.written[i].values() == cpu.written[i].values()));
        CHECK(gpu.written[i].intact());
      }
    }
  }
}
