// How the elements of rows come from memory and go there: by the thread whose accumulators take them, wherever a row
// starts and however its elements lie.
#pragma once
#include "copies.cuh"
#include "reduce.cuh"
#include "rows.cuh"
#include "shift.cuh"

constexpr int INNER = 4;  // axes that a row may lie along

// LANES side by side have loaded elements side by side, GROUP times. They hand each other their shares by way of shared
// memory that these fill. All of them at once.
template <int LANES, typename S, typename V>
__device__ inline V share_of_apart(V* shares, i32 lane, const S (&apart)[GROUP]) {
#pragma unroll
  for (int i = 0; i < GROUP; ++i) shares->data[i * LANES + lane] = apart[i];
  __syncwarp();
  const V share = shares[lane];
  __syncwarp();
  return share;
}

// Where the elements of STEPPED rows lie in an operand: along several axes, the innermost last.
struct Along {
  i64 axes;
  i64 of[INNER];
  Divide extent[INNER];

  // Elements (of a packed operand, bytes) between a row's start and one of its elements (bytes).
  __device__ i64 to(i64 index) const { return i32(axes) == 1 ? index * of[INNER - 1] : far_to(index); }
  // Out of line, for kernels name it for each element: compiling them takes a third of the time.
  __device__ __noinline__ i64 far_to(i64 index) const {
    i64 sum = 0;
    const int outermost = INNER - i32(axes);
#pragma unroll 1
    for (int axis = INNER - 1; axis > outermost; --axis) {
      const i64 above = extent[axis](index);
      sum += (index - above * extent[axis].divisor) * of[axis];
      index = above;
    }
    return sum + index * of[outermost];
  }

  // An element of a row that lies BESIDE others, from its first on, in steps of less than 2^31 bytes.
  template <typename S> __device__ S* beside(S* row, i32 index) const {
    const i32 step = i32(of[INNER - 1] * i64(sizeof(S)));
    return further(row, i64(index) * step);
  }

  // Where an element of a row in pieces lies.
  __device__ i64 in_pieces(i32 index) const {
    const Divide& piece = extent[INNER - 1];
    return index + piece(index) * (of[INNER - 2] - piece.divisor);
  }
};

// How the elements of rows lie: WHOLE: neighbours, every row of a multiple of GROUP elements, on 16-byte boundaries
// (of narrow elements, on those of a share); UNIT: neighbours; STEPPED: some distance apart; PIECES: as WHOLE rows, but
// in pieces that lie along a second axis, each of a multiple of GROUP; PIECES_OF_HALVES: of a multiple of half of it;
// PIECES_UNALIGNED: pieces of neighbours; BESIDE: neighbours belong to different rows, which a thread each has to
// itself, and rows lie along one axis.
enum { WHOLE, UNIT, STEPPED, PIECES, PIECES_OF_HALVES, PIECES_UNALIGNED, BESIDE };
__device__ constexpr bool in_whole_pieces(int mode) { return mode == PIECES || mode == PIECES_OF_HALVES; }
__device__ constexpr bool in_whole_shares(int mode) { return mode == WHOLE || in_whole_pieces(mode); }

// A share as the words that it takes: what a branch may change of it must not be its elements, or compilers take the
// words of the usual case apart before the branch, and wait for them there.
template <typename E> struct alignas(Lanes<E, GROUP>) ShareWords {
  u32 w[sizeof(Lanes<E, GROUP>) / 4];
};

// A whole share of a row.
template <int MODE, typename E, bool ONCE>
__device__ inline Lanes<E, GROUP> load_whole(const storage_t<E>* row, i32 first, i32 length, const Along& steps) {
  if constexpr (MODE == PIECES) {
    return load<true, E, GROUP, ONCE>(row + steps.in_pieces(first), 0, GROUP);
  } else if constexpr (MODE == PIECES_OF_HALVES) {
    ShareWords<E> share;
#pragma unroll
    for (int i = 0; i < 2; ++i)
      reinterpret_cast<Lanes<E, GROUP / 2>*>(share.w)[i] =
          load<true, E, GROUP / 2, ONCE>(row + steps.in_pieces(first + i * (GROUP / 2)), 0, GROUP / 2);
    return reinterpret_cast<const Lanes<E, GROUP>&>(share);
  } else {
    return load<true, E, GROUP, ONCE>(row, first, length);
  }
}

