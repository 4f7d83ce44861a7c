// Blocks that have parts of the same rows, one after the other. Parts are those of units, the segments of a long row or the
// tiles of rows beside each other. Each block leaves the totals of its part at once, and the last one of a unit that of
// the unit; then it looks back for what comes before the unit, and leaves what comes before the next one. All of it is
// joined in the order of model/scan_order.py, however far a block looks back. Blocks begin in the order of their numbers,
// so none waits for one that has no room.
#pragma once
#include "scans.cuh"
#include "split_joins.cuh"  // dependent launches

constexpr u32 CHAIN_TOTALS = 1, CHAIN_CARRY = 2;  // what a part or a unit has left; 0: nothing

template <typename P> struct ScanPartsArgs : RowArgs<P> {
  u8* accumulators;  // what each part has left, for each chain; then values of each scan
};

// What blocks of a chain tell each other. A chain has ROWS rows, which lie beside each other, a part TOTALS totals of
// each, and a unit PARTS parts.
template <typename P, int ROWS, int TOTALS, int PARTS> struct ScanChain {
  static constexpr int UNIT_TOTAL = 0, UNIT_CARRY = 1, UNIT_VALUES = 3;  // a carry has two values at most
  u8* memory;
  i64 parts, chains, part, chain, unit;  // this block's: one part of all chains comes before the next one

  __device__ ScanChain(const ScanPartsArgs<P>& args, i64 elements)  // of a part
      : memory(args.accumulators),
        parts((args.rows.length + elements - 1) / elements),
        chains((args.rows.rows + ROWS - 1) / ROWS),
        part(blockIdx.x / chains),
        chain(blockIdx.x - part * chains),
        unit(part / PARTS) {}

  // All parts and units have left nothing. A thread has a part of a chain, and a unit.
  static __device__ void clear(const ScanPartsArgs<P>& args, i64 elements) {
    const ScanChain chain(args, elements);
    let_next_begin();
    const i64 own = i64(blockIdx.x) * SCAN_THREADS + threadIdx.x, parts = chain.parts * chain.chains;
    if (own >= parts) return;
    chain.flags()[own] = 0;
    if (own < chain.units() * chain.chains) chain.flags()[parts + own] = 0;
  }

  __device__ i64 units() const { return (parts + PARTS - 1) / PARTS; }
  __device__ i64 first_of_unit() const { return unit * PARTS; }
  __device__ bool ends_unit() const { return part + 1 == first_of_unit() + PARTS; }
  __device__ u32* flag_of_part(i64 of) const { return flags() + of * chains + chain; }
  __device__ u32* flag_of_unit(i64 of) const { return flags() + (parts + of) * chains + chain; }

  template <int I> __device__ auto* total(int which, int row, i64 of) const {
    return values<I>() + (of * TOTALS + which) * rows() + chain * ROWS + row;
  }
  template <int I> __device__ auto* total(int which, int row) const { return total<I>(which, row, part); }
  template <int I> __device__ auto* of_unit(int which, int row, i64 of) const {
    return values<I>() + (parts * TOTALS + of * UNIT_VALUES + which) * rows() + chain * ROWS + row;
  }
  template <int I> __device__ auto* of_unit(int which, int row) const { return of_unit<I>(which, row, unit); }

  // By one thread, after all have left what is told and waited for each other.
  __device__ void tell(u32* flag, u32 what) const {
    __threadfence();
    *static_cast<volatile u32*>(flag) = what;
  }
  // By a warp, until the parts before this one have left their totals, as far as they are of the same unit.
  __device__ void wait_for_parts() const {
    const i64 other = first_of_unit() + threadIdx.x % 32;
    while (__any_sync(~0u, other < part && told(flag_of_part(other)) == 0)) {}
    __threadfence();
  }
  // By a warp: the nearest unit before this one that has left a carry; -1: none before the first. All units between have
  // left their totals.
  __device__ i64 carried() const {
    const int lane = threadIdx.x % 32;
    i64 from = unit - 1;
    for (;;) {
      const i64 other = from - lane;
      const u32 said = other < 0 ? CHAIN_CARRY : told(flag_of_unit(other));
      const int nearest = __reduce_min_sync(~0u, said == CHAIN_CARRY ? lane : 32);
      if (__reduce_min_sync(~0u, said == 0 ? lane : 32) < nearest) continue;
      from -= nearest;
      if (nearest == 32) continue;
      __threadfence();
      return max(from, i64(-1));
    }
  }

 private:
  static __device__ u32 told(const u32* flag) { return *static_cast<const volatile u32*>(flag); }
  __device__ u32* flags() const { return reinterpret_cast<u32*>(memory); }
  __device__ i64 rows() const { return chains * ROWS; }
  // Of a scan; none is larger than two of C.
  template <int I> __device__ auto* values() const {
    using V = typename ScanPasses<P>::template scan<I>::Value;
    const i64 before = ((parts + units()) * chains * 4 + 15) / 16 * 16;
    const i64 scan = (parts * TOTALS + units() * UNIT_VALUES) * rows() * 2 * i64(sizeof(typename P::C));
    return reinterpret_cast<V*>(memory + before + I * scan);
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
