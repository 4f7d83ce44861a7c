// Exponentials, logarithms, powers and roots in steps that CPU and GPU have in common: `reference.powers` has the
// same text in NumPy. f64 is computed in double-double where it matters. Of f32, 2^x, e^x - 1, logarithms and powers
// are sums of two f32, 1 / sqrt and cbrt are correctly rounded, in NumPy by way of f64, and hypot is computed in f64.
// Each result is rounded once at the end.
#pragma once
#include "double_double.cuh"
#include "elementary.cuh"

// e^x = (1 + r + even + odd) 2^power and e^-x = (1 - r + even - odd) 2^-power.
struct Exponential {
  f64 r, even, odd;
  i32 power;
};

// Of x = power ln 2 + r + rest, |r| up to ln(2) / 2: near-minimax polynomials of cosh and sinh.
__device__ inline Exponential exponential_near_zero(f64 r, f64 rest, f64 power) {
  const DoubleDouble sum = fast_two_sum(r, rest);
  const f64 z = sum.high * sum.high;
  const f64 even = unfused_polynomial(z, 0x1.1f7f2df9103bcp-29, 0x1.27e4d4977bfa7p-22, 0x1.a01a01a96153bp-16,
      0x1.6c16c16c15d5ap-10, 0x1.5555555555556p-5);
  const f64 odd = unfused_polynomial(z, 0x1.af5bcd8766ae4p-26, 0x1.71ddfa359fdc7p-19, 0x1.a01a01af0c851p-13,
      0x1.111111110f928p-7, 0x1.5555555555558p-3);
  return {sum.high, 0.5 * z + (z * z * even + sum.low * sum.high), sum.high * z * odd + sum.low, i32(power)};
}
// Of x = high + low, |x| up to 1100.
__device__ inline Exponential exponential_parts(f64 high, f64 low) {
  const f64 power = rint(high * 0x1.71547652b82fep+0);
  // ln 2 in two parts, whose products with the power are exact
  const DoubleDouble r = two_sum(high - power * 0x1.62e42fefa38p-1, -(power * 0x1.ef35793c76p-45));
  return exponential_near_zero(r.high, r.low + low, power);
}
__device__ inline f64 exponential_value(Exponential e) {
  const DoubleDouble sum = fast_two_sum(1.0, e.r);
  return times_two_to(sum.high + (sum.low + (e.even + e.odd)), e.power);
}

__device__ inline f64 exponential2(f64 x) {
  x = bounded(x, -1080.0, 1030.0);
  const f64 power = rint(x), part = x - power;
  const DoubleDouble r = two_product(part, 0x1.62e42fefa39efp-1);
  return exponential_value(exponential_near_zero(r.high, r.low + part * 0x1.abc9e3b39803fp-56, power));
}
// e^x - 1.
__device__ inline f64 exponential_less_one(f64 x) {
  const Exponential e = exponential_parts(bounded(x, -60.0, 720.0), 0.0);
  const DoubleDouble one = two_sum(1.0, -two_to_the(-min(e.power, 1000)));
  const DoubleDouble sum = two_sum(one.high, e.r);
  return copysign(times_two_to(sum.high + (sum.low + (one.low + (e.even + e.odd))), e.power), x);
}

