// SPDX-License-Identifier: Apache-2.0
// The rules that both backends agree on to the bit, against independent computations.
#include "rules/arith.hpp"
#include "rules/dtype_convert.hpp"
#include "rules/gumbel.hpp"
#include "rules/math.hpp"
#include "rules/philox.hpp"
#include "rules/sampling.hpp"
#include "rules/weight.hpp"
#include "support/catch.hpp"
#include "support/ulp.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace {

namespace rules = ddtree::rules;
using ddtree_tests::ulp_error;

constexpr float inf = std::numeric_limits<float>::infinity();
constexpr float quiet_nan = std::numeric_limits<float>::quiet_NaN();
constexpr float largest = std::numeric_limits<float>::max();
constexpr float subnormal = std::numeric_limits<float>::denorm_min();

std::uint32_t bits_of(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

float from_bits(std::uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

// FNV-1a over the bits of a sweep: the polynomials' results are part of the contract.
struct digest {
  std::uint64_t value = 0xcbf29ce484222325u;
  void add(float x) { value = (value ^ bits_of(x)) * 0x100000001b3u; }
};

// Every float once in a while, all bit patterns.
template <typename Visit>
void sweep_floats(std::uint32_t stride, Visit visit) {
  for (std::uint64_t bits = 0; bits <= 0xffffffffu; bits += stride)
    visit(from_bits(static_cast<std::uint32_t>(bits)));
}

// The value of an IEEE format from its fields.
long double decode(std::uint32_t bits, int exponent_bits, int mantissa_bits) {
  int const bias = (1 << (exponent_bits - 1)) - 1;
  int const exponent = static_cast<int>(bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  auto const mantissa = static_cast<long double>(bits & ((1u << mantissa_bits) - 1));
  long double const sign = (bits >> (exponent_bits + mantissa_bits)) & 1 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1)
    return mantissa == 0 ? sign * std::numeric_limits<long double>::infinity()
                         : std::numeric_limits<long double>::quiet_NaN();
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(1 + std::ldexp(mantissa, -mantissa_bits), exponent - bias);
}

// Nearest representable bits by bisection over the positive patterns, ties to even.
std::uint32_t encode(float x, int exponent_bits, int mantissa_bits) {
  std::uint32_t const sign = (bits_of(x) >> 31) << (exponent_bits + mantissa_bits);
  long double const magnitude = std::fabs(static_cast<long double>(x));
  std::uint32_t const infinity = ((1u << exponent_bits) - 1) << mantissa_bits;
  std::uint32_t low = 0;
  std::uint32_t high = infinity;
  while (low + 1 < high) {
    std::uint32_t const middle = (low + high) / 2;
    (decode(middle, exponent_bits, mantissa_bits) <= magnitude ? low : high) = middle;
  }
  // Infinity rounds as if it were the next power of two.
  long double const above = high == infinity ? std::ldexp(1.0L, 1 << (exponent_bits - 1))
                                             : decode(high, exponent_bits, mantissa_bits);
  long double const to_low = magnitude - decode(low, exponent_bits, mantissa_bits);
  long double const to_high = above - magnitude;
  bool const up = to_low > to_high || (to_low == to_high && (low & 1) != 0);
  return sign | (up ? high : low);
}

}  // namespace

TEST_CASE("arithmetic rounds each operation and never fuses", "[rules][arith]") {
  // Fused, a * a - b would keep the 2^-46 that the product loses.
  float const volatile a = 1.0f + 0x1p-23f;
  CHECK(rules::sub(rules::mul(a, a), rules::add(1.0f, 0x1p-22f)) == 0.0f);
  double const volatile b = 1.0 + 0x1p-52;
  CHECK(rules::sub(rules::mul(b, b), rules::add(1.0, 0x1p-51)) == 0.0);
  CHECK(rules::div(1.0f, 3.0f) == 0x1.555556p-2f);
  CHECK(rules::div(1.0, 3.0) == 0x1.5555555555555p-2);
}

TEST_CASE("round_to_int64 rounds to nearest, ties to even, over the whole range",
          "[rules][arith]") {
  CHECK(rules::round_to_int64(0.5) == 0);
  CHECK(rules::round_to_int64(1.5) == 2);
  CHECK(rules::round_to_int64(2.5) == 2);
  CHECK(rules::round_to_int64(-0.5) == 0);
  CHECK(rules::round_to_int64(-1.5) == -2);
  CHECK(rules::round_to_int64(-2.5) == -2);
  CHECK(rules::round_to_int64(0x1p52 - 0.5) == std::int64_t{1} << 52);
  CHECK(rules::round_to_int64(-0x1p63) == std::numeric_limits<std::int64_t>::min());
  CHECK(rules::round_to_int64(0x1.fffffffffffffp62) == 0x7ffffffffffffc00);
  CHECK(rules::round_to_int64(2.5f) == 2);
  CHECK(rules::round_to_int64(-0x1p57f) == -(std::int64_t{1} << 57));
  std::mt19937_64 random(1);
  int wrong = 0;
  for (int i = 0; i < 200000; ++i) {
    double const v = std::ldexp(static_cast<double>(static_cast<std::int64_t>(random())),
                                -static_cast<int>(random() % 70));
    wrong += rules::round_to_int64(v) != std::llrint(v);
    auto const f = static_cast<float>(v);
    if (std::fabs(f) < 0x1p63f) wrong += rules::round_to_int64(f) != std::llrint(f);
  }
  CHECK(wrong == 0);
}

TEST_CASE("ceil_to_uint64 rounds up and saturates", "[rules][arith]") {
  CHECK(rules::ceil_to_uint64(0.0) == 0);
  CHECK(rules::ceil_to_uint64(0x1p-1000) == 1);
  CHECK(rules::ceil_to_uint64(1.0) == 1);
  CHECK(rules::ceil_to_uint64(1.0 + 0x1p-52) == 2);
  CHECK(rules::ceil_to_uint64(0x1p62) == std::uint64_t{1} << 62);
  CHECK(rules::ceil_to_uint64(0x1.8p63) == std::uint64_t{3} << 62);
  CHECK(rules::ceil_to_uint64(0x1p64) == ~std::uint64_t{0});
  CHECK(rules::ceil_to_uint64(std::numeric_limits<double>::infinity()) == ~std::uint64_t{0});
  CHECK(rules::ceil_to_uint64(-3.5) == 0);
  CHECK(rules::ceil_to_uint64(std::numeric_limits<double>::quiet_NaN()) == 0);
}

TEST_CASE("all 65,536 bf16 and f16 values convert exactly", "[rules][dtype]") {
  int wrong = 0;
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    auto const half = static_cast<std::uint16_t>(bits);
    long double const bf16 = decode(bits, 8, 7);
    long double const f16 = decode(bits, 5, 10);
    float const from_bf16 = rules::bf16_to_float(half);
    float const from_f16 = rules::f16_to_float(half);
    wrong += std::isnan(bf16) ? !std::isnan(from_bf16)
                              : bits_of(from_bf16) != bits_of(static_cast<float>(bf16));
    wrong += std::isnan(f16) ? !std::isnan(from_f16)
                             : bits_of(from_f16) != bits_of(static_cast<float>(f16));
    // And back.
    if (!std::isnan(bf16)) wrong += rules::float_to_bf16(from_bf16) != half;
    if (!std::isnan(f16)) wrong += rules::float_to_f16(from_f16) != half;
  }
  CHECK(wrong == 0);
}

