// sigmoid, tanh, erf, erfc, ndtr and the slope of gelu in steps that CPU and GPU have in common:
// `reference.elementary` (the first two) and `reference.error_functions` have the same text in NumPy.
//
// A result near 1 unit in the last place leaves no room for the roundings on the way, so what a large step loses is
// computed too (`..._rest`) and joins a later, smaller step. That takes fused multiply-adds. In f64 NumPy has none, and
// takes some thirty steps for one: sigmoid and tanh of f64 fuse exact remainders alone. Both sides of a choice are
// computed: neighbours are computed side by side.
#pragma once
#include "elementary.cuh"

// a * b + c, rounded once in f32, twice in f64.
__device__ inline f32 stepped(f32 a, f32 b, f32 c) { return fused(a, b, c); }
__device__ inline f64 stepped(f64 a, f64 b, f64 c) { return a * b + c; }

// What a product lost where it was rounded; what a sum of two lost.
template <typename C> __device__ inline C product_rest(C a, C b, C product) { return fused(a, b, -product); }
template <typename C> __device__ inline C sum_rest(C a, C b, C sum) {
  const C second = sum - a;
  return (a - (sum - second)) + (b - second);
}

// 2^k raised by a power of two, so far that it is a normal number down to where erfc is 0; and the way back.
__device__ inline f32 raised_power(f32 power) {
  return __int_as_float(i32((u32(__float_as_int(power)) << 23) + 0x5f800000u));
}
__device__ inline f64 raised_power(f64 power) {
  return __longlong_as_double(i64((u64(__double_as_longlong(power)) << 52) + 0x5ff0000000000000ull));
}
__device__ inline f32 lowering(f32) { return 0x1p-64f; }
__device__ inline f64 lowering(f64) { return 0x1p-512; }
__device__ inline f32 rounder(f32) { return 0x1.8p23f; }
__device__ inline f64 rounder(f64) { return 0x1.8p52; }

// ---- sigmoid and tanh ----

// n / (s + rest) to the last digit, where the rest is what a sum lost.
template <typename C> __device__ inline C shared_by(C n, C s, C rest, C n_rest = C(0)) {
  const C y = inverse(s), q = n * y;
  C left = fused(-s, q, n);  // exact
  if constexpr (sizeof(C) == sizeof(f64)) left = left + n_rest;
  return stepped(stepped(-rest, q, left), y, q);
}

__device__ inline f32 logistic_end(f32) { return 110.0f; }  // e^-x is 0 from here on
__device__ inline f64 logistic_end(f64) { return 760.0; }

// 1 / (1 + e^-x), below 0 as e^x / (1 + e^x): the divisor is from 1 to 2, and nothing is subnormal on the way.
template <typename C> __device__ inline C logistic(C x) {
  const C size = at_most(absolute(x), logistic_end(x)), power = exponential_power(-size);
  const C near = exponential_rise(reduced(-size, power - rounder(x))) + C(1);
  const C decay = near * raised_power(power), low = lowering(x);
  const C s = stepped(decay, low, C(1)), rest = stepped(decay, low, C(1) - s);
  return shared_by(x < C(0) ? decay : C(1), s, rest) * (x < C(0) ? low : C(1));
}

// The same bits for |x| up to 60, where nothing has to be raised.
__device__ inline f32 logistic_near(f32 x) {
  const f32 size = absolute(x), power = exponential_power(-size);
  const f32 near = exponential_rise(reduced(-size, power - rounder(x))) + 1.0f;
  const f32 decay = __int_as_float(i32((u32(__float_as_int(power)) << 23) + u32(__float_as_int(near))));
  const f32 s = decay + 1.0f, rest = decay + (1.0f - s);
  return shared_by(x < 0.0f ? decay : 1.0f, s, rest);
}