// Whether `columns` operands that rows share, of so many bits an element together, are read with them: few rows would
// wait for it, but it takes registers. `whole`: rows lie in whole words, which takes fewer.
__device__ constexpr bool read_early(int threads, int chunks, int columns, int bits, bool whole) {
  const int registers = chunks * GROUP * bits / 32;
  return threads <= EARLY_THREADS && registers <= (whole || columns == 1 ? EARLY_REGISTERS : EARLY_REGISTERS_UNALIGNED);
}

// Blocks that a multiprocessor is to have room for, where rows start at any element: a thread has in registers the
// words around its shares of `arrays`, of `bits` an element together; later, `held` bits of each element, beside what
// it reads of `columns`. `apart`: whether the rows of a warp differ, and in values of their own. `live`: bits of each
// element that are held together, where that counts. Bounds that are any tighter spill, or have loads wait for each
// other.
__device__ constexpr int blocks_unaligned(
    int threads, int chunks, bool apart, int live, int arrays, int bits, int held, int columns, int column_bits) {
  const int elements = chunks * GROUP, each = arrays > 0 ? bits / arrays : 0;
  const int words = elements * bits / 32 + chunks * arrays * 4;
  // Where a tighter bound spills nothing.
  const bool several = arrays > 1 && columns == 0 && !apart, fits = elements * live / 32 < words;
  const bool narrow = several && fits && each <= UNALIGNED_NARROW_BITS;
  const int later = elements * held / 32 + (held > 0 ? columns * each : 0);
  const int own = (apart ? UNALIGNED_APART_REGISTERS : UNALIGNED_REGISTERS) + (narrow ? 0 : each) + larger(words, later);
  const bool read = read_early(threads, chunks, columns, column_bits, false);
  const int early = read ? UNALIGNED_EARLY_REGISTERS + elements * (bits + column_bits) / 32 : 0;
  const int registers = larger(larger(own, early), chunks == 1 ? UNALIGNED_FEWEST_REGISTERS : 0);
  return threads * registers > REGISTERS ? 1 : REGISTERS / (threads * registers);
}

// The first element of a row in an operand.
template <typename E, typename P>
__device__ inline P* row_of(P* array, const RowSpace& rows, const RowSpace::Position& row, const Strides& strides) {
  return at<E>(array, rows.offset(row, strides));
}

// COUNT words that begin `skip` bytes after the first of others, which lie in a memory's words of WIDTH bytes. WORD is
// how many whole words that is; ANY_WORD: it is chosen without a branch.
constexpr int ANY_WORD = -1;
template <int WORD, int COUNT, int WIDTH, int UNIT_BYTES>
__device__ inline void shifted(u32* to, const u32* from, u32 skip) {
  constexpr int more = WORD == ANY_WORD ? WIDTH / 4 : WORD + 1;
  u32 v[COUNT + more];
#pragma unroll
  for (int i = 0; i < COUNT + more; ++i) v[i] = from[i];
  if (WORD == ANY_WORD && WIDTH > 8)
#pragma unroll
    for (int i = 0; i + 2 < COUNT + more; ++i) v[i] = skip & 8 ? v[i + 2] : v[i];
  if (WORD == ANY_WORD && WIDTH > 4 && UNIT_BYTES <= 4)
#pragma unroll
    for (int i = 0; i + 1 < COUNT + more; ++i) v[i] = skip & 4 ? v[i + 1] : v[i];
  constexpr int word = WORD == ANY_WORD ? 0 : WORD;
#pragma unroll
  for (int i = 0; i < COUNT; ++i)
    to[i] = UNIT_BYTES < 4 ? __funnelshift_r(v[word + i], v[word + i + 1], skip * 8) : v[word + i];
}

