// The kernel of scans of rows that a block takes, several of them where they are short.
#pragma once
#include "scan_row.cuh"

template <typename P, int THREADS, int TILES, int MODE>
__global__ void __launch_bounds__(SCAN_THREADS, scan_blocks<P>(TILES, MODE)) scan(const __grid_constant__ RowArgs<P> args) {
  using S = ScanSchedule<P, THREADS, TILES, MODE>;
  const ThreadRow<S> row(args);
  typename P::Shared shared = shared_at_start<P>(args, row.position, typename P::C(row.length));
  P::finish(shared);
  if (row.thread == 0 && row.live) store_of_row<P>(row.starts, shared, make_seq<operands_of<P>::outputs>());
  __shared__ alignas(16) typename RowScans<S>::Memory memory;
  __shared__ alignas(16) typename RowScans<S>::Stretches stretches;
  RowScans<S> scans;
  const i64 groups = (args.rows.length + GROUP - 1) / GROUP;  // threads without a row go along as well
  int turn = 0;
  for (i64 begin = 0; begin < groups; begin += TILES * THREADS, turn ^= 1) {
    scans.load(args, row.starts, row.thread, row.length, begin);
    scans.scan(shared, row.thread, row.length, memory, turn);
    if constexpr (S::BLOCK) scans.join_tiles();
    scans.store(args, row.starts, shared, row.thread, row.length, begin, stretches);
  }
}
