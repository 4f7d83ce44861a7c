// Trigonometric functions and their inverses in steps that CPU and GPU have in common: `reference.trigonometric` has
// the same text in NumPy.
#pragma once
#include "double_double.cuh"
#include "polynomials.cuh"

// |x| = quadrant pi / 2 + high + low, the last two up to pi / 4.
struct Angle {
  f64 high, low;
  i32 quadrant;
};

// 2 / pi in binary, 64 bits a word, after a word of zeros.
static __device__ const u64 two_over_pi[20] = {
  0x0000000000000000, 0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041,
  0xfe5163abdebbc561, 0xb7246e3a424dd2e0, 0x06492eea09d1921c, 0xfe1deb1cb129a73e,
  0xe88235f52ebb4484, 0xe99c7026b45f7e41, 0x3991d639835339f4, 0x9c845f8bbdf9283b,
  0x1ff897ffde05980f, 0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7, 0x4f463f669e5fea2d,
  0x7527bac7ebe5f17b, 0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08, 0x56033046fc7b6bab,
};

// From 2^20 on, by Payne and Hanek: 192 bits of 2 / pi decide. NaN of what is not finite.
__device__ inline Angle angle_beyond(f64 size) {
  if (!is_finite(size)) return {not_a_number(), 0.0, 0};
  const i64 bits = __double_as_longlong(size);
  const u64 mantissa = (bits & 0xfffffffffffffll) | 0x10000000000000ll;
  const i32 from = i32(bits >> 52) - 1013, word = from >> 6, shift = from & 63;
  u64 part[3];  // of 2 / pi, the upper bits first
#pragma unroll
  for (i32 i = 0; i < 3; ++i) {
    part[i] = two_over_pi[word + i] << shift | (two_over_pi[word + i + 1] >> 1) >> (63 - shift);
  }
  const u64 low = mantissa * part[2], middle = mantissa * part[1] + __umul64hi(mantissa, part[2]);
  const u64 high = mantissa * part[0] + __umul64hi(mantissa, part[1]) + (middle < mantissa * part[1] ? 1 : 0);
  u64 above = high << 2 | middle >> 62, below = middle << 2 | low >> 62;  // a fraction of a quadrant
  const bool beyond = above >> 63;                                        // it is above a half: the next quadrant less
  if (beyond) above = ~above, below = ~below;
  const DoubleDouble first = fast_two_sum(f64(above >> 32) * 0x1p-32, f64(above & 0xffffffffull) * 0x1p-64);
  const DoubleDouble second = fast_two_sum(first.high, f64(below >> 32) * 0x1p-96);
  const DoubleDouble share =
      fast_two_sum(second.high, (first.low + second.low) + f64(below & 0xffffffffull) * 0x1p-128);
  const DoubleDouble product = two_product(share.high, 0x1.921fb54442d18p+0);
  const f64 rest = product.low + (share.high * 0x1.1a62633145c07p-54 + share.low * 0x1.921fb54442d18p+0);
  const DoubleDouble angle = fast_two_sum(product.high, rest);
  const f64 sign = beyond ? -1.0 : 1.0;
  return {sign * angle.high, sign * angle.low, i32(high >> 62) + (beyond ? 1 : 0)};
}
// Below, by three parts of pi / 2. What the first one leaves is a multiple of 2^-53 up to pi / 4, so it is exact. The
// second has 30 bits, so its products are, and what they lose. What all three leave is below 2^-118.
__device__ inline Angle angle_near(f64 size) {
  const f64 power = size * 0x1.45f306dc9c883p-1 + 0x1.8p52, quadrant = power - 0x1.8p52;
  const f64 left = fused(-quadrant, 0x1.921fb54442d18p+0, size), high = fused(-quadrant, 0x1.1a62633p-54, left);
  const f64 low = fused(-quadrant, 0x1.1a62633p-54, left - high) - quadrant * 0x1.45c06e0e68948p-86;
  return {high, low, i32(__double_as_longlong(power))};
}
constexpr f64 NEAR_END = 0x1p20;  // beyond, pi / 2 needs more parts