// c near 1 / m for m in 64 steps from 0.707 to 1.414, and -log c in two parts, the first a multiple of 2^-42.
static __device__ const f64 logarithm_table[64][3] = {
  {0x1.68p+0, -0x1.5d1bdbf581p-2, 0x1.8d6bdc9c7c238p-44},
  {0x1.64p+0, -0x1.51aad872ep-2, 0x1.f4bd8db0a7cc1p-44},
  {0x1.608p+0, -0x1.478cd5959bp-2, -0x1.ec89bf0c8d098p-45},
  {0x1.5c8p+0, -0x1.3bdd24eb15p-2, 0x1.257b4970e6ed9p-44},
  {0x1.59p+0, -0x1.31871c9544p-2, -0x1.84fab94cecfd9p-46},
  {0x1.558p+0, -0x1.27161913f8p-2, -0x1.4f4f1f61564b4p-44},
  {0x1.52p+0, -0x1.1c898c169ap-2, 0x1.81410e5c62affp-44},
  {0x1.4e8p+0, -0x1.11e0e2dadap-2, 0x1.a47f88fcce5bap-45},
  {0x1.4bp+0, -0x1.071b85fcd6p-2, 0x1.bcb8ba3e01a11p-44},
  {0x1.478p+0, -0x1.f871b28956p-3, 0x1.f75fd6a526efep-44},
  {0x1.448p+0, -0x1.e598ed5a88p-3, 0x1.d134bcf1e98a1p-47},
  {0x1.418p+0, -0x1.d293581b6cp-3, 0x1.83270128aaa5fp-44},
  {0x1.3ep+0, -0x1.bc286742d8p-3, -0x1.9ac53f39d121cp-44},
  {0x1.3bp+0, -0x1.a8becfc882p-3, -0x1.e3185cf21b9cfp-44},
  {0x1.38p+0, -0x1.9525a9cf46p-3, 0x1.297137d9f158fp-44},
  {0x1.35p+0, -0x1.815c0a1436p-3, 0x1.02a52f9201ce8p-44},
  {0x1.32p+0, -0x1.6d60fe719ep-3, 0x1.bc6e557134767p-44},
  {0x1.2f8p+0, -0x1.5c94007598p-3, 0x1.a8d948cd23322p-44},
  {0x1.2c8p+0, -0x1.483bccce6ep-3, -0x1.eea52723f6369p-46},
  {0x1.2ap+0, -0x1.371fc201e8p-3, -0x1.ee8779b2d8abcp-44},
  {0x1.27p+0, -0x1.2266f190a6p-3, 0x1.4d20ab840e7f6p-45},
  {0x1.248p+0, -0x1.10f8e42254p-3, 0x1.93b3843396307p-45},
  {0x1.22p+0, -0x1.fec9131dcp-4, 0x1.54555d1ae6607p-44},
  {0x1.1f8p+0, -0x1.db5270187cp-4, -0x1.9277856ae181fp-44},
  {0x1.1dp+0, -0x1.b78c82bb1p-4, 0x1.25ef7bc3987e7p-44},
  {0x1.1a8p+0, -0x1.9375e55594p-4, -0x1.eddc37380c364p-44},
  {0x1.18p+0, -0x1.6f0d28ae58p-4, 0x1.4b4641b664613p-44},
  {0x1.158p+0, -0x1.4a50d3aa1cp-4, 0x1.f7fe1308973e2p-45},
  {0x1.138p+0, -0x1.2cb0283f5cp-4, -0x1.e1ee2ca657021p-44},
  {0x1.11p+0, -0x1.075983599p-4, 0x1.b8ecfe4b59987p-44},
  {0x1.0fp+0, -0x1.d276b8adbp-5, -0x1.6a423c78a64bp-46},
  {0x1.0c8p+0, -0x1.868a83084p-5, 0x1.2623a134ac693p-46},
  {0x1.0a8p+0, -0x1.494acc34d8p-5, -0x1.11c78a56fd247p-45},
  {0x1.088p+0, -0x1.0b94f7c198p-5, 0x1.e89896f022783p-45},
  {0x1.06p+0, -0x1.7b91b07d6p-6, 0x1.3b955b602ace4p-44},
  {0x1.04p+0, -0x1.fc0a8b0fcp-7, -0x1.f1e7cf6d3a69cp-50},
  {0x1.02p+0, -0x1.fe02a6b1p-8, -0x1.9e23f0dda40e4p-46},
  {0x1p+0, 0x0p+0, 0x0p+0},
  {0x1.f8p-1, 0x1.020565893p-6, 0x1.611d27c8e8417p-44},
  {0x1.fp-1, 0x1.0415d89e78p-5, -0x1.dddc7f461c516p-44},
  {0x1.e9p-1, 0x1.788595a358p-5, -0x1.08b0d083b3a4cp-46},
  {0x1.e2p-1, 0x1.eea31c0068p-5, 0x1.c3dd83606d891p-44},
  {0x1.dbp-1, 0x1.333d7f8184p-4, -0x1.692b6a81b8848p-49},
  {0x1.d4p-1, 0x1.700d30aeacp-4, 0x1.c1e8da99ded32p-49},
  {0x1.cep-1, 0x1.a4e7640b1cp-4, -0x1.e42b6b94407c8p-47},
  {0x1.c7p-1, 0x1.e3707ee304p-4, 0x1.0f684e6766abdp-45},
  {0x1.c1p-1, 0x1.0ce7ecdcccp-3, 0x1.4652dabff5447p-46},
  {0x1.bbp-1, 0x1.28753bc11ap-3, 0x1.7494e359302e6p-44},
  {0x1.b5p-1, 0x1.4462b9dc9cp-3, -0x1.84858a711b062p-44},
  {0x1.afp-1, 0x1.60b3100b0ap-3, -0x1.71456c988f814p-44},
  {0x1.aap-1, 0x1.7898d85444p-3, 0x1.8e67be3dbaf3fp-44},
  {0x1.a4p-1, 0x1.95a5adcf7p-3, 0x1.7f22858a0ff6fp-47},
  {0x1.9fp-1, 0x1.ae2ca6f672p-3, 0x1.7a8d5ae54f55p-44},
  {0x1.9ap-1, 0x1.c6ffbc6fp-3, 0x1.ee138d3a69d43p-44},
  {0x1.95p-1, 0x1.e020cc6236p-3, -0x1.52b00adb91424p-45},
  {0x1.9p-1, 0x1.f991c6cb3cp-3, -0x1.90d04cd7cc834p-44},
  {0x1.8bp-1, 0x1.09aa572e6cp-2, 0x1.b50a1e1734342p-44},
  {0x1.86p-1, 0x1.16b5ccbadp-2, -0x1.23299042d74bfp-44},
  {0x1.82p-1, 0x1.214456d0ecp-2, -0x1.caf0428b728a3p-44},
  {0x1.7dp-1, 0x1.2e9e2bce12p-2, 0x1.4300c128d1dc2p-45},
  {0x1.79p-1, 0x1.396ce359bcp-2, -0x1.5839c5663663dp-47},
  {0x1.74p-1, 0x1.4718dc271cp-2, 0x1.06c18fb4c14c5p-44},
  {0x1.7p-1, 0x1.522ae0738ap-2, 0x1.ebe708164c759p-45},
  {0x1.6cp-1, 0x1.5d5bddf596p-2, -0x1.a0b2a08a465dcp-47},
};

