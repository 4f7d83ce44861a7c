// Powers as precise as f16 and bf16, T: within 2^-14 and 2^-11 of the value, in f32 steps that CPU and GPU have in
// common. `reference.half_powers` has the same text in NumPy.
#pragma once
#include "half_logarithm.cuh"
#include "powers.cuh"

// log2(1 + f) / f. An exponent of 133 in the power of two multiplies what it is off by.
__device__ inline f32 binary_polynomial(f16, f32 f) {
  return fused_polynomial(f, -0x1.2c3ap-3f, 0x1.df4782p-3f, -0x1.fd0fdep-3f, 0x1.25f7dp-2f, -0x1.70ea9ep-2f,
      0x1.ec77c6p-2f, -0x1.71550cp-1f, 0x1.715474p+0f);
}
__device__ inline f32 binary_polynomial(bf16, f32 f) {
  return fused_polynomial(f, 0x1.5f648ap-3f, -0x1.13c6p-2f, 0x1.2ece18p-2f, -0x1.6fff6ep-2f, 0x1.ec294cp-2f,
      -0x1.71569p-1f, 0x1.71548ep+0f);
}

// 2^x
template <typename T> __device__ inline f32 half_exponential2(f32 x) {
  f32 power;
  const f32 y = half_power<T>(bounded(x, -150.5f, 128.5f), 1.0f, 1.0f, power);
  return with_power(y, power);
}

// 2^t with t = exponent log2 |base|, and C's special values of pow by selects. An exponent that is an infinity is taken
// for a large number, so that the power of -1 is 1.
template <typename T> __device__ inline f32 half_power_of(f32 base, f32 exponent) {
  const f32 size = absolute(base);
  f32 k;
  const f32 f = half_mantissa(size, k), near = fused(f, binary_polynomial(T(), f), k);
  const f32 log = size == 0.0f ? -half_infinity() : size < half_infinity() ? near : size;
  const f32 product = bounded(exponent, -0x1p120f, 0x1p120f) * log;
  const f32 value = half_exponential2<T>((base == 1.0f) | (exponent == 0.0f) ? 0.0f : product);
  const f32 left = absolute(fused(-2.0f, rint(0.5f * exponent), exponent));  // 1 of odd integers, 0 of even ones
  const bool undefined = (base < 0.0f) & (base > -half_infinity()) & (left > 0.0f) & (left < 1.0f);
  const u32 sign = left == 1.0f ? 0x80000000u : 0u, nan = undefined ? 0x7fffffffu : 0u;
  return __uint_as_float(__float_as_uint(value) | (__float_as_uint(base) & sign) | nan);
}

// As precise as T, C where T is not of 16 bits.
template <typename T, typename C> __device__ inline C exponential2_as(C x) {
  if constexpr (HALF<T>) return half_exponential2<T>(x);
  else return exponential2(x);
}
template <typename T, typename C> __device__ inline C power_as(C base, C exponent) {
  if constexpr (HALF<T>) return half_power_of<T>(base, exponent);
  else return power(base, exponent);
}
