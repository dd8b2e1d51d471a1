// SPDX-License-Identifier: Apache-2.0
// Reads a context's variant text: "operation=variant,operation=variant".
#include "support/variants.hpp"

#include <string_view>

namespace ddtree {
inline namespace v0 {

char const* name(operation op) noexcept {
  switch (op) {
    case operation::expand: return "expand";
    case operation::expand_shard: return "expand_shard";
    case operation::expand_merge: return "expand_merge";
    case operation::build_tree: return "build_tree";
    case operation::link_tree: return "link_tree";
    case operation::write_mask: return "write_mask";
    case operation::write_verify_inputs: return "write_verify_inputs";
    case operation::accept_tokens: return "accept_tokens";
    case operation::accept_greedy: return "accept_greedy";
    case operation::accept_sampled: return "accept_sampled";
    case operation::accept_shard: return "accept_shard";
    case operation::accept_merge: return "accept_merge";
    case operation::compact_kv: return "compact_kv";
    case operation::compact_rows: return "compact_rows";
    case operation::compact_state: return "compact_state";
    case operation::advance: return "advance";
  }
  return "unknown";
}

char const* floor_of(operation op) noexcept {
  switch (op) {
    case operation::expand:
    case operation::expand_shard:
    case operation::expand_merge: return "expand";
    case operation::build_tree:
    case operation::link_tree: return "build";
    case operation::write_mask:
    case operation::write_verify_inputs: return "mask";
    case operation::accept_tokens:
    case operation::accept_greedy:
    case operation::accept_sampled:
    case operation::accept_shard:
    case operation::accept_merge: return "accept";
    case operation::compact_kv:
    case operation::compact_rows:
    case operation::compact_state:
    case operation::advance: return "compact";
  }
  return "unknown";
}

namespace support {
namespace {

struct entry {
  std::string_view key;
  std::string_view value;
};

/// Cuts the first entry off `text`; empty where it is not of the form key=value.
entry next_entry(std::string_view& text) {
  std::size_t const size = text.find(',') < text.size() ? text.find(',') : text.size();
  std::string_view const item(text.data(), size);
  text.remove_prefix(size < text.size() ? size + 1 : size);
  std::size_t const equal = item.find('=');
  if (equal >= item.size()) return {};
  return {{item.data(), equal}, {item.data() + equal + 1, item.size() - equal - 1}};
}

bool is_known(std::string_view key) {
  for (std::int32_t i = 0; i < num_operations; ++i) {
    auto const op = static_cast<operation>(i);
    if (key == name(op) || key == floor_of(op)) return true;
  }
  return false;
}

}  // namespace

bool is_well_formed(char const* text) noexcept {
  std::string_view rest = text != nullptr ? text : "";
  while (!rest.empty()) {
    entry const e = next_entry(rest);
    if (!is_known(e.key) || e.value.empty()) return false;
  }
  return true;
}

forced_variant find_forced(char const* text, operation op) noexcept {
  forced_variant by_call;
  forced_variant by_floor;
  std::string_view rest = text != nullptr ? text : "";
  while (!rest.empty()) {
    entry const e = next_entry(rest);
    // "expand" is both a call and a floor.
    bool const is_floor = e.key == floor_of(op);
    if (is_floor) by_floor = {e.value.data(), e.value.size(), true};
    if (e.key == name(op)) by_call = {e.value.data(), e.value.size(), is_floor};
  }
  return by_call.name != nullptr ? by_call : by_floor;
}

bool equals(char const* name, forced_variant const& forced) noexcept {
  return std::string_view(name) == std::string_view(forced.name, forced.length);
}

}  // namespace support
}  // namespace v0
}  // namespace ddtree
