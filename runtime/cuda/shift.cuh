// Neighbouring elements that start at any byte, moved in aligned words: a load takes the words around them and shifts
// them into place; a store completes its first word with what the lane before it in the warp has left over.
#pragma once
#include "lanes.cuh"

// Where a thread's first share may begin, in bytes after an operand's pointer, so that all words around its shares lie
// between the operand's first byte and its last: `size` positions from `low` on.
struct Span {
  i64 low, size;
};

// So many bytes on.
template <typename P> __device__ inline P* further(P* from, i64 bytes) {
  return reinterpret_cast<P*>(const_cast<u8*>(reinterpret_cast<const u8*>(from)) + bytes);
}

// Elements that exist of a share are read one by one where the words around it leave the operand's bytes.
template <typename E, int N>
__device__ __noinline__ Lanes<E, N> gather(const storage_t<E>* from, i32 count) {
  using V = Lanes<E, N>;
  V lanes = {};
#pragma unroll
  for (int i = 0; i < V::units; ++i)
    if (i * (N / V::units) < count) lanes.data[i] = fetch(from + i);
  return lanes;
}

// The aligned words around N neighbours, on their way from memory until `lanes` asks for them.
template <typename E, int N> struct Around {
  using V = Lanes<E, N>;
  static constexpr int bytes = int(sizeof(V)), unit = int(sizeof(storage_t<E>));
  static constexpr int width = bytes < 16 ? bytes : 16;
  static constexpr bool single = width < 4 || width == unit || IS_PLACE<E>;  // words are not worth it: unit by unit
  static constexpr int words = bytes / width + 1, registers = single ? 1 : words * width / 4;
  // Whether caches need not hold the words: a neighbour reads the last one too, which pays for elements of 8 bytes.
  static constexpr bool leaves = unit < 8;
  alignas(16) u32 w[registers];
  V units;

  static __device__ i32 skip(const void* from) { return i32(u64(from)) & (width - 1); }

  // Whether a thread's shares can be read in words.
  static __device__ bool inside(const void* from, const void* array, const Span& span) {
    return single || u64(i64(from) - skip(from) - i64(array) - span.low) < u64(span.size);
  }

  // `count` of the elements exist; what the others hold is anything.
  __device__ void load(const storage_t<E>* from, i32 count) {
    if constexpr (single) {
#pragma unroll
      for (int i = 0; i < V::units; ++i)
        if (i * (N / V::units) < count) units.data[i] = fetch(from + i);
    } else {
      using W = typename word<width>::type;
      const W* const start = reinterpret_cast<const W*>(reinterpret_cast<const u8*>(from) - skip(from));
#pragma unroll
      for (int i = 0; i < words; ++i)
        if (i + 1 < words || skip(from) != 0) reinterpret_cast<W&>(w[i * (width / 4)]) = start[i];
    }
  }

  __device__ V lanes(const storage_t<E>* from) const {
    if constexpr (single) return units;
    const i32 skip = this->skip(from);
    V lanes;
    u32 v[registers];
#pragma unroll
    for (int i = 0; i < registers; ++i) v[i] = w[i];
    if (skip != 0) {
      if (width > 8) {
#pragma unroll
        for (int i = 0; i + 2 < registers; ++i) v[i] = skip & 8 ? v[i + 2] : v[i];
      }
      if (width > 4 && unit <= 4) {
#pragma unroll
        for (int i = 0; i + 1 < registers; ++i) v[i] = skip & 4 ? v[i + 1] : v[i];
      }
      if (unit < 4) {
#pragma unroll
        for (int i = 0; i < bytes / 4; ++i) v[i] = __funnelshift_r(v[i], v[i + 1], (skip & 3) * 8);
      }
    }
#pragma unroll
    for (int i = 0; i < bytes / 4; ++i) reinterpret_cast<u32*>(lanes.data)[i] = v[i];
    return lanes;
  }
};

// The parameters of N neighbouring columns, on their way as well; the columns that do not exist get others' parameters.
template <typename E, int N> struct Column {
  Lanes<E, N> lanes;

  __device__ void load(const storage_t<E>* row, i64 first, i64 length, i64 step) {
    const storage_t<E>* const from = row + first * step;
    if (step == 1 && first + N <= length && (u64(from) & (alignof(Lanes<E, N>) - 1)) == 0) {
      lanes = ::load<true, E, N>(from, 0, N);
    } else {
#pragma unroll
      for (int lane = 0; lane < N; ++lane) lanes.data[lane] = fetch(from + min(i64(lane), length - 1 - first) * step);
    }
  }
  __device__ compute_t<E> get(int lane) const { return lanes.get(lane); }
};

