// SPDX-License-Identifier: Apache-2.0
#include "ddtree/context.hpp"

#include "ddtree/ddtree.hpp"

#include "support/buffer.hpp"
#include "support/calls.hpp"
#include "support/carve.hpp"
#include "support/catch.hpp"
#include "support/contexts.hpp"
#include "support/parallel.hpp"
#include "support/trees.hpp"
#include "support/variants.hpp"

#include <atomic>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

namespace {

using ddtree::backend_kind;
using ddtree::context;
using ddtree::errc;
using ddtree::index_t;
using ddtree::operation;
using ddtree::round_shape;
using ddtree::status;

round_shape small_shape() { return {.batch = 2, .vocab = 9, .depth = 2, .top_k = 3, .budget = 4}; }

std::vector<operation> all_operations() {
  std::vector<operation> out;
  for (int i = 0; i < ddtree::num_operations; ++i) out.push_back(static_cast<operation>(i));
  return out;
}

std::vector<ddtree::variant_info> all_variants(backend_kind backend) {
  std::vector<ddtree::variant_info> out(ddtree::variants(backend, nullptr, 0));
  CHECK(ddtree::variants(backend, out.data(), out.size()) == out.size());
  return out;
}

// A stream is always named.
static_assert(std::is_constructible_v<ddtree::stream_view, CUstream_st*>);
static_assert(std::is_convertible_v<CUstream_st*, ddtree::stream_view>);
static_assert(!std::is_constructible_v<ddtree::stream_view, int>);
static_assert(!std::is_constructible_v<ddtree::stream_view, long>);
static_assert(!std::is_constructible_v<ddtree::stream_view, std::nullptr_t>);
static_assert(!std::is_default_constructible_v<ddtree::stream_view>);

/// What the C ABI relies on.
template <class T>
constexpr bool is_plain(std::size_t bytes) {
  return std::is_standard_layout<T>() && std::is_trivially_copyable<T>() &&
         std::is_trivially_destructible<T>() && (sizeof(void*) != 8 || sizeof(T) == bytes);
}

static_assert(is_plain<ddtree::status>(16));
static_assert(is_plain<ddtree::stream_view>(8));
static_assert(is_plain<ddtree::context>(32));
static_assert(is_plain<ddtree::round_shape>(40));
static_assert(is_plain<ddtree::workspace>(16));
static_assert(is_plain<ddtree::ids_in>(24));
static_assert(is_plain<ddtree::ids_out>(24));
static_assert(is_plain<ddtree::batch_view>(48));
static_assert(is_plain<ddtree::logits_view>(64));
static_assert(is_plain<ddtree::rows_view>(56));
static_assert(is_plain<ddtree::kv_table>(64));
static_assert(is_plain<ddtree::vocab_range>(24));
static_assert(is_plain<ddtree::vocab_ranges>(48));
static_assert(is_plain<ddtree::shard_out>(16));
static_assert(is_plain<ddtree::shard_in>(24));
static_assert(is_plain<ddtree::candidates>(24));
static_assert(is_plain<ddtree::draft_tree>(80));
static_assert(is_plain<ddtree::accepted>(48));
static_assert(is_plain<ddtree::expand_options>(56));
static_assert(is_plain<ddtree::build_options>(104));
static_assert(is_plain<ddtree::tree_nodes>(80));
static_assert(is_plain<ddtree::mask_view>(64));
static_assert(is_plain<ddtree::verify_inputs>(72));
static_assert(is_plain<ddtree::verify_options>(104));
static_assert(is_plain<ddtree::sampling>(80));
static_assert(is_plain<ddtree::bitmask_view>(48));
static_assert(is_plain<ddtree::accept_mirror>(96));
static_assert(is_plain<ddtree::accept_options>(224));
static_assert(is_plain<ddtree::kv_tensor>(56));
static_assert(is_plain<ddtree::kv_cache>(272));
static_assert(is_plain<ddtree::state_tensor>(64));
static_assert(is_plain<ddtree::state_view>(88));
static_assert(is_plain<ddtree::round_options>(496));
static_assert(is_plain<ddtree::decoding_round>(736));
static_assert(is_plain<ddtree::variant_info>(16));
static_assert(sizeof(ddtree::dtype) == 4 && sizeof(errc) == 4 && sizeof(backend_kind) == 4);
static_assert(sizeof(operation) == 4 && sizeof(ddtree::mask_kind) == 4);

}  // namespace