// (sin(r) - r) / r^3 and (cos(r) - 1 + r^2 / 2) / r^4 by z = r^2, for |r| up to pi / 4. Numbers of 21 bits are part of
// an instruction.
__device__ inline f64 sine_polynomial(f64 z) {
  return unfused_polynomial(z, 0x1.5d8fcp-33, -0x1.ae5e5c52c13e3p-26, 0x1.71de356ae826bp-19, -0x1.a01a019bfeabep-13,
      0x1.111111110f78ep-7, -0x1.5555555555548p-3);
}
__device__ inline f64 cosine_polynomial(f64 z) {
  return unfused_polynomial(z, -0x1.8fa48p-37, 0x1.1ee9dp-29, -0x1.27e4f7d05b8ap-22, 0x1.a01a019c43697p-16,
      -0x1.6c16c16c14b79p-10, 0x1.5555555555548p-5);
}
// (1 - r cot(r)) / r^2 - 1/4 by z = r^2, for |r| up to pi / 4.
__device__ inline f64 cotangent_polynomial(f64 z) {
  return fused_polynomial(z, 0x1.aa421p-29, 0x1.694ecp-26, 0x1.d8c116db7d906p-23, 0x1.2272da323ae63p-19,
      0x1.66a968ade52bdp-16, 0x1.bbd776c6db23cp-13, 0x1.1566abc3ad3f4p-9, 0x1.6c16c16c11778p-6, 0x1.55555555555abp-4);
}
// The sine and the cosine of an angle up to pi / 4, each in two parts.
__device__ inline DoubleDouble sine_near(f64 r, f64 rest) {
  const f64 z = r * r, one = fused(-0.5, z, 1.0);
  return {r, r * z * sine_polynomial(z) + rest * one};
}
__device__ inline DoubleDouble cosine_near(f64 r, f64 rest) {
  const DoubleDouble z = two_product(r, r);
  const f64 one = fused(-0.5, z.high, 1.0), lost = fused(-0.5, z.low, fused(-0.5, z.high, 1.0 - one));
  return {one, z.high * z.high * cosine_polynomial(z.high) + (lost - r * rest)};
}
// Its sign changed where the upper bit of a word is set.
__device__ inline f64 turned_by(f64 value, u64 sign) {
  return __longlong_as_double(__double_as_longlong(value) ^ i64(sign & 0x8000000000000000ull));
}
__device__ inline f64 sine_of_turned(Angle angle, i32 quarters, u64 sign) {
  const i32 quadrant = angle.quadrant + quarters;
  const DoubleDouble sine = sine_near(angle.high, angle.low), cosine = cosine_near(angle.high, angle.low);
  const f64 value = chosen(quadrant & 1, cosine.high + cosine.low, sine.high + sine.low);
  return turned_by(value, sign ^ u64(quadrant) << 62);
}
// With r cot(r) = 1 - z C(z), the tangent is the quotient of r and that, or the other way round. What z and r lost
// counts by the slope of z C(z), near 0.36.
__device__ inline f64 tangent_of(Angle angle, u64 sign) {
  const DoubleDouble r = fast_two_sum(angle.high, angle.low), z = two_product(r.high, r.high);
  const f64 bent = fused(0.25, z.high, z.high * cotangent_polynomial(z.high)), near = 1.0 - bent;
  const f64 lost = ((1.0 - near) - bent) - 0.359375 * fused(2.0, r.high * r.low, z.low);
  const bool turned = angle.quadrant & 1;
  const f64 n = chosen(turned, near, r.high), n_rest = chosen(turned, lost, r.low);
  const f64 d = chosen(turned, r.high, near), d_rest = chosen(turned, r.low, lost);
  const f64 y = inverse(d), quotient = n * y, rest = (fused(-quotient, d, n) + n_rest) - quotient * d_rest;
  return turned_by(quotient + rest * y, sign ^ u64(angle.quadrant) << 63);
}