// CHUNKS shares that a thread holds of a row, on their way from memory from `load` to `arrive`; what lies beyond the
// row is anything. Of a packed operand, `steps` count bytes.
template <int MODE, typename E, int THREADS, int CHUNKS> struct Own {
  using V = Lanes<E, GROUP>;
  V lanes[CHUNKS];

  template <bool ONCE = false>
  __device__ void load(
      const storage_t<E>* row, i32 thread, i32 length, const Along& steps, const storage_t<E>*, const Span&) {
    constexpr int each = GROUP / V::units;  // elements of a unit: 2 to a byte where they are packed
    // Compilers take bytes apart as they arrive, and so wait for each share before they load the next one.
    constexpr bool AS_WORDS = in_whole_shares(MODE) && sizeof(storage_t<E>) == 1;
    ShareWords<E> words[AS_WORDS ? CHUNKS : 1];
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
      const i32 first = (chunk * THREADS + thread) * GROUP;
      if (first >= length) break;
      if constexpr (AS_WORDS) {
        const V share = load_whole<MODE, E, ONCE>(row, first, length, steps);
        words[chunk] = reinterpret_cast<const ShareWords<E>&>(share);
      } else if constexpr (in_whole_shares(MODE)) {
        lanes[chunk] = load_whole<MODE, E, ONCE>(row, first, length, steps);
      } else if constexpr (MODE == BESIDE) {  // beyond the end, the last element again: loads on a condition would wait
#pragma unroll
        for (int i = 0; i < GROUP; ++i) lanes[chunk].data[i] = *steps.beside(row, min(first + i, length - 1));
      } else {
#pragma unroll
        for (int unit = 0; unit < V::units; ++unit)
          lanes[chunk].data[unit] = first + unit * each < length ? row[steps.to(first / each + unit)] : storage_t<E>{};
      }
    }
    if constexpr (AS_WORDS)
#pragma unroll
      for (int chunk = 0; chunk < CHUNKS; ++chunk) lanes[chunk] = reinterpret_cast<const V&>(words[chunk]);
  }
  __device__ void arrive(const storage_t<E>*, i32, i32) {}
};

// Neighbours from any element on: the aligned words around each share. All shares of a row lie alike in theirs.
template <typename E, int THREADS, int CHUNKS> struct Own<UNIT, E, THREADS, CHUNKS> {
  using A = Around<E, GROUP>;
  using W = typename word<A::width>::type;
  static_assert(!A::single);
  // Whether the threads of a block have registers for all words at once.
  static constexpr bool TOGETHER = THREADS * int(sizeof(storage_t<E>)) <= TOGETHER_BYTES && THREADS < 1024;
  Lanes<E, GROUP> lanes[CHUNKS];
  A around[TOGETHER ? CHUNKS : 1];
  bool whole;  // the words around all shares of the row lie within the operand's bytes
  i32 within;  // else those around this thread's shares before this element do

  template <bool ONCE = false>
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
    const u8* const start = reinterpret_cast<const u8*>(row) - A::skip(row);
    const i64 from = i64(start) - i64(array) - span.low;
    whole = (from >= 0) & (from + u32(length - 1) / GROUP * u32(A::bytes) < span.size);
    within = length;
    if (__builtin_expect(!whole, 0)) {
      const i64 room = min(max(span.size - from, i64(0)), i64(CHUNKS * THREADS * A::bytes));  // bytes
      within = from < 0 && thread == 0 ? 0 : min(length, (i32(room) + A::bytes - 1) / A::bytes * GROUP);
    }
    const W* const words = reinterpret_cast<const W*>(start + i64(thread) * A::bytes);
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
      if ((chunk * THREADS + thread) * GROUP < within) {
#pragma unroll
        for (int i = 0; i < A::words; ++i)
          reinterpret_cast<W&>(around[TOGETHER ? chunk : 0].w[i * (A::width / 4)]) =
              load_word<ONCE && A::leaves>(words + chunk * (THREADS * A::bytes / A::width) + i);
      }
    }
  }

  __device__ void arrive(const storage_t<E>* row, i32 thread, i32 length) {
    if constexpr (!TOGETHER) return;
    const u32 skip = A::skip(row);
    if constexpr (THREADS > 1 && THREADS < 32) {  // rows of a warp differ
      shift_words<ANY_WORD>(skip);
    } else {
      switch (skip / 4) {  // the same in the whole row
        case 0: shift_words<0>(skip); break;
        case 1: if constexpr (A::width > 4 && A::unit <= 4) shift_words<1>(skip); break;
        case 2: if constexpr (A::width > 8) shift_words<2>(skip); break;
        case 3: if constexpr (A::width > 8 && A::unit <= 4) shift_words<3>(skip); break;
      }
    }
    if (__builtin_expect(whole, 1)) return;
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
      const i32 first = (chunk * THREADS + thread) * GROUP;
      if (first >= within && first < length)
        lanes[chunk] = gather<E, GROUP>(at<E>(row, first), min(length - first, GROUP));
    }
  }

 private:
  template <int WORD> __device__ void shift_words(u32 skip) {
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; ++chunk)
      shifted<WORD, A::bytes / 4, A::width, A::unit>(
          reinterpret_cast<u32*>(lanes[chunk].data), around[TOGETHER ? chunk : 0].w, skip);
  }
};

