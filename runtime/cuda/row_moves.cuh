// How the elements of rows come from memory and go there: by the thread whose places they have in sums, wherever a row
// starts and however its elements lie.
#pragma once
#include "reduce.cuh"
#include "shift.cuh"

constexpr int INNER = 4;             // axes that a row may lie along
constexpr int STRETCHES = 40 << 10;  // bytes of shared memory for outputs, at most

// Where the elements of STEPPED rows lie in an operand: along several axes, the innermost last.
struct Along {
  i64 axes;
  i64 of[INNER];
  Divide extent[INNER];

  // Elements (of a packed operand, bytes) between a row's start and one of its elements (bytes).
  __device__ i64 to(i64 place) const { return i32(axes) == 1 ? place * of[INNER - 1] : far_to(place); }
  __device__ i64 far_to(i64 place) const {
    i64 sum = 0;
    const int outermost = INNER - i32(axes);
#pragma unroll 1
    for (int axis = INNER - 1; axis > outermost; --axis) {
      const i64 above = extent[axis](place);
      sum += (place - above * extent[axis].divisor) * of[axis];
      place = above;
    }
    return sum + place * of[outermost];
  }
};

// How the elements of rows lie: WHOLE: neighbours, every row of a multiple of GROUP elements, on 16-byte boundaries
// (of narrow elements, on those of a share); UNIT: neighbours; STEPPED: some distance apart.
enum { WHOLE, UNIT, STEPPED };

// The first element of a row in an operand.
template <typename E, typename P>
__device__ inline P* row_of(P* array, const RowSpace& rows, i64 row, const Strides& strides) {
  return at<E>(array, rows.offset(row, strides));
}

// Words that begin `skip` bytes, WORD words and a rest, after the first of others.
template <int WORD, int COUNT, int UNIT_BYTES> __device__ inline void shifted(u32* to, const u32* from, i32 skip) {
#pragma unroll
  for (int i = 0; i < COUNT; ++i)
    to[i] = UNIT_BYTES < 4 ? __funnelshift_r(from[WORD + i], from[WORD + i + 1], (skip & 3) * 8) : from[WORD + i];
}

// CHUNKS shares that a thread holds of a row, on their way from memory from `load` to `arrive`; what lies beyond the
// row is anything. Of a packed operand, `steps` count bytes.
template <int MODE, typename E, int THREADS, int CHUNKS> struct Own {
  using V = Lanes<E, GROUP>;
  V lanes[CHUNKS];

  __device__ void load(
      const storage_t<E>* row, i32 thread, i32 length, const Along& steps, const storage_t<E>*, const Span&) {
    constexpr int each = GROUP / V::units;  // elements of a unit: 2 to a byte where they are packed
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
      const i32 first = (chunk * THREADS + thread) * GROUP;
      if (first >= length) break;
      if constexpr (MODE == WHOLE) {
        lanes[chunk] = ::load<true, E, GROUP>(row, first, length);
      } else {
#pragma unroll
        for (int unit = 0; unit < V::units; ++unit)
          lanes[chunk].data[unit] = first + unit * each < length ? row[steps.to(first / each + unit)] : storage_t<E>{};
      }
    }
  }
  __device__ void arrive(const storage_t<E>*, i32, i32) {}
};

