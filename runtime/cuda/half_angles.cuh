// Trigonometric functions and their inverses as precise as f16 and bf16, T: within 2^-14 and 2^-11 of the value, in f32
// steps that CPU and GPU have in common. `reference.half_angles` has the same text in NumPy.
#pragma once
#include "half_logarithm.cuh"
#include "trigonometric.cuh"

// arctan(q) / q for q up to 1, by z = q^2.
__device__ inline f32 arctangent_polynomial(f16, f32 z) {
  return fused_polynomial(z, -0x1.adf3b4p-7f, 0x1.d0310ap-5f, -0x1.edfdcep-4f, 0x1.90410ap-3f, -0x1.54f6eep-2f,
      0x1.ffff62p-1f);
}
__device__ inline f32 arctangent_polynomial(bf16, f32 z) {
  return fused_polynomial(z, -0x1.6b1fep-5f, 0x1.3ea032p-3f, -0x1.4da0c4p-2f, 0x1.ffe432p-1f);
}

// Beyond 1 it is that of 1 / x, taken from pi / 2.
template <typename T> __device__ inline f32 half_arctangent(f32 x) {
  const f32 size = absolute(x);
  const bool steep = size > 1.0f;
  const f32 q = steep ? inverse(at_most(size, 0x1p60f)) : size, p = arctangent_polynomial(T(), q * q);
  return copysign(steep ? fused(-q, p, 0x1.921fb6p+0f) : q * p, x);
}

// The quotient q of the smaller magnitude by the larger one, both multiplied by a power of two with which the divisor
// is below 16, and from 1 on if it is a normal number; q is 0 beside an infinity and for zeros, 1 of two infinities.
template <typename T> __device__ inline f32 half_angle_of(f32 y, f32 x) {
  const bool steep = absolute(y) > absolute(x);
  const f32 least = steep ? absolute(x) : absolute(y), most = steep ? absolute(y) : absolute(x);
  const f32 by = __int_as_float(0x7f000000 - (__float_as_int(most) & 0x7e000000)), divisor = most * by;
  const bool infinite = divisor == half_infinity();
  const f32 quotient = least * by * (infinite | (divisor == 0.0f) ? 0.0f : inverse(divisor));
  const f32 q = infinite & (least == most) ? 1.0f : quotient, z = q * q, near = q * arctangent_polynomial(T(), z);
  const f32 angle = steep ? 0x1.921fb6p+0f - near : near;
  return copysign(__float_as_int(x) < 0 ? 0x1.921fb6p+1f - angle : angle, y);
}

// arcsin(t) / t for t up to 1/2, by z = t^2.
__device__ inline f32 arcsine_polynomial(f16, f32 z) {
  return fused_polynomial(z, 0x1.0a844cp-4f, 0x1.24cc6ap-4f, 0x1.55b69ap-3f, 0x1.ffffcep-1f);
}
__device__ inline f32 arcsine_polynomial(bf16, f32 z) {
  return fused_polynomial(z, 0x1.892af4p-4f, 0x1.50f9bap-3f, 0x1.00020ap+0f);
}
// Beyond a half it is pi / 2 - 2 arcsin(s) with s = sqrt((1 - x) / 2).
template <typename T> __device__ inline f32 half_arcsine(f32 x) {
  const f32 size = absolute(x), square = fused(-0.5f, size, 0.5f), s = sure_root(square + 0x1p-100f);
  const bool wide = size > 0.5f;
  const f32 near = (wide ? s : size) * arcsine_polynomial(T(), wide ? square : size * size);
  return copysign(wide ? fused(-2.0f, near, 0x1.921fb6p+0f) : near, x);
}

// arccos(t) / sqrt(1 - t) for t from 0, where it is pi / 2, to 1.
__device__ inline f32 arccosine_polynomial(f16, f32 t) {
  return fused_polynomial(t, 0x1.237b98p-7f, -0x1.297c08p-5f, 0x1.5c8346p-4f, -0x1.b6c3ecp-3f, 0x1.921fb6p+0f);
}
__device__ inline f32 arccosine_polynomial(bf16, f32 t) {
  return fused_polynomial(t, -0x1.3d650cp-6f, 0x1.34c666p-4f, -0x1.b38d82p-3f, 0x1.921fb6p+0f);
}
template <typename T> __device__ inline f32 half_arccosine(f32 x) {
  const f32 size = absolute(x), root = sure_root((1.0f - size) + 0x1p-100f) - 0x1p-50f;  // 0 at 1
  const f32 value = root * arccosine_polynomial(T(), size);
  return x < 0.0f ? 0x1.921fb6p+1f - value : value;
}

// x + (A + B + C) k, of which only the last sum is inexact where it is small. Parts of one sign keep that of a zero.
__device__ inline f32 left_of(f32 x, f32 k, f32 A, f32 B, f32 C) { return fused(k, C, fused(k, B, fused(k, A, x))); }

