// exp as precise as f16 and bf16, T: within 2^-14 and 2^-11 of the value, in f32 steps that CPU and GPU have in common.
// `reference.half_precision` has the same text in NumPy; half_erf.cuh has the other functions.
//
// Each is 2^u, with u = k + f, k an integer and f at most 1/2: 2^f is a short polynomial P with P(0) = 1 and
// P(1/2) = 2 P(-1/2), so that it rises where u does. `unit` is a factor of its coefficients. A type is chosen by a
// value of it.
#pragma once
#include "quick.cuh"

template <typename T, bool = Format<T>::real> constexpr bool HALF = false;
template <typename T> constexpr bool HALF<T, true> = Format<T>::bits == 16;

// 2^f
__device__ inline f32 power_polynomial(f16, f32 f, f32 unit) {
  return fused_polynomial(f, 0x1.3c8b1ep-7f * unit, 0x1.ca69b4p-5f * unit, 0x1.ebfd9ep-3f * unit, 0x1.62e048p-1f * unit,
      unit);
}
__device__ inline f32 power_polynomial(bf16, f32 f, f32 unit) {
  return fused_polynomial(f, 0x1.c29bd8p-5f * unit, 0x1.f00c88p-3f * unit, 0x1.62f608p-1f * unit, unit);
}

// y of unit * 2^(a b) = y * 2^k; k stands in the last bits of `power`.
template <typename T> __device__ inline f32 half_power(f32 a, f32 b, f32 unit, f32& power) {
  power = fused(a, b, 0x1.8p23f);
  return power_polynomial(T(), fused(a, b, -(power - 0x1.8p23f)), unit);
}

// ---- exp ----

template <typename T> __device__ inline f32 half_exponential(f32 x) {
  f32 power;
  const f32 y = half_power<T>(bounded(x, -104.5f, 89.0f), 0x1.715476p+0f, 1.0f, power);
  return with_power(y, power);
}
// The same for |x| up to 87, where the power of two is added to the exponent.
template <typename T> __device__ inline f32 half_exponential_near(f32 x) {
  f32 power;
  const f32 y = half_power<T>(x, 0x1.715476p+0f, 1.0f, power);
  return __int_as_float(i32((u32(__float_as_int(power)) << 23) + u32(__float_as_int(y))));
}

// ---- as precise as T, C where T is not of 16 bits ----

template <typename T, typename C> __device__ inline C exponential_as(C x) {
  if constexpr (IS_QUICK<T>) return hardware_exponential(x);
  if constexpr (HALF<T>) return half_exponential<T>(x);
  else return exponential(x);
}
template <typename C, typename T> __device__ inline C falling_exponential_as(C x) {
  if constexpr (HALF<T>) {
    f32 power;
    const f32 y = half_power<T>(at_least(x, -104.5f), 0x1.715476p+0f, 1.0f, power);
    return with_falling_power(y, power);
  } else if constexpr (IS_QUICK<T>) {
    return hardware_exponential(x);
  } else {
    return falling_exponential(x);
  }
}
template <typename T, typename C> __device__ __noinline__ C careful_exponential_as(C x) { return exponential_as<T>(x); }
template <typename T, typename C> __device__ __noinline__ C careful_logistic_as(C x, C u) {
  return divided(x, C(1) + exponential_as<T>(u));
}

// As row_exponential, logistic_product and logistic_quotient of quick.cuh.
template <int FAST, typename T, typename C> __device__ inline C row_exponential_as(C x, bool& usual) {
  if constexpr (IS_QUICK<T>) {
    return hardware_exponential(x);
  } else if constexpr (HALF<T>) {
    if (!FAST) return x < C(-104) ? C(0) : careful_exponential_as<T>(x);
    usual &= absolute(x) <= C(87);
    return half_exponential_near<T>(x);
  } else {
    return row_exponential<FAST>(x, usual);
  }
}
template <int FAST, typename T, typename C> __device__ inline C logistic_product_as(C x, bool& usual) {
  if constexpr (IS_QUICK<T>) {
    return x * hardware_inverse(C(1) + hardware_exponential(-x));
  } else if constexpr (!HALF<T>) {
    return logistic_product<FAST>(x, usual);
  } else if constexpr (FAST) {
    usual &= absolute(x) <= C(69);
    return sure_quotient(x, C(1) + half_exponential_near<T>(-x));
  } else {
    return careful_logistic_as<T>(x, -x);
  }
}
template <int FAST, typename E, typename T, typename C>
__device__ inline C logistic_quotient_as(C x, C u, bool& usual) {
  if constexpr (IS_QUICK<T>) {
    return x * hardware_inverse(C(1) + hardware_exponential(u));
  } else if constexpr (!HALF<T>) {
    return logistic_quotient<FAST, E>(x, u, usual);
  } else if constexpr (FAST && NARROW<E>) {
    usual &= absolute(u) <= C(69);
    return sure_quotient(x, C(1) + half_exponential_near<T>(u));
  } else if constexpr (FAST) {
    return row_quotient<FAST>(x, C(1) + row_exponential_as<FAST, T>(u, usual), usual);
  } else {
    return careful_logistic_as<T>(x, u);
  }
}
