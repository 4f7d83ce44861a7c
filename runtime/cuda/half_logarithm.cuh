// log as precise as f16 and bf16, T: within 2^-14 and 2^-11 of the value, in f32 steps that CPU and GPU have in common.
// `reference.half_powers` has the same text in NumPy.
#pragma once
#include "half_precision.cuh"

__device__ inline f32 half_infinity() { return __int_as_float(0x7f800000); }

// x = (1 + f) 2^k with 1 + f from sqrt(1/2) to sqrt(2), for a finite x above 0; k comes from the last bits of a number.
__device__ inline f32 half_mantissa(f32 x, f32& k) {
  const bool subnormal = x < 0x1p-126f;
  const i32 above = i32(__float_as_uint(subnormal ? x * 0x1p24f : x) - 0x3f3504f3u);
  k = __int_as_float((above >> 23) + 0x4b400000) - (subnormal ? 0x1.80003p23f : 0x1.8p23f);
  return __int_as_float((above & 0x7fffff) + 0x3f3504f3) - 1.0f;
}

// log(1 + f) / f. From the largest f to the least one, with a k that is larger by 1, nothing falls.
__device__ inline f32 logarithm_polynomial(f16, f32 f) {
  return fused_polynomial(f, -0x1.24acb6p-3f, 0x1.c3af9ap-3f, -0x1.04214p-2f, 0x1.549036p-2f, -0x1.ffe65ep-2f,
      0x1.00004cp+0f);
}
__device__ inline f32 logarithm_polynomial(bf16, f32 f) {
  return fused_polynomial(f, 0x1.69833ap-3f, -0x1.157188p-2f, 0x1.587808p-2f, -0x1.ff700ap-2f, 0x1.fffb8ep-1f);
}

template <typename T> __device__ inline f32 half_logarithm(f32 x) {
  f32 k;
  const f32 f = half_mantissa(x, k), value = fused(k, 0x1.62e43p-1f, f * logarithm_polynomial(T(), f));
  const f32 end = x == 0.0f ? -half_infinity() : fused(x, half_infinity(), half_infinity());  // below 0 it is NaN
  return (x > 0.0f) & (x < half_infinity()) ? value : end;
}

// As precise as T, C where T is not of 16 bits.
template <typename T, typename C> __device__ inline C logarithm_as(C x) {
  if constexpr (HALF<T>) return half_logarithm<T>(x);
  else return logarithm(x);
}