TEST_CASE("narrowing to bf16 and f16 rounds to nearest even", "[rules][dtype]") {
  int wrong = 0;
  auto const check = [&](float x) {
    if (std::isnan(x)) {
      wrong += !std::isnan(rules::bf16_to_float(rules::float_to_bf16(x)));
      wrong += !std::isnan(rules::f16_to_float(rules::float_to_f16(x)));
    } else {
      wrong += rules::float_to_bf16(x) != encode(x, 8, 7);
      wrong += rules::float_to_f16(x) != encode(x, 5, 10);
    }
  };
  sweep_floats(60013, check);
  // Around every f16 value and every midpoint of two.
  for (std::uint32_t half = 0; half < 0x7c00; half += 7)
    for (int step = -1; step <= 1; ++step) {
      float const value = rules::f16_to_float(static_cast<std::uint16_t>(half));
      float const next = rules::f16_to_float(static_cast<std::uint16_t>(half + 1));
      float const middle = std::isinf(next) ? 65520.0f : value + (next - value) / 2;
      for (float x : {value, middle}) {
        float const y = from_bits(bits_of(x) + static_cast<std::uint32_t>(x == 0 ? 0 : step));
        check(y);
        check(-y);
      }
    }
  CHECK(wrong == 0);
  CHECK(rules::float_to_f16(65519.996f) == 0x7bff);
  CHECK(rules::float_to_f16(65520.0f) == 0x7c00);
  CHECK(rules::float_to_f16(-inf) == 0xfc00);
  CHECK(rules::float_to_bf16(largest) == 0x7f80);
  CHECK(rules::float_to_bf16(from_bits(0x7f800001)) == 0x7fc0);
}