// Whether few parts of pi / 2 are enough for an angle. Elementwise programs ask it of all elements of a thread at once,
// because a branch for each would keep neighbours from being computed side by side.
__device__ inline bool is_near_angle(f64 x) { return absolute(x) < NEAR_END; }
__device__ inline f64 near_sine(f64 x) { return sine_of_turned(angle_near(fabs(x)), 0, __double_as_longlong(x)); }
__device__ inline f64 near_cosine(f64 x) { return sine_of_turned(angle_near(fabs(x)), 1, 0); }
__device__ inline f64 near_tangent(f64 x) { return tangent_of(angle_near(fabs(x)), __double_as_longlong(x)); }
__device__ __noinline__ f64 far_sine(f64 x) {
  return sine_of_turned(angle_beyond(fabs(x)), 0, __double_as_longlong(x));
}
__device__ __noinline__ f64 far_cosine(f64 x) { return sine_of_turned(angle_beyond(fabs(x)), 1, 0); }
__device__ __noinline__ f64 far_tangent(f64 x) { return tangent_of(angle_beyond(fabs(x)), __double_as_longlong(x)); }
__device__ inline f64 sine(f64 x) { return is_near_angle(x) ? near_sine(x) : far_sine(x); }
__device__ inline f64 cosine(f64 x) { return is_near_angle(x) ? near_cosine(x) : far_cosine(x); }
__device__ inline f64 tangent(f64 x) { return is_near_angle(x) ? near_tangent(x) : far_tangent(x); }

// ---- inverses ----

// (arcsin(t) - t) / t^3 for t up to a half, and (arctan(t) - t) / t^3 for t up to a quarter, by z = t^2.
__device__ inline f64 arcsine_polynomial(f64 z) {
  return unfused_polynomial(z, 0x1.057332a9d8239p-5, -0x1.09e246fbc28b5p-6, 0x1.3ffd347e23526p-6, 0x1.abc46f20a44b1p-8,
      0x1.8ec414652c717p-7, 0x1.c6fd9d2025b7dp-7, 0x1.1c6be33b5c36dp-6, 0x1.6e89f4293387bp-6, 0x1.f1c72c39c68dep-6,
      0x1.6db6db42787a1p-5, 0x1.333333336e828p-4, 0x1.555555555539p-3);
}
__device__ inline f64 arctangent_polynomial(f64 z) {
  return unfused_polynomial(z, 0x1.7982e49281e2fp-5, -0x1.0b4d53ae619f8p-4, 0x1.3ab9df3a63644p-4, -0x1.7459e36d372d2p-4,
      0x1.c71c60a91d544p-4, -0x1.2492490b31c5ap-3, 0x1.999999997525ap-3, -0x1.55555555554c6p-2);
}

// high + low + t + small, where t is at most the size of a high that is not 0, with what the sum lost.
__device__ inline f64 beyond_high(f64 high, f64 low, f64 t, f64 small) {
  const f64 value = high + t, lost = (high - value) + t;
  return value + ((small + low) + lost);
}
// Beyond a half, arcsin(x) is pi / 2 - 2 arcsin(s) and arccos(x) is 2 arcsin(s), s = sqrt((1 - x) / 2). What the root
// lost is the remainder over 2 s; the bits of s, from a number, are those of 1 / s within 6 %, which is near enough.
template <typename C> struct HalfAngle {
  C root, rest, z;  // 2 s and what it lost; s^2, or x^2 up to a half
  bool wide;
};
__device__ inline HalfAngle<f64> half_angle(f64 size) {
  const f64 square = fused(-0.5, size, 0.5), s = sqrt(square);
  const f64 near = __longlong_as_double(0x7fde6238da3c2118ll - __double_as_longlong(s));
  return {s + s, fused(-s, s, square) * near, size > 0.5 ? square : size * size, size > 0.5};
}
__device__ inline f64 arcsine(f64 x) {
  const HalfAngle<f64> by = half_angle(absolute(x));
  const f64 t = by.wide ? -by.root : absolute(x);
  const f64 small = t * by.z * arcsine_polynomial(by.z) + (by.wide ? -by.rest : 0.0);
  const f64 high = by.wide ? 0x1.921fb54442d18p+0 : 0.0, low = by.wide ? 0x1.1a62633145c07p-54 : 0.0;
  return copysign(beyond_high(high, low, t, small), x);
}
__device__ inline f64 arccosine(f64 x) {
  const HalfAngle<f64> by = half_angle(absolute(x));
  const f64 t = by.wide ? copysign(by.root, x) : -x, turn = by.wide ? (x < 0.0 ? 2.0 : 0.0) : 1.0;
  const f64 small = t * by.z * arcsine_polynomial(by.z) + (by.wide ? (x < 0.0 ? -by.rest : by.rest) : 0.0);
  return beyond_high(turn * 0x1.921fb54442d18p+0, turn * 0x1.1a62633145c07p-54, t, small);
}