// A caller names what it sets and no more, without a warning of members that it left out
// (-Wextra has GCC give one for each member that has no initialiser).
TEST_CASE("every struct can be given by the names of some members", "[context]") {
  std::int32_t a[4] = {};
  float f[4] = {};
  std::uint32_t bits[4] = {};
  using namespace ddtree;
  CHECK(batch_view{.request = a}.cache_len.data == nullptr);
  CHECK(logits_view{.data = f}.row_offset.data == nullptr);
  CHECK(rows_view{.data = f, .row_bytes = 4}.row_offset.data == nullptr);
  CHECK(kv_table{.columns = 4}.entries.data == nullptr);
  CHECK(vocab_ranges{.range = {{.count = 3}}}.range[1].count == 0);
  CHECK(shard_in{.data = f}.ranks == 1);
  CHECK(expand_options{.bias = f}.vocab_map.data == nullptr);
  CHECK(build_options{.seed_depth = 3}.budget.data == nullptr);
  CHECK(build_options{.budget = a}.capacity.data == nullptr);
  CHECK(tree_nodes{.num_nodes = a}.parent.data == nullptr);
  CHECK(mask_view{.data = bits, .window = 3}.columns == 0);
  CHECK(verify_inputs{.position = a}.token.data == nullptr);
  CHECK(verify_options{.dummy_slot = 7}.table.entries.data == nullptr);
  CHECK(sampling{.temperature = f, .seed = a}.top_k.data == nullptr);
  CHECK(bitmask_view{.data = bits}.row_offset.data == nullptr);
  CHECK(accept_mirror{.bonus = a}.token.data == nullptr);
  CHECK(accept_options{.stop_tokens = a, .stop_tokens_per_request = 4}.remaining.data == nullptr);
  CHECK(accept_options{.processed_log_prob = true}.mirror.bonus.data == nullptr);
  CHECK(kv_cache{.num_tensors = 1}.table[3].page_size == 1);
  // GCC 12 takes no {} for a struct with an array of views that is initialised by {} itself.
  auto const tensors_of = [](kv_cache const& cache) { return cache.num_tensors; };
  CHECK(tensors_of({}) == 0);
  CHECK(state_view{.take = a}.from_slot.data == nullptr);
  CHECK(round_options{.log_prob = true}.accept.remaining.data == nullptr);
  CHECK(context{.threads = 2}.variant == nullptr);
}

