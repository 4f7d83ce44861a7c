// The logarithm of the gamma function and its derivative below 0 next to a zero, where their terms cancel: pairs in
// every step, which know some 100 bits of each term. `reference.gamma_zeros` has the same text in NumPy.
#pragma once
#include "powers.cuh"

// Next to zeros: the zero and the slope there, each in two parts, and half the slope's slope.
static __device__ const f64 gamma_logarithm_zeros[5][5] = {
  {-0x1.0284e78599581p+2, 0x1.e78c1e9e43cfep-53, 0x1.aca5cf4921642p+4, 0x1.a46a2e0d8fe1p-51,
   0x1.44415cd813f8ep+8},
  {-0x1.3f7577a6eeafdp+2, 0x1.5de5eab7f12cfp-53, -0x1.d224a3ef9e41fp+6, -0x1.9be272a13babcp-48,
   0x1.b533c678a3956p+12},
  {-0x1.4086a57f0b6d9p+2, -0x1.95262b72ca9cap-55, 0x1.ed72e0829ae02p+6, -0x1.fdc1859aea473p-50,
   0x1.cecc32ec22f9bp+12},
  {-0x1.7fe92f591f40dp+2, -0x1.7dd4ed62cbd32p-52, -0x1.661f6a43a5e12p+9, -0x1.0c437b83bc0e6p-45,
   0x1.f79dcb794f26fp+17},
  {-0x1.8016b25897c8dp+2, 0x1.27e0f49a4ba72p-54, 0x1.69de49e3af2aap+9, 0x1.954b690943b33p-47,
   0x1.fce23484cfd1p+17},
};
static __device__ const f64 gamma_derivative_zeros[4][5] = {
  {-0x1.29cea5c1ccbdp+2, -0x1.25e92119a56a9p-52, 0x1.8bd4130f4ee75p+3, 0x1.6694df3df9964p-55,
   -0x1.4a31244049061p+4},
  {-0x1.6ab2ca18e6ce3p+2, -0x1.da7ecae62c5bdp-59, 0x1.a0af5c72c8e84p+3, -0x1.9182932a0c24p-51,
   -0x1.802c5fd17ebafp+4},
  {-0x1.ab6b34398a4ffp+2, 0x1.9027e5b26e237p-52, 0x1.b3cda28232d1dp+3, -0x1.9b5988bba0e08p-51,
   -0x1.b23832f615893p+4},
  {-0x1.ec04b952a5368p+2, -0x1.37a62af51caacp-53, 0x1.c57b9f5a07e4bp+3, -0x1.684294a03cb36p-51,
   -0x1.e11ef4f9ada39p+4},
};
// B(2k) / (2k), from k = 12 to 1, for the series from 32 on.
static __device__ const f64 bernoulli_table[12][2] = {
  {-236364091.0, 65520.0}, {77683.0, 276.0}, {-174611.0, 6600.0}, {43867.0, 14364.0}, {-3617.0, 8160.0}, {1.0, 12.0},
  {-691.0, 32760.0}, {1.0, 132.0}, {-1.0, 240.0}, {1.0, 252.0}, {-1.0, 120.0}, {1.0, 12.0},
};

__device__ inline DoubleDouble pair_pi() { return {0x1.921fb54442d18p+1, 0x1.1a62633145c07p-53}; }
// (log(2 pi) - 1) / 2.
__device__ inline DoubleDouble stirling_pair() { return {0x1.acfe390c97d69p-2, 0x1.3494bc9001442p-56}; }