// turn pi / 2 + arctan(least / most), 0 <= least <= most, or - where it goes back. From a quarter of most on,
// arctan(1/2) is taken off, and from 0.72 on pi / 4: the quotient left is up to a quarter, n is exact, and so are sums
// of the upper parts of both angles, multiples of 2^-51. A least that is raised stands for 2^-600 of it.
__device__ inline f64 turned_arctangent(f64 least, f64 most, bool raised, bool back, f64 turn) {
  const bool middle = !raised && least > 0.25 * most, far = !raised && least > 0.72 * most;
  const f64 c = far ? 1.0 : middle ? 0.5 : 0.0;
  const f64 off = far ? 0x1.921fb54442d18p-1 : middle ? 0x1.dac670561bb5p-2 : 0.0;
  const f64 off_rest = far ? 0x1.1a62633145c07p-55 : middle ? -0x1.2ea406ee84d0fp-55 : 0.0;
  const f64 left = fused(-c, most, least), n = back ? -left : left;
  const f64 d = fused(c, least, most), d_rest = fused(c, least, most - d);
  const f64 y = inverse(d), quotient = n * y;
  const f64 rest = (fused(-quotient, d, n) - quotient * d_rest) * y;
  const f64 t = raised ? (quotient + rest) * 0x1p-600 : quotient, z = t * t;
  const f64 small = t * z * arctangent_polynomial(z) + (raised ? 0.0 : rest);
  const f64 high = fused(turn, 0x1.921fb54442d18p+0, back ? -off : off);
  return beyond_high(high, fused(turn, 0x1.1a62633145c07p-54, back ? -off_rest : off_rest), t, small);
}
__device__ inline f64 arctangent(f64 x) {
  const f64 size = absolute(x);
  const bool steep = size > 1.0;
  const f64 least = steep ? 1.0 : size, most = steep ? (size > 0x1p60 ? 0x1p60 : size) : 1.0;
  return copysign(turned_arctangent(least, most, false, steep, steep ? 1.0 : 0.0), x);
}
// Both are multiplied by a power of two, and a least that is small beside most by another one. Beside an infinity what
// is finite is 0.
__device__ inline f64 arctangent2(f64 y, f64 x) {
  const f64 side = copysign(1.0, x);
  const bool steep = absolute(y) > absolute(x);
  f64 least = steep ? absolute(x) : absolute(y), most = steep ? absolute(y) : absolute(x);
  const bool low = most < 0x1p-400;
  const f64 by = low ? 0x1p700 : most > 0x1p500 ? 0x1p-700 : 1.0;
  const bool raised = least * by < 0x1p-450 && !low;
  least = is_inf(most) && least < infinity() ? 0.0 : least * (raised ? 0x1p600 * by : by);
  least = least > 0x1p500 ? 0x1p500 : least, most = bounded(most * by, 0x1p-400, 0x1p500);
  return copysign(turned_arctangent(least, most, raised, steep != (side < 0.0), steep ? 1.0 : 1.0 - side), y);
}

// ---- f32, in sums of two ----

// (r - sin(r)) / r^3, (cos(r) - 1 + r^2 / 2) / r^4 and (tan(r) - r) / r^3.
__device__ inline f32 sine_polynomial(f32 z) {
  return fused_polynomial(z, -0x1.6cd828p-19f, 0x1.a00f9cp-13f, -0x1.111108p-7f, 0x1.555556p-3f);
}
__device__ inline f32 cosine_polynomial(f32 z) {
  return fused_polynomial(z, -0x1.242ab2p-22f, 0x1.a0112p-16f, -0x1.6c16b8p-10f, 0x1.555556p-5f);
}
__device__ inline f32 tangent_polynomial(f32 z) {
  return fused_polynomial(z, 0x1.1fdaf6p-8f, 0x1.01e8dcp-14f, 0x1.63a692p-7f, 0x1.5c9c34p-6f, 0x1.badc94p-5f,
      0x1.110d94p-3f, 0x1.55556p-2f);
}

