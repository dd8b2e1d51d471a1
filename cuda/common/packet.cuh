// SPDX-License-Identifier: Apache-2.0
// 16 bytes of a row of logits, and what can be said of them without converting each.
#pragma once

#include "common/logits.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace cuda {

namespace packet_impl {

template <class Type>
struct pair_of;
template <>
struct pair_of<bf16_logits> {
  using type = __nv_bfloat162;
  static __device__ type both(float x) { return __float2bfloat162_rn(x); }
  static __device__ float down(float x) { return __bfloat162float(__float2bfloat16_rd(x)); }
};
template <>
struct pair_of<f16_logits> {
  using type = __half2;
  static __device__ type both(float x) { return __float2half2_rn(x); }
  static __device__ float down(float x) { return __half2float(__float2half_rd(x)); }
};

template <class Type>
__device__ typename pair_of<Type>::type maximum(uint4 const& raw) {
  typename pair_of<Type>::type word[4];
  static_assert(sizeof(word) == sizeof(raw));
  memcpy(word, &raw, sizeof(raw));
  return __hmax2(__hmax2(word[0], word[1]), __hmax2(word[2], word[3]));
}

}  // namespace packet_impl

/// The largest of a packet's logits; NaN is passed over.
template <class Type>
__device__ float maximum_of(uint4 const& raw) {
  if constexpr (Type::width == 4) {
    return fmaxf(fmaxf(__uint_as_float(raw.x), __uint_as_float(raw.y)),
                 fmaxf(__uint_as_float(raw.z), __uint_as_float(raw.w)));
  } else {
    auto const both = packet_impl::maximum<Type>(raw);
    return fmaxf(__low2float(both), __high2float(both));
  }
}

/// Whether one of a packet's logits is at least `least`, a value of the type.
template <class Type>
__device__ bool reaches(uint4 const& raw, float least) {
  if constexpr (Type::width == 4) {
    return maximum_of<Type>(raw) >= least;
  } else {
    return !__hblt2(packet_impl::maximum<Type>(raw), packet_impl::pair_of<Type>::both(least));
  }
}

/// The largest value of the type that is not above x.
template <class Type>
__device__ float representable(float x) {
  if constexpr (Type::width == 4) {
    return x;
  } else {
    return packet_impl::pair_of<Type>::down(x);
  }
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
