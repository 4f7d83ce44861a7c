// One row of neighbouring elements, each known by a 32-bit index.
#pragma once
#include "lanes.cuh"
#include "index_space.cuh"

// How the operands lie. ALIGNED: from 16-byte boundaries on; SHIFTED: from any element on; PITCHED: as ALIGNED, but in
// lines of whole vectors with gaps between them, on 16-byte boundaries each; FEW, FEW_SHIFTED: as ALIGNED and SHIFTED,
// of so few elements that the kernel is a dependent launch.
enum { ALIGNED, SHIFTED, PITCHED, FEW, FEW_SHIFTED };
constexpr bool are_shifted(int layout) { return layout == SHIFTED || layout == FEW_SHIFTED; }
constexpr bool are_few(int layout) { return layout == FEW || layout == FEW_SHIFTED; }

// Parameters change only from run to run of the row's elements, and repeat after `period` runs (0: never). `line`: its
// elements, where there are lines.
struct Flat {
  i64 length;
  Divide run, period, line;

  // Elements that share parameters: where they end, and the position of those.
  struct Run {
    i32 end, index;
  };
  __device__ Run run_at(i32 element) const {
    const i32 piece = run(element);
    const i32 index = period.divisor == 0 ? piece : piece - period(piece) * i32(period.divisor);
    return {(piece + 1) * i32(run.divisor), index};
  }

  // The last whole vector; the host sees to it that there is one.
  template <int LANES> __device__ i32 last() const { return (i32(length) & -LANES) - LANES; }

  // Elements of gaps before an element of a line, `gap` after each line.
  template <int LAYOUT> __device__ i64 gaps(i32 element, i64 gap) const {
    return LAYOUT == PITCHED ? i64(line(element)) * gap : 0;
  }
};

// Elements before the first that starts a vector of N in memory. PAIRS: an even number, for some operand is packed and
// its bytes must not be cut.
template <int N, bool PAIRS, typename E> __device__ inline i32 lead(const storage_t<E>* array) {
  return i32(u64(array) * 8 / storage<E>::bits & (N - (PAIRS ? 2 : 1)));
}

// A vector from any element on: the aligned words around it, shifted into place. The words may reach MARGIN elements
// beyond it.
constexpr int MARGIN = 32;
template <typename E, int N> __device__ inline Lanes<E, N> load_around(const storage_t<E>* array, i32 first) {
  constexpr int bytes = N * storage<E>::bits / 8, width = bytes < 16 ? bytes : 16, words = bytes / width + 1;
  Lanes<E, N> lanes;
  if constexpr (IS_PLACE<E>) {
    lanes = load<true, E, N>(array, first, 0);
  } else if constexpr (width < 4) {
#pragma unroll
    for (int i = 0; i < Lanes<E, N>::units; ++i) lanes.data[i] = at<E>(array, first)[i];
  } else {
    using W = typename word<width>::type;
    const u8* from = reinterpret_cast<const u8*>(at<E>(array, first));
    const u32 skip = u32(u64(from) & (width - 1));
    const W* around = reinterpret_cast<const W*>(from - skip);
    union { W words_[words]; u32 w[words * width / 4]; } got;
#pragma unroll
    for (int i = 0; i < words; ++i) got.words_[i] = around[i];
    constexpr int count = words * width / 4;
    if (width > 8)
#pragma unroll
      for (int i = 0; i + 2 < count; ++i) got.w[i] = skip & 8 ? got.w[i + 2] : got.w[i];
    if (width > 4)
#pragma unroll
      for (int i = 0; i + 1 < count; ++i) got.w[i] = skip & 4 ? got.w[i + 1] : got.w[i];
    u32* to = reinterpret_cast<u32*>(lanes.data);
#pragma unroll
    for (int i = 0; i < bytes / 4; ++i) to[i] = __funnelshift_r(got.w[i], got.w[i + 1], (skip & 3) * 8);
  }
  return lanes;
}

template <int LAYOUT, typename E, int N>
__device__ inline Lanes<E, N> load_flat(const storage_t<E>* array, i32 first, i64 gaps) {
  if constexpr (are_shifted(LAYOUT)) return load_around<E, N>(array, first);
  if constexpr (IS_PLACE<E>) {
    // Known to be a multiple, so that neighbours which share a block of random words share its computation.
    const i64 begin = fetch(array + (first + gaps)).index & -i64(N);
    Lanes<E, N> lanes;
#pragma unroll
    for (int i = 0; i < N; ++i) lanes.data[i] = {begin | i};
    return lanes;
  }
  return load<true, E, N>(array, first + gaps, 0);
}

// An entry of a parameter, `step` bytes from that of the run before. One instruction finds it, which the compiler does
// not see, knowing that the index is not negative and the step may be.
template <typename S> __device__ inline S load_entry(const S* parameter, i32 index, i64 step) {
  i64 offset;
  asm("mul.wide.s32 %0, %1, %2;" : "=l"(offset) : "r"(index), "r"(i32(step)));
  return fetch(reinterpret_cast<const S*>(reinterpret_cast<const char*>(parameter) + offset));
}