TEST_CASE("codes and operations have names", "[context]") {
  std::vector<std::string> const codes{"ok",          "invalid_argument",   "workspace_too_small",
                                       "unsupported", "unsupported_device", "no_kernel_image",
                                       "cuda_error"};
  for (std::size_t i = 0; i < codes.size(); ++i) {
    CHECK(ddtree::name(static_cast<errc>(i)) == codes[i]);
  }
  CHECK(ddtree::name(static_cast<errc>(7)) == std::string("unknown"));
  CHECK(ddtree::name(static_cast<errc>(-1)) == std::string("unknown"));

  std::vector<std::pair<std::string, std::string>> const calls{{"expand", "expand"},
                                                               {"expand_shard", "expand"},
                                                               {"expand_merge", "expand"},
                                                               {"build_tree", "build"},
                                                               {"link_tree", "build"},
                                                               {"write_mask", "mask"},
                                                               {"write_verify_inputs", "mask"},
                                                               {"accept_tokens", "accept"},
                                                               {"accept_greedy", "accept"},
                                                               {"accept_sampled", "accept"},
                                                               {"accept_shard", "accept"},
                                                               {"accept_merge", "accept"},
                                                               {"compact_kv", "compact"},
                                                               {"compact_rows", "compact"},
                                                               {"compact_state", "compact"},
                                                               {"advance", "compact"}};
  REQUIRE(calls.size() == ddtree::num_operations);
  for (operation op : all_operations()) {
    auto const& [call, floor] = calls[static_cast<std::size_t>(op)];
    CHECK(ddtree::name(op) == call);
    CHECK(ddtree::floor_of(op) == floor);
  }
  for (int none : {-1, ddtree::num_operations}) {
    CHECK(ddtree::name(static_cast<operation>(none)) == std::string("unknown"));
    CHECK(ddtree::floor_of(static_cast<operation>(none)) == std::string("unknown"));
  }
}

TEST_CASE("a status is true when the call succeeded", "[context]") {
  CHECK(status{});
  CHECK(status{}.message == std::string());
  CHECK_FALSE(status{errc::unsupported, 0, "no"});
}

TEST_CASE("a context is a value", "[context]") {
  int place = 0;
  auto* const stream = reinterpret_cast<CUstream_st*>(&place);
  constexpr context cpu = context::cpu(3);
  CHECK(cpu.backend == backend_kind::cpu);
  CHECK(cpu.threads == 3);
  CHECK(cpu.variant == nullptr);
  CHECK(context::cpu().threads == 1);

  context const cuda = context::cuda(2, stream);
  CHECK(cuda.backend == backend_kind::cuda);
  CHECK(cuda.device == 2);
  CHECK(cuda.stream == stream);

  char const* const text = "expand=cpu";
  context const forced = cpu.with_variant(text);
  CHECK(forced.variant == text);
  CHECK(forced.threads == 3);
  CHECK(cpu.variant == nullptr);
  CHECK(forced.with_variant(nullptr).variant == nullptr);
}

TEST_CASE("a context that is none is refused by name", "[context]") {
  ddtree_test::accepted_buffers path(context::cpu(), small_shape());
  std::vector<std::int32_t> lengths{1, 2};
  auto const call = [&](context const& ctx) {
    return ddtree::advance(ctx, small_shape(), {}, path.view(), lengths.data());
  };
  context wrong = context::cpu();
  wrong.backend = static_cast<backend_kind>(2);
  context device = context::cpu();
  device.backend = backend_kind::cuda;
  device.device = -1;
  CHECK(call(context::cpu(0)).message == std::string("advance: context.threads < 1"));
  CHECK(call(wrong).message == std::string("advance: context.backend is none"));
  CHECK(call(device).message == std::string("advance: context.device < 0"));
  for (context const& ctx : {context::cpu(0), wrong, device}) {
    CHECK(call(ctx).code == errc::invalid_argument);
    CHECK(ddtree::selected(ctx, operation::advance, small_shape()) == nullptr);
  }
  CHECK(lengths == std::vector<std::int32_t>{1, 2});
}

