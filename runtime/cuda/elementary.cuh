// Elementary functions in steps that CPU and GPU have in common: `reference.elementary` has the same text in NumPy.
#pragma once
#include "polynomials.cuh"
#include "quotient.cuh"

// 2^k for a power whose exponent is that of a normal number.
__device__ inline f32 power_of_two(f32, i32 k) { return __int_as_float((k + 127) << 23); }
__device__ inline f64 power_of_two(f64, i32 k) { return __longlong_as_double(i64(k + 1023) << 52); }

// y * 2^k, rounded once where it is subnormal; k stands in the last bits of `power`.
__device__ inline f32 with_power(f32 y, f32 power) {
  const u32 bits = u32(__float_as_int(power)), half = bits >> 1;
  return y * __int_as_float(i32((half << 23) + 0x3f800000u)) *
      __int_as_float(i32(((bits - half) << 23) + 0x3f800000u));
}
__device__ inline f64 with_power(f64 y, f64 power) {
  const i32 k = i32(__double_as_longlong(power)), half = k >> 1;
  return y * power_of_two(y, half) * power_of_two(y, k - half);
}

// 2^(k + lift) as bits: 0 where k + lift is -127, the least that may be.
template <int LIFT> __device__ inline f32 lifted(f32 power) {
  return __int_as_float(i32((u32(__float_as_int(power)) << 23) + (u32(127 + LIFT) << 23)));
}

// with_power for k from -190 to 0: one factor lifts y above all subnormal numbers, and the other puts it back.
__device__ inline f32 with_falling_power(f32 y, f32 power) { return y * lifted<64>(power) * 0x1p-64f; }

// (e^r - 1 - r) / r^2 for |r| up to ln(2) / 2.
__device__ inline f32 exponential_polynomial(f32 r) {
  return fused_polynomial(r, 0x1.6d591cp-10f, 0x1.1242p-7f, 0x1.5554dep-5f, 0x1.555486p-3f, 0x1p-1f);
}
template <bool FUSED = false> __device__ inline f64 exponential_polynomial(f64 r) {
  return polynomial<FUSED>(r, 0x1.1f733f411b727p-29, 0x1.af4e5274a366cp-26, 0x1.27e4db47938d1p-22,
      0x1.71de01ff19a6bp-19, 0x1.a01a01a6e1a43p-16, 0x1.a01a01abf7ed6p-13, 0x1.6c16c16c162c3p-10, 0x1.11111111100bep-7,
      0x1.5555555555556p-5, 0x1.5555555555557p-3, 0x1p-1);
}

// x - k ln 2; the first product is exact, and so is what it is taken from, where k ln 2 is next to x.
__device__ inline f32 reduced(f32 x, f32 k) { return fused(k, -0x1.7f7d1cp-20f, fused(k, -0x1.62e4p-1f, x)); }
__device__ inline f64 reduced(f64 x, f64 k) { return (x - k * 0x1.62e42fefap-1) - k * 0x1.cf79abc9e3b3ap-40; }

// e^r - 1, rounded so that it never falls while r rises.
__device__ inline f32 exponential_rise(f32 r) { return fused(r * r, exponential_polynomial(r), r); }
__device__ inline f64 exponential_rise(f64 r) { return r * r * exponential_polynomial(r) + r; }

// e^(x - k ln 2), where k ln 2 is next to x.
__device__ inline f32 exponential_near(f32 x, f32 k) {
  const f32 r = reduced(x, k);
  return fused(fused(exponential_polynomial(r), r, 1.0f), r, 1.0f);
}
__device__ inline f64 exponential_near(f64 x, f64 k) { return exponential_rise(reduced(x, k)) + 1.0; }

// x log2(e) and the number that rounds it to an integer, which then stands in the last bits.
__device__ inline f32 exponential_power(f32 x) { return fused(x, 0x1.715476p+0f, 0x1.8p23f); }
__device__ inline f64 exponential_power(f64 x) { return x * 0x1.71547652b82fep+0 + 0x1.8p52; }

__device__ inline f32 exponential(f32 x) {
  x = bounded(x, -104.5f, 89.0f);
  const f32 power = exponential_power(x);
  return with_power(exponential_near(x, power - 0x1.8p23f), power);
}
__device__ inline f64 exponential(f64 x) {
  x = bounded(x, -746.0, 710.0);
  const f64 power = exponential_power(x);
  return with_power(exponential_near(x, power - 0x1.8p52), power);
}

// The same bits for x up to 0.
template <typename C> __device__ inline C falling_exponential(C x) {
  if constexpr (sizeof(C) == 8) {
    return exponential(x);
  } else {
    x = at_least(x, -104.5f);
    const f32 power = exponential_power(x);
    return with_falling_power(exponential_near(x, power - 0x1.8p23f), power);
  }
}

