// The kernels of scans of few long rows, of which each block has a part.
#pragma once
#include "scan_chain.cuh"
#include "scan_row.cuh"

template <typename P, int TILES, int MODE> struct ScanParts {
  using S = ScanSchedule<P, SCAN_THREADS, TILES, MODE>;
  static constexpr int PARTS = SCAN_SEGMENT / TILES;  // of a segment
  static constexpr i64 ELEMENTS = TILES * SCAN_THREADS * GROUP;
  template <int I> using chain = chain_of<P, I, 1, TILES, PARTS>;
};

template <typename P, int TILES, int MODE>
__global__ void __launch_bounds__(SCAN_THREADS) scan_parts(const __grid_constant__ ScanPartsArgs<P> args) {
  using Parts = ScanParts<P, TILES, MODE>;
  let_next_begin();
  each<ScanPasses<P>::scans>([&](auto i) { typename Parts::template chain<i>(args, Parts::ELEMENTS, i).clear(); });
}

// What comes before a part, in the first warp.
template <int TILES, int PARTS, typename V, typename Scan>
__device__ inline void look_back(
    const ScanChain<V, 1, TILES, PARTS>& chain, i64 row, i64 part, Scan& scan) {
  using How = typename Scan::How;
  const int lane = threadIdx.x;
  const i64 unit = part / PARTS, begins = unit * PARTS;
  const bool ends = part + 1 == begins + PARTS;
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile)
    if (lane == tile) chain.leave(chain.of_part(part, tile, row), scan.totals[tile]);
  const int before = int(part - begins) * TILES;  // tiles of the segment
  V own = How::template nothing<V>();
  if (lane < before) own = chain.taken(chain.of_part(begins, lane, row));
  __syncwarp();
  for (int tile = 0; tile < before; ++tile) scan.carry.add(of_lane(own, tile));
  V whole = scan.carry.tiles;
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile) whole = How::of(whole, scan.totals[tile]);
  if (ends && lane == 0) chain.leave(chain.of_unit(unit, chain.UNIT_TOTAL, row), whole);
  // Segments, from the nearest one on that has left what comes after it.
  i64 from = unit - 1;
  V found;
  int nearest;
  for (;;) {
    const i64 other = from - lane;
    bool carried = other < 0, told = carried;
    found = How::template nothing<V>();
    if (other >= 0) {
      V total;
      told = chain.take(chain.of_unit(other, chain.UNIT_TOTAL, row), total);
      carried = chain.take(chain.of_unit(other, chain.UNIT_CARRY, row), found);
      if (!carried) found = total;
    }
    nearest = __reduce_min_sync(~0u, carried ? lane : 32);
    if (__reduce_min_sync(~0u, told || carried ? 32 : lane) < nearest) continue;
    from -= nearest;
    if (nearest < 32) break;
  }
  scan.carry.segments = of_lane(found, nearest);
  if (from + nearest == unit - 1) {  // all of them are here
    for (int other = nearest - 1; other >= 0; --other)
      scan.carry.segments = How::of(scan.carry.segments, of_lane(found, other));
  } else {
    for (i64 first = max(from, i64(-1)) + 1; first < unit; first += 32) {
      if (first + lane < unit) found = chain.taken(chain.of_unit(first + lane, chain.UNIT_TOTAL, row));
      __syncwarp();
      for (int other = 0; other < 32 && first + other < unit; ++other)
        scan.carry.segments = How::of(scan.carry.segments, of_lane(found, other));
    }
  }
  if (ends && lane == 0) chain.leave(chain.of_unit(unit, chain.UNIT_CARRY, row), How::of(scan.carry.segments, whole));
}

template <typename P, int TILES, int MODE>
__global__ void __launch_bounds__(SCAN_THREADS, scan_blocks<P>(TILES, MODE))
    scan_rest(const __grid_constant__ ScanPartsArgs<P> args) {
  using Parts = ScanParts<P, TILES, MODE>;
  using S = typename Parts::S;
  using Passes = ScanPasses<P>;
  const i64 part = blockIdx.x / args.rows.rows, row = blockIdx.x - part * args.rows.rows;
  const DownRow<P> at{args.rows.position(row)};
  RowStarts<P> starts;
  const i64 length = starts.set(args, at), begin = part * TILES * SCAN_THREADS;
  typename P::Shared shared = shared_at_start<P>(args, at.position, typename P::C(length));
  P::finish(shared);
  if (threadIdx.x == 0 && part == 0) store_of_row<P>(starts, shared, make_seq<operands_of<P>::outputs>());
  __shared__ alignas(16) typename RowScans<S>::Memory memory;
  __shared__ alignas(16) typename RowScans<S>::Stretches stretches;
  using Carries = typename RowScans<S>::Carries;
  __shared__ alignas(16) u8 kept[sizeof(Carries)];  // members with initial values cannot be declared in shared memory
  Carries& carries = reinterpret_cast<Carries&>(kept);
  RowScans<S> scans;
  scans.load(args, starts, threadIdx.x, length, begin);
  scans.scan(shared, threadIdx.x, length, memory, 0);
  wait_for_earlier();
  if (threadIdx.x < SCAN_WARP)
    each<Passes::scans>([&](auto i) {
      auto& scan = get<i>(scans.of);
      look_back(typename Parts::template chain<i>(args, Parts::ELEMENTS, i), row, part, scan);
      if (threadIdx.x == 0) get<i>(carries) = scan.carry;
    });
  __syncthreads();
  each<Passes::scans>([&](auto i) { get<i>(scans.of).carry = get<i>(carries); });
  scans.join_tiles();
  scans.store(args, starts, shared, threadIdx.x, length, begin, stretches);
}
