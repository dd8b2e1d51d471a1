// SPDX-License-Identifier: Apache-2.0
// A serving engine of the size of a test: requests with a paged KV cache, a target whose logits are
// a hash of the tokens it sees, and a drafter that guesses well. The target sees only what the mask
// and the cache show it, so that a wrong mask, slot, position or compaction changes the tokens.
#pragma once

#include "ddtree/ddtree.hpp"

#include "support/buffer.hpp"
#include "support/catch.hpp"
#include "support/trees.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace ddtree_test {

using tokens = std::vector<ddtree::token_t>;

inline std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 31)) * 0x9e3779b97f4a7c15u;
  return x ^ (x >> 29);
}

/// Logits in [0, 8) of the token after `context`: they depend on its last three tokens.
inline std::vector<float> toy_logits(tokens const& context, ddtree::index_t vocab) {
  std::uint64_t state = 1;
  std::size_t const begin = context.size() > 3 ? context.size() - 3 : 0;
  for (std::size_t i = begin; i < context.size(); ++i) {
    state = mix(state * 31 + static_cast<std::uint64_t>(context[i]) + 7);
  }
  std::vector<float> logits(sized(vocab));
  for (float& logit : logits) {
    state = mix(state + 0x632be59bd9b4e019u);
    logit = static_cast<float>(state >> 40) / static_cast<float>(1 << 21);
  }
  return logits;
}

struct toy_engine {
  static constexpr ddtree::index_t page_size = 4, columns = 24, row_bytes = 8;
  static constexpr ddtree::index_t mask_words = columns * page_size / 32;

  /// `requests` are the pool's rows that the batch holds, -1 = none.
  toy_engine(ddtree::context const& ctx, ddtree::round_shape const& extents,
             std::vector<std::int32_t> batch_requests)
      : shape(extents),
        requests(std::move(batch_requests)),
        sequence(sized(shape.request_rows())),
        lengths(ctx, sequence.size()),
        request(ctx, requests),
        table(ctx, sequence.size() * sized(columns)),
        cache(ctx, table.size() * sized(page_size * row_bytes)),
        tensor(ctx, 1),
        draft_logits(ctx, sized(shape.batch * shape.depth * shape.vocab)),
        target_logits(ctx, sized(shape.batch * shape.width() * shape.vocab)),
        token(ctx, sized(shape.batch * shape.width())),
        position(ctx, token.size()),
        slot(ctx, token.size()),
        mask(ctx, token.size() * sized(mask_words)) {
    lengths.assign(std::vector<std::int32_t>(sequence.size(), 0));
    // Pages in an order of their own; no two requests share one.
    pages.resize(table.size());
    for (std::size_t i = 0; i < pages.size(); ++i) {
      pages[i] = static_cast<std::int32_t>(i * 7 % pages.size());
    }
    table.assign(pages);
    ddtree::kv_tensor t;
    t.base = cache.data();
    t.page_stride = page_size * row_bytes;
    t.token_stride = row_bytes;
    t.pages = static_cast<ddtree::index_t>(pages.size());
    t.row_bytes = row_bytes;
    tensor.assign({t});
  }

  /// Commits a prompt to a request's cache.
  void prefill(std::size_t r, tokens const& prompt) {
    for (ddtree::token_t t : prompt) {
      write(physical(r, sequence[r].size()), t, static_cast<std::int32_t>(sequence[r].size()));
      sequence[r].push_back(t);
    }
    auto all = lengths.values();
    all[r] = static_cast<std::int32_t>(sequence[r].size());
    lengths.assign(all);
  }

  /// The drafter: what the target would say along its own greedy path, one logit in four distorted.
  /// It knows the root, as a drafter that reads the target's hidden states does.
  void draft(tokens const& roots) {
    std::vector<float> all(draft_logits.size(), 0.0f);
    for (std::size_t b = 0; b < requests.size(); ++b) {
      if (requests[b] < 0) continue;
      tokens context = sequence[sized(requests[b])];
      context.push_back(roots[b]);
      for (std::size_t d = 0; d < sized(shape.depth); ++d) {
        auto row = toy_logits(context, shape.vocab);
        auto const best = std::max_element(row.begin(), row.end()) - row.begin();
        for (std::size_t v = 0; v < row.size(); ++v) {
          if (mix(v * 77 + context.size() * 13 + d) % 4 == 0) row[v] -= 3.0f;
        }
        std::copy(
            row.begin(), row.end(),
            all.begin() + static_cast<std::ptrdiff_t>((b * sized(shape.depth) + d) * row.size()));
        context.push_back(static_cast<ddtree::token_t>(best));
      }
    }
    draft_logits.assign(all);
  }

