// SPDX-License-Identifier: Apache-2.0
#include "ddtree/formats/llama_cpp.hpp"

#include "formats/path.hpp"
#include "formats/validate.hpp"
#include "rules/views.hpp"
#include "rules/walk.hpp"

#include <algorithm>

namespace ddtree {
inline namespace v0 {
namespace formats {
namespace llama_cpp {
namespace {

using check_write = check<"llama_cpp::write_batch">;
using check_commit = check<"llama_cpp::write_commit">;

constexpr index_t max_nodes = index_t{max_budget} + 1;

/// A tree as sequences: sequence 0 goes down from the root by first children, and every further
/// child begins another, in the order of rows.
class sequences {
 public:
  sequences(draft_tree const& tree, round_shape const& shape, index_t b, std::int32_t most)
      : parent_(tree.parent + b * shape.width()) {
    index_t const given = rules::count_nodes(tree, shape, b);
    add_node(0, 0);
    depth_[0] = 0;
    while (num_nodes_ < given) {
      node_t const parent = parent_[num_nodes_];
      if (parent < 0 || parent >= num_nodes_ || depth_[parent] >= shape.depth) break;
      bool const begins = has_child_[parent];
      if (begins && num_sequences_ == most) break;
      depth_[num_nodes_] = depth_[parent] + 1;
      has_child_[parent] = true;
      add_node(num_nodes_, begins ? num_sequences_ : sequence_[parent]);
    }
    count_sequences();
  }

  std::int32_t num_nodes() const { return num_nodes_; }
  std::int32_t num_sequences() const { return num_sequences_; }
  std::int32_t depth(std::int32_t node) const { return depth_[node]; }
  /// Sequences that pass through a node.
  std::int32_t count(std::int32_t node) const { return count_[node]; }

  /// Calls body(node, sequence) for every node of every sequence, sequences in ascending order.
  template <class Body>
  void for_each(Body body) const {
    for (std::int32_t s = 0; s < num_sequences_; ++s) {
      for (std::int32_t node = leaf_[s]; node > 0; node = parent_[node]) body(node, s);
      body(0, s);
    }
  }

 private:
  void add_node(std::int32_t node, std::int32_t sequence) {
    sequence_[node] = sequence;
    has_child_[node] = false;
    leaf_[sequence] = node;
    num_nodes_ = node + 1;
    num_sequences_ = std::max(num_sequences_, sequence + 1);
  }

  void count_sequences() {
    std::fill_n(count_, num_nodes_, 0);
    for (std::int32_t node = num_nodes_ - 1; node >= 0; --node) {
      count_[node] = std::max(count_[node], 1);  // a leaf, or the sum of the children
      if (node > 0) count_[parent_[node]] += count_[node];
    }
  }

  node_t const* parent_;
  std::int32_t num_nodes_ = 0;
  std::int32_t num_sequences_ = 0;
  std::int32_t depth_[max_nodes];
  std::int32_t sequence_[max_nodes];  // the one that the node continues or begins
  bool has_child_[max_nodes];
  std::int32_t count_[max_nodes];
  std::int32_t leaf_[max_sequences];
};

/// Writes request b's rows from `row` on, its sequence ids from `entry` on; moves both behind them.
void write_rows(draft_tree const& tree, round_shape const& shape, index_t b,
                rules::batch_row const& at, sequence_ids ids, batch_arrays const& out, index_t& row,
                index_t& entry) {
  sequences const all(tree, shape, b, ids.per_request);
  auto const first_id = static_cast<std::int32_t>(at.request * ids.per_request);
  std::int32_t written[max_nodes];
  for (std::int32_t i = 0; i < all.num_nodes(); ++i) {
    out.token[row + i] = tree.token[b * shape.width() + i];
    out.pos[row + i] = static_cast<std::int32_t>(at.cache_len + all.depth(i));
    out.n_seq_id[row + i] = all.count(i);
    out.seq_id[row + i] = out.seq_id_list + entry;
    out.logits[row + i] = 1;
    entry += all.count(i);
    written[i] = 0;
  }
  all.for_each([&](std::int32_t node, std::int32_t sequence) {
    out.seq_id[row + node][written[node]++] = first_id + sequence;
  });
  out.num_nodes[b] = all.num_nodes();
  out.num_sequences[b] = all.num_sequences();
  row += all.num_nodes();
}

template <class Check>
status check_call(context const& ctx, round_shape const& shape, batch_view const& batch,
                  sequence_ids ids) {
  if (auto s = Check::call(ctx, shape, batch); !s) return s;
  if (ctx.backend != backend_kind::cpu) {
    return Check::template fail<"context.backend is not cpu">(errc::unsupported);
  }
  if (ids.per_request < 1 || ids.per_request > max_sequences) {
    return Check::template fail<"ids.per_request outside [1, 256]">();
  }
  if (shape.request_rows() * ids.per_request > 0x7fffffff) {
    return Check::template fail<"ids: a sequence id would not fit int32">();
  }
  return Check::template needed<"batch.cache_len">(true, shape, batch.cache_len.data);
}

bool is_bound(batch_arrays const& a) {
  return a.row_offset && a.token && a.pos && a.n_seq_id && a.seq_id && a.logits && a.seq_id_list &&
         a.num_nodes && a.num_sequences;
}

}  // namespace

status write_batch(context const& ctx, round_shape const& shape, batch_view const& batch,
                   draft_tree const& tree, sequence_ids ids, batch_arrays const& out) noexcept {
  if (auto s = check_call<check_write>(ctx, shape, batch, ids); !s) return s;
  status const bad =
      support::first_failure(check_write::needed<"tree.token">(true, shape, tree.token),
                             check_write::needed<"tree.parent">(true, shape, tree.parent),
                             check_write::needed<"tree.num_nodes">(true, shape, tree.num_nodes));
  if (!bad) return bad;
  if (!is_bound(out)) return check_write::fail<"out has a null array">();
  index_t row = 0;
  index_t entry = 0;
  for (index_t b = 0; b < shape.batch; ++b) {
    out.row_offset[b] = static_cast<std::int32_t>(row);
    out.num_nodes[b] = 0;
    out.num_sequences[b] = 0;
    rules::batch_row const at = rules::find_row(batch, shape.request_rows(), b);
    if (at.active) write_rows(tree, shape, b, at, ids, out, row, entry);
  }
  out.row_offset[shape.batch] = static_cast<std::int32_t>(row);
  return {};
}

status write_commit(context const& ctx, round_shape const& shape, batch_view const& batch,
                    accepted const& path, sequence_ids ids, batch_arrays const& in,
                    commit_arrays const& out) noexcept {
  if (auto s = check_call<check_commit>(ctx, shape, batch, ids); !s) return s;
  status const bad = support::first_failure(
      check_commit::needed<"path.path">(true, shape, path.path),
      check_commit::needed<"path.num_accepted">(true, shape, path.num_accepted),
      check_commit::needed<"in.row_offset">(true, shape, in.row_offset),
      check_commit::needed<"in.seq_id">(true, shape, in.seq_id),
      check_commit::needed<"in.num_nodes">(true, shape, in.num_nodes),
      check_commit::needed<"out.winner">(true, shape, out.winner),
      check_commit::needed<"out.end">(true, shape, out.end));
  if (!bad) return bad;
  for (index_t b = 0; b < shape.batch; ++b) {
    rules::accepted_row const row = open_path(batch, path, shape, b);
    out.winner[b] = -1;
    out.end[b] = -1;
    if (row.count < 0 || in.num_nodes[b] < 1) continue;
    index_t const last = node_at(row, shape, row.count);
    bool const is_there = last >= 0 && last < in.num_nodes[b];
    out.winner[b] = in.seq_id[in.row_offset[b] + (is_there ? last : 0)][0];
    out.end[b] = static_cast<std::int32_t>(row.at.cache_len + (is_there ? row.count : 0) + 1);
  }
  return {};
}

}  // namespace llama_cpp
}  // namespace formats
}  // namespace v0
}  // namespace ddtree
