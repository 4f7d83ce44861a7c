// The kernels of scans of few long rows: blocks find the totals of segments, then each makes a segment's outputs.
#pragma once
#include "scan_row.cuh"
#include "split_joins.cuh"  // dependent launches

template <typename P> struct ScanPartsArgs : RowArgs<P> {
  u8* accumulators;  // totals of segments, those of each scan of a row together
};

template <typename P, int TILES, int MODE> struct ScanPart {
  using S = ScanSchedule<P, SCAN_THREADS, TILES, MODE>;
  static constexpr i64 SEGMENT = SCAN_SEGMENT * SCAN_THREADS;  // groups
  const ScanPartsArgs<P>& args;
  i64 length, groups, segments, row, segment;
  DownRow<P> at;
  RowStarts<P> starts;

  __device__ explicit ScanPart(const ScanPartsArgs<P>& args)
      : args(args),
        groups((args.rows.length + GROUP - 1) / GROUP),
        segments((groups + SEGMENT - 1) / SEGMENT),
        row(blockIdx.x / segments),
        segment(blockIdx.x - row * segments),
        at{args.rows.position(row)} {
    length = starts.set(args, at);
  }
  __device__ typename P::Shared shared() const { return shared_at_start<P>(args, at.position, typename P::C(length)); }
  template <int I> __device__ auto totals() const {
    using V = typename ScanPasses<P>::template scan<I>::Value;
    return reinterpret_cast<V*>(args.accumulators + 8 * (I * args.rows.rows + row) * segments);
  }
  template <bool STORES>
  __device__ void run(RowScans<S>& scans, const typename P::Shared& shared, typename RowScans<S>::Memory& memory) const {
    const i64 begin = segment * SEGMENT;
    scans.template run<STORES>(
        args, starts, shared, threadIdx.x, length, begin, min(groups, begin + SEGMENT), memory);
  }
};

template <typename P, int TILES, int MODE>
__global__ void __launch_bounds__(SCAN_THREADS) scan_parts(const __grid_constant__ ScanPartsArgs<P> args) {
  using Part = ScanPart<P, TILES, MODE>;
  const Part part(args);
  __shared__ alignas(16) typename RowScans<typename Part::S>::Memory memory;
  let_next_begin();
  if (part.segment + 1 == part.segments) return;  // nothing comes after it
  typename P::Shared shared = part.shared();
  P::finish(shared);
  RowScans<typename Part::S> scans;
  part.template run<false>(scans, shared, memory);
  if (threadIdx.x == 0)
    each<ScanPasses<P>::scans>([&](auto i) { part.template totals<i>()[part.segment] = get<i>(scans.of).carry.segments; });
}

template <typename P, int TILES, int MODE>
__global__ void __launch_bounds__(SCAN_THREADS) scan_rest(const __grid_constant__ ScanPartsArgs<P> args) {
  using Part = ScanPart<P, TILES, MODE>;
  const Part part(args);
  __shared__ alignas(16) typename RowScans<typename Part::S>::Memory memory;
  typename P::Shared shared = part.shared();
  P::finish(shared);
  if (threadIdx.x == 0 && part.segment == 0)
    store_of_row<P>(part.starts, shared, make_seq<operands_of<P>::outputs>());
  RowScans<typename Part::S> scans;
  wait_for_earlier();
  each<ScanPasses<P>::scans>([&](auto i) {
    using How = typename ScanPasses<P>::template scan<i>::How;
    const auto* const totals = part.template totals<i>();
    auto& before = get<i>(scans.of).carry.segments;
#pragma unroll 8
    for (i64 segment = 0; segment < part.segment; ++segment) before = How::of(before, totals[segment]);
  });
  part.template run<true>(scans, shared, memory);
}
