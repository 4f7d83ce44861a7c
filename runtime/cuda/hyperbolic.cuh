// Hyperbolic functions and their inverses in steps that CPU and GPU have in common: `reference.hyperbolic` has the
// same text in NumPy.
#pragma once
#include "powers.cuh"

// (e^x - e^-x) / 2 for x >= 0, NaN too.
__device__ inline f64 sine_part(f64 size) {
  const Exponential e = exponential_parts(minimum(size, 720.0), 0.0);
  const f64 share = two_to_the(-min(2 * e.power, 1000));  // of e^-x in 2^-power
  const DoubleDouble one = fast_two_sum(1.0, -share), r = fast_two_sum(e.r, share * e.r);
  const DoubleDouble sum = two_sum(one.high, r.high);
  const f64 rest = one.high * e.even + (1.0 + share) * e.odd;
  return times_two_to(sum.high + (sum.low + ((one.low + r.low) + rest)), e.power - 1);
}
__device__ inline f64 hyperbolic_sine(f64 x) { return copysign(sine_part(fabs(x)), x); }
__device__ inline f64 hyperbolic_cosine(f64 x) {
  const Exponential e = exponential_parts(minimum(fabs(x), 720.0), 0.0);
  const f64 share = two_to_the(-min(2 * e.power, 1000));
  const DoubleDouble one = fast_two_sum(1.0, share), r = fast_two_sum(e.r, -share * e.r);
  const DoubleDouble sum = two_sum(one.high, r.high);
  const f64 rest = one.high * e.even + (1.0 - share) * e.odd;
  return times_two_to(sum.high + (sum.low + ((one.low + r.low) + rest)), e.power - 1);
}

// log(x + sqrt(x^2 + one)) for x from 0 to 2^30, where one is 1 or -1.
__device__ inline f64 inverse_of(f64 x, f64 one) {
  const DoubleDouble square = two_product(x, x);
  const DoubleDouble sum = two_sum(square.high, one);
  const DoubleDouble root = pair_root(fast_two_sum(sum.high, sum.low + square.low));
  const DoubleDouble argument = two_sum(root.high, x);
  const DoubleDouble log = logarithm_pair(argument.high, argument.low + root.low, 0);
  return log.high + log.low;
}
// log(2 x) for x from 2^30 on.
__device__ inline f64 inverse_beyond(f64 x) {
  const DoubleDouble log = logarithm_pair(x, 0.0, 1);
  return log.high + log.low;
}

__device__ inline f64 inverse_hyperbolic_sine(f64 x) {
  const f64 size = fabs(x);
  if (!is_finite(x)) return x;
  if (size < 0x1p-20) return copysign(size - size * size * size * 0x1.5555555555555p-3, x);
  return copysign(size < 0x1p30 ? inverse_of(size, 1.0) : inverse_beyond(size), x);
}
__device__ inline f64 inverse_hyperbolic_cosine(f64 x) {
  if (!(x >= 1.0 && is_finite(x))) return x < 1.0 ? not_a_number() : x;
  return x < 0x1p30 ? inverse_of(x, -1.0) : inverse_beyond(x);
}
__device__ inline f64 inverse_hyperbolic_tangent(f64 x) {
  const f64 size = fabs(x);
  if (!(size < 1.0)) return size == 1.0 ? copysign(infinity(), x) : not_a_number();
  if (size < 0x1p-20) return copysign(size + size * size * size * 0x1.5555555555555p-2, x);
  const DoubleDouble quotient = pair_quotient(two_sum(1.0, size), two_sum(1.0, -size));
  const DoubleDouble log = logarithm_pair(quotient.high, quotient.low, 0);
  return copysign(0.5 * (log.high + log.low), x);
}

// f32 by way of f64.
__device__ inline f32 hyperbolic_sine(f32 x) { return f32(hyperbolic_sine(f64(x))); }
__device__ inline f32 hyperbolic_cosine(f32 x) { return f32(hyperbolic_cosine(f64(x))); }
__device__ inline f32 inverse_hyperbolic_sine(f32 x) {
  const f64 size = fabs(f64(x));
  if (!is_finite(x)) return x;
  if (size < 0x1p-12) return copysign(f32(size - size * size * size * 0x1.5555555555555p-3), x);
  return copysign(f32(logarithm_near(size + sqrt(size * size + 1.0))), x);
}
__device__ inline f32 inverse_hyperbolic_cosine(f32 x) {
  const f64 wide = x;
  if (!(x >= 1.0f && is_finite(x))) return x < 1.0f ? f32(not_a_number()) : x;
  return f32(logarithm_near(wide + sqrt(wide * wide - 1.0)));
}
__device__ inline f32 inverse_hyperbolic_tangent(f32 x) {
  const f64 size = fabs(f64(x));
  if (!(size < 1.0)) return size == 1.0 ? copysign(f32(infinity()), x) : f32(not_a_number());
  if (size < 0x1p-12) return copysign(f32(size + size * size * size * 0x1.5555555555555p-2), x);
  return copysign(f32(0.5 * logarithm_near(divided(1.0 + size, 1.0 - size))), x);
}
