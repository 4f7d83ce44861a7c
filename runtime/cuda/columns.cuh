// Tables of whole vectors whose columns have parameters of their own.
#pragma once
#include "lanes.cuh"
#include "shift.cuh"
#include "walk.cuh"

// A thread takes the vectors of one place in DEPTH rows below each other.
//
// A table without gaps may be cut into rows of any number of vectors after which the columns are the same again: then its
// own rows need be no whole number of vectors. `lead` elements come before its first vector; they and those behind its
// last one are the edges, which one more block takes.
struct Columns {
  i64 units, blocks;  // threads and blocks that take vectors
  i64 rows, last;     // rows of a table; vectors in its last row
  Divide chunks;      // vectors to a row
  Divide slabs;       // threads below each other in a table
  Divide width;       // columns
  i64 lead, behind, length;  // elements before the first vector, up to the end of the last one, and of the table

  // Vectors at element `first` of the rows from `row` on, before `end`; all rows before `near` (at least `end`) have it.
  struct Place {
    i32 table, row, end, near, first;
  };
  template <int LANES, int DEPTH> __device__ Place place(i32 thread) const {
    const i32 unit = min(thread, i32(units) - 1), slab = chunks(unit), table = slabs(slab);
    const i32 chunk = unit - slab * i32(chunks.divisor), row = (slab - table * i32(slabs.divisor)) * DEPTH;
    const i32 near = i32(rows) - (chunk >= i32(last));
    return {table, row, thread == unit ? near : 0, near, chunk * LANES + i32(lead)};
  }
  __device__ i32 column(i32 element) const { return element - width(element) * i32(width.divisor); }

  // The element of an edge, by number.
  __device__ i32 edge(i32 number) const { return number < i32(lead) ? number : number - i32(lead) + i32(behind); }
};

// `count` steps of so many bytes on, both within 32 bits. One instruction multiplies them, which the compiler does not
// see.
template <typename P> __device__ inline P* stepped(P* from, i32 count, i64 bytes) {
  i64 offset;
  asm("mul.wide.s32 %0, %1, %2;" : "=l"(offset) : "r"(count), "r"(i32(bytes)));
  return further(from, offset);
}

// A parameter's entries for N neighbours from a column on, the first column following the last one.
template <typename E, int N> struct Entries {
  Lanes<E, N> lanes;

  // Whether they are one vector.
  static __device__ bool whole(const storage_t<E>* table, i32 column, i32 width, i64 step) {
    return i32(step) == i32(sizeof(storage_t<E>)) && column + N <= width &&
           (u64(table + column) & (alignof(Lanes<E, N>) - 1)) == 0;
  }
  __device__ void load(bool whole, const storage_t<E>* table, i32 column, i32 width, i64 step) {
    if (whole) {
      lanes = ::load<true, E, N>(table + column, 0, N);
    } else {
#pragma unroll
      for (int lane = 0; lane < N; ++lane)
        lanes.data[lane] = *stepped(table, column + lane - (column + lane < width ? 0 : width), step);
    }
  }
};
