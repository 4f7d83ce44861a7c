// Hyperbolic functions and their inverses in steps that CPU and GPU have in common: `reference.hyperbolic` has the
// same text in NumPy. f64 is computed in double-double, f32 in sums of two f32.
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
  const DoubleDouble log = logarithm_terms(argument.high, argument.low + root.low, 0);
  return log.high + log.low;
}
// log(2 x) for x from 2^30 on.
__device__ inline f64 inverse_beyond(f64 x) {
  const DoubleDouble log = logarithm_terms(x, 1);
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
  const DoubleDouble log = logarithm_terms(quotient.high, quotient.low, 0);
  return copysign(0.5 * (log.high + log.low), x);
}

// ---- f32: sums of two f32 ----

// (sinh(r) - r) / r^3 and (cosh(r) - 1) / r^2 by z = r^2, for |r| up to ln(2) / 2.
__device__ inline f32 sinh_polynomial(f32 z) {
  return fused_polynomial(z, 0x1.a2e2e4p-13f, 0x1.110fbep-7f, 0x1.555556p-3f);
}
__device__ inline f32 cosh_polynomial(f32 z) { return fused_polynomial(z, 0x1.6d4f2cp-10f, 0x1.5554e6p-5f, 0x1p-1f); }
// |x| = k ln 2 + r + rest up to 89.5, where both functions are infinite; z = r^2; a quarter of 2^k and of 2^-k.
struct Quarters {
  f32 r, rest, z, up, down;
};
__device__ inline Quarters quarters_of(f32 x) {
  const f32 t = at_most(absolute(x), 89.5f), power = exponential_power(t), k = power - 0x1.8p23f;
  const f32 large = fused(k, -0x1.62e4p-1f, t), r = fused(k, -0x1.7f7d1cp-20f, large);
  const i32 up = i32((u32(__float_as_int(power)) << 23) + 0x3e800000u);
  const f32 down = 0x1p-4f * __int_as_float(0x7f000000 - up);
  return {r, fused(k, -0x1.7f7d1cp-20f, large - r), r * r, __int_as_float(up), down};
}
// Halves of (up - down) cosh(r) + (up + down) sinh(r) and of (up + down) cosh(r) + (up - down) sinh(r).
__device__ inline f32 hyperbolic_sine(f32 x) {
  const Quarters e = quarters_of(x);
  const f32 less = e.up - e.down, sum = e.up + e.down, near = fused(sum, e.r, less);
  const f32 rest = fused(e.up, e.r, less - near) + fused(e.down, e.r, (e.up - less) - e.down);
  const f32 small = fused(sum, fused(e.r * e.z, sinh_polynomial(e.z), e.rest), rest);
  const f32 value = near + fused(less, e.z * cosh_polynomial(e.z), small);
  return absolute(x) < 0x1p-12f ? x : copysign(value + value, x);
}
__device__ inline f32 hyperbolic_cosine(f32 x) {
  const Quarters e = quarters_of(x);
  const f32 less = e.up - e.down, sum = e.up + e.down, near = fused(less, e.r, sum);
  const f32 rest = fused(less, e.r, sum - near) + ((e.up - sum) + e.down);
  const f32 small = fused(less, fused(e.r * e.z, sinh_polynomial(e.z), e.rest), rest);
  const f32 value = near + fused(sum, e.z * cosh_polynomial(e.z), small);
  return value + value;
}