// The same of elements of 4 or 8 bytes, by way of shared memory: they are copied there one by one, by lanes side by
// side, and are read from there in whole words. That takes fewer registers than the words around each share.
template <typename E, int THREADS, int CHUNKS> struct Staged {
  using V = Lanes<E, GROUP>;
  static constexpr int unit = int(sizeof(storage_t<E>)), words = int(sizeof(V)) / 16;
  static constexpr int warp_bytes = 32 * CHUNKS * int(sizeof(V));
  V lanes[CHUNKS];

  // `memory` has warp_bytes for each warp of the block.
  __device__ void load(u8* memory, const storage_t<E>* row, i32 thread, i32 length) const {
    static_assert(THREADS % 32 == 0 && (unit == 4 || unit == 8));
    const i32 lane = thread % 32, to = first_unit_place<unit, words>(lane);
    u8* const own = memory + threadIdx.x / 32 * warp_bytes;
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
      const i32 first = (chunk * THREADS + thread - lane) * GROUP + lane;
      copy_units<unit, words>(
          own + chunk * 32 * int(sizeof(V)), to, reinterpret_cast<const u8*>(row + first), first, length);
    }
    commit_copies();
  }
  __device__ void arrive(const u8* memory, i32 thread, i32 length) {
    wait_for_all_but<0>();
    __syncwarp();  // lanes copy for each other
    const i32 lane = thread % 32, from = word_place<words>(lane * words) * 16;
    const u8* const own = memory + threadIdx.x / 32 * warp_bytes;
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
      if ((chunk * THREADS + thread) * GROUP >= length) break;
#pragma unroll
      for (int i = 0; i < words; ++i)
        reinterpret_cast<uint4*>(lanes[chunk].data)[i] =
            *reinterpret_cast<const uint4*>(own + chunk * 32 * int(sizeof(V)) + (from ^ i * 16));
    }
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

// One share of a row that starts at any element; out of line, for what is seldom wanted.
template <typename E>
__device__ __noinline__ ShareWords<E> share_apart(
    const storage_t<E>* row, i32 first, i32 length, const storage_t<E>* array, const Span& span) {
  const Lanes<E, GROUP> lanes = share<UNIT, E>(row, first, length, Along(), array, span);
  return reinterpret_cast<const ShareWords<E>&>(lanes);
}