TEST_CASE("sanitize replaces NaN and +inf alone, and says so", "[rules][dtype]") {
  bool met = false;
  for (float x : {0.0f, -0.0f, 1.5f, -inf, largest, -largest, subnormal})
    CHECK(bits_of(rules::sanitize(x, met)) == bits_of(x));
  CHECK_FALSE(met);
  CHECK(rules::sanitize(inf, met) == largest);
  CHECK(met);
  met = false;
  CHECK(rules::sanitize(quiet_nan, met) == -inf);
  CHECK(met);
  met = false;
  CHECK(rules::sanitize(from_bits(0xff800001), met) == -inf);
  CHECK(met);
  CHECK(rules::sanitize(1.0f, met) == 1.0f);
  CHECK(met);  // never cleared
}

TEST_CASE("order keys order as floats do, with one zero", "[rules][dtype]") {
  CHECK(rules::order_key(-0.0f) == rules::order_key(0.0f));
  CHECK(rules::order_key(-inf) == 0x007fffffu);
  CHECK(rules::order_key(subnormal) > rules::order_key(0.0f));
  CHECK(rules::order_key(-subnormal) < rules::order_key(0.0f));
  int wrong = 0;
  std::uint32_t last = 0;
  bool first = true;
  auto const visit = [&](float x) {
    std::uint32_t const key = rules::order_key(x);
    wrong += !first && key <= last;
    wrong += bits_of(rules::float_from_order_key(key)) != bits_of(x);
    last = key;
    first = false;
  };
  for (std::uint32_t bits = 0xff800000u; bits > 0x80000000u; bits -= 4093) visit(from_bits(bits));
  for (std::uint32_t bits = 0; bits <= 0x7f800000u; bits += 4093) visit(from_bits(bits));
  CHECK(wrong == 0);
}

TEST_CASE("candidate keys put the larger logit first, then the lower id", "[rules][dtype]") {
  CHECK(rules::candidate_key(1.0f, 7) > rules::candidate_key(0.5f, 0));
  CHECK(rules::candidate_key(1.0f, 7) > rules::candidate_key(1.0f, 8));
  CHECK(rules::candidate_key(-0.0f, 3) > rules::candidate_key(0.0f, 4));
  CHECK(rules::candidate_key(0.0f, 3) > rules::candidate_key(-0.0f, 4));
  CHECK(rules::candidate_key(-inf, 0xffffffffu) > 0);
  std::mt19937 random(2);
  int wrong = 0;
  for (int i = 0; i < 20000; ++i) {
    // Few distinct logits: ties are the interesting case.
    float const a = static_cast<float>(static_cast<int>(random() % 9) - 4) * 0.5f;
    float const b = static_cast<float>(static_cast<int>(random() % 9) - 4) * 0.5f;
    std::uint32_t const i_a = random() % 4;
    std::uint32_t const i_b = random() % 4;
    std::uint64_t const key = rules::candidate_key(a, i_a);
    bool const better = a > b || (a == b && i_a < i_b);
    wrong += better != (key > rules::candidate_key(b, i_b));
    wrong += rules::candidate_logit(key) != a || rules::candidate_id(key) != i_a;
  }
  CHECK(wrong == 0);
}

