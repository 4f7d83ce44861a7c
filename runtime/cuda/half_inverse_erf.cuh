// erfinv as precise as f16 and bf16, T: within 2^-14 and 2^-11 of the value, in f32 steps that CPU and GPU have in
// common. `reference.half_inverse_erf` has the same text in NumPy.
#pragma once
#include "half_precision.cuh"
#include "inverse_erf.cuh"

// erfinv(x) / x by t, which goes from -1 to 1 as log(1 - x^2) falls from 0 to that of the last x below 1; that of bf16
// is right at -1.
__device__ inline f32 inverse_error_polynomial(f16, f32 t) {
  return fused_polynomial(t, -0x1.d6d36cp-6f, 0x1.bdbdbep-6f, 0x1.05e674p-4f, -0x1.7cb5cap-4f, 0x1.bc7b22p-6f,
      0x1.3ed0d2p-7f, -0x1.5b49a2p-5f, 0x1.0d98ep-3f, -0x1.56589p-2f, 0x1.70edaep+0f, 0x1.5bd2bep+1f);
}
__device__ inline f32 inverse_error_polynomial(bf16, f32 t) {
  return fused_polynomial(t, 0x1.53d786p-4f, -0x1.7307a2p-4f, -0x1.16e1eap-4f, 0x1.5d96cp-3f, -0x1.507544p-2f,
      0x1.6fe3ccp+0f, 0x1.5bc9f2p+1f);
}

// With 1 - x^2 = m 2^k and m from 1 to 2, t less what the bits of 1 - x^2 have of it, read as one integer, which grows
// nearly as its logarithm does. Within 2^-19 and 2^-16, and the same at both ends.
__device__ inline f32 rest_polynomial(f16, f32 m) {
  return fused_polynomial(m, -0x1.ea00e4p-9f, 0x1.1c4bb4p-5f, -0x1.164e74p-3f, 0x1.2eeb26p-2f, -0x1.5d1096p-2f,
      0x1.37601ap+3f);
}
__device__ inline f32 rest_polynomial(bf16, f32 m) {
  return fused_polynomial(m, 0x1.b20184p-8f, -0x1.b09ffap-5f, 0x1.662994p-3f, -0x1.046acp-2f, 0x1.36986ap+3f);
}
// 0 for a normal number, inf for 0, NaN below it: an estimate whose digits are lost where it is added to a number.
__device__ inline f32 end_of_shares(f32 share) {
  f32 estimate;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(estimate) : "f"(share));
  return estimate;
}

template <typename T> __device__ inline f32 half_inverse_error(f32 x) {
  const f32 share = fused(-x, x, 1.0f);
  const u32 bits = __float_as_uint(share);
  const f32 m = __uint_as_float(bits | 0x3f800000u);  // of a share up to 1
  const f32 t = fused(f32(i32(bits)), -0x1.553ddep-27f, rest_polynomial(T(), m));
  return x * fused(0x1p-60f, end_of_shares(share), inverse_error_polynomial(T(), t));
}

// As precise as T, C where T is not of 16 bits.
template <typename T, typename C> __device__ inline C inverse_error_as(C x) {
  if constexpr (HALF<T>) return half_inverse_error<T>(x);
  else return inverse_error(x);
}