TEST_CASE("a shape out of its limits is refused by name, and sized 0", "[context]") {
  ddtree_test::accepted_buffers path(context::cpu(), small_shape());
  std::vector<std::int32_t> lengths{1, 2};
  struct limit {
    char const* message;
    void (*change)(round_shape&);
  };
  limit const limits[] = {
      {"advance: shape.batch outside [0, 65535]", [](round_shape& s) { s.batch = -1; }},
      {"advance: shape.batch outside [0, 65535]", [](round_shape& s) { s.batch = 65536; }},
      {"advance: shape.vocab outside [1, 4194304]", [](round_shape& s) { s.vocab = 0; }},
      {"advance: shape.vocab outside [1, 4194304]", [](round_shape& s) { s.vocab = 4194305; }},
      {"advance: shape.depth outside [0, 31]", [](round_shape& s) { s.depth = -1; }},
      {"advance: shape.depth outside [0, 31]", [](round_shape& s) { s.depth = 32; }},
      {"advance: shape.top_k outside [1, 1024]", [](round_shape& s) { s.top_k = 0; }},
      {"advance: shape.top_k outside [1, 1024]", [](round_shape& s) { s.top_k = 1025; }},
      {"advance: shape.budget outside [0, 2047]", [](round_shape& s) { s.budget = -1; }},
      {"advance: shape.budget outside [0, 2047]", [](round_shape& s) { s.budget = 2048; }},
      {"advance: shape.requests < 0", [](round_shape& s) { s.requests = -1; }},
  };
  auto const ctx = context::cpu();
  for (limit const& l : limits) {
    round_shape shape = small_shape();
    l.change(shape);
    CAPTURE(l.message);
    status const s = ddtree::advance(ctx, shape, {}, path.view(), lengths.data());
    CHECK(s.code == errc::invalid_argument);
    CHECK(s.message == std::string(l.message));
    CHECK(ddtree::selected(ctx, operation::advance, shape) == nullptr);
    CHECK(ddtree::decoding_round::bytes(ctx, shape) == 0);
    CHECK(ddtree::expand_workspace_bytes(ctx, shape) == 0);
    CHECK(ddtree::build_tree_workspace_bytes(ctx, shape) == 0);
    CHECK(ddtree::accept_greedy_workspace_bytes(ctx, shape) == 0);
    CHECK(ddtree::accept_sampled_workspace_bytes(ctx, shape) == 0);
    CHECK(ddtree::accepted_bytes(shape) == 0);
  }
}

// ---- variants

TEST_CASE("every operation has a variant on the CPU, listed floor by floor", "[context]") {
  auto const all = all_variants(backend_kind::cpu);
  std::vector<operation> seen;
  for (auto const& v : all) {
    CHECK(v.backend == backend_kind::cpu);
    CHECK(v.name != std::string());
    if (seen.empty() || seen.back() != v.op) seen.push_back(v.op);
  }
  CHECK(seen == all_operations());
}

TEST_CASE("variants() fills no more than the room it is given", "[context]") {
  auto const all = all_variants(backend_kind::cpu);
  for (std::size_t room : {std::size_t{0}, std::size_t{1}, all.size() - 1, all.size() + 1}) {
    std::vector<ddtree::variant_info> some(all.size() + 2, {operation::advance, {}, "untouched"});
    CHECK(ddtree::variants(backend_kind::cpu, some.data(), room) == all.size());
    for (std::size_t i = 0; i < some.size(); ++i) {
      bool const written = i < room && i < all.size();
      CHECK(some[i].name == std::string(written ? all[i].name : "untouched"));
    }
  }
}

TEST_CASE("compiled_architectures() is ascending, and empty where no CUDA variant is",
          "[context]") {
  std::vector<std::int32_t> found(ddtree::compiled_architectures(nullptr, 0));
  CHECK(ddtree::compiled_architectures(found.data(), found.size()) == found.size());
  for (std::size_t i = 1; i < found.size(); ++i) CHECK(found[i - 1] < found[i]);
  if (found.empty()) CHECK(all_variants(backend_kind::cuda).empty());
}

