// Blocks that have parts of the same rows, one after the other. Parts are those of units: of the segments of a long
// row, or of the tiles of rows beside each other. Each block leaves the totals of its part at once, and the last one of
// a unit that of the unit; then it looks back for what comes before the unit, and leaves what comes before the next
// one. All of it is joined in the order of model/scan_order.py, however far a block looks back. Blocks begin in the
// order of their numbers, so none waits for one that has no room.
#pragma once
#include "scans.cuh"
#include "dependent_launch.cuh"

template <typename P> struct ScanPartsArgs : RowArgs<P> {
  u64* accumulators;  // what blocks have left
};

// Of a scan, what blocks leave each other. A chain of blocks has ROWS rows beside each other, a part TOTALS totals of
// each, and a unit PARTS parts. Each half of a word is 32 bits of a value and whether they have been left: a word is
// there or not, whatever else is.
template <typename V, int ROWS, int TOTALS, int PARTS> struct ScanChain {
  static constexpr int PIECES = int(sizeof(V) / 4);
  static constexpr int UNIT_TOTAL = 0, UNIT_CARRY = 1, UNIT_VALUES = 3;  // a carry has two values at most
  u64* words;
  i64 parts, units, rows;

  template <typename P>
  __device__ ScanChain(const ScanPartsArgs<P>& args, i64 elements, int scan)  // elements of a part
      : parts((args.rows.length + elements - 1) / elements),
        units((parts + PARTS - 1) / PARTS),
        rows((args.rows.rows + ROWS - 1) / ROWS * ROWS) {
    words = args.accumulators + scan * (parts * TOTALS + units * UNIT_VALUES) * rows * i64(sizeof(typename P::C) / 2);
  }

  // Nothing has been left. All threads of a grid.
  __device__ void clear() const {
    const i64 size = (parts * TOTALS + units * UNIT_VALUES) * PIECES * rows;
    for (i64 i = i64(blockIdx.x) * SCAN_THREADS + threadIdx.x; i < size; i += i64(gridDim.x) * SCAN_THREADS) words[i] = 0;
  }

  __device__ u64* of_part(i64 part, int which, i64 row) const {
    return words + (part * TOTALS + which) * PIECES * rows + row;
  }
  __device__ u64* of_unit(i64 unit, int which, i64 row) const {
    return words + (parts * TOTALS + unit * UNIT_VALUES + which) * PIECES * rows + row;
  }
  __device__ void leave(u64* at, const V& value) const {
    const u32* const pieces = reinterpret_cast<const u32*>(&value);
#pragma unroll
    for (int i = 0; i < PIECES; ++i) *static_cast<volatile u64*>(at + i * rows) = u64(1) << 32 | pieces[i];
  }
  // Whether it has been left, and what.
  __device__ bool take(const u64* at, V& value) const {
    u32 pieces[PIECES];
    bool there = true;
#pragma unroll
    for (int i = 0; i < PIECES; ++i) {
      const u64 word = *static_cast<const volatile u64*>(at + i * rows);
      pieces[i] = u32(word);
      there = there && word >> 32 != 0;
    }
    value = reinterpret_cast<const V&>(pieces);
    return there;
  }
  __device__ V taken(const u64* at) const {
    V value;
    while (!take(at, value)) {}
    return value;
  }
};

// The chain of a scan.
template <typename P, int I, int ROWS, int TOTALS, int PARTS>
using chain_of = ScanChain<scan_state<typename ScanPasses<P>::template scan<I>>, ROWS, TOTALS, PARTS>;
