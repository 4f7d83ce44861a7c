// erfinv as precise as f16 and bf16, T: within 2^-14 and 2^-11 of the value, in f32 steps that CPU and GPU have in
// common. `reference.half_inverse_erf` has the same text in NumPy.
#pragma once
#include "half_hyperbolic.cuh"
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

template <typename T> __device__ inline f32 half_inverse_error(f32 x) {
  const f32 share = fused(-x, x, 1.0f);
  const i32 above = half_above<0>(share);
  const f32 t = fused(half_logarithm_at<T>(above, half_rest(above)), -0x1.ec4ec4p-4f, -1.0f);
  const f32 end = share == 0.0f ? half_infinity() : f32(not_a_number());
  return chosen(share > 0.0f, x * inverse_error_polynomial(T(), t), copysign(end, x));
}

// As precise as T, C where T is not of 16 bits.
template <typename T, typename C> __device__ inline C inverse_error_as(C x) {
  if constexpr (HALF<T>) return half_inverse_error<T>(x);
  else return inverse_error(x);
}
