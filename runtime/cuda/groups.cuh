// Lines of neighbouring elements in which parameters change every few vectors, at any place in one.
#pragma once
#include "flat.cuh"

// Elements are counted as the outputs hold them, from line to line, with the nibbles that pad packed lines; a line is at
// least as long as what a warp takes. Each line has its own `runs` runs of parameters, the last of which may be shorter,
// but not than a vector; the parameters of all lines follow each other.
struct Groups {
  i64 length;
  Divide line, run;
  i64 runs;
  i64 elements;  // of a line that are no padding

  // Elements that share parameters: their line, the place of the parameters, where they end.
  struct Run {
    i32 line, index, end;
  };
  __device__ Run run_at(i32 element) const {
    const i32 above = line(element), start = above * i32(line.divisor), piece = run(element - start);
    return {above, above * i32(runs) + piece, start + min((piece + 1) * i32(run.divisor), i32(line.divisor))};
  }
};

// N neighbours that begin at any element, a nibble included: the aligned words around them on their way from memory,
// until `lanes` asks for them. The words may reach MARGIN elements beyond them.
template <typename E, int N> struct Words {
  static constexpr int bits = storage<E>::bits, bytes = N * bits < 32 ? 4 : N * bits / 8;
  static constexpr int width = bytes < 16 ? bytes : 16, words = bytes / width + 1, registers = words * width / 4;
  alignas(16) u32 w[registers];
  u32 skip;  // bits before the first

  __device__ void load(const storage_t<E>* array, i32 first) {
    using W = typename word<width>::type;
    const u8* const from = reinterpret_cast<const u8*>(at<E>(array, first));
    const u32 before = u32(u64(from)) & (width - 1);
    skip = before * 8 + (bits < 8 ? (first & 1) * 4 : 0);
    const W* const around = reinterpret_cast<const W*>(from - before);
#pragma unroll
    for (int i = 0; i < words; ++i)
      if (i + 1 < words || skip != 0) reinterpret_cast<W&>(w[i * (width / 4)]) = around[i];
    asm("" : "+r"(skip));  // kept: the compiler would rather find it again, for longer than a shift takes
  }

  __device__ Lanes<E, N> lanes() const {
    u32 v[registers];
#pragma unroll
    for (int i = 0; i < registers; ++i) v[i] = w[i];
    if (width == 4) {
      v[0] = __funnelshift_r(v[0], v[1], skip);
    } else if (skip != 0) {
      if (width > 8) {
#pragma unroll
        for (int i = 0; i + 2 < registers; ++i) v[i] = skip & 64 ? v[i + 2] : v[i];
      }
      if (width > 4 && bits <= 32) {
#pragma unroll
        for (int i = 0; i + 1 < registers; ++i) v[i] = skip & 32 ? v[i + 1] : v[i];
      }
      if (bits < 32) {
#pragma unroll
        for (int i = 0; i < bytes / 4; ++i) v[i] = __funnelshift_r(v[i], v[i + 1], skip & 31);
      }
    }
    Lanes<E, N> lanes;
    if constexpr (N * bits < 32) {
      using W = typename word<int(sizeof(lanes))>::type;
      reinterpret_cast<W&>(lanes.data) = W(v[0]);
    } else {
#pragma unroll
      for (int i = 0; i < bytes / 4; ++i) reinterpret_cast<u32*>(lanes.data)[i] = v[i];
    }
    return lanes;
  }
};

// A vector of which the lanes from `split` on lie in the next line, which is `gap` elements further away.
template <typename E, int N>
__device__ __noinline__ Lanes<E, N> across(const storage_t<E>* array, i32 first, i32 gap, i32 split) {
  Words<E, N> here, next;
  here.load(array, first);
  next.load(array, first + gap);
  Lanes<E, N> lanes = here.lanes();
  take_from(lanes, next.lanes(), split);
  return lanes;
}

// The nibble `lane` becomes 0, if it is one of these.
template <typename E, int N> __device__ inline void clear(Lanes<E, N>& lanes, i32 lane) {
  if constexpr (storage<E>::bits < 8) {
#pragma unroll
    for (int i = 0; i < N / 2; ++i)
      if (lane >> 1 == i) lanes.data[i] &= 15;
  }
}