// ((e^2r - 1) / 2 - r) / r^2 for r from -0.087 to 0.2605.
__device__ inline f32 tanh_polynomial(f32 r) {
  return fused_polynomial(r, 0x1.8bbb1ap-7f, 0x1.7424e2p-5f, 0x1.10bcc2p-3f, 0x1.555472p-2f, 0x1.55558p-1f, 1.0f);
}
__device__ inline f64 tanh_polynomial(f64 r) {
  return unfused_polynomial(r, 0x1.50aeaa9057a55p-18, 0x1.a978fc1d4449fp-16, 0x1.27fe00525a4d5p-13,
      0x1.71de32c987d1cp-11, 0x1.a019fb1e08123p-9, 0x1.a01a01bef7ab2p-7, 0x1.6c16c16c86863p-5, 0x1.111111110dcdfp-3,
      0x1.555555555551ap-2, 0x1.555555555555bp-1, 1.0);
}

// With m = (e^2x - 1) / 2, tanh x = m / (m + 1). The quarter keeps the power 0 until m is large: a small m is exact to
// its own last digits.
__device__ inline f32 hyperbolic_tangent(f32 x) {
  const f32 t = at_most(absolute(x), 9.5f), power = fused(t, 0x1.715476p+1f, -0.25f) + 0x1.8p23f, k = power - 0x1.8p23f;
  const f32 r = fused(k, -0x1.7f7d1cp-21f, fused(k, -0x1.62e4p-2f, t));
  const f32 near = fused(tanh_polynomial(r) * r, r, r);
  const f32 two = __int_as_float(i32((u32(__float_as_int(power)) << 23) + 0x3f800000u));
  const f32 m = fused(two, near, fused(two, 0.5f, -0.5f)), s = m + 1.0f;
  return copysign(shared_by(m, s, m - (s - 1.0f)), x);
}
__device__ inline f64 hyperbolic_tangent(f64 x) {
  const f64 t = at_most(absolute(x), 20.0), power = (t * 0x1.71547652b82fep+1 + -0.25) + 0x1.8p52, k = power - 0x1.8p52;
  const f64 r = (t - k * 0x1.62e42fefap-2) - k * 0x1.cf79abc9e3b3ap-41;
  const f64 more = tanh_polynomial(r) * r * r, near = r + more, near_rest = (r - near) + more;
  const f64 two = __longlong_as_double(i64((u64(__double_as_longlong(power)) << 52) + 0x3ff0000000000000ull));
  const f64 half = (two - 1.0) * 0.5, grown = two * near, m = half + grown;
  const f64 m_rest = sum_rest(half, grown, m) + two * near_rest, s = m + 1.0;
  return copysign(shared_by(m, s, sum_rest(m, 1.0, s) + m_rest, m_rest), x);
}

// ---- erf, erfc and ndtr ----
//
// Below -x lies e^(-x^2 / 2) R(x); R falls from 1/2 to 0 like 1 / x. In f64, with s = x + c, y = 1 / s as it is rounded
// and q = b - 2 c y (exact, for c is a power of two), R is y T(q), T a polynomial. What s and y lost, relative to s, is
// `off`; R changes by `off` times a slowly varying factor, which is added to the exponent, as what x^2 lost is.

// In f32 R is y e^(p q), with y = 2 / (x + 2) and q = 1 - y: at x = 0 the exponent is 0, so that nothing is lost there.
// y is a multiple of 2^-24, and q is exact.
struct Share {
  f32 y, q, off;
};
// By back = -x / 2.
__device__ inline Share share_of(f32 back) {
  const f32 q = 1.0f - inverse(1.0f - back), y = 1.0f - q;
  return {y, q, fused(back, y, q)};
}

// c + c_rest + q p, and what that lost; c is short, so that what it differs from the value is exact.
__device__ inline f64 last_step(f64 p, f64 q, f64 c, f64 c_rest, f64& rest) {
  const f64 value = fused(p, q, c);
  rest = fused(p, q, c - value) + c_rest;
  return value;
}

// y e^(large + small), near y: that sum is rounded for its curved part alone.
__device__ inline f32 times_exponential(f32 y, f32 large, f32 small) {
  const f32 r = large + small, curved = fused(r * r, exponential_polynomial(r), small), value = fused(y, large, y);
  return value + fused(y, curved, fused(y, large, y - value));
}
// (g + g_rest) e^(minus + more), raised; |more| is far below 1.
__device__ inline f64 times_exponential(f64 g, f64 g_rest, f64 minus, f64 more) {
  const f64 power = exponential_power(minus), k = power - 0x1.8p52;
  const f64 large = fused(-k, 0x1.62e42fefap-1, minus), small = fused(-k, 0x1.cf79abc9e3b3ap-40, more);
  const f64 r = large + small, r_rest = (large - r) + small;
  const f64 curved = fused(r * r, exponential_polynomial<true>(r), r_rest);
  const f64 value = fused(g, r, g), rest = fused(g, r, g - value);
  return (value + fused(g, curved, fused(g_rest, r + curved, g_rest) + rest)) * raised_power(power);
}