__device__ inline DoubleDouble careful_sum(DoubleDouble a, DoubleDouble b) {
  const DoubleDouble sum = two_sum(a.high, b.high);
  return fast_two_sum(sum.high, sum.low + (a.low + b.low));
}
__device__ inline DoubleDouble careful_product(DoubleDouble a, DoubleDouble b) {
  const DoubleDouble product = pair_product(a, b);
  return fast_two_sum(product.high, product.low);
}
__device__ inline DoubleDouble careful_quotient(DoubleDouble n, DoubleDouble d) {
  const DoubleDouble quotient = pair_quotient(n, d);
  return fast_two_sum(quotient.high, quotient.low);
}
// power ln 2 + 2 artanh((m - 1) / (m + 1)) of x = m 2^power.
__device__ inline DoubleDouble careful_logarithm(DoubleDouble x) {
  const Mantissa of = mantissa_of(x.high);
  const f64 low = x.low * two_to_the(-of.power), unit = f64(of.power);
  const DoubleDouble s = careful_quotient(fast_two_sum(of.m - 1.0, low), careful_sum({of.m, low}, {1.0, 0.0}));
  const DoubleDouble square = careful_product(s, s);
  DoubleDouble p = {0.0, 0.0};
#pragma unroll 1
  for (i32 k = 41; k > 0; k -= 2) {
    p = careful_sum(careful_product(p, square), pair_quotient({1.0, 0.0}, {f64(k), 0.0}));
  }
  const DoubleDouble whole = careful_sum(
      {unit * 0x1.62e42fefa38p-1, 0.0}, {unit * 0x1.ef35793c76p-45, unit * 0x1.cc01f97b57a08p-87});
  return careful_sum(whole, careful_product({2.0 * s.high, 2.0 * s.low}, p));
}
// The sum of B(2k) / (2k (1 + step (k - 1))) / z^2k by 1 / z, for z from 32 on.
__device__ inline DoubleDouble careful_series(DoubleDouble inverse, f64 step) {
  const DoubleDouble square = careful_product(inverse, inverse);
  DoubleDouble p = {0.0, 0.0};
#pragma unroll 1
  for (i32 i = 0; i < 12; ++i) {
    const f64 divisor = bernoulli_table[i][1] * (1.0 + step * f64(11 - i));
    p = careful_sum(careful_product(p, square), pair_quotient({bernoulli_table[i][0], 0.0}, {divisor, 0.0}));
  }
  return careful_product(p, square);
}
// What a function below 0 is: by its slope next to a zero of the table, else a value.
template <i32 COUNT> __device__ inline f64 next_to_zeros(const f64 (&zeros)[COUNT][5], f64 x, f64 value) {
#pragma unroll 1
  for (i32 i = 0; i < COUNT; ++i) {
    const f64* const by = zeros[i];
    const f64 apart = x - by[0], distance = apart - by[1];
    if (!(fabs(apart) < 0x1p-40)) continue;
    const DoubleDouble product = two_product(apart, by[2]);
    return product.high + (product.low + (distance * (distance * by[4] + by[3]) - by[1] * by[2]));
  }
  return value;
}
// z + 1.
__device__ inline DoubleDouble stepped_up(DoubleDouble z) {
  const DoubleDouble above = two_sum(z.high, 1.0);
  return fast_two_sum(above.high, above.low + z.low);
}
// log gamma(z) for a z = x + n from 32 on less the logarithm of x (x + 1) ... (z - 1).
__device__ __noinline__ f64 gamma_logarithm_near_zeros(f64 x) {
  DoubleDouble z = {x, 0.0}, product = {1.0, 0.0};
#pragma unroll 1
  for (; z.high < 32.0; z = stepped_up(z)) product = careful_product(product, z);
  const f64 sign = product.high < 0.0 ? -1.0 : 1.0;
  const DoubleDouble log = careful_logarithm(z), less = careful_logarithm({sign * product.high, sign * product.low});
  DoubleDouble value = careful_product(careful_sum(z, {-0.5, 0.0}), careful_sum(log, {-1.0, 0.0}));
  const DoubleDouble series = careful_product(careful_series(careful_quotient({1.0, 0.0}, z), 2.0), z);
  value = careful_sum(value, careful_sum(stirling_pair(), series));
  value = careful_sum(value, {-less.high, -less.low});
  return next_to_zeros(gamma_logarithm_zeros, x, value.high + value.low);
}
// pi / tan(pi size).
__device__ inline DoubleDouble careful_cotangent(f64 size) {
  const DoubleDouble one = {1.0, 0.0}, angle = careful_product({size - rint(size), 0.0}, pair_pi());
  const DoubleDouble square = careful_product(angle, angle);
  DoubleDouble sine = one, cosine = one;  // the sine over the angle
#pragma unroll 1
  for (i32 i = 34; i > 0; i -= 2) {
    const f64 k = f64(i);
    sine = careful_sum(one, pair_quotient(careful_product(sine, square), {-(k * (k + 1.0)), 0.0}));
    cosine = careful_sum(one, pair_quotient(careful_product(cosine, square), {-(k * (k - 1.0)), 0.0}));
  }
  return careful_quotient(careful_product(pair_pi(), cosine), careful_product(sine, angle));
}
// The derivative at z = n - x from 32 on less the inverses of |x|, |x| + 1 .. z - 1; then the reflection.
__device__ __noinline__ f64 gamma_derivative_near_zeros(f64 x) {
  DoubleDouble z = {-x, 0.0}, more = {0.0, 0.0};
  DoubleDouble value = careful_sum(careful_cotangent(-x), careful_quotient({1.0, 0.0}, z));
#pragma unroll 1
  for (; z.high < 32.0; z = stepped_up(z)) more = careful_sum(more, careful_quotient({-1.0, 0.0}, z));
  const DoubleDouble inverse = careful_quotient({1.0, 0.0}, z), series = careful_series(inverse, 0.0);
  DoubleDouble far = careful_sum(careful_logarithm(z), {-0.5 * inverse.high, -0.5 * inverse.low});
  far = careful_sum(far, {-series.high, -series.low});
  value = careful_sum(careful_sum(far, more), value);
  return next_to_zeros(gamma_derivative_zeros, x, value.high + value.low);
}
// Whether a result is small beside the larger of two terms.
__device__ inline bool has_cancelled(f64 result, f64 term, f64 share) {
  return fabs(result) < share * (1.0 + fabs(term));
}