TEST_CASE("plog is within 0.9 ulp of the logarithm", "[rules][math]") {
  double worst = 0;
  auto const check = [&](std::uint32_t first, std::uint32_t last, std::uint32_t stride) {
    for (std::uint32_t bits = first; bits <= last; bits += stride) {
      float const x = from_bits(bits);
      if (x != 1.0f)
        worst = std::max(worst, ulp_error(rules::plog(x), std::log(static_cast<long double>(x))));
    }
  };
  check(0x00800000u, 0x7f000000u, 1777);  // all normal floats up to 2^127
  check(0x3f000000u, 0x40000000u, 29);    // [0.5, 2]
  check(0x3f7ff000u, 0x3f801000u, 1);     // around 1
  CAPTURE(worst);
  CHECK(worst < 0.9);
  CHECK(bits_of(rules::plog(1.0f)) == 0);
}

TEST_CASE("pexp2 is within 1.7 ulp of the power of two", "[rules][math]") {
  double worst = 0;
  auto const check = [&](std::uint32_t first, std::uint32_t last, std::uint32_t stride) {
    for (std::uint32_t bits = first; bits <= last; bits += stride) {
      float const x = from_bits(bits);
      worst = std::max(worst, ulp_error(rules::pexp2(x), std::exp2(static_cast<long double>(x))));
    }
  };
  check(0x80000000u, 0xc2fc0000u, 1777);  // [-126, -0]
  check(0xbb000000u, 0xc0000000u, 97);    // [-2, -2^-9]
  CAPTURE(worst);
  CHECK(worst < 1.7);
}

TEST_CASE("pexp2 is exact at integers, 1 at zero and 0 below -126", "[rules][math]") {
  for (int n = 0; n <= 126; ++n)
    CHECK(rules::pexp2(-static_cast<float>(n)) == std::ldexp(1.0f, -n));
  CHECK(rules::pexp2(-0.0f) == 1.0f);
  CHECK(rules::pexp2(-subnormal) == 1.0f);
  CHECK(rules::pexp2(std::nextafter(-126.0f, -inf)) == 0.0f);
  for (float x : {-127.0f, -128.0f, -150.0f, -1e10f, -largest, -inf, quiet_nan})
    CHECK(bits_of(rules::pexp2(x)) == 0);
}

TEST_CASE("pexp2 never falls as its argument rises", "[rules][math]") {
  int falls = 0;
  auto const check = [&](std::uint32_t first, std::uint32_t last, std::uint32_t stride) {
    float above = 1.0f;
    for (std::uint32_t bits = first; bits <= last; bits += stride) {
      float const value = rules::pexp2(from_bits(bits));
      falls += value > above;
      above = value;
    }
  };
  // [-1.5, -0.25]: every float. From -1 on the reduced arguments repeat, on a coarser grid.
  check(0xbe800000u, 0xbfc00000u, 1);
  check(0x80000000u, 0xc3000000u, 509);
  for (int n = 1; n <= 126; ++n) {
    std::uint32_t const bits = bits_of(-static_cast<float>(n));
    check(bits - 200, bits + 200, 1);
  }
  CHECK(falls == 0);
}

TEST_CASE("the polynomials give the bits that they always gave", "[rules][math]") {
  digest logs;
  digest powers;
  for (std::uint32_t bits = 0x00800000u; bits <= 0x7f000000u; bits += 10007)
    logs.add(rules::plog(from_bits(bits)));
  for (std::uint32_t bits = 0x80000000u; bits <= 0xc3000000u; bits += 10007)
    powers.add(rules::pexp2(from_bits(bits)));
  CHECK(logs.value == 0xfa17df9cebd4ef43u);
  CHECK(powers.value == 0xb964e02a5788f990u);
}

TEST_CASE("Philox gives Random123's known answers", "[rules][philox]") {
  struct known {
    rules::philox_counter counter;
    rules::philox_key key;
    std::array<std::uint32_t, 4> answer;
  };
  known const answers[] = {
      {{{0, 0, 0, 0}}, {{0, 0}}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}},
       {{0xffffffff, 0xffffffff}},
       {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
       {{0xa4093822, 0x299f31d0}},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}};
  for (known const& k : answers) {
    rules::philox_counter const got = rules::philox4x32(k.counter, k.key);
    CHECK(std::equal(k.answer.begin(), k.answer.end(), got.word));
  }
}

