// erf, erfc, ndtr and sigmoid in steps that CPU and GPU have in common: skuda.elementary has the same text in NumPy.
#pragma once
#include "elementary.cuh"

// a * b + c, rounded once in f32, twice in f64.
__device__ inline f32 stepped(f32 a, f32 b, f32 c) { return fused(a, b, c); }
__device__ inline f64 stepped(f64 a, f64 b, f64 c) { return a * b + c; }

// min(x, most) and max(x, least) that keep NaN, one instruction in f32.
__device__ inline f32 at_least(f32 x, f32 least) {
  f32 y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(least));
  return y;
}
__device__ inline f32 at_most(f32 x, f32 most) {
  f32 y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(most));
  return y;
}
__device__ inline f64 at_most(f64 x, f64 most) { return minimum(x, most); }

// What a square lost where it was rounded.
__device__ inline f32 square_rest(f32 x, f32 square) { return fused(x, x, -square); }
__device__ inline f64 square_rest(f64 x, f64 square) {
  const f64 high = __longlong_as_double(__double_as_longlong(x) & ~0x7ffffffll), low = x - high;
  return ((high * high - square) + 2.0 * high * low) + low * low;
}

// e^x raised by a power of two, so far that it is a normal number down to where erfc is 0; and the way back.
__device__ inline f32 raised_exponential(f32 x) {
  const f32 power = exponential_power(x);
  return exponential_near(x, power - 0x1.8p23f) * __int_as_float((__float_as_int(power) << 23) + 0x5f800000);
}
__device__ inline f64 raised_exponential(f64 x) {
  const f64 power = exponential_power(x);
  const i64 bits = (__double_as_longlong(power) << 52) + 0x5ff0000000000000ll;
  return exponential_near(x, power - 0x1.8p52) * __longlong_as_double(bits);
}
__device__ inline f32 lowered(f32 x) { return x * 0x1p-64f; }
__device__ inline f64 lowered(f64 x) { return x * 0x1p-512; }

__device__ inline f32 erfc_end(f32) { return 11.0f; }  // erfc is 0 from here on
__device__ inline f64 erfc_end(f64) { return 28.0; }
__device__ inline f32 erfc_middle(f32) { return 3.0f; }
__device__ inline f64 erfc_middle(f64) { return 4.0; }

// (x + middle) e^(x^2) erfc(x) by q = (x - middle) / (x + middle).
__device__ inline f32 erfc_polynomial(f32 q) {
  f32 p = -0x1.5bfbcp-12f;
  p = fused(p, q, -0x1.02cdbp-11f);
  p = fused(p, q, 0x1.93fc7ep-9f);
  p = fused(p, q, -0x1.3f4726p-10f);
  p = fused(p, q, -0x1.b7ba1p-6f);
  p = fused(p, q, 0x1.e9950cp-4f);
  p = fused(p, q, -0x1.3deae4p-2f);
  p = fused(p, q, 0x1.2e326ep-1f);
  p = fused(p, q, -0x1.c44c48p-1f);
  return fused(p, q, 0x1.12f21ep+0f);
}
__device__ inline f64 erfc_polynomial(f64 q) {
  f64 p = 0x1.f36d8f26067d6p-31;
  p = p * q + -0x1.5e243bcb5bcdp-31;
  p = p * q + -0x1.055c642430266p-26;
  p = p * q + 0x1.d16930edb8c31p-29;
  p = p * q + 0x1.0a395a44d8d18p-23;
  p = p * q + -0x1.534dbf9f8d75fp-24;
  p = p * q + -0x1.c6596b17a2096p-21;
  p = p * q + 0x1.7f048f4ea1fbdp-20;
  p = p * q + 0x1.3b0cf5024bf2dp-18;
  p = p * q + -0x1.3c7440d5e91e8p-16;
  p = p * q + -0x1.e7ebd7777a24ep-19;
  p = p * q + 0x1.72cddbdba093ap-13;
  p = p * q + -0x1.dd2843b0c3d54p-12;
  p = p * q + -0x1.269b5709946d1p-12;
  p = p * q + 0x1.908f471ffe9afp-8;
  p = p * q + -0x1.b00c0529fc336p-6;
  p = p * q + 0x1.38dbd2c8e8e74p-4;
  p = p * q + -0x1.645fd8a4c08c6p-3;
  p = p * q + 0x1.52cac23710011p-2;
  p = p * q + -0x1.14eacb1ad02b6p-1;
  p = p * q + 0x1.8be202d26c708p-1;
  p = p * q + -0x1.f3fe31ecb49cp-1;
  return p * q + 0x1.18932bf08e154p+0;
}

// No branch: neighbours are computed side by side.
template <typename C> __device__ inline C complementary_error(C x) {
  const C size = at_most(absolute(x), erfc_end(x)), square = size * size;
  const C part = inverse(size + erfc_middle(x));
  const C smooth = erfc_polynomial((size - erfc_middle(x)) * part) * part;  // e^(size^2) erfc(size)
  const C exact = stepped(smooth, -square_rest(size, square), smooth);
  const C value = lowered(raised_exponential(-square) * exact);
  return x < C(0) ? C(2) - value : value;
}