// A share of what neighbours in a row share, along two axes at most: elements of one run or of two, where these are not
// short.
template <typename E, typename Index>
__device__ inline Lanes<E, GROUP> share_of_runs(
    const storage_t<E>* row, Index first, Index length, const Along& steps) {
  if constexpr (Lanes<E, GROUP>::units < GROUP) return share<STEPPED, E>(row, first, length, steps, row, Span());
  Lanes<E, GROUP> lanes;
  const Divide& run = steps.extent[INNER - 1];
  const i64 apart = steps.of[INNER - 2], inside = steps.of[INNER - 1];
  const Index each = Index(run.divisor), index = run(first), left = (index + 1) * each - first;
  const storage_t<E>* const from = row + index * apart;
  if (sizeof(storage_t<E>) < 4 && inside == 0 && each % GROUP == 0) {  // none straddles runs
    const storage_t<E> one = *from;
#pragma unroll
    for (int i = 0; i < GROUP; ++i) lanes.data[i] = one;
  } else if (__builtin_expect(inside == 0 && each >= GROUP, 1)) {
    const storage_t<E> one = *from;
    const storage_t<E> other = left < min(length - first, Index(GROUP)) ? from[apart] : one;
#pragma unroll
    for (int i = 0; i < GROUP; ++i) lanes.data[i] = i < left ? one : other;
  } else {
#pragma unroll
    for (int i = 0; i < GROUP; ++i) {
      const Index later = run(first + i);
      const i64 at = (later - index) * apart + (first + i - later * each) * inside;
      lanes.data[i] = first + i < length ? from[at] : storage_t<E>{};
    }
  }
  return lanes;
}

// The places of a share. A WHOLE row begins at a multiple of GROUP, as its length and the steps between rows are such:
// cleared bits tell the compiler so, and thereby which neighbours have random words of one block.
template <int MODE> __device__ inline Lanes<Place, GROUP> places(const Place* row, i64 first) {
  const i64 start = fetch(row).index, begin = (MODE == WHOLE ? start & ~i64(GROUP - 1) : start) + first;
  Lanes<Place, GROUP> lanes;
#pragma unroll
  for (int i = 0; i < GROUP; ++i) lanes.data[i] = {MODE == WHOLE ? begin | i : begin + i};
  return lanes;
}

template <typename E> __device__ inline bool starts_aligned(const storage_t<E>* row) {
  return (u32(u64(row)) & (alignof(Lanes<E, GROUP>) - 1)) == 0;
}

// The shares that a thread needs of an operand that rows have in common: `load` loads them ahead.
template <int MODE, typename E, int THREADS, int CHUNKS, int FULL> struct Shared : Own<MODE, E, THREADS, CHUNKS> {
  __device__ void end(const storage_t<E>*, i32, i32, Lanes<E, GROUP>*) {}
  __device__ ShareWords<E> at_once(const storage_t<E>*, i32, bool) const { return {}; }
};