// log(1 + r) = r - r^2 / 2 + r^3 P(r) for |r| up to 2^-6.8.
__device__ inline f64 logarithm_rest(f64 r) {
  return fused_polynomial(r, 0x1.c730d7a0dfe86p-4, -0x1.0008d8faea61ep-3, 0x1.249248f3691e8p-3, -0x1.5555553701adbp-3,
      0x1.9999999999f56p-3, -0x1.00000000000f9p-2, 0x1.5555555555555p-2);
}

// x = m 2^power with m from 0.707 to 1.414, and m's step in the table, for a normal x above 0.
struct Mantissa {
  f64 m;
  i32 power, step;
};
__device__ inline Mantissa mantissa_of(f64 x) {
  const i64 bits = __double_as_longlong(x), above = bits - 0x3fe6a00000000000ll;
  const i64 power = above >> 52;
  return {__longlong_as_double(bits - (power << 52)), i32(power), i32(above >> 46) & 63};
}

// What the table's step leaves of a mantissa: its product less 1 and what that lost, with a low part of the number.
__device__ inline DoubleDouble stepped(Mantissa x) {
  const DoubleDouble product = two_product(x.m, logarithm_table[x.step][0]);  // its first part less 1 is exact
  return {product.high - 1.0, product.low};
}
__device__ inline DoubleDouble stepped(Mantissa x, f64 low) {
  const DoubleDouble r = stepped(x);
  return {r.high, r.low + low * two_to_the(-min(x.power, 1000)) * logarithm_table[x.step][0]};
}
// The logarithm of x 2^raised by what its step leaves, within 2^-65 of itself.
__device__ inline DoubleDouble logarithm_pair_of(Mantissa x, DoubleDouble left, i32 raised) {
  const f64* const by = logarithm_table[x.step];
  const DoubleDouble r = fast_two_sum(left.high, left.low), square = two_product(r.high, r.high);
  const f64 power = f64(x.power + raised);
  const DoubleDouble sum = fast_two_sum(fused(power, 0x1.62e42fefa38p-1, by[1]), r.high);  // the first is exact
  const DoubleDouble less = fast_two_sum(sum.high, -0.5 * square.high);
  const f64 tail = (r.low - r.low * (r.high - square.high)) - 0.5 * square.low;
  const f64 small = ((sum.low + less.low) + (power * 0x1.ef35793c7673p-45 + by[2])) + tail;
  return fast_two_sum(less.high, small + r.high * square.high * logarithm_rest(r.high));
}
// The same within 2^-59, in fewer steps; the second part as it comes.
__device__ inline DoubleDouble logarithm_terms_of(Mantissa x, DoubleDouble left, i32 raised) {
  const f64* const by = logarithm_table[x.step];
  const DoubleDouble r = fast_two_sum(left.high, left.low);
  const f64 power = f64(x.power + raised);
  const DoubleDouble sum = fast_two_sum(fused(power, 0x1.62e42fefa38p-1, by[1]), r.high);
  const f64 small = (sum.low + r.low) + (power * 0x1.ef35793c7673p-45 + by[2]);
  return {sum.high, small + r.high * r.high * (r.high * logarithm_rest(r.high) - 0.5)};
}
// log((high + low) 2^raised) for a normal high above 0; from 2^1000 on low is too small to count.
__device__ inline DoubleDouble logarithm_pair(f64 high, f64 low, i32 raised) {
  const Mantissa x = mantissa_of(high);
  return logarithm_pair_of(x, stepped(x, low), raised);
}
__device__ inline DoubleDouble logarithm_pair(f64 high, i32 raised) {
  const Mantissa x = mantissa_of(high);
  return logarithm_pair_of(x, stepped(x), raised);
}
__device__ inline DoubleDouble logarithm_terms(f64 high, f64 low, i32 raised) {
  const Mantissa x = mantissa_of(high);
  return logarithm_terms_of(x, stepped(x, low), raised);
}
__device__ inline DoubleDouble logarithm_terms(f64 high, i32 raised) {
  const Mantissa x = mantissa_of(high);
  return logarithm_terms_of(x, stepped(x), raised);
}