// Neighbours from any element on: the aligned words around each share. All shares of a row lie alike in theirs.
template <typename E, int THREADS, int CHUNKS> struct Own<UNIT, E, THREADS, CHUNKS> {
  using A = Around<E, GROUP>;
  using W = typename word<A::width>::type;
  static_assert(!A::single);
  // Whether the threads of a block have registers for all words at once.
  static constexpr bool TOGETHER = THREADS * int(sizeof(storage_t<E>)) <= 2048 && THREADS < 1024;
  Lanes<E, GROUP> lanes[CHUNKS];
  A around[TOGETHER ? CHUNKS : 1];
  i32 within;   // the words around shares from here on leave the operand's bytes
  bool before;  // those around the first share do

  __device__ void load(
      const storage_t<E>* row, i32 thread, i32 length, const Along& steps, const storage_t<E>* array, const Span& span) {
    if constexpr (!TOGETHER) {
#pragma unroll
      for (int chunk = 0; chunk < CHUNKS; ++chunk) {
        const i32 first = (chunk * THREADS + thread) * GROUP;
        if (first >= length) break;
        Own<UNIT, E, 1, 1> own;
        own.load(at<E>(row, first), 0, length - first, steps, array, span);
        own.arrive(at<E>(row, first), 0, length - first);
        lanes[chunk] = own.lanes[0];
      }
      return;
    }
    const i32 skip = A::skip(row);
    const i64 from = i64(row) - skip - i64(array) - span.low;
    within = i32(min(u64(length), u64(max(i64(0), span.size - from + A::bytes - 1)) / A::bytes * GROUP));
    before = from < 0 && thread == 0;
    const W* const words = reinterpret_cast<const W*>(reinterpret_cast<const u8*>(row) - skip + i64(thread) * A::bytes);
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
      if ((chunk * THREADS + thread) * GROUP >= within) break;
      if (chunk == 0 && before) continue;
#pragma unroll
      for (int i = 0; i < A::words; ++i)
        if (i + 1 < A::words || skip != 0)
          reinterpret_cast<W&>(around[TOGETHER ? chunk : 0].w[i * (A::width / 4)]) =
              words[chunk * (THREADS * A::bytes / A::width) + i];
    }
  }

  __device__ void arrive(const storage_t<E>* row, i32 thread, i32 length) {
    if constexpr (!TOGETHER) return;
    const i32 skip = A::skip(row);
    switch (skip / 4) {  // the same in the whole row
      case 0: place<0>(skip); break;
      case 1: if constexpr (A::width > 4 && A::unit <= 4) place<1>(skip); break;
      case 2: if constexpr (A::width > 8) place<2>(skip); break;
      case 3: if constexpr (A::width > 8 && A::unit <= 4) place<3>(skip); break;
    }
    if (__builtin_expect(!before && within >= length, 1)) return;
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
      const i32 first = (chunk * THREADS + thread) * GROUP;
      if (first < length && (first >= within || (chunk == 0 && before)))
        lanes[chunk] = gather<E, GROUP>(at<E>(row, first), min(length - first, GROUP));
    }
  }

 private:
  template <int WORD> __device__ void place(i32 skip) {
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; ++chunk)
      shifted<WORD, A::bytes / 4, A::unit>(
          reinterpret_cast<u32*>(lanes[chunk].data), around[TOGETHER ? chunk : 0].w, skip);
  }
};

// One share of a row, at `first`.
template <int MODE, typename E>
__device__ inline Lanes<E, GROUP> share(
    const storage_t<E>* row, i64 first, i64 length, const Along& steps, const storage_t<E>* array, const Span& span) {
  if constexpr (MODE == STEPPED) {
    using V = Lanes<E, GROUP>;
    constexpr int each = GROUP / V::units;
    V lanes;
#pragma unroll
    for (int unit = 0; unit < V::units; ++unit)
      lanes.data[unit] = first + unit * each < length ? row[steps.to(first / each + unit)] : storage_t<E>{};
    return lanes;
  } else {
    Own<MODE, E, 1, 1> own;
    const storage_t<E>* const from = at<E>(row, first);
    const i32 left = i32(min(length - first, i64(GROUP)));
    own.load(from, 0, left, steps, array, span);
    own.arrive(from, 0, left);
    return own.lanes[0];
  }
}

// Stores a thread's share of a row.
template <int MODE, typename E>
__device__ inline void keep(
    storage_t<E>* row, i64 first, i64 length, const Along& steps, const Lanes<E, GROUP>& lanes) {
  if constexpr (MODE == WHOLE) {
    store<true, E, GROUP>(row, first, lanes);
  } else if constexpr (MODE == UNIT) {
    store_some<false, E, GROUP>(row, first, length, lanes);
  } else {
    using V = Lanes<E, GROUP>;
    constexpr int each = GROUP / V::units;
#pragma unroll
    for (int unit = 0; unit < V::units; ++unit) {
      const i64 element = first + unit * each;
      if (element >= length) break;
      storage_t<E> value = lanes.data[unit];
      if constexpr (each > 1)  // the nibble that pads an odd row is 0
        if (element + 1 == length) value &= 15;
      row[steps.to(element / each)] = value;
    }
  }
}

