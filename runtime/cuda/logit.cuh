// log(x / (1 - x)) in steps that CPU and GPU have in common: `reference.logit` has the same text in NumPy.
#pragma once
#include "hyperbolic.cuh"

// Whether x has usual odds: it is no end of its range, and not next to a half. Elementwise programs ask it of all
// elements of a thread at once, because branches for each would keep neighbours from being computed side by side.
__device__ inline bool are_usual(f64 x) { return x >= 0x1p-500 && x < 1.0 && absolute(x + x - 1.0) >= 0x1p-20; }
__device__ inline bool are_usual(f32) { return true; }  // which has no branch
template <typename C> __device__ inline bool are_usual_odds(C x) { return are_usual(x); }

// Of a quotient of pairs; next to a half, where the last digits of such a quotient count, by 2 atanh(2x - 1). A small x
// is raised, so that products are normal numbers.
template <bool USUAL> __device__ inline f64 log_odds_of(f64 x) {
  if (!USUAL && !(x > 0.0 && x < 1.0)) return x == 0.0 ? -infinity() : x == 1.0 ? infinity() : not_a_number();
  const f64 v = x + x - 1.0;
  if (!USUAL && fabs(v) < 0x1p-20) return (v + v) + v * v * v * 0x1.5555555555555p-1;
  const bool small = !USUAL && x < 0x1p-500;
  const DoubleDouble quotient = pair_quotient({small ? x * 0x1p600 : x, 0.0}, two_sum(1.0, -x));
  const DoubleDouble log = logarithm_terms(quotient.high, quotient.low, small ? -600 : 0);
  return log.high + log.low;
}

// (2 atanh(q / 2) - q) / q^3 by z = q^2, for |q| up to 0.546: the polynomial of atanh.
__device__ inline f32 twice_atanh(f32 z) {
  return fused_polynomial(z, 0x1.091f2ap-11f, 0x1.22240ap-9f, 0x1.99a92cp-7f, 0x1.555546p-4f);
}
// f32: t is the lesser of x and 1 - x, which is exact where it is; s is the other one. k ln(2) + 2 atanh(n / 2d) is the
// logarithm of s / t, for n = 2 - 2 (2^k + 1) t and d = 1 + (2^k - 1) t. k is about log2(s / t), read from the bits of
// both, and 0 from t = 3/8 on. t is raised by 2^64, so that it is a normal number.
template <bool> __device__ inline f32 log_odds_of(f32 x) {
  const f32 other = 1.0f - x, t = 0x1p64f * at_most(x, other), s = at_least(x, other);
  const u32 above = u32(__float_as_int(s)) - u32(__float_as_int(t)) + 0x20200000u, raised = above & 0xff800000u;
  const f32 power = __int_as_float(i32(raised + 0x1f800000u));
  const f32 more = power - 0x1p-64f, n = fused(-fused(power, 2.0f, 0x1p-63f), t, 2.0f), d = fused(more, t, 1.0f);
  const f32 y = inverse(d), q = n * y, left = fused(-fused(more, t, 1.0f - d), q, fused(-d, q, n));
  const f32 log = with_powers(f32(i32(raised)), 0x1.62e4p-24f, 0x1.7f7d1cp-43f, q, twice_atanh(q * q), left, y);
  const f32 value = chosen(t > 0.0f, log, chosen(t == 0.0f, f32(infinity()), f32(not_a_number())));
  return copysign(value, x - 0.5f);
}
template <typename C> __device__ inline C log_odds(C x) { return log_odds_of<false>(x); }
// In a form: where it is FAST_WITHIN, all odds are usual.
template <int FAST, typename C> __device__ inline C log_odds_in(C x) { return log_odds_of<FAST == FAST_WITHIN>(x); }
