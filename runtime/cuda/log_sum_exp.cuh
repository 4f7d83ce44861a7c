// The logarithm of a sum of exponentials, in one pass over a row. Exponentials are taken of distances from an anchor, a
// multiple of 64 (of 512 in f64) that is next to the largest element: mostly 0. So parts of a row mostly have the same
// one, and their sums are added as they are. `reference.reductions` has the same text in NumPy.
#pragma once
#include "elementary.cuh"
#include "reductions.cuh"

// Where the largest is not finite, it is the result, whatever the sum.
struct LogSumExp {
  template <typename C> static constexpr C APART = sizeof(C) == 4 ? C(64) : C(512);
  template <typename C> static __device__ C anchor(C x) { return rint(x * (1 / APART<C>)) * APART<C>; }
  template <typename C> static __device__ bool near_0(C x) { return absolute(x) <= APART<C> / 2; }

  // e^x, where x is at most half of what anchors are apart, in f32 within 2^-21.9 from e^-32 on. Where that is less
  // than the limit, it counts as the limit: sums are e^-32 at least, or e^-256 in f64, and do not change by it.
  static __device__ f32 power(f32 x) { return near_power(at_least(x, -87.0f)); }
  static __device__ f64 power(f64 x) { return near_power(x > -708.0 ? x : -708.0); }
  // Of those that are above the limit.
  static __device__ f32 near_power(f32 x) {
    const f32 power = exponential_power(x), r = fused(power - 0x1.8p23f, -0x1.62e43p-1f, x);
    const f32 rise = fused_polynomial(r, 0x1.10626ep-7f, 0x1.572a1ep-5f, 0x1.5557aep-3f, 0x1.fffdfcp-2f);
    const f32 mantissa = fused(fused(rise, r, 1.0f), r, 1.0f);
    return __int_as_float(i32((u32(__float_as_int(power)) << 23) + u32(__float_as_int(mantissa))));
  }
  static __device__ f64 near_power(f64 x) {
    bool usual = true;
    return quick_exponential(x, usual);
  }

  template <typename S> static __device__ S nothing() { return {Largest::nothing<decltype(S::largest)>(), 0}; }
  template <typename S> static __device__ S empty() { return nothing<S>(); }
  template <typename V> static __device__ Exponentials<V> of_one(V value) { return {value, V(1)}; }

  // Whether a part's sum stays as it is when it is joined with any that stay as well.
  template <typename V> static __device__ bool stays(const Exponentials<V>& part) {
    return near_0(part.largest) | (part.sum == V(0));
  }
  // Two parts of a row. Mostly both have anchor 0, or one is nothing; else sums are moved to the anchor of both.
  template <typename V> static __device__ Exponentials<V> of(const Exponentials<V>& a, const Exponentials<V>& b) {
    if ((near_0(a.largest) & near_0(b.largest)) | (a.sum == V(0)) | (b.sum == V(0))) return added(a, b);
    return moved(a.largest, a.sum, b.largest, b.sum);
  }
  // Eight neighbours, and what comes before them.
  template <typename V> static __device__ Exponentials<V> of(const Exponentials<V>& before, const V (&group)[GROUP]) {
    const Exponentials<V> found = near_group(group);
    return near_after(before, found) ? added(before, found) : far_after(before, group);
  }
  template <typename V>
  static __device__ Exponentials<V> of(const Exponentials<V>& before, const Exponentials<V> (&group)[GROUP]) {
    V values[GROUP];
#pragma unroll
    for (int i = 0; i < GROUP; ++i) values[i] = group[i].largest;
    return of(before, values);
  }

  // Of eight neighbours whose anchor is 0, and whether it is, and that of what comes before them.
  template <typename V> static __device__ Exponentials<V> near_group(const V (&group)[GROUP]) {
    V powers[GROUP];
#pragma unroll
    for (int i = 0; i < GROUP; ++i) powers[i] = power(group[i]);
    return {joined_neighbours<Largest>(group), joined_neighbours<Sum>(powers)};
  }
  template <typename V> static __device__ bool near_after(const Exponentials<V>& before, const Exponentials<V>& group) {
    return near_0(group.largest) & (near_0(before.largest) | (before.sum == V(0)));
  }
  template <typename V> static __device__ Exponentials<V> added(const Exponentials<V>& a, const Exponentials<V>& b) {
    return {Largest::of(a.largest, b.largest), a.sum + b.sum};
  }
  // Of any eight neighbours.
  template <typename V>
  static __device__ Exponentials<V> far_after(const Exponentials<V>& before, const V (&group)[GROUP]) {
    return far_after(before.largest, before.sum, group[0], group[1], group[2], group[3], group[4], group[5], group[6],
                     group[7]);
  }

 private:
  // Scalars are handed over in registers.
  template <typename V>
  static __device__ __noinline__ Exponentials<V> far_after(
      V before, V before_sum, V a, V b, V c, V d, V e, V f, V g, V h) {
    const V group[GROUP] = {a, b, c, d, e, f, g, h}, largest = joined_neighbours<Largest>(group);
    V powers[GROUP];
#pragma unroll
    for (int i = 0; i < GROUP; ++i) powers[i] = power(group[i] - anchor(largest));
    const V sum = is_finite(largest) ? joined_neighbours<Sum>(powers) : V(0);
    return of(Exponentials<V>{before, before_sum}, Exponentials<V>{largest, sum});
  }
  template <typename V> static __device__ __noinline__ Exponentials<V> moved(V a, V a_sum, V b, V b_sum) {
    const V largest = Largest::of(a, b), to = anchor(largest);
    return {largest, a_sum * power(anchor(a) - to) + b_sum * power(anchor(b) - to)};
  }
};

// What a thread that holds elements of 16 bits knows of them: the largest, and whether all have anchor 0 and are above
// the limit.
template <typename E> struct NearPairs : PackedPairs<Largest, E> {
  static constexpr f32 MOST = LogSumExp::APART<f32> / 2;
  __device__ bool known() const { return this->greatest() <= MOST && this->least() >= -MOST; }
};
template <> struct Packed<LogSumExp, f16> : NearPairs<f16> {};
template <> struct Packed<LogSumExp, bf16> : NearPairs<bf16> {};

template <typename V> __device__ inline V result_of(const Exponentials<V>& found) {
  const V share = sure_quotient(found.sum, LogSumExp::power(found.largest - LogSumExp::anchor(found.largest)));
  return is_finite(found.largest) ? found.largest + logarithm(share) : found.largest;
}