TEST_CASE("selected() names the variant that runs, or none", "[context]") {
  auto const ctx = context::cpu();
  for (operation op : all_operations()) {
    CAPTURE(ddtree::name(op));
    std::vector<std::string> names;
    for (auto const& v : all_variants(backend_kind::cpu)) {
      if (v.op == op) names.push_back(v.name);
    }
    CHECK(ddtree::selected(ctx, op, small_shape()) == names.front());
    for (std::string const& name : names) {
      std::string const by_call = std::string(ddtree::name(op)) + "=" + name;
      std::string const by_floor = std::string(ddtree::floor_of(op)) + "=" + name;
      CHECK(ddtree::selected(ctx.with_variant(by_call.c_str()), op, small_shape()) == name);
      CHECK(ddtree::selected(ctx.with_variant(by_floor.c_str()), op, small_shape()) == name);
    }
    std::string const unknown = std::string(ddtree::name(op)) + "=nosuch";
    CHECK(ddtree::selected(ctx.with_variant(unknown.c_str()), op, small_shape()) == nullptr);
    CHECK(ddtree::selected(ctx.with_variant("rubbish"), op, small_shape()) == nullptr);
  }
  CHECK(ddtree::selected(ctx, static_cast<operation>(ddtree::num_operations), small_shape()) ==
        nullptr);
}

TEST_CASE("with_variant's text is read as a list of operation=variant", "[context]") {
  ddtree_test::accepted_buffers path(context::cpu(), small_shape());
  path.num_accepted.assign({0, 1});
  std::vector<std::int32_t> lengths{10, 20};
  auto const call = [&](char const* text) {
    return ddtree::advance(context::cpu().with_variant(text), small_shape(), {}, path.view(),
                           lengths.data());
  };
  char const* const good[] = {nullptr,
                              "",
                              "advance=cpu",
                              "compact=cpu",
                              "expand=nosuch",  // not this call's business
                              "accept_greedy=x,compact=cpu",
                              "compact=nosuch,advance=cpu",  // the call's own name comes first
                              "advance=cpu,compact=nosuch",
                              "advance=nosuch,advance=cpu",  // the later entry counts
                              "compact=nosuch,compact=cpu"};
  for (char const* text : good) {
    CAPTURE(text == nullptr ? "null" : text);
    lengths = {10, 20};
    CHECK(call(text));
    CHECK(lengths == std::vector<std::int32_t>{11, 22});
  }
  lengths = {10, 20};
  for (char const* text :
       {"advance", "=", "advance=", "=cpu", ",", "advance=cpu,,compact=cpu", "nosuch=cpu",
        "Advance=cpu", "advance =cpu", "advance=cpu;compact=cpu,x"}) {
    CAPTURE(text);
    CHECK(call(text).code == errc::invalid_argument);
    CHECK(call(text).message == std::string("context.variant: not a list of operation=variant"));
  }
  for (char const* text : {"advance=nosuch", "compact=nosuch", "advance=cp", "advance=cpu2",
                           "advance= cpu", "advance=cpu,advance=nosuch"}) {
    CAPTURE(text);
    CHECK(call(text).code == errc::invalid_argument);
    CHECK(call(text).message == std::string("context.variant: no such variant"));
  }
  CHECK(lengths == std::vector<std::int32_t>{10, 20});
}

namespace {

using call_type = ddtree::support::advance_call;
using row_type = ddtree::support::variant<call_type>;

bool at_most_8(call_type const& call) { return call.shape.batch <= 8; }
bool at_least_4(call_type const& call) { return call.shape.batch >= 4; }

/// A table as a CUDA author might write it; no call of it is run.
constexpr row_type table[] = {
    {"narrow", backend_kind::cuda, at_most_8, at_least_4, nullptr, nullptr},
    {"never", backend_kind::cuda, nullptr, [](call_type const&) { return false; },
     [](call_type const& call) { return std::size_t(call.shape.batch) * 100; }, nullptr},
    {"generic", backend_kind::cuda, nullptr, nullptr,
     [](call_type const& call) { return std::size_t(call.shape.batch) * 10; }, nullptr},
};

struct choice {
  std::string name;
  errc code;
};

choice choose(index_t batch, char const* text, backend_kind backend = backend_kind::cuda) {
  call_type call{};
  call.ctx.backend = backend;
  call.ctx.variant = text;
  call.shape.batch = batch;
  auto const found = ddtree::support::choose(table, operation::advance, call);
  return {found.row != nullptr ? found.row->name : "", found.why.code};
}

}  // namespace