// log x of a normal x above 0 to about 2^-60, in fewer steps still.
__device__ inline DoubleDouble near_logarithm(f64 x) {
  const Mantissa of = mantissa_of(x);
  const f64* const by = logarithm_table[of.step];
  const f64 r = fused(of.m, by[0], -1.0), power = f64(of.power), rest = power * 0x1.ef35793c7673p-45 + by[2];
  const DoubleDouble sum = fast_two_sum(fused(power, 0x1.62e42fefa38p-1, by[1]), r);
  const f64 curved = fused(r * r, fused(r, logarithm_rest(r), -0.5), rest);
  return fast_two_sum(sum.high, sum.low + curved);
}

// log x times a constant in two parts.
__device__ inline f64 scaled_logarithm(f64 x, f64 high, f64 low) {
  if (!(x > 0.0 && is_finite(x))) return logarithm_end(x);
  const bool subnormal = x < 0x1p-1022;
  const DoubleDouble log = logarithm_terms(subnormal ? x * 0x1p54 : x, subnormal ? -54 : 0);
  const DoubleDouble product = two_product(log.high, high);
  return product.high + (product.low + (log.high * low + log.low * high));
}
__device__ inline f64 logarithm2(f64 x) { return scaled_logarithm(x, 0x1.71547652b82fep+0, 0x1.777d0ffda0d24p-56); }
__device__ inline f64 logarithm10(f64 x) { return scaled_logarithm(x, 0x1.bcb7b1526e50ep-2, 0x1.95355baaafad3p-57); }
// log(1 + x).
__device__ inline f64 logarithm_one_plus(f64 x) {
  if (!(x > -1.0 && is_finite(x))) return logarithm_end(x + 1.0);
  if (fabs(x) < 0x1p-54) return x;
  const DoubleDouble sum = two_sum(1.0, x);
  const DoubleDouble log = logarithm_terms(sum.high, sum.low, 0);
  return log.high + log.low;
}