// x = k pi / 2 + r - rest by three parts of pi / 2, of one sign so that a zero keeps its own, and k + quarters, of
// which the last two bits count. The first part has 23 bits, so what it leaves is exact; so is what the difference
// lost.
struct NearAngle {
  f32 r, rest;
  i32 quadrant;
};
constexpr f32 TURNED_END = 0x1p17f;  // beyond, pi / 2 needs more parts
__device__ inline NearAngle near_angle(f32 x, f32 quarters) {
  const f32 whole = 0x1.8p23f + quarters, power = fused(x, 0x1.45f306p-1f, whole), k = power - whole;
  const f32 large = fused(-k, 0x1.921fb4p+0f, x), r = large - k * 0x1.4442dp-24f;
  return {r, fused(k, 0x1.84698ap-48f, fused(k, 0x1.4442dp-24f, r - large)), __float_as_int(power)};
}
// The sine of x + quarters pi / 2.
__device__ inline f32 sine_of_turned(f32 x, f32 quarters) {
  const NearAngle angle = near_angle(x, quarters);
  const f32 r = angle.r, z = r * r, sine = r - fused(z * r, sine_polynomial(z), angle.rest);
  const f32 half = -0.5f * r, near = fused(half, r, 1.0f), lost = fused(r, angle.rest, fused(half, r, 1.0f - near));
  const f32 cosine = near + fused(z * z, cosine_polynomial(z), lost);
  const f32 value = angle.quadrant & 1 ? cosine : sine;
  return angle.quadrant & 2 ? -value : value;
}
__device__ inline bool is_near_angle(f32 x) { return absolute(x) <= TURNED_END; }
__device__ inline f32 near_sine(f32 x) { return sine_of_turned(x, 0.0f); }
__device__ inline f32 near_cosine(f32 x) { return sine_of_turned(x, 1.0f); }
// tan(r - rest) as a difference of two, and -1 by it. The rest counts by the slope at r, near 1 + 1.6 z. What the
// square lost counts in the cube.
__device__ inline f32 near_tangent(f32 x) {
  const NearAngle angle = near_angle(x, 0.0f);
  const f32 r = angle.r, z = r * r, cube = fused(z, r, fused(r, r, -z) * r);
  const f32 rest = fused(1.6f * z, angle.rest, angle.rest), small = fused(-cube, tangent_polynomial(z), rest);
  const f32 value = r - small, lost = (r - value) - small;
  const f32 y = inverse(-value), turned = fused(fused(lost, y, fused(value, y, 1.0f)), y, y);
  return chosen(angle.quadrant & 1, turned, value);
}
__device__ __noinline__ f32 far_sine(f32 x) { return f32(sine(f64(x))); }
__device__ __noinline__ f32 far_cosine(f32 x) { return f32(cosine(f64(x))); }
__device__ __noinline__ f32 far_tangent(f32 x) { return f32(tangent(f64(x))); }
__device__ inline f32 sine(f32 x) { return is_near_angle(x) ? near_sine(x) : far_sine(x); }
__device__ inline f32 cosine(f32 x) { return is_near_angle(x) ? near_cosine(x) : far_cosine(x); }
__device__ inline f32 tangent(f32 x) { return is_near_angle(x) ? near_tangent(x) : far_tangent(x); }

// The same in a form: where it is FAST_WITHIN, all angles are near.
template <int FAST, typename C> __device__ inline C sine_in(C x) { return FAST == FAST_WITHIN ? near_sine(x) : sine(x); }
template <int FAST, typename C> __device__ inline C cosine_in(C x) {
  return FAST == FAST_WITHIN ? near_cosine(x) : cosine(x);
}
template <int FAST, typename C> __device__ inline C tangent_in(C x) {
  return FAST == FAST_WITHIN ? near_tangent(x) : tangent(x);
}

// (arcsin(t) - t) / t^3 and (arctan(t) - t) / t^3 by z = t^2, for t up to a half.
__device__ inline f32 arcsine_polynomial(f32 z) {
  return fused_polynomial(z, 0x1.595c6p-5f, 0x1.8c3e5p-6f, 0x1.747bb8p-5f, 0x1.330204p-4f, 0x1.5555c8p-3f);
}
__device__ inline f32 arctangent_polynomial(f32 z) {
  return fused_polynomial(z, 0x1.3fd554p-5f, -0x1.480d4p-4f, 0x1.c07268p-4f, -0x1.24503p-3f, 0x1.999744p-3f,
      -0x1.555552p-2f);
}