  /// The target: writes each row's token and position to its slot, then computes each row's logits
  /// from what its mask shows.
  void forward() {
    auto const t = token.values(), p = position.values(), s = slot.values();
    for (std::size_t i = 0; i < t.size(); ++i) {
      if (s[i] >= 0) write(s[i], t[i], p[i]);
    }
    std::vector<float> all(target_logits.size(), 0.0f);
    for (std::size_t b = 0; b < requests.size(); ++b) {
      if (requests[b] < 0) continue;
      for (std::size_t i = 0; i < sized(shape.width()); ++i) {
        std::size_t const row = b * sized(shape.width()) + i;
        if (s[row] < 0) continue;  // padding
        auto const logits = toy_logits(visible(sized(requests[b]), row, p[row]), shape.vocab);
        std::copy(logits.begin(), logits.end(),
                  all.begin() + static_cast<std::ptrdiff_t>(row * logits.size()));
      }
    }
    target_logits.assign(all);
  }

  /// Takes the tokens that a round committed: its root and accepted nodes.
  void append(std::size_t r, tokens const& committed) {
    sequence[r].insert(sequence[r].end(), committed.begin(), committed.end());
  }

  ddtree::batch_view batch() { return {lengths.data(), request.data()}; }
  ddtree::logits_view draft_view() { return {draft_logits.data(), ddtree::dtype::f32}; }
  ddtree::logits_view target_view() { return {target_logits.data(), ddtree::dtype::f32}; }
  ddtree::verify_inputs inputs() { return {token.data(), position.data(), slot.data()}; }
  ddtree::kv_table kv_table() { return {table.data(), columns, page_size}; }
  ddtree::kv_cache kv() { return {tensor.data(), 1, {kv_table(), {}, {}, {}}}; }
  ddtree::mask_view mask_view() {
    ddtree::mask_view view;
    view.data = mask.data();
    view.region = ddtree::mask_columns::full;
    view.columns = columns * page_size;
    return view;
  }
  bool intact() const {
    return lengths.intact() && request.intact() && table.intact() && cache.intact() &&
           token.intact() && position.intact() && slot.intact() && mask.intact();
  }

  std::int32_t physical(std::size_t r, std::size_t slot_number) const {
    auto const page = pages[r * sized(columns) + slot_number / sized(page_size)];
    return page * static_cast<std::int32_t>(page_size) +
           static_cast<std::int32_t>(slot_number % sized(page_size));
  }

  void write(std::int32_t row, ddtree::token_t t, std::int32_t p) {
    auto bytes = cache.values();
    std::memcpy(&bytes[sized(row * row_bytes)], &t, 4);
    std::memcpy(&bytes[sized(row * row_bytes + 4)], &p, 4);
    cache.assign(bytes);
  }

  /// The tokens that a verify row sees, by position. They must be 0..position, each once.
  tokens visible(std::size_t r, std::size_t row, std::int32_t last) const {
    auto const words = mask.values();
    auto const bytes = cache.values();
    std::vector<std::pair<std::int32_t, ddtree::token_t>> seen;
    for (std::size_t c = 0; c < sized(columns * page_size); ++c) {
      if ((words[row * sized(mask_words) + c / 32] >> (c % 32) & 1u) == 0) continue;
      ddtree::token_t t = 0;
      std::int32_t p = 0;
      std::memcpy(&t, &bytes[sized(physical(r, c) * row_bytes)], 4);
      std::memcpy(&p, &bytes[sized(physical(r, c) * row_bytes + 4)], 4);
      seen.emplace_back(p, t);
    }
    std::sort(seen.begin(), seen.end());
    tokens out;
    bool contiguous = seen.size() == static_cast<std::size_t>(last) + 1;
    for (std::size_t i = 0; i < seen.size(); ++i) {
      contiguous = contiguous && seen[i].first == static_cast<std::int32_t>(i);
      out.push_back(seen[i].second);
    }
    REQUIRE(contiguous);
    return out;
  }

  ddtree::round_shape shape;
  std::vector<std::int32_t> requests;
  std::vector<tokens> sequence;     // by request: committed tokens
  std::vector<std::int32_t> pages;  // as in `table`
  buffer<std::int32_t> lengths, request, table;
  buffer<unsigned char> cache;
  buffer<ddtree::kv_tensor> tensor;
  buffer<float> draft_logits, target_logits;
  buffer<std::int32_t> token, position, slot;
  buffer<std::uint32_t> mask;
};

}  // namespace ddtree_test