// The magnitude of a power by the base's logarithm.
__device__ inline f64 power_of(DoubleDouble log, f64 exponent) {
  const DoubleDouble product = two_product(exponent, log.high);
  const bool within = !(fabs(product.high) >= 800.0);
  const f64 high = within ? product.high : copysign(800.0, product.high);
  return exponential_value(exponential_parts(high, within ? product.low + exponent * log.low : 0.0));
}
// The same of a positive finite base, or of 0 or an infinity by its logarithm.
__device__ inline f64 power_of(f64 base, f64 exponent) {
  DoubleDouble log = {base == 0.0 ? -infinity() : base, 0.0};
  if (base > 0.0 && is_finite(base)) {
    const bool subnormal = base < 0x1p-1022;
    log = logarithm_pair(subnormal ? base * 0x1p54 : base, subnormal ? -54 : 0);
  }
  return power_of(log, bounded(exponent, -0x1p65, 0x1p65));
}
// base^exponent as C's pow has it, by the power of the magnitude; without branches, for vectors.
template <typename C> __device__ inline C signed_power(C base, C exponent, C value) {
  const C half = C(0.5) * exponent, size = absolute(base) == C(1) ? C(1) : value;
  const bool integral = rint(exponent) == exponent, odd = integral & (rint(half) != half);
  const bool undefined = ((base < C(0)) & is_finite(base) & !integral) | is_nan(base) | is_nan(exponent);
  const C found = undefined ? C(not_a_number()) : odd ? copysign(size, base) : size;
  return (base == C(1)) | (exponent == C(0)) ? C(1) : found;
}
__device__ __noinline__ f64 power_end(f64 base, f64 exponent) {
  return signed_power(base, exponent, power_of(absolute(base), exponent));
}
// Of a normal base and a finite exponent, which integers tell: comparisons of f64 take twice the time.
__device__ inline f64 power(f64 base, f64 exponent) {
  const u32 size = u32(__double_as_longlong(base) >> 32) & 0x7fffffff;
  const u32 by = u32(__double_as_longlong(exponent) >> 32) & 0x7ff00000;
  if (size - 0x100000 >= 0x7fe00000 || by == 0x7ff00000) return power_end(base, exponent);
  const f64 value = power_of(logarithm_pair(absolute(base), 0), exponent), half = 0.5 * exponent;
  if (__double_as_longlong(base) >= 0) return value;
  return rint(exponent) != exponent ? not_a_number() : rint(half) != half ? -value : value;
}

// 1 / sqrt(x).
__device__ inline f64 inverse_root(f64 x) {
  if (!(x > 0.0 && is_finite(x))) return x == 0.0 ? copysign(infinity(), x) : x > 0.0 ? 0.0 : not_a_number();
  const f64 scale = x < 0x1p-700 ? 0x1p200 : x > 0x1p700 ? 0x1p-200 : 1.0;
  const DoubleDouble root = pair_root({x * scale * scale, 0.0});
  const f64 inverse = divided(1.0, root.high);
  const DoubleDouble product = two_product(inverse, root.high);
  const f64 rest = ((1.0 - product.high) - product.low) - inverse * root.low;
  return (inverse + inverse * rest) * scale;
}