// turn pi / 2 + t + small, with what the sum lost.
__device__ inline f32 turned_by(f32 turn, f32 t, f32 small) {
  const f32 value = fused(turn, 0x1.921fb6p+0f, t), lost = fused(turn, 0x1.921fb6p+0f, -value) + t;
  return value + (fused(turn, -0x1.777a5cp-25f, small) + lost);
}
__device__ inline HalfAngle<f32> half_angle(f32 size) {
  const f32 square = fused(-0.5f, size, 0.5f), s = chosen(square == 0.0f, 0.0f, sure_root(square));
  const f32 rest = fused(-s, s, square) * __int_as_float(0x7ef311c7 - __float_as_int(s));
  return {s + s, rest, size > 0.5f ? square : size * size, size > 0.5f};
}
__device__ inline f32 arcsine(f32 x) {
  const HalfAngle<f32> by = half_angle(absolute(x));
  const f32 t = by.wide ? -by.root : absolute(x);
  const f32 small = fused(t * by.z, arcsine_polynomial(by.z), by.wide ? -by.rest : 0.0f);
  return copysign(turned_by(by.wide ? 1.0f : 0.0f, t, small), x);
}
__device__ inline f32 arccosine(f32 x) {
  const HalfAngle<f32> by = half_angle(absolute(x));
  const f32 t = by.wide ? copysign(by.root, x) : -x, turn = by.wide ? (x < 0.0f ? 2.0f : 0.0f) : 1.0f;
  const f32 small = fused(t * by.z, arcsine_polynomial(by.z), by.wide ? copysign(1.0f, x) * by.rest : 0.0f);
  return turned_by(turn, t, small);
}

// turn pi / 2 + sign arctan(share least / most), 0 <= share least <= most. From half of most on, pi / 4 is taken off.
// What the quotient lost counts by the slope, near 1 - 0.85 z.
__device__ inline f32 turned_arctangent(f32 least, f32 most, f32 share, f32 sign, f32 turn) {
  const f32 taken = (share + share) * least > most ? sign : 0.0f, more = absolute(taken);
  const f32 n = fused(-taken, most, sign * least), d = fused(more, least, most), d_rest = fused(more, least, most - d);
  const f32 y = inverse(d), near = n * y, quotient = fused(fused(-near, d, n), y, near);
  const f32 rest = fused(-quotient, d_rest, fused(-quotient, d, n)) * y, t = quotient * share, z = t * t;
  const f32 t_rest = rest * share, small = fused(-0.85f * z, t_rest, t_rest);
  return turned_by(fused(0.5f, taken, turn), t, fused(t * z, arctangent_polynomial(z), small));
}
__device__ inline f32 arctangent(f32 x) {
  const f32 size = absolute(x);
  const bool steep = size > 1.0f;
  const f32 least = steep ? 1.0f : size, most = steep ? (size > 0x1p60f ? 0x1p60f : size) : 1.0f;
  return copysign(turned_arctangent(least, most, 1.0f, steep ? -1.0f : 1.0f, steep ? 1.0f : 0.0f), x);
}
// Both are multiplied by a power of two, and a least that is small beside most by another one. Beside an infinity what
// is finite is 0.
__device__ inline f32 arctangent2(f32 y, f32 x) {
  const f32 side = copysign(1.0f, x);
  const bool steep = absolute(y) > absolute(x);
  f32 least = steep ? absolute(x) : absolute(y), most = steep ? absolute(y) : absolute(x);
  const bool low = most < 0x1p-30f, raised = least < 0x1p-32f && !low;
  const f32 by = low ? 0x1p89f : most > 0x1p59f ? 0x1p-69f : 1.0f;
  least = is_inf(most) && least < f32(infinity()) ? 0.0f : least * (raised ? 0x1p68f * by : by);
  least = least > 0x1p59f ? 0x1p59f : least, most = bounded(most * by, 0x1p-60f, 0x1p59f);
  const f32 share = raised ? 0x1p-68f : 1.0f, sign = steep ? -side : side, turn = steep ? 1.0f : 1.0f - side;
  return copysign(turned_arctangent(least, most, share, sign, turn), y);
}