TEST_CASE("the first variant that supports and prefers a call runs", "[context]") {
  CHECK(choose(4, nullptr).name == "narrow");
  CHECK(choose(8, nullptr).name == "narrow");
  CHECK(choose(3, nullptr).name == "generic");  // supported, not preferred
  CHECK(choose(9, nullptr).name == "generic");  // not supported
  // Without one that prefers it, the first that supports it.
  constexpr row_type shy[] = {table[0], table[1]};
  call_type call{};
  call.ctx.backend = backend_kind::cuda;
  call.shape.batch = 2;
  auto const chosen = ddtree::support::choose(shy, operation::advance, call);
  REQUIRE(chosen.row != nullptr);
  CHECK(chosen.row->name == std::string("narrow"));
  constexpr row_type small[] = {table[0]};
  call.shape.batch = 9;
  CHECK(ddtree::support::choose(small, operation::advance, call).why.code == errc::unsupported);
}

TEST_CASE("a forced variant needs only to support the call", "[context]") {
  CHECK(choose(4, "advance=never").name == "never");
  CHECK(choose(2, "advance=narrow").name == "narrow");
  CHECK(choose(2, "compact=narrow").name == "narrow");
  CHECK(choose(9, "advance=narrow").code == errc::unsupported);
  CHECK(choose(9, "compact=narrow").code == errc::unsupported);
  CHECK(choose(9, "advance=nosuch").code == errc::invalid_argument);
  CHECK(choose(4, "x").code == errc::invalid_argument);
  CHECK(choose(4, nullptr, backend_kind::cpu).code == errc::unsupported_device);
  CHECK(choose(4, "advance=narrow", backend_kind::cpu).code == errc::unsupported_device);
}

TEST_CASE("a floor's variant need not be in each of its calls", "[context]") {
  // "cpu" is a variant of the compact floor, though not in this table, whose calls then choose as
  // usual; by the call's own name it is an error.
  constexpr row_type own[] = {{"other", backend_kind::cpu, nullptr, nullptr, nullptr, nullptr}};
  call_type call{};
  call.ctx = context::cpu().with_variant("compact=cpu");
  auto const chosen = ddtree::support::choose(own, operation::advance, call);
  REQUIRE(chosen.row != nullptr);
  CHECK(chosen.row->name == std::string("other"));
  call.ctx = context::cpu().with_variant("advance=cpu");
  CHECK(ddtree::support::choose(own, operation::advance, call).why.code == errc::invalid_argument);
  // "expand" is a floor and a call: naming it means the floor too.
  call.ctx = context::cpu().with_variant("expand=cpu");
  CHECK(ddtree::support::choose(own, operation::expand, call).row != nullptr);
  CHECK(ddtree::support::choose(own, operation::expand_merge, call).row != nullptr);
}

TEST_CASE("a workspace is large enough for every variant of the backend", "[context]") {
  call_type call{};
  call.ctx.backend = backend_kind::cuda;
  call.shape.batch = 3;
  CHECK(ddtree::support::workspace_of(table, call) == 300);
  call.ctx.backend = backend_kind::cpu;
  CHECK(ddtree::support::workspace_of(table, call) == 0);
}

// ---- without kernels

