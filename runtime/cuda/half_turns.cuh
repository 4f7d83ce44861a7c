// The sine and cosine of pi x as precise as f16 and bf16, T: within 2^-14 and 2^-11 of the value, in f32 steps that CPU
// and GPU have in common. `reference.half_angles` has the same text in NumPy.
#pragma once
#include "half_precision.cuh"
#include "turns.cuh"

// sin(pi r) / r for |r| up to 1/2, where the sine is 1, by z = r^2; of both types.
__device__ inline f32 half_turn_sine_polynomial(f32 z) {
  return fused_polynomial(z, -0x1.1d299cp-1f, 0x1.45852cp+1f, -0x1.4ab582p+2f, 0x1.921f98p+1f);
}
// The sine of pi r; its sign changes for an odd k, which stands in the last bits of `power`.
__device__ inline f32 half_sine_of_share(f32 r, f32 power) {
  const f32 value = r * half_turn_sine_polynomial(r * r);
  return __uint_as_float(__float_as_uint(value) ^ __float_as_uint(power) << 31);
}
// x = k + r, up to an even number, which is exact; r is up to a half.
__device__ inline f32 half_turns(f32 x, f32& power) {
  const f32 rest = fused(-2.0f, rint(0.5f * x), x);
  power = rest + 0x1.8p23f;
  return rest - (power - 0x1.8p23f);
}

// As precise as T, C where T is not of 16 bits.
template <typename T, typename C> __device__ inline C sine_of_turns_as(C x) {
  if constexpr (HALF<T>) {
    f32 power;
    const f32 r = half_turns(x, power);
    return half_sine_of_share(r, power);
  } else {
    return sine_of_turns(x);
  }
}
template <typename T, typename C> __device__ inline C cosine_of_turns_as(C x) {
  if constexpr (HALF<T>) {
    f32 power;
    const f32 r = half_turns(x, power);
    return half_sine_of_share(0.5f - absolute(r), power);
  } else {
    return cosine_of_turns(x);
  }
}
