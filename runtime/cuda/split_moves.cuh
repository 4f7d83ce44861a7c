// Loads and stores of split reductions, whose blocks take a split of a row each: along a row, or across neighbouring
// rows.
#pragma once
#include "row_moves.cuh"

constexpr int LINE = 128;  // bytes of memory that come together

// A row, told by the table in which it lies beside others.
struct TableColumn {
  i64 table, column;
};

// Rows of `length` elements. Where an element lies is told by two index spaces: that of the rows, `kept`, and that
// along a row, `along`.
struct Reduction {
  i64 rows, length;
  i64 columns;  // rows whose elements lie beside each other, where they do; else all
  i64 segment;  // elements that are dealt to the same accumulators
  i64 accumulators;  // of a segment
  i64 turns;    // groups that an accumulator takes, at most
  i64 cut;      // splits to a segment, as a power of two
  i64 each;     // accumulators that a thread takes one after the other, as a power of two
  i64 wide;     // threads of a block beside each other, as a power of two
  i64 team;     // threads of a block that have a split of a tile, as a power of two
  Divide splits;  // of a row
  Divide tiles;  // blocks beside each other
  i64 finish_wide, finish_each;  // the same of the kernel that joins splits, where there are several
  Outer kept, along;

  // A split: its first accumulator, and the elements of its segment.
  struct Split {
    i64 number, begin, end;
    i32 accumulator;
  };
  __device__ Split split(i32 number, i32 accumulators_of_split) const {
    const i64 begin = u32(number >> cut) * segment;
    return {number, begin, min(begin + segment, length), i32(number & ((1 << cut) - 1)) * accumulators_of_split};
  }

  // Whether a row lies along one axis.
  __device__ bool one_axis() const { return i32(along.first_axis) >= AXES - 1; }

  // Whether axes are two, and indices up to this one have 31 bits; where such an index lies then, without a loop.
  static __device__ bool are_two(const Outer& axes, i64 index) {
    return i32(axes.first_axis) == AXES - 2 && u64(index) >> 31 == 0;
  }
  static __device__ i64 offset_of_two(const Outer& axes, i32 index, const Strides& strides) {
    const Divide& inner = axes.extent[AXES - 1];
    const i32 above = inner(index);
    return above * strides.of[AXES - 2] + (index - above * i32(inner.divisor)) * strides.of[AXES - 1];
  }

  // The same of up to three axes; and of those but the last one, whose extent is `columns`.
  static __device__ bool are_few(const Outer& axes, i64 index) {
    return i32(axes.first_axis) >= AXES - 3 && u64(index) >> 31 == 0;
  }
  __device__ i64 offset_of_table(i32 table, const Strides& strides) const {
    if (i32(kept.first_axis) == AXES - 2) return table * strides.of[AXES - 2];
    const Divide& inner = kept.extent[AXES - 2];
    const i32 above = inner(table);
    return above * strides.of[AXES - 3] + (table - above * i32(inner.divisor)) * strides.of[AXES - 2];
  }

  // Elements between an operand's start and that of a row.
  __device__ i64 row_offset(i64 row, const Strides& strides) const {
    if (!are_few(kept, row) || i32(kept.first_axis) >= AXES - 1) return kept.offset(row, strides);
    const Divide& inner = kept.extent[AXES - 1];
    const i32 above = inner(i32(row));
    return offset_of_table(above, strides) + (i32(row) - above * i32(inner.divisor)) * strides.of[AXES - 1];
  }
  // The same of a column of a table.
  __device__ i64 row_offset(const TableColumn& at, const Strides& strides) const {
    const i64 beside = at.column * strides.of[AXES - 1];
    if (i32(kept.first_axis) >= AXES - 1) return beside;
    if (are_few(kept, at.table)) return offset_of_table(i32(at.table), strides) + beside;
    return kept.offset(at.table * columns, strides) + beside;
  }
  __device__ i64 row_at(i64 row) const { return row; }
  __device__ i64 row_at(const TableColumn& at) const { return at.table * columns + at.column; }

  // Elements between the start of a row and one of its elements.
  __device__ i64 offset(i64 index, const Strides& strides) const {
    if (one_axis()) return index * strides.of[AXES - 1];
    return far_offset(index, strides);
  }
  __device__ __noinline__ i64 far_offset(i64 index, const Strides& strides) const {
    return are_two(along, index) ? offset_of_two(along, i32(index), strides) : along.far_offset(index, strides);
  }
};