namespace {

/// Sound arguments of every call, all over one piece of memory that nobody must touch.
struct sound_arguments {
  sound_arguments() : bytes(context::cpu(), 1 << 16) {
    unsigned char* const p = bytes.data();
    auto* const ids = reinterpret_cast<std::int32_t*>(p);
    auto* const words = reinterpret_cast<std::uint32_t*>(p);
    auto* const floats = reinterpret_cast<float*>(p);
    candidates = {ids, floats, words};
    tree = {ids, ids, ids, ids, floats, ids, ids, words, ids, words};
    path = {ids, ids, ids, ids, nullptr, words};
    logits.data = p;
    logits.vocab = shape.vocab;
    ranges.range[0] = {0, shape.vocab, 0};
    how.temperature = floats;
    how.seed = ids;
    batch.cache_len = ids;
    scratch = {p, bytes.bytes()};
    shard = {p, bytes.bytes()};
    all_ranks.data = p;
    mask.data = p;
    inputs.token = ids;
    tensor = {p, 1, 1, 1, 1, 1, 1, 0, 0};
    cache.tensors = &tensor;
    cache.num_tensors = 1;
    rows.data = p;
    rows.row_bytes = 4;
    id = ids;
  }

  status call(operation op, context const& ctx) const {
    namespace d = ddtree;
    switch (op) {
      case operation::expand: return d::expand(ctx, shape, batch, logits, candidates, scratch);
      case operation::expand_shard:
        return d::expand_shard(ctx, shape, batch, logits, ranges, shard, scratch);
      case operation::expand_merge:
        return d::expand_merge(ctx, shape, batch, all_ranks, candidates, scratch);
      case operation::build_tree:
        return d::build_tree(ctx, shape, batch, candidates, id, tree, scratch);
      case operation::link_tree: return d::link_tree(ctx, shape, batch, {id, id, id}, tree);
      case operation::write_mask: return d::write_mask(ctx, shape, batch, tree, mask);
      case operation::write_verify_inputs:
        return d::write_verify_inputs(ctx, shape, batch, tree, inputs);
      case operation::accept_tokens: return d::accept_tokens(ctx, shape, batch, tree, id, path);
      case operation::accept_greedy:
        return d::accept_greedy(ctx, shape, batch, tree, logits, path, scratch);
      case operation::accept_sampled:
        return d::accept_sampled(ctx, shape, batch, tree, logits, how, path, scratch);
      case operation::accept_shard:
        return d::accept_shard(ctx, shape, batch, tree, logits, ranges, how, shard, scratch);
      case operation::accept_merge:
        return d::accept_merge(ctx, shape, batch, tree, all_ranks, how, path, scratch);
      case operation::compact_kv: return d::compact_kv(ctx, shape, batch, path, cache);
      case operation::compact_rows: return d::compact_rows(ctx, shape, batch, path, rows, rows);
      case operation::compact_state: return d::compact_state(ctx, shape, batch, path, {});
      case operation::advance: return d::advance(ctx, shape, batch, path, id);
    }
    return {errc::invalid_argument, 0, "no such operation"};
  }

  round_shape shape = small_shape();
  ddtree_test::buffer<unsigned char> bytes;
  ddtree::batch_view batch;
  ddtree::candidates candidates;
  ddtree::draft_tree tree;
  ddtree::accepted path;
  ddtree::logits_view logits;
  ddtree::vocab_ranges ranges;
  ddtree::sampling how;
  ddtree::workspace scratch;
  ddtree::shard_out shard;
  ddtree::shard_in all_ranks;
  ddtree::mask_view mask;
  ddtree::verify_inputs inputs;
  ddtree::kv_tensor tensor;
  ddtree::kv_cache cache;
  ddtree::rows_view rows;
  std::int32_t* id = nullptr;
};

}  // namespace

TEST_CASE("a CUDA context gives unsupported_device where the build has no kernel", "[context]") {
  sound_arguments arguments;
  int place = 0;
  context const cuda = context::cuda(0, reinterpret_cast<CUstream_st*>(&place));
  auto const before = arguments.bytes.values();
  auto const with_kernels = all_variants(backend_kind::cuda);
  for (operation op : all_operations()) {
    bool has_kernel = false;
    for (auto const& v : with_kernels) has_kernel = has_kernel || v.op == op;
    if (has_kernel) continue;  // the arguments are in host memory
    CAPTURE(ddtree::name(op));
    status const s = arguments.call(op, cuda);
    CHECK(s.code == errc::unsupported_device);
    CHECK(s.message == std::string("context.backend: not in this build"));
    CHECK(ddtree::selected(cuda, op, small_shape()) == nullptr);
  }
  CHECK(arguments.bytes.values() == before);
  if (with_kernels.empty()) {
    ddtree::decoding_round round;
    status const s = ddtree::decoding_round::create(cuda, small_shape(), arguments.scratch, &round);
    CHECK(s.code == errc::unsupported_device);
    CHECK(round.tree.token == nullptr);
  }
}