// erf(x) / x - 1 by z = x^2, for x up to 0.9219 in f32 and 0.66 in f64.
__device__ inline f32 erf_polynomial(f32 z) {
  return fused_polynomial(z, 0x1.4ece88p-14f, -0x1.a5e1d2p-11f, 0x1.544658p-8f, -0x1.b800dp-6f, 0x1.ce2d62p-4f,
      -0x1.81274p-2f, 0x1.06eba8p-3f);
}
__device__ inline f64 erf_polynomial(f64 z) {
  return fused_polynomial(z, 0x1.5ac6a479a0485p-26, -0x1.80b874122e7a8p-23, 0x1.be31a32166c8ap-20,
      -0x1.f51ea719099fdp-17, 0x1.f9a65780aef08p-14, -0x1.c02dc9456ba92p-11, 0x1.565bcd660ec93p-8,
      -0x1.b82ce314320dcp-6, 0x1.ce2f21a04703p-4, -0x1.812746b037a3p-2, 0x1.06eba8214db69p-3);
}

// ln((x + 2) / 2 e^(x^2) erfc(x)) / q + 1.3125 in f32; (x + c) e^(x^2) erfc(x) by q, but for the last two steps, in
// f64, from 0.46 to 27.3.
__device__ inline f32 erfc_polynomial(f32 q) {
  return fused_polynomial(q, -0x1.2a3732p-3f, 0x1.d7582ap-2f, -0x1.c83facp-2f, 0x1.e3053cp-4f, -0x1.b2483p-4f,
      0x1.d7204ap-5f, 0x1.8ed14p-3f, 0x1.49f67ap-3f, -0x1.367d4cp-2f, 0x1.c8a17ap-5f);
}
__device__ inline f64 erfc_polynomial(f64 q) {
  return fused_polynomial(q, -0x1.9c9477f72286fp-27, -0x1.006d1aaf9d445p-24, -0x1.7712464dcf6b9p-26,
      0x1.156851fb809cfp-22, -0x1.d1a6fa9849e17p-23, -0x1.4efe3af05b975p-20, 0x1.1756f32a3b0e6p-18,
      0x1.c0fafc4d6fd07p-27, -0x1.1d9e4c28ed95bp-15, 0x1.b03c06a227b67p-14, -0x1.66bf22382ff7ep-15,
      -0x1.c6c54230b3339p-11, 0x1.2d5ebeb658c68p-8, -0x1.f4545ff20514dp-7, 0x1.466a83957eea9p-5, -0x1.686bb7e27a7ffp-4,
      0x1.5d01c681858bep-3, -0x1.2e95cf5dc7cffp-2, 0x1.dc1ab147314b2p-2);
}

// erfc(z + z_rest) from 0.46 on, raised, where minus + more is -(z + z_rest)^2.
__device__ inline f64 erfc_tail(f64 z, f64 z_rest, f64 minus, f64 more) {
  const f64 s = z + 4.0, y = inverse(s), q = fused(-8.0, y, 0x1.7ep-1), p = erfc_polynomial(q);
  f64 p1_rest, smooth_rest;
  const f64 p1 = last_step(p, q, -0x1.570d530544eep-1, 0x1.5f63db2c07f02p-52, p1_rest);
  const f64 smooth = last_step(p1, q, 0x1.c7cea29ceb7ep-1, -0x1.3f42f008c737fp-50, smooth_rest);
  const f64 g = smooth * y, g_rest = fused(fused(p1_rest, q, smooth_rest), y, fused(smooth, y, -g));
  const f64 off = fused(-((z - (s - 4.0)) + z_rest), y, fused(-s, y, 1.0));
  return times_exponential(g, g_rest, minus, fused(off, fused(fused(0.9226, q, -1.1542), q, 1.5377), more));
}