// However rows lie, what they have in common mostly starts aligned. Then each share is loaded at once, but for a
// shorter one at the row's end: that one is read early, unit by unit and into `end_`, or else all threads would wait
// for it.
template <typename E, int THREADS, int CHUNKS, int FULL> struct Shared<UNIT, E, THREADS, CHUNKS, FULL> {
  using V = Lanes<E, GROUP>;
  // Units that come while the row does go to `end_` in `arrive`, where registers allow: not where narrow elements let
  // many blocks share a multiprocessor and all of these shares are held.
  static constexpr bool LATER = CHUNKS == 1 || THREADS < 32 || sizeof(storage_t<E>) > 2;
  V lanes[CHUNKS];
  V* end_;
  storage_t<E> units_[LATER ? V::units : 1];
  bool mine_;  // the share at the end is this thread's

  __device__ void end(const storage_t<E>* row, i32 thread, i32 length, V* end) {
    end_ = end;
    const u32 shares = u32(length) / GROUP, left = u32(length) % GROUP;
    mine_ = shares % THREADS == u32(thread) && left;
    if (!mine_) return;
    const storage_t<E>* const from = at<E>(row, shares * GROUP);
    if constexpr (LATER) {
#pragma unroll
      for (int i = 0; i < V::units; ++i) units_[i] = i * (GROUP / V::units) < left ? from[i] : storage_t<E>{};
    } else {
      *end = gather<E, GROUP>(from, left);
    }
  }
  __device__ void arrive(const storage_t<E>*, i32, i32) {
    if constexpr (LATER) {
      if (!mine_) return;
      V share;
#pragma unroll
      for (int i = 0; i < V::units; ++i) share.data[i] = units_[i];
      *end_ = share;
    }
  }
  // A share of a row that starts aligned. whole: it is not the one at the end.
  __device__ ShareWords<E> at_once(const storage_t<E>* row, i32 first, bool whole) const {
    return whole ? *reinterpret_cast<const ShareWords<E>*>(at<E>(row, first))
                 : *reinterpret_cast<const ShareWords<E>*>(end_);
  }

  __device__ void load(
      const storage_t<E>* row, i32 thread, i32 length, const Along&, const storage_t<E>* array, const Span& span) {
    ShareWords<E> words[CHUNKS];
    if (__builtin_expect(starts_aligned<E>(row), 1)) {
#pragma unroll
      for (int chunk = 0; chunk < CHUNKS; ++chunk) {
        const i32 first = (chunk * THREADS + thread) * GROUP;
        if (chunk < FULL || first + GROUP <= length) words[chunk] = at_once(row, first, true);
        else if (first < length) words[chunk] = at_once(row, first, false);
      }
    } else {
#pragma unroll
      for (int chunk = 0; chunk < CHUNKS; ++chunk) {
        const i32 first = (chunk * THREADS + thread) * GROUP;
        if (first < length) words[chunk] = share_apart<E>(row, first, length, array, span);
      }
    }
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; ++chunk) lanes[chunk] = reinterpret_cast<const V&>(words[chunk]);
  }
};

