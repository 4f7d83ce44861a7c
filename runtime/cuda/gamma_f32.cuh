// The logarithm of the gamma function and its derivative of f32 in steps that CPU and GPU have in common, sums of two
// f32: `reference.gamma_f32` has the same text in NumPy.
#pragma once
#include "powers.cuh"

// The logarithm of a + a_rest in two parts, for a normal a above 0.
__device__ inline f32 logarithm_parts(f32 a, f32 a_rest, f32 inverse_a, f32& rest) {
  const i32 above = __float_as_int(a) - 0x3f3504f3;  // from sqrt(1/2)
  const f32 k = f32(above >> 23), g = __int_as_float((above & 0x7fffff) + 0x3f3504f3) - 1.0f;
  const f32 square = g * g, whole = k * ln2_high(k), log = whole + g;
  const f32 bent = fused(square * g, one_plus_polynomial(g), -0.5f * square);
  rest = ((whole - log) + g) + fused(a_rest, inverse_a, fused(k, ln2_low(k), bent));
  return log;
}
// log gamma(x) less x times the first part of log(x) - 1, for x from 3 on.
__device__ inline f32 stirling_rest(f32 x, f32 inverse_x, f32 less, f32 log_rest) {
  const f32 w = inverse_x * inverse_x;
  const f32 p = fused_polynomial(w, 0x1.6d8cbep-11f, -0x1.6b7002p-9f, 0x1.555544p-4f);
  const f32 small = fused(x - 0.5f, log_rest, fused(p, inverse_x, -0x1.e6d052p-27f));
  return fused(-0.5f, less, 0x1.acfe3ap-2f) + small;
}
// log gamma(1 + u) / (u m) by m = u - 1, for u up to 2, but for the last step.
__device__ inline f32 gamma_polynomial(f32 m) {
  return fused_polynomial(m, 0x1.eeed82p-17f, -0x1.3b6fc8p-15f, 0x1.228df4p-15f, -0x1.d38784p-15f, 0x1.764da2p-13f,
      -0x1.ba76e4p-12f, 0x1.e28b3ap-11f, -0x1.13c104p-9f, 0x1.47789p-8f, -0x1.95d184p-7f, 0x1.0e0d1ep-5f,
      -0x1.9ae65p-4f);
}

