// Hyperbolic functions, and exponentials and logarithms of sums with 1, as precise as f16 and bf16, T: within 2^-14 and
// 2^-11 of the value, in f32 steps that CPU and GPU have in common. `reference.half_hyperbolic` has the same text in
// NumPy.
#pragma once
#include "half_erf.cuh"
#include "half_logarithm.cuh"
#include "hyperbolic.cuh"
#include "log1pexp.cuh"
#include "logit.cuh"
#include "powers.cuh"

// ---- from exponentials ----

// (2^f - 1) / f, relative to which e^x - 1 next to 0 is off: half_erf.cuh has it to fewer digits.
__device__ inline f32 less_one_polynomial(f16, f32 f) {
  return fused_polynomial(f, 0x1.5cef82p-10f, 0x1.3cc24cp-7f, 0x1.c6b35ep-5f, 0x1.ebfa46p-3f, 0x1.62e42ep-1f);
}
__device__ inline f32 less_one_polynomial(bf16, f32 f) { return rise_polynomial(f16(), f); }
// e^x - 1, by half of 2^k (2^f - 1) + (2^k - 1), for 2^128 is no number.
template <typename T> __device__ inline f32 half_less_one(f32 x) {
  const f32 t = bounded(x, -18.0f, 89.0f), power = fused(t, 0x1.715476p+0f, 0x1.8p23f);
  const f32 f = fused(t, 0x1.715476p+0f, -(power - 0x1.8p23f)), two = lifted<-1>(power);
  const f32 half = fused(two, less_one_polynomial(T(), f) * f, two - 0.5f);
  return copysign(half + half, x);
}

// cosh(f ln 2) and sinh(f ln 2) / f by z = f^2, for f up to 1/2, where the first is three times the second: so nothing
// falls from one k to the next.
__device__ inline f32 even_polynomial(f16, f32 z) { return fused_polynomial(z, 0x1.0dc754p-7f, 0x1.ec9542p-3f, 1.0f); }
__device__ inline f32 even_polynomial(bf16, f32 z) { return fused(0x1.f00ebep-3f, z, 1.0f); }
__device__ inline f32 odd_polynomial(f16, f32 z) { return fused(0x1.c96bfap-5f, z, 0x1.62e2d4p-1f); }
__device__ inline f32 odd_polynomial(bf16, f32 z) { return fused(0x1.c4d612p-5f, z, 0x1.62ed44p-1f); }

// |x| = (k + f) ln 2: cosh and sinh of f ln 2, the sum and the difference of 2^(k - 2) and 2^(-k - 2).
struct HalfParts {
  f32 even, odd, sum, less;
};
template <typename T> __device__ inline HalfParts half_parts(f32 x) {
  const f32 t = at_most(absolute(x), 89.5f), power = fused(t, 0x1.715476p+0f, 0x1.8p23f);
  const f32 f = fused(t, 0x1.715476p+0f, -(power - 0x1.8p23f)), z = f * f, up = lifted<-2>(power);
  const f32 down = __int_as_float(max(0x7d000000 - __float_as_int(up), 0));
  return {even_polynomial(T(), z), f * odd_polynomial(T(), z), up + down, up - down};
}
template <typename T> __device__ inline f32 half_sinh(f32 x) {
  const HalfParts by = half_parts<T>(x);
  const f32 half = fused(by.odd, by.sum, by.even * by.less);
  return copysign(half + half, x);
}
template <typename T> __device__ inline f32 half_cosh(f32 x) {
  const HalfParts by = half_parts<T>(x);
  const f32 half = fused(by.even, by.sum, by.odd * by.less);
  return half + half;
}

