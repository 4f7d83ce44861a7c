// The logarithm of a sum of exponentials, as a scan joins two of them.
#pragma once
#include "elementary.cuh"
#include "powers.cuh"
#include "reductions.cuh"

struct LogSumExp {
  template <typename V> static __device__ V nothing() { return Largest::nothing<V>(); }
  template <typename V> static __device__ V empty() { return nothing<V>(); }
  template <typename V> static __device__ __noinline__ V of(V a, V b) {  // a scan has many joins
    const V high = Largest::of(a, b), low = Smallest::of(a, b);
    if (low == nothing<V>() || high == Smallest::nothing<V>()) return high;
    return high + logarithm_one_plus(exponential(low - high));
  }
};
