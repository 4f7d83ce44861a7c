// The kernels of scans of few long rows, of which each block has a part.
#pragma once
#include "scan_chain.cuh"
#include "scan_row.cuh"

template <typename P, int TILES, int MODE>
__global__ void __launch_bounds__(SCAN_THREADS) scan_parts(const __grid_constant__ ScanPartsArgs<P> args) {
  ScanChain<P, 1, TILES, SCAN_SEGMENT / TILES>::clear(args, TILES * SCAN_THREADS * GROUP);
}

template <typename P, int TILES, int MODE>
__global__ void __launch_bounds__(SCAN_THREADS, scan_blocks<P>(TILES)) scan_rest(const __grid_constant__ ScanPartsArgs<P> args) {
  using S = ScanSchedule<P, SCAN_THREADS, TILES, MODE>;
  using Passes = ScanPasses<P>;
  static_assert(SCAN_SEGMENT % TILES == 0);
  const ScanChain<P, 1, TILES, SCAN_SEGMENT / TILES> chain(args, TILES * SCAN_THREADS * GROUP);
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
  if (threadIdx.x < SCAN_WARP) {
    const int lane = threadIdx.x;
    if (lane == 0) {
      each<Passes::scans>([&](auto i) {
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile) *chain.template total<i>(tile, 0) = get<i>(scans.of).totals[tile];
      });
      chain.tell(chain.flag_of_part(chain.part), CHAIN_TOTALS);
    }
    __syncwarp();
    chain.wait_for_parts();
    each<Passes::scans>([&](auto i) {
      auto& carry = get<i>(scans.of).carry;  // of this segment
      for (i64 part = chain.first_of_unit(); part < chain.part; ++part)
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile) carry.add(left_by_another(chain.template total<i>(tile, 0, part)));
      if (chain.ends_unit() && lane == 0) {
        auto whole = carry;
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile) whole.add(get<i>(scans.of).totals[tile]);
        *chain.template of_unit<i>(chain.UNIT_TOTAL, 0) = whole.segments;
      }
    });
    if (chain.ends_unit() && lane == 0) chain.tell(chain.flag_of_unit(chain.unit), CHAIN_TOTALS);
    __syncwarp();
    const i64 from = chain.carried();
    each<Passes::scans>([&](auto i) {
      using How = typename Passes::template scan<i>::How;
      auto& carry = get<i>(scans.of).carry;
      carry.segments = How::template nothing<decltype(carry.segments)>();
      if (from >= 0) carry.segments = left_by_another(chain.template of_unit<i>(chain.UNIT_CARRY, 0, from));
      for (i64 unit = from + 1; unit < chain.unit; unit += SCAN_WARP) {
        const i64 own = min(unit + lane, chain.unit - 1);
        const auto total = left_by_another(chain.template of_unit<i>(chain.UNIT_TOTAL, 0, own));
#pragma unroll 8
        for (int other = 0; other < SCAN_WARP; ++other) {
          const auto later = of_lane(total, other);
          if (unit + other < chain.unit) carry.segments = How::of(carry.segments, later);
        }
      }
      if (lane > 0) return;
      get<i>(carries) = carry;
      if (chain.ends_unit())
        *chain.template of_unit<i>(chain.UNIT_CARRY, 0) =
            How::of(carry.segments, *chain.template of_unit<i>(chain.UNIT_TOTAL, 0));
    });
    if (chain.ends_unit() && lane == 0) chain.tell(chain.flag_of_unit(chain.unit), CHAIN_CARRY);
  }
  __syncthreads();
  each<Passes::scans>([&](auto i) { get<i>(scans.of).carry = get<i>(carries); });
  scans.join_tiles();
  scans.store(args, starts, shared, threadIdx.x, length, begin, stretches);
}