// log(1 + u) / u for u from 0 to 1, and right at 1: next to ln 2 is a middle of two values.
__device__ inline f32 one_plus_polynomial(f16, f32 u) {
  return fused_polynomial(u, -0x1.7c9868p-6f, 0x1.98a3c8p-4f, -0x1.abd402p-3f, 0x1.4ca384p-2f, -0x1.ff4e2ep-2f,
      0x1.fffedp-1f);
}
__device__ inline f32 one_plus_polynomial(bf16, f32 u) {
  return fused_polynomial(u, 0x1.48098ep-5f, -0x1.3da78ap-3f, 0x1.385a52p-2f, -0x1.fcaf0ap-2f, 0x1.fff7d6p-1f);
}
// above + log(1 + e^-|x|), `above` being max(x, 0).
template <typename T> __device__ inline f32 half_logarithm_above(f32 x, f32 above) {
  f32 power;
  const f32 y = half_power<T>(at_least(-absolute(x), -104.5f), 0x1.715476p+0f, 0x1p-24f, power);
  const f32 u = y * lifted<24>(power);
  return fused(u, one_plus_polynomial(T(), u), above);
}

// ---- from logarithms ----

// y 2^-LIFT = (1 + f) 2^k with 1 + f from sqrt(1/2) to sqrt(2), of a normal y: k is in the upper bits of what this
// gives, f in the others.
template <int LIFT> __device__ inline i32 half_above(f32 y) {
  return i32(__float_as_uint(y) - (0x3f3504f3u + (u32(LIFT) << 23)));
}
__device__ inline f32 half_rest(i32 above) { return __int_as_float((above & 0x7fffff) + 0x3f3504f3) - 1.0f; }
// k ln 2 + log(1 + f). Where both are 0 it has the sign of f.
template <typename T> __device__ inline f32 half_logarithm_at(i32 above, f32 f) {
  const f32 k = 0x1.8p23f - __int_as_float((above >> 23) + 0x4b400000);
  return fused(k, -0x1.62e43p-1f, f * logarithm_polynomial(T(), f));
}
// log(y 2^-LIFT); where k is 0, f is `near`, which has all digits.
template <typename T, int LIFT> __device__ inline f32 half_logarithm_beside(f32 y, f32 near) {
  const i32 above = half_above<LIFT>(y);
  return half_logarithm_at<T>(above, u32(above) < 0x800000u ? near : half_rest(above));
}

template <typename T> __device__ inline f32 half_one_plus(f32 x) {
  const f32 y = 1.0f + x, value = half_logarithm_beside<T, 0>(y, x);
  const f32 end = y == 0.0f ? -half_infinity() : fused(y, half_infinity(), half_infinity());  // below 0 it is NaN
  return (y > 0.0f) & (y < half_infinity()) ? value : end;
}
// log of half of |x| + sqrt(x^2 + 1), doubled; where that is next to 1, x.
template <typename T> __device__ inline f32 half_asinh(f32 x) {
  const f32 t = absolute(x), near = at_most(t, 0x1p40f), root = sure_root(fused(near, near, 1.0f));
  const i32 above = half_above<-1>(fused(0.5f, at_least(root, t), 0.5f * t));
  const f32 value = half_logarithm_at<T>(above, half_rest(above));
  return copysign((t > 0x1p-7f) & (t < half_infinity()) ? value : t, x);
}
// The same of x + sqrt(v^2 + 2v) with v = x - 1.
template <typename T> __device__ inline f32 half_acosh(f32 x) {
  const f32 v = x - 1.0f, near = at_most(v, 0x1p40f), root = sure_root(fused(near, near, near + near));
  const f32 value = half_logarithm_beside<T, -1>(fused(0.5f, at_least(root, v), 0.5f * x), root + v);
  const f32 end = v < 0.0f ? f32(not_a_number()) : v;
  return (v > 0.0f) & (v < half_infinity()) ? value : end;
}
// Half of log((1 + t) / (1 - t)) with t = |x|: 1 more than 2 t / (1 - t).
template <typename T> __device__ inline f32 half_atanh(f32 x) {
  const f32 t = absolute(x), y = inverse(1.0f - t), value = half_logarithm_beside<T, 0>((1.0f + t) * y, (t + t) * y);
  const f32 end = t == 1.0f ? half_infinity() : f32(not_a_number());
  return copysign(t < 1.0f ? 0.5f * value : end, x);
}
// log(x / (1 - x)), the quotient raised by 2^24, so that it is a normal number; 1 more than (2x - 1) / (1 - x).
template <typename T> __device__ inline f32 half_logit(f32 x) {
  const f32 y = inverse(fused(x, -0x1p-24f, 0x1p-24f));
  const f32 value = half_logarithm_beside<T, 24>(x * y, fused(x, 0x1p-23f, -0x1p-24f) * y);
  const f32 end = chosen((x == 0.0f) | (x == 1.0f), copysign(half_infinity(), x - 0.5f), f32(not_a_number()));
  return chosen((x > 0.0f) & (x < 1.0f), value, end);
}

