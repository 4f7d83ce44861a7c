// The sine and cosine of pi x in steps that CPU and GPU have in common: `reference.turns` has the same text in
// NumPy.
#pragma once
#include "trigonometric.cuh"

// x = k + r for an even or odd k, which is exact: r is up to a half.
template <typename C> struct HalfTurns {
  C r;
  bool odd;
};
template <typename C> __device__ inline HalfTurns<C> turns(C x) {
  const C rest = x - C(2) * rint(C(0.5) * x), whole = C(sizeof(C) == 4 ? 0x1.8p23 : 0x1.8p52);
  const C k = (rest + whole) - whole;  // of -1, 0 and 1
  return {rest - k, k != C(0)};
}

// The sine of pi a or of pi (1/2 - a), for a from 0 to a quarter.
__device__ inline f64 sine_of_share(f64 a, bool turned) {
  const DoubleDouble product = two_product(a, 0x1.921fb54442d18p+1);
  const f64 low = product.low + a * 0x1.1a62633145c07p-53;
  const DoubleDouble value = turned ? cosine_near(product.high, low) : sine_near(product.high, low);
  return a < 0x1p-500 && !turned ? product.high : value.high + value.low;
}
__device__ inline f64 sine_of_turns(f64 x) {
  const HalfTurns<f64> by = turns(x);
  const f64 size = fabs(by.r);
  const bool wide = size > 0.25;
  const f64 value = copysign(sine_of_share(wide ? 0.5 - size : size, wide), by.r);
  return by.odd ? -value : value;
}
__device__ inline f64 cosine_of_turns(f64 x) {
  const HalfTurns<f64> by = turns(x);
  const f64 size = fabs(by.r);
  const bool wide = size > 0.25;
  const f64 value = sine_of_share(wide ? 0.5 - size : size, !wide);
  return by.odd ? -value : value;
}

// (sin(pi r) / r - 2 - w) / w^2 by w = 1 - 4 r^2, for |r| up to a half.
__device__ inline f32 half_turn_polynomial(f32 w) {
  return fused_polynomial(w, 0x1.c9b156p-18f, 0x1.2c34fap-12f, 0x1.0b0da6p-7f, 0x1.10b0ccp-3f);
}
// sin(pi r) + rest, of which 2 r + r w is nearly all, in two f32.
__device__ inline f32 sine_of_share(f32 r, f32 rest) {
  const f32 two = r + r, w = fused(-two, two, 1.0f), near = fused(r, w, two), lost = fused(r, w, two - near) + rest;
  return near + fused(r, w * w * half_turn_polynomial(w), lost);
}
__device__ inline f32 sine_of_turns(f32 x) {
  const HalfTurns<f32> by = turns(x);
  const f32 value = sine_of_share(by.r, -0.0f);  // which adds nothing
  return by.odd ? -value : value;
}
// sin(pi (1/2 - |r|)). What that difference lost, if r is up to a quarter, counts by the slope, near 9.1 |r|.
__device__ inline f32 cosine_of_turns(f32 x) {
  const HalfTurns<f32> by = turns(x);
  const f32 size = absolute(by.r), a = 0.5f - size, lost = (0.5f - a) - size;
  const f32 value = sine_of_share(a, lost * (9.1f * size));
  return by.odd ? -value : value;
}