// The same of several elements, `apart` from each other: of `count`, then of the last one again. Rows along more than
// two axes are rare: their code stands once.
template <int COUNT>
__device__ inline void far_offsets(
    i64 (&at)[COUNT], i64 first, i64 apart, i32 count, const Reduction& rows, const Strides& strides) {
  if (rows.are_two(rows.along, first + (COUNT - 1) * apart)) {
    const Divide& inner = rows.along.extent[AXES - 1];
    const i64 outer_step = strides.of[AXES - 2], step = strides.of[AXES - 1];
    const i64 back = outer_step - i32(inner.divisor) * step;  // from one stretch's end to where the next begins
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      const i32 index = i32(first) + min(i, count - 1) * i32(apart);
      at[i] = index * step + inner(index) * back;
    }
    return;
  }
#pragma unroll 1
  for (int i = 0; i < COUNT; ++i) {
    const i64 found = rows.along.far_offset(first + min(i, count - 1) * apart, strides);
#pragma unroll
    for (int j = 0; j < COUNT; ++j)
      if (i == j) at[j] = found;
  }
}
template <int COUNT>
__device__ inline void offsets(
    i64 (&at)[COUNT], i64 first, i64 apart, i32 count, const Reduction& rows, const Strides& strides) {
  if (rows.one_axis()) {
    const i64 start = first * strides.of[AXES - 1], step = apart * strides.of[AXES - 1];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) at[i] = start + min(i, count - 1) * step;
  } else {
    far_offsets(at, first, apart, count, rows, strides);
  }
}

// An input in the index space, and the bytes between which it lies.
struct Reach {
  Strides kept, along;
  i64 low, high;
};

// How the columns of a thread lie: a warp's are neighbours, those of a thread 32 apart; neighbours, which are whole
// vectors; neighbours from any byte on, which are shifted into place.
enum { COLUMNS_APART, COLUMNS_IN_VECTORS, COLUMNS_SHIFTED };

// The columns that a thread takes of a tile: NEIGHBOURS, or as many that lie apart, so that a warp's are neighbours:
// then 32 threads lie beside each other. A thread beyond the table's edge is given the last ones.
template <int LANES, bool NEIGHBOURS> struct Beside {
  static constexpr int STEP = NEIGHBOURS ? 1 : 32;
  i64 first;
  i32 left;    // columns of the tile after the first
  i32 count;   // how many of its columns exist
  i32 thread;  // of those beside each other
  i32 width;   // columns of the tile
  i64 begin;   // of the tile

  // exists: whether there is such a tile; else it is one that there is, and none of its columns are the thread's.
  __device__ Beside(const Reduction& rows, u32 tile, i32 wide, bool exists) {
    thread = threadIdx.x & ((1 << wide) - 1);
    width = LANES << wide;
    begin = i64(u64(tile) * u32(width));
    const i32 room = i32(min(rows.columns - begin, i64(width))), wanted = thread * (NEIGHBOURS ? LANES : 1);
    const i32 before = wanted < room ? wanted : room - (NEIGHBOURS ? LANES : 1);
    first = begin + before;  // which may be before the tile: of bytes a vector is shifted into place
    left = room - 1 - before;
    count = !exists || wanted >= room ? 0 : min(left / STEP + 1, LANES);
  }
  __device__ i32 step(int lane) const { return min(lane * STEP, left); }
  // How far a column of the tile lies from the first of the thread's; of one beyond the edge, the table's last column.
  __device__ i32 until(i32 column) const { return min(i32(begin - first) + column, left); }

  // Which column of a tile it is whose value lies at `index` of a block's scratch memory, thread by thread.
  static __device__ i32 column_at(i32 index) {
    return NEIGHBOURS || LANES == 1 ? index : index / LANES + index % LANES * STEP;
  }
};

// Where COUNT elements along rows lie, from `first` on, of which `exist`; then the last one again. Several columns a
// thread are those of rows that lie along one axis, in steps of less than 2^31 bytes: a multiplication each.
template <int LANES, int COUNT, typename S>
__device__ inline void addresses_along(
    S* (&at)[COUNT], S* row, i64 first, i32 exist, const Reduction& rows, const Strides& strides) {
  if constexpr (LANES == 1) {
    i64 before[COUNT];
    offsets(before, first, 1, exist, rows, strides);
#pragma unroll
    for (int i = 0; i < COUNT; ++i) at[i] = row + before[i];
  } else {
    const i32 step = i32(strides.of[AXES - 1] * i64(sizeof(S)));
    const u8* const start = reinterpret_cast<const u8*>(row + first * strides.of[AXES - 1]);
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
      at[i] = reinterpret_cast<S*>(const_cast<u8*>(start + wide_product<true>(u32(min(i, exist - 1)), u32(step))));
  }
}