// The third root of m 2^step, m from 1 to 2: to 2^-40 by a polynomial and one step of Halley, then by one of Newton.
__device__ inline f64 cube_root(f64 x) {
  if (x == 0.0 || !is_finite(x)) return x;
  const f64 size = fabs(x);
  const bool subnormal = size < 0x1p-1022;
  const i64 bits = __double_as_longlong(subnormal ? size * 0x1p54 : size);
  const i32 power = i32(bits >> 52) - (subnormal ? 1023 + 54 : 1023);
  const i32 third = (power + 3072) / 3 - 1024, step = power - 3 * third;
  const f64 m = __longlong_as_double((bits & 0xfffffffffffffll) | 0x3ff0000000000000ll);
  const f64 p = unfused_polynomial(m, 0x1.592b3e54fff08p-8, -0x1.97c4378816e64p-5, 0x1.9b9aa8b78b9edp-3,
      -0x1.ddd0e027e358cp-2, 0x1.ac2e83234e7c3p-1, 0x1.e53abb8cc458dp-2);
  const f64 of = m * two_to_the(step);
  const f64 first = p * (step == 0 ? 1.0 : step == 1 ? 0x1.428a2f98d728bp+0 : 0x1.965fea53d6e3dp+0);
  const f64 near = first * first * first, root = first * divided(near + 2.0 * of, 2.0 * near + of);
  const DoubleDouble square = two_product(root, root), cube = two_product(square.high, root);
  const f64 rest = ((of - cube.high) - cube.low) - square.low * root;
  return copysign((root + divided(rest, 3.0 * square.high)) * two_to_the(third), x);
}

// sqrt(x^2 + y^2).
__device__ inline f64 hypotenuse(f64 x, f64 y) {
  if (is_inf(x) || is_inf(y)) return infinity();
  const f64 most = maximum(fabs(x), fabs(y)), least = minimum(fabs(x), fabs(y));
  if (!(least >= most * 0x1p-60)) return x != x || y != y ? not_a_number() : most;
  const f64 scale = most > 0x1p500 ? 0x1p-700 : most < 0x1p-400 ? 0x1p700 : 1.0;
  const DoubleDouble a = two_product(most * scale, most * scale), b = two_product(least * scale, least * scale);
  const DoubleDouble sum = fast_two_sum(a.high, b.high);
  const DoubleDouble root = pair_root({sum.high, sum.low + (a.low + b.low)});
  return (root.high + root.low) * (scale == 1.0 ? 1.0 : scale < 1.0 ? 0x1p700 : 0x1p-700);
}

// (2^f - 1 - c f) / f^2 with c = ln 2 as f32 has it, for |f| up to 1/2.
__device__ inline f32 power_of_two_polynomial(f32 f) {
  return fused_polynomial(f, 0x1.447984p-13f, 0x1.5f0b0p-10f, 0x1.3b29d0p-7f, 0x1.c6af78p-5f, 0x1.ebfbe0p-3f);
}
// Sums of f32 that keep what their first step lost.
__device__ inline f32 exponential2(f32 x) {
  x = bounded(x, -150.5f, 128.5f);
  const f32 power = x + 0x1.8p23f, f = x - (power - 0x1.8p23f);
  const f32 near = fused(f, 0x1.62e43p-1f, 1.0f), rest = fused(f, 0x1.62e43p-1f, 1.0f - near);
  return with_power(near + fused(f * f, power_of_two_polynomial(f), rest), power);
}
// (e^r - 1 - r) / r^2 for |r| up to ln(2) / 2.
__device__ inline f32 less_one_polynomial(f32 r) {
  return fused_polynomial(r, 0x1.a1a36p-13f, 0x1.6d767cp-10f, 0x1.11108ep-7f, 0x1.5554acp-5f, 0x1.555556p-3f, 0x1p-1f);
}
// Half of 2^k (e^r - 1) + (2^k - 1), for 2^128 is no number; where x is next to 0, x.
__device__ inline f32 exponential_less_one(f32 x) {
  const f32 t = bounded(x, -17.5f, 89.0f), power = exponential_power(t), k = power - 0x1.8p23f;
  const f32 large = fused(k, -0x1.62e4p-1f, t), r = fused(k, -0x1.7f7d1cp-20f, large);
  const f32 r_rest = fused(k, -0x1.7f7d1cp-20f, large - r);
  const f32 half = __int_as_float(i32((u32(__float_as_int(power)) << 23) + 0x3f000000u));
  const f32 one = half - 0.5f, near = fused(half, r, one), rest = fused(half, r, one - near) + ((half - one) - 0.5f);
  const f32 value = near + fused(half, fused(r * r, less_one_polynomial(r), r_rest), rest);
  return absolute(x) < 0x1p-25f ? x : value + value;
}