// Stores a thread's share of a row.
template <int MODE, typename E>
__device__ inline void keep(
    storage_t<E>* row, i64 first, i64 length, const Along& steps, const Lanes<E, GROUP>& lanes) {
  if constexpr (MODE == WHOLE) {
    store<true, E, GROUP>(row, first, lanes);
  } else if constexpr (MODE == PIECES) {
    store<true, E, GROUP>(row + steps.in_pieces(i32(first)), 0, lanes);
  } else if constexpr (MODE == PIECES_OF_HALVES) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
      store<true, E, GROUP / 2>(
          row + steps.in_pieces(i32(first) + i * (GROUP / 2)), 0, reinterpret_cast<const Lanes<E, GROUP / 2>*>(&lanes)[i]);
  } else if constexpr (MODE == BESIDE) {
#pragma unroll
    for (int i = 0; i < GROUP; ++i)
      if (first + i < length) *steps.beside(row, i32(first) + i) = lanes.data[i];
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

// How many of each thread's shares, where elements of all outputs have so many bits, shared memory is to hold together:
// no more than leaves room for many blocks, and for the words that loads around shares meet again.
__device__ constexpr int shares_of(int chunks, int threads, int bits, int most_bytes) {
  const bool fits = chunks * bits <= STRETCH_BITS && threads * chunks * bits <= most_bytes;
  return fits || chunks == 1 ? chunks : shares_of(chunks / 2, threads, bits, most_bytes);
}

// Shares that LANES threads have of a stretch of a row: they go through shared memory, so that the stretch, which
// starts at any element, is written in aligned words by neighbouring threads, and only its ends unit by unit. The
// threads are lanes of a warp, or several warps. Aligned rows of wide elements go this way too: a lane's own share
// would leave gaps in a warp's store.
template <typename E, int LANES, int SHARES> struct Stretch {
  using V = Lanes<E, GROUP>;
  // Few lanes write what is left beside the words unit by unit, which of wide words is much.
  static constexpr int unit = int(sizeof(storage_t<E>)), width = LANES < 32 && sizeof(V) < 16 ? int(sizeof(V)) : 16;
  using W = typename word<width>::type;
  static constexpr int per = GROUP / V::units;                  // elements of a unit
  static constexpr int own = LANES * SHARES * int(sizeof(V));   // bytes
  // A word beyond the last one is read. Where several rows are a warp's, they lie in different banks.
  static constexpr int beside = LANES * int(sizeof(V)) <= 64 ? larger(16, LANES * int(sizeof(V))) : 16;
  static constexpr int bytes = (own + 15) / 16 * 16 + beside;
  u8* memory;

  // Whether shares are to go this way.
  static __device__ constexpr bool wanted(int mode) {
    return (LANES > 1 && (mode == UNIT || (in_whole_shares(mode) && sizeof(V) > 16))) || mode == PIECES_UNALIGNED;
  }

  // `left`: elements from the share's first to the end of the row.
  __device__ void put(int lane, int share, ShareWords<E> words, i32 left) const {
    if constexpr (per > 1) {  // the nibble that pads an odd row is 0
#pragma unroll
      for (int i = 0; i < V::units; ++i)
        if (2 * i + 1 == left) words.w[i / 4] &= ~(0xf0u << i % 4 * 8);
    }
    *reinterpret_cast<ShareWords<E>*>(memory + (share * LANES + lane) * int(sizeof(V))) = words;
  }
  __device__ void put(int lane, int share, const V& lanes, i32 left) const {
    put(lane, share, reinterpret_cast<const ShareWords<E>&>(lanes), left);
  }

  // All threads at once; the stretch begins at an element of a row in pieces, and `count` elements of it exist. WORDS:
  // pieces are of whole words; else lanes store elements one by one.
  template <bool WORDS> __device__ void store_pieces(
      storage_t<E>* row, i32 first, i32 count, const Along& steps, int lane) const {
    using Part = typename word<WORDS ? smaller(width, unit * GROUP / 2) : unit>::type;
    constexpr int each = int(sizeof(Part)) / unit;  // elements
    wait();
#pragma unroll
    for (int i = 0; i < own / int(sizeof(Part)); i += LANES) {
      const i32 element = (i + lane) * each;
      if (element < count)
        *reinterpret_cast<Part*>(row + steps.in_pieces(first + element)) = reinterpret_cast<const Part*>(memory)[i + lane];
    }
  }
  // All threads at once; `count` elements of the stretch exist.
  template <bool ALIGNED> __device__ void store(storage_t<E>* to, i32 count, int lane) const {
    wait();
    const i32 end = (count + per - 1) / per * unit;
    const i32 head = ALIGNED ? 0 : min(end, i32(0u - u32(u64(to))) & (width - 1));
    const i32 words = i32(u32(end - head) / width);
    u8* const start = reinterpret_cast<u8*>(to) + head;
    if constexpr (!ALIGNED && LANES < 32) {  // rows of a warp differ
      write<ANY_WORD>(start, words, lane, head);
    } else {
      switch (ALIGNED ? 0 : u32(head) / 4) {
        case 0: write<0>(start, words, lane, head); break;
        case 1: if constexpr (!ALIGNED && unit <= 4) write<1>(start, words, lane, head); break;
        case 2: if constexpr (!ALIGNED) write<2>(start, words, lane, head); break;
        case 3: if constexpr (!ALIGNED && unit <= 4) write<3>(start, words, lane, head); break;
      }
    }
    if constexpr (!ALIGNED && LANES * unit < 2 * (width - unit)) {  // what is left before and after the words
      const i32 done = head + words * width, own = lane * unit;
      write_units(reinterpret_cast<u8*>(to) + own, memory + own, head - own);
      write_units(reinterpret_cast<u8*>(to) + done + own, memory + done + own, end - done - own);
    } else if constexpr (!ALIGNED || sizeof(V) < width) {  // by as many lanes, which most warps have none of
      const i32 left = end - words * width;
#pragma unroll
      for (int i = 0; i < 2 * (width - unit); i += LANES * unit) {
        i32 at = i + lane * unit;
        if (at >= left) break;
        if (at >= head) at += words * width;
        *reinterpret_cast<storage_t<E>*>(reinterpret_cast<u8*>(to) + at) =
            *reinterpret_cast<const storage_t<E>*>(memory + at);
      }
    }
  }

  // The same by a warp, in words of 4 bytes: wide ones take a branch by which of their words comes first where they go.
  __device__ void store_narrow(storage_t<E>* to, i32 count, int lane) const {
    static_assert(LANES == 32 && SHARES == 1);
    wait();
    if (count == LANES * GROUP) write_narrow<true>(to, count, lane);
    else write_narrow<false>(to, count, lane);
  }

  // Before shares take the place of others.
  static __device__ void wait() {
    if constexpr (LANES > 32) __syncthreads();
    else __syncwarp();
  }

 private:
  // One of LANES units, and those that lie LANES further, of as many bytes.
  static __device__ void write_units(u8* to, const u8* from, i32 bytes) {
#pragma unroll
    for (int i = 0; i < width - unit; i += LANES * unit)
      if (i < bytes) *reinterpret_cast<storage_t<E>*>(to + i) = *reinterpret_cast<const storage_t<E>*>(from + i);
  }
  template <bool ALL> __device__ void write_narrow(storage_t<E>* to, i32 count, int lane) const {
    constexpr int each = unit < 4 ? 4 : unit, turns = own / (LANES * each);
    const i32 end = (count + per - 1) / per * unit, head = unit < 4 ? min(end, i32(0u - u32(u64(to))) & 3) : 0;
    const i32 words = i32(u32(end - head) / each);
    using Word = typename word<each>::type;
    const Word* const from = reinterpret_cast<const Word*>(memory) + lane;
    Word* const mine = reinterpret_cast<Word*>(reinterpret_cast<u8*>(to) + head) + lane;
#pragma unroll
    for (int i = 0; i < turns; ++i) {
      if (!(ALL && (i + 1 < turns || each == unit)) && i * LANES + lane >= words) break;
      if constexpr (unit < 4) {
        const u32 next = head != 0 ? from[i * LANES + 1] : 0;  // else it is another warp's
        mine[i * LANES] = __funnelshift_r(from[i * LANES], next, head * 8);
      } else {
        mine[i * LANES] = from[i * LANES];
      }
    }
    if constexpr (unit < 4) {  // what is left before the words, and after them, by the first and the last lanes
      const bool before = lane * unit < head;
      const i32 left = end - head - words * 4, at = before ? lane : end / unit - LANES + lane;
      if (before || (LANES - lane) * unit <= left) to[at] = reinterpret_cast<const storage_t<E>*>(memory)[at];
    }
  }
  // Words beyond the last one are read, not written.
  template <int WORD> __device__ void write(u8* to, i32 words, int lane, u32 head) const {
    constexpr int turns = (own + LANES * width - 1) / (LANES * width);
    const u32* const from = reinterpret_cast<const u32*>(memory + (WORD == ANY_WORD ? head & ~3u : 0));
#pragma unroll
    for (int i = 0; i < turns; ++i) {
      const int at = lane + i * LANES;
      if (own % (LANES * width) != 0 && at >= own / width) break;
      alignas(16) u32 v[width / 2];
      if constexpr (WORD == ANY_WORD) {
#pragma unroll
        for (int k = 0; k < width / 4 + 1; ++k) v[k] = from[at * (width / 4) + k];
      } else {
        reinterpret_cast<W*>(v)[0] = reinterpret_cast<const W*>(from)[at];
        if (WORD > 0 || unit < 4) reinterpret_cast<W*>(v)[1] = reinterpret_cast<const W*>(from)[at + 1];
      }
      alignas(16) u32 moved[width / 4];
      shifted<WORD == ANY_WORD ? 0 : WORD, width / 4, width, unit>(moved, v, head);
      if (at < words) reinterpret_cast<W*>(to)[at] = reinterpret_cast<const W&>(moved);
    }
  }
};
