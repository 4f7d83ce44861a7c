// sigmoid, tanh, ndtr, erfc and the slope of gelu as precise as f16 and bf16, T: within 2^-14 and 2^-11 of the value,
// in f32 steps that CPU and GPU have in common. `reference.half_precision` has the same text in NumPy.
#pragma once
#include "erf.cuh"
#include "half_precision.cuh"

// ---- sigmoid and tanh ----

// 1 / (1 + e^-x), both parts of the sum lowered by a power of two that leaves room for e^-x where the quotient is 0.
template <typename T> __device__ inline f32 half_logistic(f32 x) {
  f32 power;
  const f32 y = half_power<T>(bounded(x, -108.8f, 30.0f), -0x1.715476p+0f, 1.0f, power);
  return inverse(fused(y, lifted<-60>(power), 0x1p-60f)) * 0x1p-60f;
}
// The same bits for |x| up to 60, where the sum has room as it is.
template <typename T> __device__ inline f32 half_logistic_near(f32 x) {
  f32 power;
  const f32 y = half_power<T>(x, -0x1.715476p+0f, 1.0f, power);
  return inverse(fused(y, lifted<0>(power), 1.0f));
}

// (2^f - 1) / f
__device__ inline f32 rise_polynomial(f16, f32 f) {
  return fused_polynomial(f, 0x1.3afc7ap-7f, 0x1.c976a8p-5f, 0x1.ebfe68p-3f, 0x1.62e2d4p-1f);
}
__device__ inline f32 rise_polynomial(bf16, f32 f) {
  return fused_polynomial(f, 0x1.c89c94p-5f, 0x1.eff45cp-3f, 0x1.62dd12p-1f);
}

// With m = e^2x - 1, tanh x = m / (m + 2).
template <typename T> __device__ inline f32 half_tangent(f32 x) {
  const f32 t = at_most(absolute(x), 9.5f), power = fused(t, 0x1.715476p+1f, 0x1.8p23f);
  const f32 f = fused(t, 0x1.715476p+1f, -(power - 0x1.8p23f)), two = lifted<0>(power);
  const f32 m = fused(two, rise_polynomial(T(), f) * f, two - 1.0f);
  return copysign(m * inverse(m + 2.0f), x);
}

// ---- ndtr and the slope of gelu ----

// log2(2 ndtr(-t)) / t, for t up to 5.75 of f16, 14.5 of bf16. Beyond, it falls until ndtr(-t) is 0.
__device__ inline f32 below_polynomial(f16, f32 t) {
  return fused_polynomial(t, 0x1.a2c0c6p-16f, -0x1.51970cp-11f, 0x1.e510c4p-8f, -0x1.a8427cp-5f, -0x1.d77e46p-2f,
      -0x1.268ffp+0f);
}
__device__ inline f32 below_polynomial(bf16, f32 t) {
  return fused_polynomial(t, 0x1.5ab894p-26f, -0x1.731ee6p-20f, 0x1.545002p-15f, -0x1.6060bcp-11f, 0x1.cc55e4p-8f,
      -0x1.970d2p-5f, -0x1.db43fep-2f, -0x1.2613acp+0f);
}
template <typename T> __device__ inline f32 half_normal_below(f32 x) {
  constexpr bool WIDE = Format<T>::exponent == 8;
  constexpr int LIFT = WIDE ? 30 : -25;
  const f32 t = at_most(absolute(x), WIDE ? 14.55f : 12.0f);
  f32 power;
  const f32 y = half_power<T>(t, below_polynomial(T(), t), WIDE ? 0x1p-31f : 0x1p+24f, power);
  const f32 below = y * lifted<LIFT>(power);
  return x < 0.0f ? below : 1.0f - below;
}
template <typename T> __device__ inline f32 half_complementary_error(f32 x) {
  return 2.0f * half_normal_below<T>(x * -0x1.6a09e6p+0f);
}

