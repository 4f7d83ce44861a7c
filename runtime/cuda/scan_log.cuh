// The logarithm of a sum of exponentials, as a scan joins them: a logarithm is taken where a value is wanted, not at
// each join. `reference.scans` has the same text in NumPy.
#pragma once
#include "elementary.cuh"
#include "powers.cuh"
#include "reductions.cuh"

// log(1 + x) for what a sum has beside its largest element, or NaN: the bits of logarithm_one_plus, which asks for
// other x too.
__device__ inline f32 log_one_plus_sum(f32 x) {
  const f32 result = logarithm_one_plus_near(x);
  return x >= 0x1p-25f ? result : x;
}
__device__ __noinline__ f64 log_one_plus_sum(f64 x) { return logarithm_one_plus(x); }  // each element has one

// e^largest (1 + more): `more` is what the other elements come to beside the largest one; -0 if there are none, which
// leaves what it is added to as it was.
template <typename C> struct LogSum {
  C largest, more;
  LogSum() = default;
  __device__ LogSum(C value) : largest(value), more(C(-0.0)) {}
  __device__ LogSum(C largest, C more) : largest(largest), more(more) {}
  __device__ operator C() const { return largest + log_one_plus_sum(more); }
};
template <typename C> __device__ inline LogSum<C> of_lane(LogSum<C> value, int lane) {
  return {__shfl_sync(~0u, value.largest, lane), __shfl_sync(~0u, value.more, lane)};
}

// e^x for x up to 0; -0 where that is next to nothing.
__device__ inline f32 decay(f32 x) {
  bool usual = true;
  const f32 power = quick_exponential(x, usual);
  return x < -87.0f ? -0.0f : power;
}
__device__ inline f64 decay(f64 x) {
  bool usual = true;
  const f64 power = quick_exponential(x, usual);
  return x < -708.0 ? -0.0 : power;
}
__device__ inline f32 more_than(f32 more, f32 other, f32 share) { return fused(1.0f + other, share, more); }
__device__ inline f64 more_than(f64 more, f64 other, f64 share) { return (1.0 + other) * share + more; }

struct LogSums {
  template <typename V> static __device__ V nothing() {
    return V(Largest::nothing<decltype(V::largest)>());
  }
  template <typename V> static __device__ V empty() { return nothing<V>(); }
  template <typename V> static __device__ V of(V first, V later) {
    using C = decltype(V::largest);
    const bool rises = later.largest > first.largest, same = later.largest == first.largest;
    const C high = rises ? later.largest : first.largest, low = rises ? first.largest : later.largest;
    const C more = rises ? later.more : first.more, other = rises ? first.more : later.more;
    return {high, more_than(more, other, decay(same ? C(0) : low - high))};  // infinities have no difference
  }
};
template <typename C> struct state<LogSums, C> { using type = LogSum<C>; };