// y e^(-x^2 - 1.3125 q + p q) in f32; below 0, 2 less that.
__device__ inline f32 complementary_error(f32 x) {
  const f32 t = at_most(absolute(x), 11.0f), square = t * t;
  const Share of = share_of(-0.5f * t);
  const f32 minus = fused(-1.3125f, of.q, -square), minus_rest = fused(-1.3125f, of.q, -square - minus);
  const f32 more = fused(of.off, fused(-1.25f, of.q, 2.25676f), -product_rest(t, t, square));
  const f32 power = exponential_power(minus), k = power - 0x1.8p23f;
  const f32 large = fused(k, -0x1.62e4p-1f, minus), rest = fused(k, -0x1.7f7d1cp-20f, more) + minus_rest;
  const f32 value = times_exponential(of.y, large, fused(erfc_polynomial(of.q), of.q, rest));
  const f32 above = value * raised_power(power) * 0x1p-64f;
  return x < 0.0f ? 2.0f - above : above;
}
__device__ inline f64 complementary_error(f64 x) {
  const f64 size = absolute(x), t = at_most(size, 28.0), square = t * t;
  const f64 first = 1.0 - x, near = first + (((1.0 - first) - x) - x * erf_polynomial(square));
  const f64 value = erfc_tail(t, 0.0, -square, -product_rest(t, t, square)) * 0x1p-512;
  return size < 0.65 ? near : x < 0.0 ? 2.0 - value : value;
}

// -ln(erfc(x)) / x - 1 for x from 0.9 to 4.05 in f32; -ln(erfc(x)) by t = x - 1, but for the last step, for x from 0.65
// to 5.95 in f64, the more exact the larger erfc is.
__device__ inline f32 erf_power(f32 t) {
  return fused_polynomial(t, 0x1.5de5b2p-17f, -0x1.4a1aaep-12f, 0x1.d9319cp-9f, -0x1.843504p-6f, 0x1.b2d38ap-4f,
      0x1.4538b2p-1f, 0x1.0772dcp-3f);
}

__device__ inline f64 erf_power(f64 t) {
  return fused_polynomial(t, 0x1.5efbb68b71fbep-43, -0x1.71399df8da093p-38, 0x1.5f9d00a2510c7p-34,
      -0x1.96504757201bep-31, 0x1.401b929f4bba2p-28, -0x1.697e5fef6359dp-26, 0x1.211a1411d1c84p-24,
      -0x1.0e26cb1f578eep-23, -0x1.bd975d2a21722p-24, 0x1.0f00dd264e3adp-19, -0x1.415d22589ac5dp-17,
      0x1.c759f196197ffp-16, -0x1.b8be4e9b88d05p-16, -0x1.f1b4bb3f98f9ap-13, 0x1.033f699164661p-9,
      -0x1.48c9d40c0b1b5p-7, 0x1.5477f09cab10dp-5, 0x1.afabc11a28f36p-1, 0x1.51c9b0006c23cp+1);
}

__device__ inline f32 error_function(f32 x) {
  const f32 t = at_most(absolute(x), 4.0f), near = fused(erf_polynomial(t * t), t, t);
  const f32 minus = fused(-erf_power(t), t, -t), power = exponential_power(minus), k = power - 0x1.8p23f;
  const f32 grown = exponential_rise(reduced(minus, k));
  const f32 two = __int_as_float(i32((u32(__float_as_int(power)) << 23) + 0x3f800000u));
  return copysign(chosen(t < 0.921875f, near, fused(-two, grown, 1.0f - two)), x);
}
__device__ inline f64 error_function(f64 x) {
  const f64 size = at_most(absolute(x), 5.95), near = erf_polynomial(size * size) * size + size;
  const f64 t = size - 1.0;
  f64 by_rest;
  const f64 by = last_step(erf_power(t), t, 0x1.d97fbf27aa2ap+0, 0x1.0a1a3b5a401b3p-52, by_rest);
  const f64 power = exponential_power(-by), k = power - 0x1.8p52;
  const f64 large = fused(-k, 0x1.62e42fefap-1, -by), small = fused(-k, 0x1.cf79abc9e3b3ap-40, -by_rest);
  const f64 r = large + small, curved = fused(r * r, exponential_polynomial<true>(r), (large - r) + small);
  const f64 two = __longlong_as_double(i64((u64(__double_as_longlong(power)) << 52) + 0x3ff0000000000000ull));
  const f64 one = 1.0 - two, value = fused(-two, r, one), rest = fused(-two, r, one - value);
  return copysign(chosen(size < 0.65, near, value + fused(-two, curved, rest)), x);
}