// tan(r) / r for |r| up to pi / 4, by z = r^2.
__device__ inline f32 tangent_polynomial(f16, f32 z) {
  return fused_polynomial(z, 0x1.6a5b86p-5f, 0x1.474cd6p-5f, 0x1.17e328p-3f, 0x1.550ef4p-2f, 0x1.000038p+0f);
}
__device__ inline f32 tangent_polynomial(bf16, f32 z) {
  return fused_polynomial(z, 0x1.84765cp-4f, 0x1.d8ce9ep-4f, 0x1.57bd3ap-2f, 0x1.fff9e2p-1f);
}
// x = k pi / 2 + r; for an odd k it is that of r, divided into -1.
template <int FAST, typename T> __device__ inline f32 half_tangent_of(f32 x) {
  if (FAST != FAST_WITHIN && !is_near_angle(x)) return far_tangent(x);
  const f32 power = fused(x, 0x1.45f306p-1f, 0x1.8p23f), k = power - 0x1.8p23f;
  const f32 r = left_of(x, k, -0x1.921fb4p+0f, -0x1.4442dp-24f, -0x1.84698ap-48f);
  const f32 value = r * tangent_polynomial(T(), r * r), turned = -inverse(value);
  return __float_as_uint(power) & 1 ? turned : value;
}

// A value whose sign changes for an odd k, which stands in the last bits of `power`.
__device__ inline f32 changed_by(f32 power, f32 value) {
  return __uint_as_float(__float_as_uint(value) ^ __float_as_uint(power) << 31);
}
// sin(r) / r for |r| up to pi / 2, where the sine is 1, by z = r^2; of both types.
__device__ inline f32 half_sine_polynomial(f32 z) {
  return fused_polynomial(z, -0x1.82b9d8p-13f, 0x1.10502cp-7f, -0x1.554ed8p-3f, 0x1.ffffdcp-1f);
}
// x = k pi + r
template <int FAST> __device__ inline f32 half_sine(f32 x) {
  if (FAST != FAST_WITHIN && !is_near_angle(x)) return far_sine(x);
  const f32 power = fused(x, 0x1.45f306p-2f, 0x1.8p23f), k = power - 0x1.8p23f;
  const f32 r = left_of(x, k, -0x1.921fb4p+1f, -0x1.4442dp-23f, -0x1.84698ap-47f);
  return changed_by(power, r * half_sine_polynomial(r * r));
}
// x = (k + 1/2) pi - r
template <int FAST> __device__ inline f32 half_cosine(f32 x) {
  if (FAST != FAST_WITHIN && !is_near_angle(x)) return far_cosine(x);
  const f32 power = fused(x, 0x1.45f306p-2f, -0.5f) + 0x1.8p23f, k = (power - 0x1.8p23f) + 0.5f;
  const f32 r = left_of(-x, k, 0x1.921fb4p+1f, 0x1.4442dp-23f, 0x1.84698ap-47f);
  return changed_by(power, r * half_sine_polynomial(r * r));
}

// As precise as T, C where T is not of 16 bits.
template <typename T, typename C> __device__ inline C arctangent2_as(C y, C x) {
  if constexpr (HALF<T>) return half_angle_of<T>(y, x);
  else return arctangent2(y, x);
}
template <typename T, typename C> __device__ inline C arctangent_as(C x) {
  if constexpr (HALF<T>) return half_arctangent<T>(x);
  else return arctangent(x);
}
template <typename T, typename C> __device__ inline C arcsine_as(C x) {
  if constexpr (HALF<T>) return half_arcsine<T>(x);
  else return arcsine(x);
}
template <typename T, typename C> __device__ inline C arccosine_as(C x) {
  if constexpr (HALF<T>) return half_arccosine<T>(x);
  else return arccosine(x);
}
template <int FAST, typename T, typename C> __device__ inline C tangent_in_as(C x) {
  if constexpr (HALF<T>) return half_tangent_of<FAST, T>(x);
  else return tangent_in<FAST>(x);
}
template <int FAST, typename T, typename C> __device__ inline C sine_in_as(C x) {
  if constexpr (HALF<T>) return half_sine<FAST>(x);
  else return sine_in<FAST>(x);
}
template <int FAST, typename T, typename C> __device__ inline C cosine_in_as(C x) {
  if constexpr (HALF<T>) return half_cosine<FAST>(x);
  else return cosine_in<FAST>(x);
}
template <typename T, typename C> __device__ inline C tangent_as(C x) { return tangent_in_as<GENERAL, T>(x); }
template <typename T, typename C> __device__ inline C sine_as(C x) { return sine_in_as<GENERAL, T>(x); }
template <typename T, typename C> __device__ inline C cosine_as(C x) { return cosine_in_as<GENERAL, T>(x); }