// k (high + low) + q + p q^3 + left y, where high is ln 2 or its half and times k exact.
__device__ inline f32 with_powers(f32 k, f32 high, f32 low, f32 q, f32 p, f32 left, f32 y) {
  const f32 near = fused(k, high, q), rest = fused(k, low, fused(k, high, -near) + q);
  return near + fused(q * (q * q), p, fused(left, y, rest));
}
// (2 atanh(q / 2) - q) / q^3 by z = q^2, for |q| up to 0.3432.
__device__ inline f32 ratio_polynomial(f32 z) {
  return fused_polynomial(z, 0x1.31e29cp-9f, 0x1.995ecap-7f, 0x1.55557ap-4f);
}
// log(a + b + left / (2 root)) for a >= b, and what is left of a root, which is small: the last bits of an inverse need
// not be right, so integers give it. The sum is 2^k m, kept 2^-24 times as large, and log m = 2 atanh(n / 2d) with
// n = m - 1 and d = 1 + n / 2; `raised` is k where an exponent stands.
__device__ inline f32 logarithm_of_sum(f32 a, f32 b, f32 root, f32 left) {
  const f32 most = 0x1p-24f * a, sum = fused(0x1p-24f, b, most);
  const f32 half = __int_as_float(0x72800000 - __float_as_int(root));
  const f32 lost = fused(left, half, fused(0x1p-24f, b, most - sum));
  const u32 bits = u32(__float_as_int(sum)) + 0x0c000000u, raised = (bits - 0x3f3504f3u) & 0xff800000u;
  const f32 n = __int_as_float(i32(bits - raised)) - 1.0f, n_rest = lost * __int_as_float(i32(0x4b800000u - raised));
  const f32 d = fused(0.5f, n, 1.0f), d_rest = fused(0.5f, n_rest, fused(0.5f, n, 1.0f - d));
  const f32 y = inverse(d), q = n * y, left_of_n = fused(-d_rest, q, fused(-d, q, n)) + n_rest;
  return with_powers(f32(i32(raised)), 0x1.62e4p-24f, 0x1.7f7d1cp-43f, q, ratio_polynomial(q * q), left_of_n, y);
}
// log(t + sqrt(t^2 + 1)); from 2^40 on the root is t.
__device__ inline f32 inverse_hyperbolic_sine(f32 x) {
  const f32 t = absolute(x), near = at_most(t, 0x1p40f), root = sure_root(fused(near, near, 1.0f));
  const f32 left = fused(near, near, fused(-root, root, 1.0f));
  const f32 value = logarithm_of_sum(at_least(root, t), t, root, left);
  return (t < 0x1p-12f) | is_inf(x) ? x : copysign(value, x);
}
// log(x + sqrt(v^2 + 2v)) with v = x - 1, which is exact where it matters; below 0 the root is made that of a number
// below 0, which is NaN.
__device__ inline f32 inverse_hyperbolic_cosine(f32 x) {
  const f32 v = x - 1.0f, near = at_most(v, 0x1p40f), twice = near + near;
  const f32 root = sure_root(fused(near, absolute(near), twice));
  const f32 left = fused(near, near, fused(-root, root, twice));
  const f32 value = logarithm_of_sum(x, at_least(root, v), root, left);
  return (v == 0.0f) | !(v < f32(infinity())) ? v : value;
}
// (atanh(q) - q) / q^3 by z = q^2, for |q| up to 0.273.
__device__ inline f32 atanh_polynomial(f32 z) {
  return fused_polynomial(z, 0x1.091f2ap-3f, 0x1.22240ap-3f, 0x1.99a92cp-3f, 0x1.555546p-2f);
}
// k ln(2) / 2 + atanh(n / d) for t = |x|: with s = 1 - t and m = (2^k - 1) / 2, n = t - m s and d = 1 + m s. k is about
// log2((1 + t) / s), read from the bits of both, and 0 up to t = 1/4. n is exact where s is.
__device__ inline f32 inverse_hyperbolic_tangent(f32 x) {
  const f32 t = absolute(x), s = 1.0f - t, s_rest = (1.0f - s) - t;
  const u32 above = u32(__float_as_int(1.0f + t)) - u32(__float_as_int(s)) + 0x200000u, raised = above & 0xff800000u;
  const f32 m = __int_as_float(i32(raised + 0x3f000000u)) - 0.5f;
  const f32 n = fused(-m, s, t), d = fused(m, s, 1.0f), d_rest = fused(m, s, 1.0f - d);
  const f32 y = inverse(d), q = n * y, left = fused(-m, s_rest, fused(-d_rest, q, fused(-d, q, n)));
  const f32 value = with_powers(f32(i32(raised)), 0x1.62e4p-25f, 0x1.7f7d1cp-44f, q, atanh_polynomial(q * q), left, y);
  return copysign(chosen(t < 1.0f, value, chosen(t == 1.0f, f32(infinity()), f32(not_a_number()))), x);
}
