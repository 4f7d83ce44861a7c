// The inverse of the error function in steps that CPU and GPU have in common: `reference.inverse_erf` has the same
// text in NumPy.
#pragma once
#include "powers.cuh"

// What is added to s = sqrt(-log(1 - x^2)) on pieces, by the distance from their centers: the highest power first.
static __device__ const f64 inverse_error_table[4][15] = {
  {-0x1.e57aad3f557e8p-22, -0x1.2f3c8bd8a9251p-19, 0x1.1535f4873c023p-18, 0x1.a97ed3de99f6ap-18,
   -0x1.890a2c0411a08p-16, -0x1.f93aa6d54e18dp-19, 0x1.b9ae5e1143ef6p-14, -0x1.a1c5e6d8271ffp-14,
   -0x1.8722f0ee24e52p-12, 0x1.125192875df37p-10, 0x1.87d8af99e4d49p-13, -0x1.c9507a3c1e175p-8,
   0x1.4578833cdc9dap-6, -0x1.1e700127c9516p-6, -0x1.4d25524d15e05p-3},
  {-0x1.6e866847bd80bp-23, 0x1.d63fb853fca95p-22, -0x1.07b07b26057b3p-25, -0x1.2eb618759eda1p-19,
   0x1.73d96c75a4894p-18, -0x1.db4047176f393p-20, -0x1.9d0c3e8cef82dp-16, 0x1.3d162169cefb7p-14,
   -0x1.5a4468ccad81dp-14, -0x1.866dae8c5e7f8p-13, 0x1.467b91fdba052p-10, -0x1.011c21e9bc176p-8,
   0x1.046fb91f1a31cp-7, 0x1.36cd5b0a6e2d3p-10, -0x1.56d1c02bb9e37p-3},
  {0x1.9abde8f958a46p-28, -0x1.5eb6b5145e793p-28, -0x1.06df822a66b92p-25, 0x1.2a58ca5ed886ep-23,
   -0x1.7a91b2dd8ab3dp-22, 0x1.20cbbfeb19a8ep-21, 0x1.3c30e23766ea1p-23, -0x1.5442337508481p-18,
   0x1.bbca92668379dp-16, -0x1.bbc6ef57ae6aap-14, 0x1.8015f19225c6dp-12, -0x1.13b311332fb06p-10,
   0x1.b89cb5b28fa69p-10, 0x1.28c78137ab3a6p-7, -0x1.4af9e033f6964p-3},
  {-0x1.ef34f4a63f4bbp-37, 0x1.dd9148b7a6a22p-37, 0x1.f263b931994a4p-34, -0x1.b91976b4b714dp-31,
   0x1.3fd0ab65117a1p-28, -0x1.b848137315103p-26, 0x1.225e6a291cee5p-23, -0x1.6fba19d0970c3p-21,
   0x1.bb19cff8b49a6p-19, -0x1.f04bc3e433b1ep-17, 0x1.e6c63af7cf85bp-15, -0x1.4da6d5ec81eeep-13,
   -0x1.0c341d0b1bbb4p-12, 0x1.4ec5477ebc2e6p-7, -0x1.2efa5d4b895ffp-3},
};
static __device__ const f64 inverse_error_centers[4] = {
  0x1.199999999999ap+1, 0x1.7333333333333p+1, 0x1.ecccccccccccdp+1, 0x1.4d70a3d70a3d7p+2,
};
template <i32 COUNT> __device__ inline f64 polynomial_of(const f64 (&row)[COUNT], f64 t) {
  f64 p = row[0];
#pragma unroll
  for (i32 i = 1; i < COUNT; ++i) p = p * t + row[i];
  return p;
}

