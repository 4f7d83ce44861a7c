// Angles as precise as f16 and bf16, T: within 2^-14 and 2^-11 of the value, in f32 steps that CPU and GPU have in
// common. `reference.half_powers` has the same text in NumPy.
#pragma once
#include "half_logarithm.cuh"
#include "trigonometric.cuh"

// arctan(q) / q for q up to 1, by z = q^2.
__device__ inline f32 arctangent_polynomial(f16, f32 z) {
  f32 p = 0x1.86ee22p-6f;
  p = fused(p, z, -0x1.78825ep-4f);
  p = fused(p, z, 0x1.7b50c2p-3f);
  p = fused(p, z, -0x1.53a93ep-2f);
  return fused(p, z, 0x1.fffc12p-1f);
}
__device__ inline f32 arctangent_polynomial(bf16, f32 z) {
  f32 p = -0x1.6b1fep-5f;
  p = fused(p, z, 0x1.3ea032p-3f);
  p = fused(p, z, -0x1.4da0c4p-2f);
  return fused(p, z, 0x1.ffe432p-1f);
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

// As precise as T, C where T is not of 16 bits.
template <typename T, typename C> __device__ inline C arctangent2_as(C y, C x) {
  if constexpr (HALF<T>) return half_angle_of<T>(y, x);
  else return arctangent2(y, x);
}