// Bytes begin .. end - 1 of an aligned word, in stores of at least UNIT bytes.
template <int UNIT> __device__ __noinline__ void store_part(u8* word, uint4 from, i32 begin, i32 end) {
  const u32 v[4] = {from.x, from.y, from.z, from.w};
#pragma unroll
  for (int i = 0; i < 4; ++i)
    if (begin <= 4 * i && 4 * i + 4 <= end) reinterpret_cast<u32*>(word)[i] = v[i];
  if constexpr (UNIT < 4) {
    using W = typename ::word<UNIT>::type;
    const i32 last = end & ~3;
    const auto edge = [&](i32 at, i32 stop) {
      const u32 bits = at & 8 ? (at & 4 ? v[3] : v[2]) : (at & 4 ? v[1] : v[0]);
#pragma unroll
      for (int i = 0; i < 4 / UNIT; ++i, at += UNIT)
        if (at < stop) *reinterpret_cast<W*>(word + at) = W(bits >> (at & 3) * 8);
    };
    if (begin & 3) edge(begin, min(end, (begin | 3) + 1));
    if (last < end && begin <= last) edge(last, end);
  }
}

// Stores of neighbouring shares by the lanes of a warp. Each lane writes the aligned word in which its share starts,
// and what no lane follows up; only the ends of rows and of a warp's stretch are written in parts.
template <typename E, int N> struct Joint {
  using V = Lanes<E, N>;
  static constexpr int width = int(sizeof(V)), unit = int(sizeof(storage_t<E>));
  static constexpr bool single = width < 4 || width == unit;
  static constexpr int registers = single ? 1 : width / 4;
  static_assert(width <= 16);
  u32 before[registers];  // of the store before, for lane 0, which follows lane 31

  // The whole warp at once. `count` of the elements exist. follows, followed: the lane before holds the share before
  // in the same row (in its last store, where this is lane 0), the lane after the share after (in its next).
  __device__ void store(storage_t<E>* to, i32 count, bool follows, bool followed, V& lanes) {
    constexpr int per = N / V::units;
    if constexpr (per > 1) {  // the nibble that pads an odd row is 0
#pragma unroll
      for (int i = 0; i < V::units; ++i)
        if (2 * i + 1 == count) lanes.data[i] &= 15;
    }
    const i32 bytes = (count + per - 1) / per * unit;
    if constexpr (single) {
#pragma unroll
      for (int i = 0; i < V::units; ++i)
        if (i * unit < bytes) to[i] = lanes.data[i];
    } else {
      using W = typename word<width>::type;
      const i32 skip = i32(u64(to)) & (width - 1);
      u8* const start = reinterpret_cast<u8*>(to) - skip;
      alignas(16) u32 own[4] = {};
#pragma unroll
      for (int i = 0; i < registers; ++i) own[i] = reinterpret_cast<const u32*>(lanes.data)[i];
      if (__any_sync(~0u, skip != 0)) {
        turn(own, skip);
        const bool last = (threadIdx.x & 31) == 31;
        alignas(16) u32 word[4] = {};
        u32 left = 0;  // the four bytes before the word
#pragma unroll
        for (int i = 0; i < registers; ++i) {
          left = __shfl_sync(~0u, last ? before[i] : own[i], (threadIdx.x + 31) & 31);
          word[i] = skip >= 4 * i + 4 ? left : own[i];
          before[i] = own[i];
        }
        move(word, left, skip);
        const i32 begin = follows ? 0 : skip, end = min(skip + bytes, width);
        const i32 more = followed ? 0 : skip + bytes - width;  // bytes of the next word, where positive
        const bool part = bytes > 0 && end - begin < width;
        if (bytes > 0 && !part) *reinterpret_cast<W*>(start) = reinterpret_cast<const W&>(word);
        if (part) store_part<unit>(start, {word[0], word[1], word[2], word[3]}, begin, end);
        if (more > 0) {
          move(own, own[registers - 1], skip);
          store_part<unit>(start + width, {own[0], own[1], own[2], own[3]}, 0, more);
        }
      } else if (bytes == width) {
        *reinterpret_cast<W*>(start) = reinterpret_cast<const W&>(own);
      } else if (bytes > 0) {
        store_part<unit>(start, {own[0], own[1], own[2], own[3]}, 0, bytes);
      }
    }
  }

 private:
  // A share's registers as they lie in aligned words: its first goes to position skip / 4, its last ones to the start.
  static __device__ void turn(u32 (&own)[4], i32 skip) {
    u32 v[4];
    if (width > 8) {
#pragma unroll
      for (int i = 0; i < 4; ++i) v[i] = own[i];
#pragma unroll
      for (int i = 0; i < 4; ++i) own[i] = skip & 8 ? v[i ^ 2] : v[i];
    }
    if (width > 4 && unit <= 4) {
#pragma unroll
      for (int i = 0; i < registers; ++i) v[i] = own[i];
#pragma unroll
      for (int i = 0; i < registers; ++i) own[i] = skip & 4 ? v[(i + registers - 1) % registers] : v[i];
    }
  }
  // A word's registers by the bytes that are left of skip; `left` lies before it.
  static __device__ void move(u32 (&word)[4], u32 left, i32 skip) {
    if (unit < 4) {
#pragma unroll
      for (int i = registers - 1; i >= 0; --i)
        word[i] = __funnelshift_l(i > 0 ? word[(i + 3) % 4] : left, word[i], (skip & 3) * 8);
    }
  }
};
