// SPDX-License-Identifier: Apache-2.0
// Distance of a float from the exact value, in units of the last place.
#ifndef DDTREE_TESTS_SUPPORT_ULP_HPP
#define DDTREE_TESTS_SUPPORT_ULP_HPP

#include <cmath>

namespace ddtree_tests {

/// |got - exact| in ulps of the fp32 binade that holds `exact` (normal, not 0).
inline double ulp_error(float got, long double exact) {
  int exponent = 0;
  std::frexp(exact, &exponent);
  long double const ulp = std::ldexp(1.0L, exponent - 24);
  return static_cast<double>(std::fabs(static_cast<long double>(got) - exact) / ulp);
}

}  // namespace ddtree_tests

#endif  // DDTREE_TESTS_SUPPORT_ULP_HPP