// Shares that the lanes of a warp, or of a part of it, have of a stretch of a row: they go through shared memory, so
// that the stretch, which starts at any element, is written in aligned words by neighbouring lanes, and only its ends
// unit by unit. Aligned rows of wide elements go this way too: a lane's own share would leave gaps in a warp's store.
template <typename E, int LANES, int SHARES> struct Stretch {
  using V = Lanes<E, GROUP>;
  static constexpr int unit = int(sizeof(storage_t<E>)), width = sizeof(V) < 16 ? int(sizeof(V)) : 16;
  static constexpr int per = GROUP / V::units;                  // elements of a unit
  static constexpr int own = LANES * SHARES * int(sizeof(V));   // bytes
  static constexpr int bytes = own + 16;                        // a word beyond the last one is read
  using W = typename word<width>::type;
  u8* memory;

  // Whether shares are to go this way.
  static __device__ constexpr bool wanted(int mode) { return mode == UNIT || (mode == WHOLE && sizeof(V) > 16); }

  // `left`: elements from the share's first to the end of the row.
  __device__ void put(int lane, int share, V lanes, i32 left) const {
    if constexpr (per > 1) {  // the nibble that pads an odd row is 0
#pragma unroll
      for (int i = 0; i < V::units; ++i)
        if (2 * i + 1 == left) lanes.data[i] &= 15;
    }
    *reinterpret_cast<V*>(memory + (share * LANES + lane) * int(sizeof(V))) = lanes;
  }

  // All lanes at once; `count` elements of the stretch exist.
  template <bool ALIGNED> __device__ void store(storage_t<E>* to, i32 count, int lane) const {
    __syncwarp();
    const i32 end = (count + per - 1) / per * unit;
    const i32 head = ALIGNED ? 0 : min(end, i32(0u - u32(u64(to))) & (width - 1)), words = (end - head) / width;
    u8* const start = reinterpret_cast<u8*>(to) + head;
    switch (ALIGNED ? 0 : head / 4) {  // the same in the whole stretch
      case 0: write<0>(start, words, lane, head); break;
      case 1: if constexpr (!ALIGNED && width > 4 && unit <= 4) write<1>(start, words, lane, head); break;
      case 2: if constexpr (!ALIGNED && width > 8) write<2>(start, words, lane, head); break;
      case 3: if constexpr (!ALIGNED && width > 8 && unit <= 4) write<3>(start, words, lane, head); break;
    }
    if constexpr (!ALIGNED) {  // what is left before and after the words
      const i32 left = end - words * width;
#pragma unroll
      for (int i = 0; i < 2 * (width - unit); i += LANES * unit) {
        i32 at = i + lane * unit;
        if (at >= left) break;
        if (at >= head) at += words * width;
        to[at / unit] = *reinterpret_cast<const storage_t<E>*>(memory + at);
      }
    }
    __syncwarp();
  }

 private:
  template <int WORD> __device__ void write(u8* to, i32 words, int lane, i32 head) const {
#pragma unroll
    for (int i = 0; i < own / width / LANES; ++i) {
      const int at = lane + i * LANES;
      if (at >= words) break;
      union { W words[2]; u32 w[width / 2]; } from;
      union { W word; u32 w[width / 4]; } moved;
      from.words[0] = reinterpret_cast<const W*>(memory)[at];
      if (WORD > 0 || unit < 4) from.words[1] = reinterpret_cast<const W*>(memory)[at + 1];
      shifted<WORD, width / 4, unit>(moved.w, from.w, head);
      reinterpret_cast<W*>(to)[at] = moved.word;
    }
  }
};