// k unit + log(1 + g) scale of x = 2^k (1 + g); unit and scale in two parts each, the first of unit with few digits.
__device__ inline f32 scaled_logarithm(f32 x, f32 unit, f32 unit_rest, f32 scale, f32 scale_rest) {
  f32 k;
  const f32 g = mantissa(x, k) - 1.0f, square = g * g, bent = fused(square * g, one_plus_polynomial(g), -0.5f * square);
  const f32 near = g * scale, near_rest = fused(-0.5f * scale, fused(g, g, -square), fused(g, scale, -near));
  const f32 rest = unit_rest == 0.0f ? near_rest : fused(k, unit_rest, near_rest);
  const f32 small = fused(bent, scale, fused(g, scale_rest, rest));
  const f32 whole = k * unit, value = whole + near, result = value + (((whole - value) + near) + small);
  return chosen(x > 0.0f && is_finite(x), result, logarithm_end(x));
}
__device__ inline f32 logarithm2(f32 x) { return scaled_logarithm(x, 1.0f, 0.0f, 0x1.715476p+0f, 0x1.4ae0cp-26f); }
__device__ inline f32 logarithm10(f32 x) {
  return scaled_logarithm(x, 0x1.344p-2f, 0x1.3509f8p-18f, 0x1.bcb7b2p-2f, -0x1.5b235ep-27f);
}
// 1 + x = 2^k (1 + g), where g = x 2^-k + (2^-k - 1), with what that sum lost; for a finite x above -1. From k = 25 on
// the difference in it is -1: 2^-k is below what the last digit of k ln 2 tells.
__device__ inline f32 logarithm_one_plus_near(f32 x) {
  const i32 power = (__float_as_int(1.0f + x) - 0x3f3504f3) & 0xff800000;  // k in the place of an exponent
  const f32 k = f32(power) * 0x1p-23f, part = __int_as_float(__float_as_int(x) - power);
  const f32 down = __int_as_float(0x3f800000 - ::min(power, 0x3f800000)) - 1.0f;
  const f32 g = part + down, g_rest = part - (g - down), square = g * g;
  const f32 bent = fused(square * g, one_plus_polynomial(g), fused(-0.5f, square, k * ln2_low(k)));
  const f32 whole = k * ln2_high(k), value = whole + g;
  return value + (((whole - value) + g) + (bent + g_rest));
}
__device__ inline f32 logarithm_one_plus(f32 x) {
  const f32 value = chosen(absolute(x) < 0x1p-25f, x, logarithm_one_plus_near(x));
  return chosen(x > -1.0f && is_finite(x), value, logarithm_end(x + 1.0f));
}