// Those of a thread's columns; beyond the end, the last element again. The first of them exists.
template <typename E, bool ONCE, int LANES, int COUNT, bool ALIGNED>
__device__ inline void load_columns(
    Lanes<E, LANES> (&lanes)[COUNT], const storage_t<E>* row, i64 first, i64 end, const Reduction& rows,
    const Reach& reach, const Beside<LANES, ALIGNED>& columns) {
  const storage_t<E>* at[COUNT];
  addresses_along<LANES>(at, row, first, i32(min(end - first, i64(COUNT))), rows, reach.along);
  if constexpr (ALIGNED && LANES > 1) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) lanes[i] = load<true, E, LANES, ONCE>(at[i], 0, LANES);
  } else if (sizeof(storage_t<E>) < 4 && LANES > 1 && columns.count < LANES) {
    // Beside the table's edge: its last column in place of those beyond. Compilers make a branch of each load of less
    // than a word that only some threads make.
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
#pragma unroll
      for (int lane = 0; lane < LANES; ++lane) lanes[i].data[lane] = at[i][columns.step(lane)];
    asm volatile("" ::: "memory");  // else compilers join these loads with those below, and hold an address for each
  } else {
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
#pragma unroll
      for (int lane = 0; lane < LANES; ++lane)
        if (LANES == 1 || sizeof(storage_t<E>) < 4 || lane < columns.count)
          lanes[i].data[lane] = at[i][lane * columns.STEP];
  }
}

// The same of neighbours from any byte on: the aligned words around them, where these lie within the operand's bytes.
// COUNT elements lie in less than 2^31 bytes.
template <typename E, int LANES, int COUNT>
__device__ inline void load_shifted_columns(
    Lanes<E, LANES> (&lanes)[COUNT], const storage_t<E>* row, i64 first, i64 end, const Reduction& rows,
    const Reach& reach, const storage_t<E>* origin, const Beside<LANES, true>& columns) {
  using A = Around<E, LANES>;
  using W = typename word<A::width>::type;
  static_assert(!A::single);
  const i64 stride = reach.along.of[AXES - 1];
  const i32 step = i32(stride * i64(sizeof(storage_t<E>))), last = i32(min(end - first, i64(COUNT))) - 1;
  const storage_t<E>* const from = row + first * stride;
  const i32 skip = A::skip(from), until = skip + last * step;
  const u8* const start = reinterpret_cast<const u8*>(from) - skip;
  const i64 before = i64(start) - i64(origin) - reach.low, after = reach.high - reach.low - before;
  if (__builtin_expect(
          before + (min(skip, until) & -A::width) >= 0 &&
              (max(skip, until) & -A::width) + A::words * A::width <= after, 1)) {
    alignas(16) u32 around[COUNT][A::registers];
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
#pragma unroll
      for (int j = 0; j < A::words; ++j)
        reinterpret_cast<W&>(around[i][j * (A::width / 4)]) =
            reinterpret_cast<const W*>(start + ((skip + min(i, last) * step) & -A::width))[j];
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
      shifted<ANY_WORD, A::bytes / 4, A::width, A::unit>(
          reinterpret_cast<u32*>(lanes[i].data), around[i], u32(skip + min(i, last) * step));
  } else {
#pragma unroll 1
    for (int i = 0; i < COUNT; ++i) {
      const storage_t<E>* at = from + min(i, last) * stride;
      Lanes<E, LANES> found;
#pragma unroll
      for (int lane = 0; lane < LANES; ++lane) {
        found.data[lane] = *at;
        at += lane < columns.left;
      }
#pragma unroll
      for (int j = 0; j < COUNT; ++j)
        if (i == j) lanes[j] = found;
    }
  }
}
// Has the lines of a group that is loaded later brought into the L2 cache; nothing waits for them. Each of the threads
// beside each other asks for one line, which is all of them where a thread loads 16 bytes a row or less.
template <typename E, int LANES, bool ALIGNED>
__device__ inline void ask_for_columns(
    const storage_t<E>* row, i64 first, i64 end, const Reduction& rows, const Reach& reach,
    const Beside<LANES, ALIGNED>& columns) {
  static_assert(LANES > 1);
  const i32 beside = columns.thread / GROUP * i32(LINE / sizeof(storage_t<E>));
  const i64 index = first + columns.thread % GROUP;
  if (index >= end || beside >= columns.width) return;
  const storage_t<E>* const at = row + index * reach.along.of[AXES - 1] + columns.until(beside);
  asm volatile("prefetch.global.L2 [%0];" ::"l"(at) : "memory");
}
// The same of what does not run along columns: COUNT elements for all of a thread's columns, or for each of them.
template <typename E, int LANES, bool ALIGNED, int ROWS, int COUNT>
__device__ inline void load_elements(
    Lanes<E, COUNT> (&lanes)[ROWS], const storage_t<E>* array, i64 first_row, i64 first, i64 end,
    const Reduction& rows, const Reach& reach, const Beside<LANES, ALIGNED>& columns) {
  const storage_t<E>* row = array;
  if (ROWS > 1 || LANES == 1) row += rows.row_offset(first_row, reach.kept);
  const i64 beside = reach.kept.of[AXES - 1];  // of several columns; 0 where all have the same elements
#pragma unroll
  for (int lane = 0; lane < ROWS; ++lane) {
    if (lane > 0 && beside == 0) {
      lanes[lane] = lanes[0];
      continue;
    }
    const storage_t<E>* at[COUNT];
    addresses_along<LANES>(
        at, row + columns.step(lane) * beside, first, i32(min(end - first, i64(COUNT))), rows, reach.along);
#pragma unroll
    for (int i = 0; i < COUNT; ++i) lanes[lane].data[i] = fetch(at[i]);
  }
}
template <typename E, int LANES, bool ALIGNED>
__device__ inline void store_columns(
    storage_t<E>* row, i64 first, i32 exist, const Reduction& rows, const Reach& reach,
    const Beside<LANES, ALIGNED>& columns, const Lanes<E, LANES> (&lanes)[GROUP]) {
  storage_t<E>* at[GROUP];
  addresses_along<LANES>(at, row, first, exist, rows, reach.along);
  if (columns.count == 0) return;
#pragma unroll
  for (int i = 0; i < GROUP; ++i) {
    if (i >= exist) continue;
    if constexpr (ALIGNED && LANES > 1) {
      store<true, E, LANES>(at[i], 0, lanes[i]);
    } else {
#pragma unroll
      for (int lane = 0; lane < LANES; ++lane)
        if (lane < columns.count) at[i][lane * columns.STEP] = lanes[i].data[lane];
    }
  }
}

