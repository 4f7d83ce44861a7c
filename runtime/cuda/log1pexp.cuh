// log(1 + e^x) in steps that CPU and GPU have in common: `reference.log1pexp` has the same text in NumPy.
#pragma once
#include "powers.cuh"

__device__ inline f64 logarithm_one_plus_exponential(f64 x) {
  const DoubleDouble sum = fast_two_sum(1.0, exponential(-absolute(x)));
  const DoubleDouble log = logarithm_terms(sum.high, sum.low, 0);
  return maximum(x, 0.0) + (log.high + log.low);
}

// 7/8 (e^r - 1 - r) / r^2 for |r| up to ln(2) / 2.
__device__ inline f32 growth_polynomial(f32 r) {
  return fused_polynomial(r, 0x1.3cdf54p-10f, 0x1.dff218p-8f, 0x1.2aadd4p-5f, 0x1.2aa9fep-3f, 0x1.cp-2f);
}
// log(1 + u) / (7/8 u) - 1 for u from 0 to 1, of 7/8 u - 1/4.
__device__ inline f32 one_plus_share(f32 v) {
  return fused_polynomial(v, 0x1.2101d6p-7f, -0x1.d9be68p-6f, 0x1.89fbd2p-5f, -0x1.fd18dp-5f, 0x1.4005e4p-4f,
      -0x1.a03b08p-4f, 0x1.17511cp-3f, -0x1.857a6ep-3f, 0x1.206a0ep-2f, -0x1.dca58ep-2f, 0x1.5891c8p-8f);
}
// above + log(1 + e^-|x|), `above` being max(x, 0). Of the second, u = 7/8 e^-|x| is nearly all: in two parts, of which
// the lower one counts by the slope, near 1 - 0.6 v. u is added last, so what the first sum rounds is little. u is
// raised by 2^64.
__device__ inline f32 logarithm_above(f32 x, f32 above) {
  const f32 t = at_least(-absolute(x), -104.5f), power = exponential_power(t), k = power - 0x1.8p23f;
  const f32 large = fused(k, -0x1.62e4p-1f, t), r = fused(k, -0x1.7f7d1cp-20f, large);
  const f32 near = fused(large, 0.875f, 0.875f), lost = fused(large, 0.875f, 0.875f - near);
  const f32 more = fused(r * r, growth_polynomial(r), fused(k, 0.875f * -0x1.7f7d1cp-20f, lost));
  const f32 high = near + more, low = (near - high) + more;
  const f32 raised = __int_as_float(i32((u32(__float_as_int(power)) << 23) + 0x5f800000u));
  const f32 u = high * raised, u_rest = low * raised, v = fused(u, 0x1p-64f, -0.25f);
  const f32 small = fused(u, one_plus_share(v), fused(-0.6f * u_rest, v, u_rest));
  return fused(u, 0x1p-64f, fused(small, 0x1p-64f, above));
}
__device__ inline f32 logarithm_one_plus_exponential(f32 x) { return logarithm_above(x, at_least(x, 0.0f)); }

// The same of x up to 0, or NaN.
template <typename C> __device__ inline C falling_logarithm(C x) {
  if constexpr (sizeof(C) == sizeof(f32)) return logarithm_above(x, 0.0f);
  else return logarithm_one_plus_exponential(x);
}