// The slope of (ndtr(x) - 1/2) / x by h = -x^2 / 2, from its value at 0, for x up to 0.67.
__device__ inline f64 ndtr_near(f64 h) {
  return fused_polynomial(h, 0x1.32b775b041602p-21, 0x1.63692772e2a9p-18, 0x1.65a1ae0c3cf7ap-15,
      0x1.3ce9ac9d14081p-12, 0x1.e42b12d3b857ep-10, 0x1.37403f776c0cp-7, 0x1.46d04297829p-5, 0x1.1058377e2d045p-3);
}

// ln((x + 2) e^(x^2 / 2) ndtr(-x)) / q + 0.75.
__device__ inline f32 ndtr_polynomial(f32 q) {
  return fused_polynomial(q, 0x1.982962p-3f, -0x1.2fba76p-1f, 0x1.30d3a8p-1f, -0x1.36583p-2f, 0x1.1fd9c4p-3f,
      0x1.1f6144p-4f, 0x1.2441bcp-5f, -0x1.94a9ccp-4f, -0x1.79ef5ap-2f, 0x1.3bde58p-3f);
}

// The normal distribution below x: y / 2 e^(-x^2 / 2 - 0.75 q + p q), of which the square alone is large.
__device__ inline f32 normal_below(f32 x) {
  const f32 t = at_most(absolute(x), 14.5f), back = -0.5f * t, minus = back * t;
  const Share of = share_of(back);
  const f32 p = ndtr_polynomial(of.q);
  const f32 more = fused(of.off, fused(-0.477f, of.q, 1.59577f), product_rest(back, t, minus));
  const f32 power = exponential_power(fused(p, of.q, fused(-0.75f, of.q, minus))), k = power - 0x1.8p23f;
  const f32 large = fused(-0.75f, of.q, fused(k, -0x1.62e4p-1f, minus));
  const f32 value = times_exponential(of.y, large, fused(p, of.q, fused(k, -0x1.7f7d1cp-20f, more)));
  const f32 below = value * raised_power(power) * 0x1p-65f;
  return x < 0.0f ? below : 1.0f - below;
}
// By erfc of x / sqrt(2).
__device__ inline f64 normal_below(f64 x) {
  const f64 t = at_most(absolute(x), 40.0), back = -0.5 * t, minus = back * t, z = t * 0x1.6a09e667f3bcdp-1;
  const f64 z_rest = product_rest(t, 0x1.6a09e667f3bcdp-1, z) + t * -0x1.bdd3413b26456p-55;
  const f64 value = erfc_tail(z, z_rest, minus, product_rest(back, t, minus)) * 0x1p-513;
  const f64 first = x * 0x1.9884533d43651p-2, first_rest = product_rest(x, 0x1.9884533d43651p-2, first);
  const f64 near = (first + (x * minus * ndtr_near(minus) + first_rest)) + 0.5;
  return t < 0.6640625 ? near : x < 0.0 ? value : 1.0 - value;
}

// ---- the slope of gelu ----
//
// Below 0, ndtr(x) + x density(x) is e^(-x^2 / 2) (x0 - |x|) Q(|x|) with x0 = 0.7518 and a Q from 0.4 to 0.67.