// Shares that begin `skip` bytes after the first of the words around them.
template <int WORD, typename E, int COUNT, int REGISTERS>
__device__ inline void shift_all(Lanes<E, GROUP> (&lanes)[COUNT], const u32 (&around)[COUNT][REGISTERS], u32 skip) {
  using A = Around<E, GROUP>;
#pragma unroll
  for (int i = 0; i < COUNT; ++i)
    shifted<WORD, A::bytes / 4, A::width, A::unit>(reinterpret_cast<u32*>(lanes[i].data), around[i], skip);
}

// Of rows that lie along two axes, where their elements lie, and where lanes of a warp hand each other groups of them.
template <typename E> struct InPieces {
  const Divide& piece;
  i64 step, back;

  __device__ InPieces(const Reduction& rows, const Reach& reach)
      : piece(rows.along.extent[AXES - 1]), step(reach.along.of[AXES - 1]),
        back(reach.along.of[AXES - 2] - piece.divisor * step) {}
  __device__ i64 at(i32 element) const { return element * step + piece(element) * back; }
  static __device__ Lanes<E, GROUP>* memory() {
    __shared__ alignas(16) Lanes<E, GROUP> of[SPLIT_THREADS];
    return of + threadIdx.x / 32 * 32;
  }
};

// The same of these: lanes side by side load elements side by side. All threads at once.
template <typename E, int COUNT>
__device__ inline void split_shares_in_pieces(
    Lanes<E, GROUP> (&lanes)[COUNT], const storage_t<E>* row, i64 begin, i32 first, i32 apart, i32 size,
    const Reduction& rows, const Reach& reach) {
  const InPieces<E> pieces(rows, reach);
  const i32 lane = threadIdx.x % 32, start = first - lane * (GROUP - 1);
  storage_t<E> each[COUNT][GROUP];
#pragma unroll
  for (int turn = 0; turn < COUNT; ++turn)
#pragma unroll
    for (int i = 0; i < GROUP; ++i) {
      const i32 index = start + turn * apart + i * 32;
      if (index < size) each[turn][i] = row[pieces.at(i32(begin) + index)];
    }
#pragma unroll
  for (int turn = 0; turn < COUNT; ++turn) lanes[turn] = share_of_apart<32>(pieces.memory(), lane, each[turn]);
}
// Stores a warp's groups of them, which have `count` elements from the row's element `first` on. All its lanes at once.
template <typename E>
__device__ inline void keep_shares_in_pieces(
    storage_t<E>* row, i32 first, i32 count, const Reduction& rows, const Reach& reach, const Lanes<E, GROUP>& lanes) {
  const InPieces<E> pieces(rows, reach);
  const i32 lane = threadIdx.x % 32;
  Lanes<E, GROUP>* const own = pieces.memory();
  own[lane] = lanes;
  __syncwarp();
#pragma unroll
  for (int i = 0; i < GROUP; ++i) {
    const i32 index = i * 32 + lane;
    if (index < count) row[pieces.at(first + index)] = own->data[index];
  }
  __syncwarp();
}