__device__ f32 careful_gamma_logarithm(f32 x);  // by way of f64
// By t = 8 (x - c), for the first and the second zero.
static __device__ const f32 gamma_zeros_table[2][11] = {
  {0x1.f4040cp-23f, 0x1.b6f8a4p-20f, 0x1.ea77d2p-25f, 0x1.027e9cp-15f, 0x1.6e61e6p-17f, 0x1.579da8p-11f,
   0x1.d82d9cp-13f, 0x1.04ef2ep-6f, 0x1.545ef2p-8f, 0x1.322b8cp-1f, 0x1.4f0ap+0f},
  {-0x1.f439b6p-13f, 0x1.f4e3a8p-11f, -0x1.015fc6p-9f, 0x1.f6cc9ep-9f, -0x1.1dfa6cp-7f, 0x1.53062ep-6f,
   -0x1.9516c4p-5f, 0x1.01e03ep-3f, -0x1.489698p-2f, 0x1.356b42p+0f, -0x1.efc82ap+0f},
};
// Next to the zeros between -3 and -2: the distance from one times a polynomial.
__device__ __noinline__ f32 gamma_logarithm_near_zeros(f32 x) {
  const bool first = x > -2.62f;
  const f32 t = (x + (first ? 2.5f : 2.75f)) * 8.0f;
  const f32* const by = gamma_zeros_table[first ? 0 : 1];
  f32 p = by[0];
#pragma unroll
  for (i32 i = 1; i < 9; ++i) p = fused(p, t, by[i]);
  const f32 q = fused(p, t, by[9]), q_rest = fused(p, t, by[9] - q);
  const f32 slope = fused(q, t, by[10]), slope_rest = fused(q_rest, t, fused(q, t, by[10] - slope));
  const f32 from = x - (first ? -0x1.3a7fcap+1f : -0x1.5fb41p+1f);
  const f32 from_rest = first ? -0x1.3fe0f2p-24f : 0x1.437b2p-24f;
  return fused(from, slope, fused(from, slope_rest, from_rest * slope));
}
// Of -3 and below less log |x sin(pi x) / pi| and log gamma(|x|); of infinities, NaN, poles, subnormal numbers.
__device__ __noinline__ f32 far_gamma_logarithm(f32 x) {
  const f32 size = absolute(x), turn = absolute(size - ((size + 0x1p23f) - 0x1p23f)), z = turn * turn;
  if (!(size < 0x1p23f) || turn == 0.0f) return x != x ? x : f32(infinity());
  if (size < 1.0f) return careful_gamma_logarithm(x);
  const f32 p = fused_polynomial(z, 0x1.22632cp-9f, -0x1.abb33ap-6f, 0x1.86a584p-3f, -0x1.9f9ca6p-1f, 0x1.a51a66p+0f);
  const f32 sine = fused(-p, z, 1.0f), sine_rest = fused(-p, z, 1.0f - sine);  // over pi |turn|
  const f32 area = size * turn, area_rest = fused(size, turn, -area), a = area * sine;
  const f32 a_rest = fused(area, sine, -a) + fused(area, sine_rest, area_rest * sine);
  f32 rest, log_rest;
  const f32 below = logarithm_parts(a, a_rest, inverse(a), rest), inverse_size = inverse(size);
  const f32 less = logarithm_parts(size, 0.0f, inverse_size, log_rest) - 1.0f, product = size * less;
  const f32 other = fused(size, less, -product) + stirling_rest(size, inverse_size, less, log_rest);
  const f32 sum = product + below, back = sum - product;
  const f32 lost = (product - (sum - back)) + (below - back), value = -(sum + (lost + (other + rest)));
  return absolute(value) < 0.375f * (1.0f + (product + other)) ? careful_gamma_logarithm(x) : value;
}
// Below 1, log gamma(1 + u) less the logarithm of x, or of |x (x + 1) .. u| below 0.
__device__ inline f32 gamma_logarithm(f32 x) {
  if (!(x > -3.0f) || is_inf(x)) return far_gamma_logarithm(x);
  const bool below = x < 1.0f;
  f32 a = x, a_rest = 0.0f, u = below ? x : x - 1.0f;
  if (x < 0.0f) {
    if (x > -2.833f && x < -2.339f) return gamma_logarithm_near_zeros(x);
    const f32 second = x + 1.0f, third = x < -1.0f ? x + 2.0f : 1.0f, fourth = x < -2.0f ? x + 3.0f : 1.0f;
    const f32 one = x * second, two = third * fourth, product = one * two;
    const f32 one_rest = fused(x, x - (second - 1.0f), fused(x, second, -one));
    const f32 two_rest = fused(third, fourth, -two);
    const f32 rest = fused(one, two, -product) + fused(one_rest, two, one * two_rest);
    u = x < -2.0f ? fourth : x < -1.0f ? third : second;
    a = absolute(product), a_rest = product < 0.0f ? -rest : rest;
  }
  if (a < 0x1p-126f) return far_gamma_logarithm(x);
  f32 log_rest;
  const f32 inverse_a = inverse(a), log = logarithm_parts(a, a_rest, inverse_a, log_rest), less = log - 1.0f;
  const f32 m = u - 1.0f, zeros = u * m, zeros_rest = fused(u, m, -zeros), p = gamma_polynomial(m);
  const f32 q = fused(p, m, 0x1.b0ee6p-2f), q_rest = fused(p, m, 0x1.b0ee6p-2f - q);
  const f32 small = fused(zeros, q_rest, zeros_rest * q) - (below ? log_rest : 0.0f);
  const f32 near = fused(zeros, q, small) - (below ? log : 0.0f);
  return x < 3.0f ? near : fused(x, less, stirling_rest(x, inverse_a, less, log_rest));
}

