// Blocks that have parts of the same rows, one after the other. Each leaves the totals of its part at once, looks back for
// what comes before it, and leaves what comes before the next one. All of it is joined in the order of
// model/scan_order.py, however far a block looks back. Blocks begin in the order of their numbers, so none waits for
// one that has no room.
#pragma once
#include "scans.cuh"
#include "split_joins.cuh"  // dependent launches

constexpr u32 PART_TOTALS = 1, PART_CARRY = 2;  // what a part has left; 0: nothing

template <typename P> struct ScanPartsArgs : RowArgs<P> {
  u8* accumulators;  // what each part has left, for each chain; then values of each scan
};

// What blocks of a chain tell each other. A chain has ROWS rows, which lie beside each other; a part of them TOTALS
// totals for each, and as values for the next part those of a ScanCarry.
template <typename P, int ROWS, int TOTALS> struct ScanChain {
  static constexpr int VALUES = TOTALS + 2;
  u8* memory;
  i64 parts, chains, part, chain;  // this block's: one part of all chains comes before the next one

  __device__ ScanChain(const ScanPartsArgs<P>& args, i64 elements)  // of a part
      : memory(args.accumulators),
        parts((args.rows.length + elements - 1) / elements),
        chains((args.rows.rows + ROWS - 1) / ROWS),
        part(blockIdx.x / chains),
        chain(blockIdx.x - part * chains) {}

  __device__ u32* flags() const { return reinterpret_cast<u32*>(memory); }
  __device__ i64 flag_bytes() const { return (parts * chains * 4 + 15) / 16 * 16; }
  template <int I> __device__ auto* values(i64 of_part, int row) const {
    using V = typename ScanPasses<P>::template scan<I>::Value;
    const i64 rows = chains * ROWS, scan = I * parts * VALUES * rows * 2 * i64(sizeof(typename P::C));
    return reinterpret_cast<V*>(memory + flag_bytes() + scan) + of_part * VALUES * rows + chain * ROWS + row;
  }
  __device__ i64 apart() const { return chains * ROWS; }  // elements between values of a row

  // By the first thread of a block, after all have left what is told.
  __device__ void tell(u32 what) const {
    __threadfence();
    *static_cast<volatile u32*>(flags() + part * chains + chain) = what;
  }
  // By a warp: the nearest part before this one that has left a carry; -1: none before the first. All parts between
  // have left their totals.
  __device__ i64 carried() const {
    const int lane = threadIdx.x % 32;
    i64 from = part - 1;
    for (;;) {
      const i64 at = from - lane;
      const u32 said = at < 0 ? PART_CARRY : *static_cast<const volatile u32*>(flags() + at * chains + chain);
      const int nearest = __reduce_min_sync(~0u, said == PART_CARRY ? lane : 32);
      if (__reduce_min_sync(~0u, said == 0 ? lane : 32) < nearest) continue;
      from -= nearest;
      if (nearest == 32) continue;
      __threadfence();
      return max(from, i64(-1));
    }
  }
};

// A value that another block has left: not from this multiprocessor's cache.
template <typename V> __device__ inline V left_by_another(const V* at) {
  V value;
  const volatile u32* const from = reinterpret_cast<const volatile u32*>(at);
#pragma unroll
  for (int i = 0; i < int(sizeof(V) / 4); ++i) reinterpret_cast<u32*>(&value)[i] = from[i];
  return value;
}

// What parts have left becomes nothing. A thread has a part of a chain.
template <typename P, int ROWS, int TOTALS> __device__ inline void clear_chain(const ScanPartsArgs<P>& args, i64 elements) {
  const ScanChain<P, ROWS, TOTALS> chain(args, elements);
  let_next_begin();
  const i64 own = i64(blockIdx.x) * SCAN_THREADS + threadIdx.x;
  if (own < chain.parts * chain.chains) chain.flags()[own] = 0;
}