TEST_CASE("noise is keyed by seed, position and token as written down", "[rules][gumbel]") {
  std::uint64_t const seed = 0x0123456789abcdefu;
  std::int64_t const position = 0x0000000500000007;
  for (std::uint32_t token : {0u, 1u, 2u, 3u, 4u, 151935u, 0x7fffffffu}) {
    rules::philox_counter const block =
        rules::philox4x32({{token / 4, 7, 5, 0x44445452}}, {{0x89abcdef, 0x01234567}});
    CHECK(rules::noise_block(seed, position, token / 4).word[token % 4] == block.word[token % 4]);
    CHECK(rules::noise(seed, position, token) == rules::gumbel_from_word(block.word[token % 4]));
  }
}

TEST_CASE("Gumbel noise stays between its bounds and is finite", "[rules][gumbel]") {
  float low = inf;
  float high = -inf;
  auto const visit = [&](std::uint32_t word) {
    float const g = rules::gumbel_from_word(word);
    // Written so that NaN fails.
    low = g >= low ? low : g;
    high = g <= high ? high : g;
  };
  for (std::uint32_t i = 0; i < 70000; ++i) {
    visit(i);                        // the largest values
    visit(0xffffffffu - i);          // the smallest, where q is cut to 1 - 2^-24
    visit(0x01000000u + i - 35000);  // q around 2^-8, where the series ends
    visit(i * 61356u);
  }
  CAPTURE(low, high);
  CHECK(low > rules::smallest_noise);
  CHECK(high < rules::largest_noise);
  CHECK(std::fabs(rules::gumbel_from_word(0) - 33 * std::log(2.0)) < 1e-5);
  CHECK(std::fabs(rules::gumbel_from_word(0xffffffffu) + std::log(24 * std::log(2.0))) < 1e-5);
}

TEST_CASE("Gumbel noise is -ln(-ln(1 - q)) within 1e-5", "[rules][gumbel]") {
  double worst = 0;
  auto const check = [&](std::uint32_t word) {
    float const rounded = static_cast<float>(word) + 0.5f;
    double const q = std::min(static_cast<double>(rounded) * 0x1p-32, 1 - 0x1p-24);
    double const exact = -std::log(-std::log1p(-q));
    worst = std::max(worst, std::fabs(rules::gumbel_from_word(word) - exact));
  };
  for (std::uint64_t word = 0; word <= 0xffffffffu; word += 10007)
    check(static_cast<std::uint32_t>(word));
  for (std::uint32_t i = 0; i < 30000; ++i) {
    check(i);
    check(0xffffffffu - i);
    check(0x01000000u + i - 15000);
  }
  CAPTURE(worst);
  CHECK(worst < 1e-5);
}

TEST_CASE("Gumbel noise has the mean and variance of the distribution", "[rules][gumbel]") {
  int const n = 1 << 19;
  double sum = 0;
  double squares = 0;
  for (std::uint32_t block = 0; block < n / 4; ++block) {
    rules::philox_counter const words = rules::noise_block(42, 1000, block);
    for (std::uint32_t word : words.word) {
      double const g = rules::gumbel_from_word(word);
      sum += g;
      squares += g * g;
    }
  }
  double const mean = sum / n;
  double const variance = squares / n - mean * mean;
  // Five standard errors: sd 1.28, sd of the square deviation 3.45.
  CHECK(std::fabs(mean - 0.5772156649) < 5 * 1.2825 / std::sqrt(n));
  CHECK(std::fabs(variance - 1.6449340668) < 5 * 3.46 / std::sqrt(n));
}

TEST_CASE("the largest z + noise draws from the softmax", "[rules][gumbel]") {
  std::array<double, 4> const p = {0.5, 0.3, 0.15, 0.05};
  std::array<int, 4> count{};
  int const n = 100000;
  for (int position = 0; position < n; ++position) {
    std::uint32_t best = 0;
    float best_key = -inf;
    for (std::uint32_t token = 0; token < 4; ++token) {
      float const key = static_cast<float>(std::log(p[token])) + rules::noise(9, position, token);
      if (key > best_key) {
        best_key = key;
        best = token;
      }
    }
    ++count[best];
  }
  double chi_square = 0;
  for (std::size_t i = 0; i < 4; ++i) chi_square += std::pow(count[i] - n * p[i], 2) / (n * p[i]);
  CHECK(chi_square < 16.3);  // 3 degrees of freedom, p = 0.001
}