// The same bits for usual arguments, in fewer instructions; where an argument is unusual, `usual` becomes false and the
// result is anything.
__device__ inline f32 quick_exponential(f32 x, bool& usual) {
  usual &= fabsf(x) <= 87.0f;
  const f32 power = exponential_power(x);
  return exponential_near(x, power - 0x1.8p23f) * __int_as_float((__float_as_int(power) << 23) + 0x3f800000);
}
__device__ inline f64 quick_exponential(f64 x, bool& usual) {
  usual &= fabs(x) <= 708.0;
  const f64 power = exponential_power(x);
  const i64 bits = (__double_as_longlong(power) << 52) + 0x3ff0000000000000ll;
  return exponential_near(x, power - 0x1.8p52) * __longlong_as_double(bits);
}
template <int FAST, typename C> __device__ inline C exponential(C x, bool& usual) {
  return FAST ? quick_exponential(x, usual) : exponential(x);
}

// x = m * 2^k with m in [sqrt(1/2), sqrt(2)), for a finite x above 0.
__device__ inline f32 mantissa(f32 x, f32& k) {
  const bool subnormal = x < 0x1p-126f;
  const i32 bits = __float_as_int(subnormal ? x * 0x1p24f : x);
  const i32 above = bits - 0x3f3504f3;  // from sqrt(1/2)
  k = f32((above >> 23) - (subnormal ? 24 : 0));
  return __int_as_float((above & 0x7fffff) + 0x3f3504f3);
}
__device__ inline f64 mantissa(f64 x, f64& k) {
  const bool subnormal = x < 0x1p-1022;
  const i64 bits = __double_as_longlong(subnormal ? x * 0x1p54 : x);
  const i64 above = bits - 0x3fe6a09e60000000ll;
  k = f64(i32(above >> 52) - (subnormal ? 54 : 0));
  return __longlong_as_double((above & 0xfffffffffffffll) + 0x3fe6a09e60000000ll);
}

// (log(1 + g) - g + g^2 / 2) / g^3 for 1 + g from 0.707 to 1.414.
__device__ inline f32 one_plus_polynomial(f32 g) {
  return fused_polynomial(g, 0x1.1b442ep-4f, -0x1.e2f82p-4f, 0x1.e657c8p-4f, -0x1.fb416ap-4f, 0x1.23322ep-3f,
      -0x1.5562eap-3f, 0x1.99a54cp-3f, -0x1.ffffeep-3f, 0x1.555546p-2f);
}
__device__ inline f64 logarithm_polynomial(f64 z) {
  return unfused_polynomial(z, 0x1.0c0569de6604dp-3, 0x1.0fbe69b2a187bp-3, 0x1.3b1c370092383p-3, 0x1.745cf8fccb602p-3,
      0x1.c71c72016baf2p-3, 0x1.2492492476c24p-2, 0x1.9999999999a38p-2, 0x1.5555555555555p-1);
}
__device__ inline f32 ln2_high(f32) { return 0x1.62e4p-1f; }
__device__ inline f64 ln2_high(f64) { return 0x1.62e42feep-1; }
__device__ inline f32 ln2_low(f32) { return 0x1.7f7d1cp-20f; }
__device__ inline f64 ln2_low(f64) { return 0x1.a39ef35793c76p-33; }

// A logarithm where its argument is not above 0 and finite. A quotient by 0 would be computed, slowly. In f32 a product
// and a sum of infinities tell the rest apart.
__device__ inline f32 logarithm_end(f32 x) {
  const f32 beyond = __int_as_float(0x7f800000);
  return chosen(x == 0.0f, -beyond, fused(x, beyond, beyond));
}
__device__ inline f64 logarithm_end(f64 x) {
  return x == 0.0 ? __longlong_as_double(0xfff0000000000000ll)
                  : x < 0.0 ? __longlong_as_double(0x7fffffffffffffffll) : x;
}

// Of a finite x above 0. In f64 s is the IEEE quotient f / (2 + f): the divisor lies in 1.7 .. 2.5, and f is 0 or no
// less than its last bit.
__device__ inline f32 sure_logarithm(f32 x) {
  f32 k;
  const f32 g = mantissa(x, k) - 1.0f, square = g * g;
  const f32 bent = fused(square * g, one_plus_polynomial(g), fused(-0.5f, square, k * ln2_low(x)));
  return fused(k, ln2_high(x), g + bent);
}
__device__ inline f64 sure_logarithm(f64 x) {
  f64 k;
  const f64 f = mantissa(x, k) - 1.0, sum = 2.0 + f, inverse_sum = inverse(sum), near = f * inverse_sum;
  const f64 half = 0.5 * f * f, s = fused(-fused(sum, near, -f), inverse_sum, near), z = s * s;
  const f64 rest = s * (half + z * logarithm_polynomial(z)) + k * ln2_low(x);
  return k * ln2_high(x) - ((half - rest) - f);
}
__device__ inline f32 logarithm(f32 x) {
  return chosen(x > 0.0f && is_finite(x), sure_logarithm(x), logarithm_end(x));
}
__device__ inline f64 logarithm(f64 x) { return x > 0.0 && is_finite(x) ? sure_logarithm(x) : logarithm_end(x); }
