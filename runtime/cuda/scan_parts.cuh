// The kernels of scans of few long rows, of which each block has a part.
#pragma once
#include "scan_chain.cuh"
#include "scan_row.cuh"

template <typename P, int TILES, int MODE>
__global__ void __launch_bounds__(SCAN_THREADS) scan_parts(const __grid_constant__ ScanPartsArgs<P> args) {
  clear_chain<P, 1, TILES>(args, TILES * SCAN_THREADS * GROUP);
}

template <typename P, int TILES, int MODE>
__global__ void __launch_bounds__(SCAN_THREADS) scan_rest(const __grid_constant__ ScanPartsArgs<P> args) {
  using S = ScanSchedule<P, SCAN_THREADS, TILES, MODE>;
  using Passes = ScanPasses<P>;
  static_assert(SCAN_SEGMENT % TILES == 0);
  const ScanChain<P, 1, TILES> chain(args, TILES * SCAN_THREADS * GROUP);
  const DownRow<P> at{args.rows.position(chain.chain)};
  RowStarts<P> starts;
  const i64 length = starts.set(args, at), begin = chain.part * TILES * SCAN_THREADS;
  typename P::Shared shared = shared_at_start<P>(args, at.position, typename P::C(length));
  P::finish(shared);
  if (threadIdx.x == 0 && chain.part == 0) store_of_row<P>(starts, shared, make_seq<operands_of<P>::outputs>());
  __shared__ alignas(16) typename RowScans<S>::Memory memory;
  __shared__ alignas(16) typename RowScans<S>::Stretches stretches;
  __shared__ alignas(16) typename RowScans<S>::Carries carries;
  RowScans<S> scans;
  scans.load(args, starts, threadIdx.x, length, begin);
  scans.scan(shared, threadIdx.x, length, memory, 0);
  wait_for_earlier();
  const bool last = chain.part + 1 == chain.parts;
  if (threadIdx.x < SCAN_WARP) {
    if (!last && chain.part > 0 && threadIdx.x == 0) {
      each<Passes::scans>([&](auto i) {
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile)
          chain.template values<i>(chain.part, 0)[tile * chain.apart()] = get<i>(scans.of).totals[tile];
      });
      chain.tell(PART_TOTALS);
    }
    __syncwarp();
    const i64 from = chain.part > 0 ? chain.carried() : -1;
    each<Passes::scans>([&](auto i) {
      auto carry = get<i>(scans.of).carry;
      if (from >= 0) {
        const auto* const left = chain.template values<i>(from, 0) + TILES * chain.apart();
        carry.tiles = left_by_another(left);
        carry.segments = left_by_another(left + chain.apart());
        carry.done = int((from + 1) * TILES % SCAN_SEGMENT);
      }
#pragma unroll 1
      for (i64 part = from + 1; part < chain.part; ++part)
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile)
          carry.add(left_by_another(chain.template values<i>(part, 0) + tile * chain.apart()));
      if (threadIdx.x > 0) return;
      get<i>(carries) = carry;
      if (last) return;
#pragma unroll
      for (int tile = 0; tile < TILES; ++tile) carry.add(get<i>(scans.of).totals[tile]);
      auto* const left = chain.template values<i>(chain.part, 0) + TILES * chain.apart();
      left[0] = carry.tiles;
      left[chain.apart()] = carry.segments;
    });
    if (!last && threadIdx.x == 0) chain.tell(PART_CARRY);
  }
  __syncthreads();
  each<Passes::scans>([&](auto i) { get<i>(scans.of).carry = get<i>(carries); });
  scans.join_tiles();
  scans.store(args, starts, shared, threadIdx.x, length, begin, stretches);
}