TEST_CASE("an argument error comes before a missing backend", "[context]") {
  sound_arguments arguments;
  int place = 0;
  context const cuda = context::cuda(0, reinterpret_cast<CUstream_st*>(&place));
  arguments.shape.depth = 99;
  for (operation op : all_operations()) {
    CAPTURE(ddtree::name(op));
    status const s = arguments.call(op, cuda);
    CHECK(s.code == errc::invalid_argument);
    CHECK(s.message == std::string(ddtree::name(op)) + ": shape.depth outside [0, 31]");
  }
}

// ---- what the CPU backend stands on

TEST_CASE("parallel_for runs every piece once, no two with one worker at a time", "[context]") {
  for (std::int32_t threads : {1, 2, 3, 8, 1000}) {
    for (index_t pieces : {0, 1, 2, 7, 500}) {
      CAPTURE(threads, pieces);
      std::vector<std::atomic<int>> runs(static_cast<std::size_t>(pieces));
      std::vector<std::atomic<int>> busy(ddtree::support::max_threads);
      std::atomic<bool> sound{true};
      ddtree::support::parallel_for(threads, pieces, [&](index_t piece, std::int32_t worker) {
        if (worker < 0 || worker >= threads || worker >= ddtree::support::max_threads) {
          sound = false;
          return;
        }
        auto& mine = busy[static_cast<std::size_t>(worker)];
        if (mine.exchange(1) != 0) sound = false;
        ++runs[static_cast<std::size_t>(piece)];
        mine = 0;
      });
      CHECK(sound);
      bool once = true;
      for (auto const& n : runs) once = once && n == 1;
      CHECK(once);
    }
  }
}

namespace {

struct carved {
  char* a;
  double* b;
  std::int32_t* c;
};

carved carve_some(ddtree::support::carver& c, index_t n) {
  carved out;
  out.a = c.take<char>(n);
  out.b = c.take<double>(n * 3);
  out.c = c.take<std::int32_t>(1);
  return out;
}

}  // namespace

TEST_CASE("a carver's arrays are aligned, apart and within what it counted", "[context]") {
  std::size_t smaller = 0;
  for (index_t n : {0, 1, 100, 257, 5000}) {
    ddtree::support::carver counting;
    CHECK(carve_some(counting, n).b == nullptr);
    std::size_t const bytes = counting.bytes();
    CHECK(bytes >= smaller);
    smaller = bytes;
    std::vector<char> memory(bytes + 300);
    for (std::ptrdiff_t shift : {0, 1, 7, 255, 256}) {
      CAPTURE(n, shift);
      char* const begin = memory.data() + shift;
      ddtree::support::carver carver({begin, bytes});
      carved const out = carve_some(carver, n);
      for (void const* p : {static_cast<void const*>(out.a), static_cast<void const*>(out.b),
                            static_cast<void const*>(out.c)}) {
        CHECK(reinterpret_cast<std::uintptr_t>(p) % 256 == 0);
      }
      CHECK(out.a >= begin);
      CHECK(reinterpret_cast<char*>(out.b) >= out.a + n);
      CHECK(reinterpret_cast<char*>(out.c) >= reinterpret_cast<char*>(out.b + n * 3));
      CHECK(reinterpret_cast<char*>(out.c + 1) <= begin + bytes);
    }
  }
  CHECK(ddtree::support::carver().bytes() == 0);
}