// ln(2 Q) by q in f32, but for the last step; Q in f64, but for the last two.
__device__ inline f32 slope_polynomial(f32 q) {
  return fused_polynomial(q, -0x1.f9a002p-15f, 0x1.1f2a6ap-14f, 0x1.dd9c5ep-12f, -0x1.0e5abcp-10f, -0x1.3dd368p-10f,
      0x1.ed50b6p-8f, -0x1.87806cp-8f, -0x1.1f39fp-5f, 0x1.2ca82p-3f, -0x1.460014p-2f);
}
__device__ inline f64 slope_polynomial(f64 q) {
  return fused_polynomial(q, -0x1.3b041867cee1ep-34, -0x1.65cec54f3ea1ep-31, -0x1.236c4c2fb3ac7p-29,
      -0x1.979a8e1bdd3b5p-30, 0x1.054e06f3b58dap-27, 0x1.d4eb5b6e42fe4p-27, -0x1.989f64c8f29ebp-26,
      -0x1.07f2d34915fb7p-24, 0x1.f6720d13d3813p-24, 0x1.29baa646d2c23p-22, -0x1.99cce9e4df14cp-21,
      -0x1.276e032846e3ep-20, 0x1.87f67b5a6d6bcp-18, 0x1.2fa66f1135867p-22, -0x1.7890d3626a296p-15,
      0x1.8b00b238c8816p-14, 0x1.69d85621adfdep-13, -0x1.c76b58974f954p-10, 0x1.b059ebdd69cdbp-8, -0x1.2345a094d034ep-6,
      0x1.3d42d11091024p-5);
}

// The derivative of x normal_below(x).
__device__ inline f32 gelu_slope(f32 x) {
  const f32 t = at_most(absolute(x), 16.0f), back = -0.5f * t, minus = back * t;
  const f32 s = t + 4.0f, y = inverse(s), q = fused(-8.0f, y, 1.375f);
  const f32 p = slope_polynomial(q), smooth = fused(p, q, 0x1.6997ccp-6f);
  const f32 smooth_rest = fused(p, q, 0x1.6997ccp-6f - smooth);
  const f32 off = fused(-(t - (s - 4.0f)), y, fused(-s, y, 1.0f));
  const f32 varied = fused(fused(0.3706f, q, -0.7445f), q, 0.4453f);
  const f32 more = fused(off, varied, product_rest(back, t, minus));
  const f32 power = exponential_power(minus + smooth), k = power - 0x1.8p23f;
  const f32 small = smooth + (fused(k, -0x1.7f7d1cp-20f, more) + smooth_rest);
  const f32 r = fused(k, -0x1.62e4p-1f, minus) + small;
  const f32 g = 0x1.80ead2p-1f - t, g_rest = sum_rest(0x1.80ead2p-1f, -t, g) + -0x1.a03fd4p-27f;
  const f32 square = r * r, p2 = exponential_polynomial(r), grown = fused(square, p2, r);
  const f32 value = g + fused(g, r, fused(g * square, p2, fused(g_rest, grown, g_rest)));
  const f32 below = value * raised_power(power) * 0x1p-65f;
  return x < 0.0f ? below : 1.0f - below;
}
__device__ inline f64 gelu_slope(f64 x) {
  const f64 t = at_most(absolute(x), 40.0), back = -0.5 * t, minus = back * t;
  const f64 s = t + 4.0, y = inverse(s), q = fused(-8.0, y, 0x1.5cp-1);
  f64 p1_rest, smooth_rest;
  const f64 p1 = last_step(slope_polynomial(q), q, -0x1.2769bc2e743p-4, -0x1.bcp-50, p1_rest);
  const f64 smooth = last_step(p1, q, 0x1.bce75df69b08p-2, 0x1.ap-50, smooth_rest);
  const f64 from = 0x1.80ead197f00b4p-1 - t;
  const f64 from_rest = sum_rest(0x1.80ead197f00b4p-1, -t, from) + -0x1.13e74c58cada8p-56;
  const f64 g = smooth * from, lost = fused(smooth, from_rest, product_rest(smooth, from, g));
  const f64 g_rest = fused(fused(p1_rest, q, smooth_rest), from, lost);
  const f64 off = fused(-(t - (s - 4.0)), y, fused(-s, y, 1.0));
  const f64 more = fused(off, fused(fused(0.3235, q, -0.2889), q, 0.0996), product_rest(back, t, minus));
  const f64 below = times_exponential(g, g_rest, minus, more) * 0x1p-512;
  return x < 0.0 ? below : 1.0 - below;
}
