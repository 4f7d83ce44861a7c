// Joins the accumulators of each row: threads beside each other take rows, those below each other the splits of one.
#pragma once
#include "split_tuning.cuh"

template <typename P>
__global__ void __launch_bounds__(SPLIT_THREADS) finish(const __grid_constant__ ReduceArgs<P> args) {
  __shared__ Accumulator<P> scratch[SPLIT_THREADS];
  const Reduction& rows = args.rows;
  const i32 wide = i32(rows.finish_wide), width = 1 << wide;
  const i64 row = (i64(blockIdx.x) << wide) + (threadIdx.x & (width - 1));
  i64 split, apart, count;  // the first one of a thread, how far the next one lies, and how many there are
  if constexpr (SplitTraits<P>::ordered) {  // a range, for sums are trees of neighbours
    split = (threadIdx.x >> wide) * rows.finish_each, apart = rows.rows;
    count = min(rows.finish_each, rows.splits.divisor - split);
  } else {  // in turn, so that threads read neighbours
    const i32 thread = threadIdx.x >> wide, below = blockDim.x >> wide;
    split = thread, apart = below * rows.rows;
    count = (i32(rows.splits.divisor) - thread + below - 1) / below;
  }
  Accumulator<P> total[1] = {Accumulator<P>::nothing()};
  let_next_begin();
  wait_for_earlier();
  if (row < rows.rows && count > 0)
    total[0] = join_splits(args.accumulators + split * rows.rows + row, count, rows.finish_each, apart);
  join_warps<1>(total, wide, blockDim.x, scratch);
  if (threadIdx.x < width && row < rows.rows)
    finish_row<P>(args, row, joined<8>(scratch, width, threadIdx.x, blockDim.x));
}