TEST_CASE("log-probs become multiples of 2^-44, ties to even", "[rules][weight]") {
  CHECK(rules::weight(0.0f) == 0);
  CHECK(rules::weight(-0.0f) == 0);
  CHECK(rules::weight(-1.0f) == -(std::int64_t{1} << 44));
  CHECK(rules::weight(-8192.0f) == -(std::int64_t{1} << 57));
  CHECK(rules::weight(-0x1p-45f) == 0);
  CHECK(rules::weight(-0x1.8p-44f) == -2);
  CHECK(rules::weight(-0x1.4p-43f) == -2);
  CHECK(rules::weight(-0x1.000002p-45f) == -1);
  CHECK(rules::weight(-subnormal) == 0);
  int wrong = 0;
  sweep_floats(1021, [&](float x) {
    if (!(std::fabs(x) <= 8192.0f)) return;
    // By the integer mantissa, at 128 bits: |x| = m 2^e, wanted m 2^(e + 44) rounded.
    int exponent = 0;
    auto m = static_cast<__int128>(std::ldexp(std::frexp(std::fabs(x), &exponent), 24));
    int const shift = exponent - 24 + 44;
    if (shift >= 0) {
      m <<= shift;
    } else if (shift < -60) {
      m = 0;
    } else {
      __int128 const unit = __int128{1} << -shift;
      __int128 const rest = m & (unit - 1);
      m >>= -shift;
      m += 2 * rest > unit || (2 * rest == unit && (m & 1) != 0);
    }
    wrong += rules::weight(x) != static_cast<std::int64_t>(x < 0 ? -m : m);
  });
  CHECK(wrong == 0);
}

TEST_CASE("log-probs from -8192 to the largest finite are selectable", "[rules][weight]") {
  for (float x : {0.0f, -0.0f, -1.0f, -8192.0f, 1.0f}) CHECK(rules::selectable(x));
  for (float x : {std::nextafter(-8192.0f, -inf), -largest, -inf, inf, quiet_nan})
    CHECK_FALSE(rules::selectable(x));
}

TEST_CASE("a weight comes back as the nearest float", "[rules][weight]") {
  CHECK(rules::to_log_weight(0) == 0.0f);
  CHECK(rules::to_log_weight(-(std::int64_t{1} << 44)) == -1.0f);
  CHECK(rules::to_log_weight(31 * rules::weight(-8192.0f)) == -253952.0f);
  std::mt19937_64 random(3);
  int wrong = 0;
  for (int i = 0; i < 100000; ++i) {
    auto const w = -static_cast<std::int64_t>(random() >> (2 + random() % 50));
    auto const exact = static_cast<long double>(w) * 0x1p-44L;
    wrong += rules::to_log_weight(w) != static_cast<float>(exact);
    auto const x = static_cast<float>(-std::ldexp(static_cast<double>(random() % 100000), -10));
    if (rules::selectable(x)) wrong += rules::to_log_weight(rules::weight(x)) != x;
  }
  CHECK(wrong == 0);
}

TEST_CASE("min_weight is inclusive, off for NaN and -inf, and never overflows", "[rules][weight]") {
  std::int64_t const none = std::numeric_limits<std::int64_t>::min();
  std::int64_t const all_paths = 31 * rules::weight(-8192.0f);
  for (float x : {quiet_nan, -inf, -largest, -1e6f}) CHECK(rules::min_weight(x) == none);
  CHECK(rules::min_weight(-0x1p18f) <= all_paths);
  CHECK(rules::min_weight(-253952.0f) == all_paths);
  CHECK(rules::min_weight(-3.25f) == rules::weight(-3.25f));
  CHECK(rules::min_weight(0.0f) == 0);
  for (float x : {subnormal, 0x1p-44f, 1.0f, 1e6f, largest, inf})
    CHECK(rules::min_weight(x) >= rules::min_weight(0.0f));
  for (float x : {0x1p-44f, 1.0f, 1e6f, largest, inf}) CHECK(rules::min_weight(x) > 0);
}