// Groups of the elements of a row's segment, which begins at `begin` and has `size`: `apart` elements from each other,
// those of them that begin in it; what lies beyond it is anything. All loads are on their way before the first is used.
// TOGETHER: all threads of a warp come here at once.
template <int MODE, typename E, int COUNT, bool ONCE, bool TOGETHER = true>
__device__ inline void split_shares(
    Lanes<E, GROUP> (&lanes)[COUNT], const storage_t<E>* row, i64 begin, i32 first, i32 apart, i32 size,
    const Reduction& rows, const Reach& reach, const storage_t<E>* origin) {
  if constexpr (MODE == WHOLE) {
    i64 at[COUNT];
    if (rows.one_axis()) {  // all elements are neighbours
#pragma unroll
      for (int i = 0; i < COUNT; ++i) at[i] = begin + first + i * apart;
    } else {
      far_offsets(at, begin + first, apart, COUNT, rows, reach.along);
    }
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
      if (first + i * apart < size) lanes[i] = load<true, E, GROUP, ONCE>(row + at[i], 0, GROUP);
  } else if constexpr (MODE == STEPPED) {
    if constexpr (TOGETHER && !IS_PLACE<E>)
      if (rows.are_two(rows.along, begin + size))
        return split_shares_in_pieces(lanes, row, begin, first, apart, size, rows, reach);
#pragma unroll
    for (int turn = 0; turn < COUNT; ++turn) {
      lanes[turn] = {};
#pragma unroll
      for (int i = 0; i < GROUP; ++i) {
        const i32 index = first + turn * apart + i;
        if (index < size) lanes[turn].data[i] = fetch(row + rows.offset(begin + index, reach.along));
      }
    }
  } else {
    using A = Around<E, GROUP>;  // the aligned words around each share; all of a row lie alike in theirs
    using W = typename word<A::width>::type;
    static_assert(!A::single);
    row += begin + first;
    const u32 skip = A::skip(row);
    const i64 from = i64(row) - skip - i64(origin) - reach.low;  // bytes
    const i64 room = from < 0 ? -1 : reach.high - reach.low - from - A::words * A::width;
    const W* const start = reinterpret_cast<const W*>(reinterpret_cast<const u8*>(row) - skip);
    const i32 step = apart / GROUP * A::bytes;
    alignas(16) u32 around[COUNT][A::registers];
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
      if (first + i * apart < size && i * step <= room)
#pragma unroll
        for (int j = 0; j < A::words; ++j)
          reinterpret_cast<W&>(around[i][j * (A::width / 4)]) =
              load_word<ONCE && A::leaves>(start + i * (step / A::width) + j);
    switch (skip / 4) {
      case 0: shift_all<0, E>(lanes, around, skip); break;
      case 1: if constexpr (A::width > 4 && A::unit <= 4) shift_all<1, E>(lanes, around, skip); break;
      case 2: if constexpr (A::width > 8) shift_all<2, E>(lanes, around, skip); break;
      case 3: if constexpr (A::width > 8 && A::unit <= 4) shift_all<3, E>(lanes, around, skip); break;
    }
    if (__builtin_expect((COUNT - 1) * step > room, 0))
#pragma unroll
      for (int i = 0; i < COUNT; ++i) {
        const i32 left = size - first - i * apart;
        if (left > 0 && i * step > room) lanes[i] = gather<E, GROUP>(row + i * apart, min(left, GROUP));
      }
  }
}

template <int MODE, typename E>
__device__ inline void keep_share(
    storage_t<E>* row, i64 first, const Reduction& rows, const Reach& reach, const Lanes<E, GROUP>& lanes) {
  if constexpr (MODE == STEPPED) {
#pragma unroll
    for (int i = 0; i < GROUP; ++i)
      if (first + i < rows.length) row[rows.offset(first + i, reach.along)] = lanes.data[i];
  } else {
    store<true, E, GROUP>(row + rows.offset(first, reach.along), 0, lanes);
  }
}