// log(x) by = c k + by log(1 + f), where c is that of 2.
template <typename T> __device__ inline f32 half_logarithm_by(f32 x, f32 c, f32 by) {
  f32 k;
  const f32 f = half_mantissa(x, k), value = fused(k, c, f * by * logarithm_polynomial(T(), f));
  const f32 end = x == 0.0f ? -half_infinity() : fused(x, half_infinity(), half_infinity());  // below 0 it is NaN
  return (x > 0.0f) & (x < half_infinity()) ? value : end;
}

// ---- as precise as T, C where T is not of 16 bits ----

template <typename T, typename C> __device__ inline C exponential_less_one_as(C x) {
  if constexpr (HALF<T>) return half_less_one<T>(x);
  else return exponential_less_one(x);
}
template <typename T, typename C> __device__ inline C hyperbolic_sine_as(C x) {
  if constexpr (HALF<T>) return half_sinh<T>(x);
  else return hyperbolic_sine(x);
}
template <typename T, typename C> __device__ inline C hyperbolic_cosine_as(C x) {
  if constexpr (HALF<T>) return half_cosh<T>(x);
  else return hyperbolic_cosine(x);
}
template <typename T, typename C> __device__ inline C logarithm_one_plus_exponential_as(C x) {
  if constexpr (HALF<T>) return half_logarithm_above<T>(x, x > 0.0f ? x : 0.0f);
  else return logarithm_one_plus_exponential(x);
}
template <typename C, typename T> __device__ inline C falling_logarithm_as(C x) {
  if constexpr (HALF<T>) return half_logarithm_above<T>(x, 0.0f);
  else return falling_logarithm(x);
}
template <typename T, typename C> __device__ inline C logarithm_one_plus_as(C x) {
  if constexpr (HALF<T>) return half_one_plus<T>(x);
  else return logarithm_one_plus(x);
}
template <typename T, typename C> __device__ inline C inverse_hyperbolic_sine_as(C x) {
  if constexpr (HALF<T>) return half_asinh<T>(x);
  else return inverse_hyperbolic_sine(x);
}
template <typename T, typename C> __device__ inline C inverse_hyperbolic_cosine_as(C x) {
  if constexpr (HALF<T>) return half_acosh<T>(x);
  else return inverse_hyperbolic_cosine(x);
}
template <typename T, typename C> __device__ inline C inverse_hyperbolic_tangent_as(C x) {
  if constexpr (HALF<T>) return half_atanh<T>(x);
  else return inverse_hyperbolic_tangent(x);
}
template <int FAST, typename T, typename C> __device__ inline C log_odds_in_as(C x) {
  if constexpr (HALF<T>) return half_logit<T>(x);
  else return log_odds_in<FAST>(x);
}
template <typename T, typename C> __device__ inline C log_odds_as(C x) { return log_odds_in_as<GENERAL, T>(x); }
template <typename C, typename T> __device__ inline bool are_usual_odds_as(C x) {
  return HALF<T> || are_usual_odds(x);
}
template <typename T, typename C> __device__ inline C logarithm2_as(C x) {
  if constexpr (HALF<T>) return half_logarithm_by<T>(x, 1.0f, 0x1.715476p+0f);
  else return logarithm2(x);
}
template <typename T, typename C> __device__ inline C logarithm10_as(C x) {
  if constexpr (HALF<T>) return half_logarithm_by<T>(x, 0x1.344136p-2f, 0x1.bcb7b2p-2f);
  else return logarithm10(x);
}