// erf(x) / x - 1 by z = x^2, for x up to 0.9.
__device__ inline f32 erf_polynomial(f32 z) {
  f32 p = 0x1.65bfcp-14f;
  p = fused(p, z, -0x1.acd92ap-11f);
  p = fused(p, z, 0x1.55107p-8f);
  p = fused(p, z, -0x1.b815ccp-6f);
  p = fused(p, z, 0x1.ce2e5cp-4f);
  p = fused(p, z, -0x1.812744p-2f);
  return fused(p, z, 0x1.06eba8p-3f);
}
__device__ inline f64 erf_polynomial(f64 z) {
  f64 p = -0x1.d2f667da9b81bp-31;
  p = p * z + 0x1.e2ce2646d66cbp-27;
  p = p * z + -0x1.5d8926e69e361p-23;
  p = p * z + 0x1.b9b82879bf4f3p-20;
  p = p * z + -0x1.f4cf6a5de9cf3p-17;
  p = p * z + 0x1.f9a307176ef13p-14;
  p = p * z + -0x1.c02db31c72a35p-11;
  p = p * z + 0x1.565bcd0a60cdcp-8;
  p = p * z + -0x1.b82ce31273114p-6;
  p = p * z + 0x1.ce2f21a042822p-4;
  p = p * z + -0x1.812746b0379e3p-2;
  return p * z + 0x1.06eba8214db69p-3;
}

template <typename C> __device__ inline C error_function(C x) {
  if (absolute(x) < C(0.9)) return stepped(erf_polynomial(x * x), x, x);
  return copysign(C(1) - complementary_error(absolute(x)), x);
}

__device__ inline f32 logistic_end(f32) { return 110.0f; }  // e^-x is 0 from here on
__device__ inline f64 logistic_end(f64) { return 760.0; }

// 1 / (1 + e^-x), by e^-|x| for either sign: the divisor is from 1 to 2, and nothing is subnormal on the way.
template <typename C> __device__ inline C logistic(C x) {
  const C size = absolute(x), decay = raised_exponential(-at_most(size, logistic_end(x)));
  const C below = lowered(decay), share = inverse(C(1) + below);
  return x < C(0) ? lowered(decay * share) : share;
}

// log2 of the normal distribution below -x, by u = x - middle; it falls on beyond the 5.9 that it is made for.
__device__ inline f32 ndtr_polynomial(f32 u) {
  f32 p = -0x1.12a728p-26f;
  p = fused(p, u, 0x1.596614p-22f);
  p = fused(p, u, -0x1.510124p-19f);
  p = fused(p, u, 0x1.e58e92p-18f);
  p = fused(p, u, 0x1.1a4f0ep-15f);
  p = fused(p, u, -0x1.1bbf3cp-11f);
  p = fused(p, u, 0x1.099e34p-8f);
  p = fused(p, u, -0x1.849e56p-6f);
  p = fused(p, u, -0x1.31ba14p-1f);
  p = fused(p, u, -0x1.3f4072p+1f);
  return fused(p, u, -0x1.9f0ec6p+1f);
}
// (2^r - 1) / r for r from -1/2 to 1/2.
__device__ inline f32 exp2_polynomial(f32 r) {
  f32 p = 0x1.5bba14p-10f;
  p = fused(p, r, 0x1.3cea88p-7f);
  p = fused(p, r, 0x1.c6b752p-5f);
  p = fused(p, r, 0x1.ebf9bcp-3f);
  return fused(p, r, 0x1.62e42ap-1f);
}

// 2 to a power from -127 on, where it is taken for 0, as its exponent field is.
__device__ inline f32 two_to(f32 power) {
  const f32 shifted = power + 0x1.8p23f, rest = power - (shifted - 0x1.8p23f);
  const f32 whole = __int_as_float((__float_as_int(shifted) << 23) + 0x3f800000);
  return fused(rest, exp2_polynomial(rest), 1.0f) * whole;
}

// The normal distribution below x.
__device__ inline f32 normal_below(f32 x) {
  const f32 value = two_to(at_least(ndtr_polynomial(absolute(x) - 0x1.4p+0f), -127.0f));
  return x < 0.0f ? value : 1.0f - value;
}
__device__ inline f64 normal_below(f64 x) { return 0.5 * complementary_error(-0x1.6a09e667f3bcdp-1 * x); }

// 1 - x d(x) / n(x), n being the normal distribution below -x and d its density, by u = x - middle, for x up to 5.9.
__device__ inline f32 slope_polynomial(f32 u) {
  f32 p = 0x1.271e3p-26f;
  p = fused(p, u, -0x1.825b9p-22f);
  p = fused(p, u, 0x1.9ed54cp-19f);
  p = fused(p, u, -0x1.b701bp-17f);
  p = fused(p, u, 0x1.ce8baap-17f);
  p = fused(p, u, 0x1.97af5cp-13f);
  p = fused(p, u, -0x1.bcf628p-10f);
  p = fused(p, u, 0x1.22cff8p-7f);
  p = fused(p, u, -0x1.20ff6ap-5f);
  p = fused(p, u, -0x1.c763ap-1f);
  p = fused(p, u, -0x1.61bcp+1f);
  return fused(p, u, -0x1.2938a8p+0f);
}
// The derivative of x normal_below(x), which is normal_below(x) + x d(x). From the end on, below -x nothing is left.
__device__ inline f32 gelu_slope(f32 x) {
  const f32 u = at_most(absolute(x), 0x1.776p+3f) - 0x1.4p+0f;
  const f32 value = two_to(ndtr_polynomial(u)) * slope_polynomial(u);
  return x < 0.0f ? value : 1.0f - value;
}
__device__ inline f64 gelu_slope(f64 x) {
  const f64 inside = bounded(x, -40.0, 40.0);
  return normal_below(inside) + inside * (0.3989422804014327 * exponential(-0.5 * (inside * inside)));
}