// Where 1 - x^2 is below e^-5, and next to 0, where products are raised.
__device__ __noinline__ f64 inverse_error_end(f64 size) {
  if (size < 0.5) {
    const f64 raised = size * 0x1p500;
    const DoubleDouble product = two_product(raised, 0x1.c5bf891b4ef6ap-1);
    return (product.high + (product.low + raised * 0x1.4f38760a41abbp-54)) * 0x1p-500;
  }
  const f64 less = 1.0 - size;
  const DoubleDouble more = two_sum(1.0, size), share = two_product(less, more.high);
  const DoubleDouble log = logarithm_pair(share.high, share.low + less * more.low, 0);
  const DoubleDouble s = pair_root({-log.high, -log.low});
  const i32 piece = (s.high >= 2.5) + (s.high >= 3.3) + (s.high >= 4.4);
  return s.high + (s.low + polynomial_of(inverse_error_table[piece], s.high - inverse_error_centers[piece]));
}
// x P(u) with u = log(1 - x^2) in two parts, P a pair, whose slope is near -0.24. P hardly varies where u is near 0:
// there u need not be exact to its own last digits.
__device__ inline f64 inverse_error(f64 x) {
  const f64 size = fabs(x), share = fused(-x, x, 1.0);
  const DoubleDouble u = near_logarithm(share);
  const f64 p = fused_polynomial(u.high, -0x1.52f29811dfdbdp-64, -0x1.2f6c6f517df9p-58, -0x1.eea37a24865ffp-54,
      -0x1.e039b09037967p-50, -0x1.2fa9c6867276bp-46, -0x1.ff3a3a48fadaap-44, -0x1.18e9c0d29a421p-41,
      -0x1.971873eef3d1cp-40, -0x1.39c2ac3e384e1p-38, -0x1.91f6f94daddfcp-36, -0x1.311bb9c36052fp-35,
      0x1.1226f06dfc6b9p-31, 0x1.8f4c9633b129cp-31, -0x1.880141f72f0dfp-26, -0x1.4080413291a18p-25,
      0x1.0fcda95996f5ep-20, 0x1.0f1e30d02b891p-19, -0x1.87014ebc042fbp-15, -0x1.0c86b8606e754p-13,
      0x1.3211025df5a02p-9, 0x1.7a72e72c1ecbfp-7, -0x1.db29fb2fee5e4p-3);
  const DoubleDouble by = pair_step(p, u.high, {0x1.c5bf891b4ef6ap-1, 0x1.4f38760a41abbp-54});
  const DoubleDouble product = two_product(size, by.high);
  f64 value = product.high + fused(size, fused(-0.24, u.low, by.low), product.low);
  if (!(share >= 0x1.b993fe00d5376p-8 && u32(__double_as_longlong(size) >> 32) >= 0x20b00000u)) {  // 2^-500
    value = size < 1.0 ? inverse_error_end(size) : size == 1.0 ? infinity() : not_a_number();
  }
  return copysign(value, x);
}

// (log(1 + g) - g) / g^2 for 1 + g from 0.707 to 1.414.
__device__ inline f32 near_one_polynomial(f32 g) {
  return fused_polynomial(g, 0x1.65aa58p-4f, -0x1.27c07p-3f, 0x1.32c7b4p-3f, -0x1.52feb8p-3f, 0x1.98a65ep-3f,
      -0x1.000682p-2f, 0x1.5557acp-2f, -0x1.fffff4p-2f);
}
// The slope of erfinv(x) / x by u = log(1 - x^2): from its value at 0 for u down to -5, from that at u = -9 beyond.
__device__ inline f32 inverse_error_polynomial(f32 u) {
  return fused_polynomial(u, 0x1.2f014cp-27f, 0x1.dc13b8p-23f, 0x1.0a2b9ap-19f, 0x1.0dc8c8p-18f, -0x1.74d1ep-15f,
      -0x1.0ad652p-13f, 0x1.31ffaep-9f, 0x1.7a6eb4p-7f, -0x1.db2a08p-3f);
}
__device__ inline f32 inverse_error_end(f32 u) {
  return fused_polynomial(u, 0x1.2cb03cp-39f, 0x1.39cc18p-34f, 0x1.299222p-30f, 0x1.587868p-27f, 0x1.d75c28p-25f,
      -0x1.0b049cp-23f, -0x1.4051b4p-17f, -0x1.b37e38p-13f, -0x1.1eb858p-8f, -0x1.55e7bap-3f);
}
// x P(u) with u = log(1 - x^2), P a sum of two f32. P hardly varies where u is near 0: there u need not be exact to its
// own last digits. 1 - x^2 is 2^k (1 + g), of which g is rounded once.
__device__ inline f32 inverse_error(f32 x) {
  const f32 share = fused(-x, x, 1.0f);
  const u32 power = (__float_as_uint(share) - 0x3f3504f3u) & 0xff800000u;
  const f32 raised = f32(i32(power)), down = __uint_as_float(0x3f800000u - power);  // k 2^23 and 2^-k
  const f32 g = fused(-(x * down), x, down - 1.0f), log = fused(g * g, near_one_polynomial(g), g);
  const f32 u = fused(raised, 0x1.62e43p-24f, log), u_rest = fused(raised, 0x1.62e43p-24f, -u) + log;
  f32 first = 0x1.c5bf88p-1f, first_rest = fused(u_rest, -0.24f, 0x1.1b4ef6p-25f);
  f32 from = u, p = inverse_error_polynomial(u);
  if (share < 0x1.b993fep-8f && share > 0.0f) {
    from = u + 9.0f, p = inverse_error_end(from);
    first = 0x1.6a9ef8p+1f, first_rest = fused(u_rest, -0.125f, 0x1.e7ba18p-22f);
  }
  const f32 value = fused(p, from, first), rest = fused(p, from, first - value) + first_rest;
  const f32 end = chosen(share == 0.0f, copysign(f32(infinity()), x), f32(not_a_number()));
  return chosen(share > 0.0f, fused(x, value, x * rest), end);
}