// (log2(m) / s - c0 - c1 s^2) / s^4, of s^2, for m = (1 + s) / (1 - s) from 0.707 to 1.414.
__device__ inline f32 binary_logarithm_polynomial(f32 z) {
  return fused_polynomial(z, 0x1.59fc5p-2f, 0x1.a5bb5p-2f, 0x1.27770ep-1f);
}
// The magnitude of a power, of a positive finite base, by its logarithm in two parts: k + s (c0 + c1 s^2 + ...).
__device__ inline f32 power_of(f32 base, f32 exponent) {
  const f32 c0 = 0x1.715476p+1f, c1 = 0x1.ec709ep-1f;
  f32 k;
  const f32 g = mantissa(base, k) - 1.0f, y = inverse(2.0f + g), s = g * y;
  const f32 s_rest = y * fused(-s, g, fused(-2.0f, s, g)), z = s * s, z_rest = fused(s, s, -z);
  const f32 by = fused(z, c1, c0), lost = fused(z_rest, c1, fused(z, c1, c0 - by)) + 0x1.4ae0cp-25f;
  const f32 by_rest = fused(z, fused(z, binary_logarithm_polynomial(z), -0x1.e2fe02p-28f), lost);
  const f32 near = s * by, near_rest = fused(s, by_rest, fused(s_rest, fused(z, c0, c0), fused(s, by, -near)));
  const f32 log = k + near, log_rest = ((k - log) + near) + near_rest;
  const f32 whole = exponent * log, whole_rest = fused(exponent, log_rest, fused(exponent, log, -whole));
  const f32 rest = absolute(whole) < 151.0f ? whole_rest : 0.0f;
  const f32 t = bounded(whole, -150.5f, 128.5f), power = t + 0x1.8p23f, part = t - (power - 0x1.8p23f), f = part + rest;
  const f32 one = fused(part, 0x1.62e43p-1f, 1.0f), one_rest = fused(part, 0x1.62e43p-1f, 1.0f - one);
  const f32 value = one + fused(f * f, power_of_two_polynomial(f), fused(rest, 0x1.62e43p-1f, one_rest));
  return with_power(value, power);
}
__device__ inline f32 power_end(f32 base, f32 exponent, f32 value) {
  const f32 size = absolute(base), beyond = (size > 1.0f) == (exponent > 0.0f) ? f32(infinity()) : 0.0f;
  const bool usual = (size > 0.0f) & is_finite(size) & is_finite(exponent);
  return signed_power(base, exponent, usual ? value : beyond);
}
// Of a finite base that is not 0 and a finite exponent, whose parity alone counts below 0.
__device__ inline f32 power(f32 base, f32 exponent) {
  const f32 value = power_of(absolute(base), exponent), half = 0.5f * exponent;
  const f32 below = rint(exponent) != exponent ? f32(not_a_number()) : rint(half) != half ? -value : value;
  const bool usual = (__float_as_uint(absolute(base)) - 1 < 0x7f7fffffu) & is_finite(exponent);
  return usual ? (base > 0.0f ? value : below) : power_end(base, exponent, value);
}

// Correctly rounded, by a step of Newton from any estimate within 10 units and one from what that leaves exactly. Where
// there is no step, the estimate is the value.
__device__ inline f32 inverse_root(f32 x) {
  f32 start;
  asm("rsqrt.approx.f32 %0, %1;" : "=f"(start) : "f"(x));
  const f32 y = fused(0.5f * start, fused(-(x * start), start, 1.0f), start);
  const f32 root = x * y, root_rest = fused(x, y, -root), rest = fused(-root_rest, y, fused(-root, y, 1.0f));
  return absolute(rest) < 1.0f ? fused(y, fused(0.375f * rest, rest, 0.5f * rest), y) : start;
}
// Correctly rounded: an inverse within a tenth by its exponent's third and within 2^-19 by a polynomial, then two steps
// of Newton. A small number is raised, so that nothing that a step leaves is subnormal.
__device__ inline f32 cube_root(f32 x) {
  const bool small = absolute(x) < 0x1p-80f;
  const f32 size = absolute(x) * (small ? 0x1p81f : 1.0f);
  const f32 first = __uint_as_float(0x54a1f000u - __float_as_uint(size) / 3);
  const f32 e = fused(-(first * first), size * first, 1.0f);
  const f32 by = fused(fused(0x1.6400aap-3f, e, 0x1.c9731cp-3f), e, 0x1.555556p-2f);
  const f32 inverse = fused(first * e, by, first), square = inverse * inverse, near = size * square;
  const f32 slope = square * 0x1.555556p-2f, y = fused(fused(-(near * near), near, size), slope, near);
  const f32 of_y = y * y, rest = fused(-fused(y, y, -of_y), y, fused(-of_y, y, size));
  const f32 value = fused(rest, fused(slope, fused(-3.0f * of_y, slope, 1.0f), slope), y);
  return is_finite(x) ? copysign(value * (small ? 0x1p-27f : 1.0f), x) : x;
}
// By way of f64.
__device__ inline f32 hypotenuse(f32 x, f32 y) {
  if (is_inf(x) || is_inf(y)) return f32(infinity());
  return f32(sqrt(f64(x) * f64(x) + f64(y) * f64(y)));
}