// log2(S(t) / S(0)) / t with S(t) = gelu_slope(-t) / (x0 - t), x0 its zero, for t up to 6.15 of f16, 14.5 of bf16.
__device__ inline f32 slope_polynomial(f16, f32 t) {
  return fused_polynomial(t, -0x1.664a12p-18f, 0x1.30424ap-13f, -0x1.bca2ap-10f, 0x1.74e2e2p-7f, -0x1.99293p-5f,
      -0x1.20bdfep-1f, -0x1.87a242p-2f);
}
__device__ inline f32 slope_polynomial(bf16, f32 t) {
  return fused_polynomial(t, -0x1.9b5462p-29f, 0x1.d215acp-23f, -0x1.c54a22p-18f, 0x1.f0885cp-14f, -0x1.52de94p-10f,
      0x1.2ec69ap-7f, -0x1.6e0944p-5f, -0x1.23ab46p-1f, -0x1.8595bp-2f);
}
template <typename T> __device__ inline f32 half_slope(f32 x) {
  constexpr bool WIDE = Format<T>::exponent == 8;
  constexpr int LIFT = WIDE ? 30 : -11;
  const f32 t = at_most(absolute(x), WIDE ? 14.71f : 12.0f);
  f32 power;
  const f32 y = half_power<T>(t, slope_polynomial(T(), t), 0x1.547bdp-1f * (WIDE ? 0x1p-30f : 0x1p+11f), power);
  const f32 below = y * fused(-0x1.0006fcp+0f, t, 0x1.80f552p-1f) * lifted<LIFT>(power);
  return x < 0.0f ? below : 1.0f - below;
}

// The power of two by an instruction of the GPU. That of f16 is 0 where the other form is.
template <typename T, typename C> __device__ inline C quick_normal_below(C x) {
  if constexpr (HALF<T>) {
    constexpr bool WIDE = Format<T>::exponent == 8;
    const f32 t = absolute(x), p = below_polynomial(T(), at_most(t, WIDE ? 14.55f : 12.0f));
    const f32 below = WIDE ? hardware_power(fused(t, p, -1.0f)) : hardware_power(fused(t, p, -25.0f)) * 0x1p24f;
    return x < 0.0f ? below : 1.0f - below;
  } else {
    return normal_below(x);
  }
}

// ---- as precise as T, C where T is not of 16 bits ----

template <typename T, typename C> __device__ inline C logistic_as(C x) {
  if constexpr (IS_QUICK<T>) return hardware_inverse(C(1) + hardware_exponential(-x));
  else if constexpr (HALF<T>) return half_logistic<T>(x);
  else return logistic(x);
}
template <typename T, typename C> __device__ __noinline__ C careful_logistic_alone(C x) { return logistic_as<T>(x); }
// As row_exponential of quick.cuh.
template <int FAST, typename T, typename C> __device__ inline C row_logistic_as(C x, bool& usual) {
  if constexpr (IS_QUICK<T>) {
    return logistic_as<T>(x);
  } else if constexpr (sizeof(C) > sizeof(f32)) {
    return logistic(x);
  } else if constexpr (!FAST) {
    return careful_logistic_alone<T>(x);
  } else {
    usual &= absolute(x) <= C(60);
    if constexpr (HALF<T>) return half_logistic_near<T>(x);
    else return logistic_near(x);
  }
}
template <typename T, typename C> __device__ inline C hyperbolic_tangent_as(C x) {
  if constexpr (HALF<T>) return half_tangent<T>(x);
  else return hyperbolic_tangent(x);
}
template <typename T, typename C> __device__ inline C normal_below_as(C x) {
  if constexpr (IS_QUICK<T>) return quick_normal_below<typename Plain<T>::type>(x);
  else if constexpr (HALF<T>) return half_normal_below<T>(x);
  else return normal_below(x);
}
template <typename T, typename C> __device__ inline C complementary_error_as(C x) {
  if constexpr (HALF<T>) return half_complementary_error<T>(x);
  else return complementary_error(x);
}
template <typename T, typename C> __device__ inline C gelu_slope_as(C x) {
  if constexpr (HALF<T>) return half_slope<T>(x);
  else return gelu_slope(x);
}