TEST_CASE("packed rank paths compare as the lists they hold", "[rules][weight]") {
  std::mt19937 random(4);
  auto const random_path = [&](std::uint32_t ranks) {
    std::vector<int> path(random() % 32);
    for (int& rank : path) rank = static_cast<int>(random() % ranks);
    return path;
  };
  auto const pack = [](std::vector<int> const& path) {
    rules::rank_path packed{};
    for (std::size_t i = 0; i < path.size(); ++i)
      packed = rules::child(packed, static_cast<int>(i) + 1, path[i]);
    return packed;
  };
  int wrong = 0;
  for (int i = 0; i < 20000; ++i) {
    std::vector<int> const a = random_path(i % 2 == 0 ? 2 : 1024);
    std::vector<int> b = random_path(i % 3 == 0 ? 2 : 1024);
    if (i % 4 == 0) {  // a common prefix, often the whole of one of them
      b = a;
      b.resize(random() % 32, 1023);
    }
    auto const packed_a = pack(a);
    auto const packed_b = pack(b);
    int const want =
        a == b ? 0
               : (std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end()) ? -1 : 1);
    wrong += rules::compare(packed_a, packed_b) != want;
    wrong += rules::precedes(5, packed_a, 5, packed_b) != (want < 0);
    wrong +=
        !rules::precedes(6, packed_a, 5, packed_b) || rules::precedes(5, packed_a, 6, packed_b);
    for (int depth = 1; depth <= 31; ++depth) {
      int const rank =
          depth <= static_cast<int>(a.size()) ? a[static_cast<std::size_t>(depth) - 1] : -1;
      wrong += rules::rank_at(packed_a, depth) != rank;
    }
  }
  CHECK(wrong == 0);
  CHECK(sizeof(rules::rank_path) == 56);
}

TEST_CASE("a temperature that is no positive number counts as 1", "[rules][sampling]") {
  for (float t : {0.0f, -0.0f, -1.0f, inf, -inf, quiet_nan, 1.0f})
    CHECK(rules::reciprocal_temperature(t) == 1.0f);
  CHECK(rules::reciprocal_temperature(0.7f) == 1.0f / 0.7f);
  CHECK(rules::reciprocal_temperature(3.0f) == 0x1.555556p-2f);
  CHECK(rules::reciprocal_temperature(subnormal) == largest);
  CHECK(rules::reciprocal_temperature(largest) > 0.0f);
  for (float t : {0.0f, -0.0f, -1.0f, -inf}) CHECK(rules::is_greedy(t));
  for (float t : {subnormal, 1.0f, inf, quiet_nan}) CHECK_FALSE(rules::is_greedy(t));
}

TEST_CASE("scaling never makes an infinity and keeps -inf", "[rules][sampling]") {
  CHECK(rules::scaled(3.0f, 0.5f) == 1.5f);
  CHECK(rules::scaled(largest, 10.0f) == largest);
  CHECK(rules::scaled(-largest, 10.0f) == -largest);
  CHECK(rules::scaled(-inf, 10.0f) == -inf);
  CHECK(rules::scaled(-inf, 0x1p-126f) == -inf);
  CHECK(rules::scaled(0.0f, largest) == 0.0f);
  CHECK(rules::scaled(largest, 1.0f) == largest);
}

TEST_CASE("sampling parameters are off where they cannot cut", "[rules][sampling]") {
  for (std::int64_t k : {-1, 0, 100, 101}) CHECK(rules::is_top_k_off(k, 100));
  for (std::int64_t k : {1, 99}) CHECK_FALSE(rules::is_top_k_off(k, 100));
  for (float p : {1.0f, 1.5f, inf, quiet_nan}) CHECK(rules::is_top_p_off(p));
  for (float p : {0x1.fffffep-1f, 0.0f, -1.0f, -inf}) CHECK_FALSE(rules::is_top_p_off(p));
  for (float p : {0.0f, -0.0f, -1.0f, -inf, quiet_nan}) CHECK(rules::is_min_p_off(p));
  for (float p : {subnormal, 0.1f, 1.0f, 2.0f, inf}) CHECK_FALSE(rules::is_min_p_off(p));
}