// The derivative at 1 + u over u - u0, its zero, by m = u - 1, for u up to 2, but for the last two steps.
__device__ inline f32 gamma_derivative_polynomial(f32 m) {
  return fused_polynomial(m, 0x1.00ca88p-14f, -0x1.eb43d4p-14f, 0x1.062522p-17f, -0x1.204208p-15f, 0x1.a6eb7cp-12f,
      -0x1.9b265p-11f, 0x1.5bef0ap-10f, -0x1.61255cp-9f, 0x1.6c5b0ep-8f, -0x1.73d73ap-7f, 0x1.8025c4p-6f,
      -0x1.95ea6ep-5f, 0x1.be76bap-4f);
}
// 1 / e - pi / tan(pi e) over e, for |e| up to 1/4.
__device__ inline f32 cotangent_rest(f32 e) {
  const f32 z = e * e;
  return fused_polynomial(z, 0x1.27a446p+1f, 0x1.fe7f66p+0f, 0x1.047682p+1f, 0x1.15132cp+1f, 0x1.a51a66p+1f);
}
// pi tan(pi h) in two parts, for |h| up to 1/4.
__device__ inline f32 tangent_parts(f32 h, f32& rest) {
  const f32 z = h * h;
  const f32 p = fused_polynomial(z, 0x1.87656ep+18f, -0x1.1bd5d6p+9f, 0x1.3c685cp+13f, 0x1.f131d4p+10f, 0x1.008414p+9f,
      0x1.005b2ap+7f, 0x1.03c1fap+5f);
  const f32 q = fused(p, z, 0x1.3bd3ccp+3f), q_rest = fused(p, z, 0x1.3bd3ccp+3f - q) + 0x1.37c8bcp-22f;
  const f32 value = h * q;
  rest = fused(h, q_rest, fused(h, q, -value));
  return value;
}
__device__ f32 careful_gamma_derivative(f32 x);  // by way of f64
// The derivative at 1 + u, for u = |x| below 1 and x - 1 above, from 2 on by its series; less 1 / x from 0 to 1, and
// less pi / tan(pi x) below 0.
__device__ inline f32 gamma_derivative(f32 x) {
  const bool negative = x < 0.0f, below = x < 1.0f;
  const f32 nearest = (x - 0x1.8p23f) + 0x1.8p23f, e = negative ? x - nearest : x;
  if (!(x > -0x1p22f && absolute(e) >= 0x1p-60f && absolute(x) <= 0x1p60f)) return careful_gamma_derivative(x);
  const f32 u = below ? absolute(x) : x - 1.0f, from = u - 0x1.d8b618p-2f, m = u - 1.0f;
  const f32 p = gamma_derivative_polynomial(m), p1 = fused(p, m, -0x1.0aff28p-2f);
  const f32 p1_rest = fused(p, m, -0x1.0aff28p-2f - p1), q = fused(p1, m, 0x1.9213d4p-1f);
  const f32 q_rest = fused(p1_rest, m, fused(p1, m, 0x1.9213d4p-1f - q) + 0x1.9cdae8p-27f), near = from * q;
  const f32 near_rest = fused(from, q_rest, fused(from, q, -near)) + q * -0x1.ab5f2p-27f;
  const f32 z = absolute(x), w = inverse(z), v = w * w;
  f32 log_rest;
  const f32 log = logarithm_parts(z, 0.0f, w, log_rest);
  const f32 r = fused_polynomial(v, 0x1.0cdd6ep-9f, -0x1.9e803ap-9f, 0x1.fabd9ep-9f, -0x1.10e7d4p-7f, 0x1.55554p-4f);
  const f32 far_rest = fused(negative ? 0.5f : -0.5f, w, fused(-r, v, log_rest));
  const bool is_near = u < 2.0f;
  f32 value = is_near ? near : log, rest = is_near ? near_rest : far_rest;
  if (below) {
    const f32 y = inverse(e), y_rest = y * fused(-e, y, 1.0f);
    f32 other = y, other_rest = y_rest;
    if (negative) {
      other_rest = fused(-e, cotangent_rest(e), y_rest);
      f32 tangent_rest;
      const f32 tangent = tangent_parts(copysign(0.5f, e) - e, tangent_rest);
      const bool wide = absolute(e) > 0.25f;
      other = wide ? tangent : other, other_rest = wide ? tangent_rest : other_rest;
    }
    const f32 sum = value - other, back = sum - value;
    rest = ((value - (sum - back)) - (other + back)) + (rest - other_rest);
    value = sum;
    if (negative && absolute(value + rest) < (is_near ? 0x1p-5f : 0.5f)) return careful_gamma_derivative(x);
  }
  return value + rest;
}