TEST_CASE("token weights are softmax numerators in units of 2^-40", "[rules][sampling]") {
  CHECK(rules::token_weight(3.5f, 3.5f) == std::uint64_t{1} << 40);
  CHECK(rules::token_weight(-inf, 3.5f) == 0);
  CHECK(rules::token_weight(-largest, largest) == 0);
  CHECK(rules::token_weight(-inf, -inf) == 0);
  CHECK(rules::token_weight(-100.0f, 0.0f) == 0);
  double worst = 0;
  int wrong = 0;
  std::uint64_t above = std::uint64_t{1} << 40;
  for (int i = 0; i < 300000; ++i) {
    float const z = -1e-4f * static_cast<float>(i);
    std::uint64_t const w = rules::token_weight(z, 0.0f);
    wrong += w > above;  // a lower logit never weighs more
    above = w;
    // The unrounded argument: z log2e in fp32 is off by up to 2^-25 |z log2e| in the exponent.
    long double const exact = std::exp(static_cast<long double>(z)) * 0x1p40L;
    double const error = static_cast<double>(std::fabs(static_cast<long double>(w) - exact));
    worst = std::max(worst, (error - 0.5) / static_cast<double>(exact) / (2e-7 + 1e-7 * -z));
    float const p = rules::pexp2(z * 1.44269504f);
    wrong += w != static_cast<std::uint64_t>(std::nearbyint(static_cast<long double>(p) * 0x1p40L));
  }
  CAPTURE(worst);
  CHECK(worst < 1.0);
  CHECK(wrong == 0);
}

TEST_CASE("the top-p target is a share of the total, from 1 to the total", "[rules][sampling]") {
  std::uint64_t const total = (std::uint64_t{1} << 62) - 12345;
  CHECK(rules::top_p_target(0.5f, 1000) == 500);
  CHECK(rules::top_p_target(0.5f, 1001) == 501);
  CHECK(rules::top_p_target(0.9f, 10) == 9);  // float 0.9 is below 0.9
  CHECK(rules::top_p_target(0.1f, 10) == 2);  // float 0.1 is above 0.1
  for (float p : {0.0f, -0.0f, -1.0f, -inf, subnormal}) CHECK(rules::top_p_target(p, total) == 1);
  for (float p : {1.0f, 2.0f, inf}) CHECK(rules::top_p_target(p, total) == total);
  CHECK(rules::top_p_target(0x1.fffffep-1f, total) < total);
  CHECK(rules::top_p_target(0x1.fffffep-1f, 1) == 1);
  CHECK(rules::top_p_target(0.5f, 0) == 0);
  std::mt19937_64 random(5);
  int wrong = 0;
  for (int i = 0; i < 100000; ++i) {
    std::uint64_t const s = (random() >> 11) + 1;  // exact as a double
    float const p = std::ldexp(static_cast<float>(random() >> 40), -24);
    auto const product = static_cast<double>(p) * static_cast<double>(s);
    auto const want = static_cast<std::uint64_t>(std::ceil(product));
    wrong += rules::top_p_target(p, s) != std::min(std::max<std::uint64_t>(want, 1), s);
  }
  CHECK(wrong == 0);
}

TEST_CASE("the min-p threshold rounds up and saturates", "[rules][sampling]") {
  std::uint64_t const one = std::uint64_t{1} << 40;
  CHECK(rules::min_p_threshold(1.0f) == one);
  CHECK(rules::min_p_threshold(0.5f) == one / 2);
  CHECK(rules::min_p_threshold(subnormal) == 1);
  CHECK(rules::min_p_threshold(0x1.8p-40f) == 2);
  CHECK(rules::min_p_threshold(2.0f) == 2 * one);
  CHECK(rules::min_p_threshold(largest) == ~std::uint64_t{0});
  CHECK(rules::min_p_threshold(inf) == ~std::uint64_t{0});
  CHECK(rules::min_p_threshold(0.1f) == 109951164416);  // 0.1f is 13421773 * 2^-27
}
