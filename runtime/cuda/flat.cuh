// One row of neighbouring elements that starts on a 16-byte boundary in every operand: places are one 32-bit number.
#pragma once
#include "lanes.cuh"
#include "walk.cuh"

// Parameters change only from run to run of the row's elements, and repeat after `period` runs (0: never).
struct Flat {
  i64 length;
  Divide run, period;

  // Elements that share parameters: where they end, and the place of those.
  struct Run {
    i32 end, index;
  };
  __device__ Run run_at(i32 element) const {
    const i32 piece = run(element);
    const i32 index = period.divisor == 0 ? piece : piece - period(piece) * i32(period.divisor);
    return {(piece + 1) * i32(run.divisor), index};
  }

  // The last whole vector; the host sees to it that there is one.
  template <int LANES> __device__ i32 last() const { return (i32(length) & -LANES) - LANES; }
};

// An entry of a parameter, `step` bytes from that of the run before. One instruction finds it, which the compiler does
// not see, knowing that the index is not negative and the step may be.
template <typename S> __device__ inline S load_entry(const S* parameter, i32 index, i64 step) {
  i64 offset;
  asm("mul.wide.s32 %0, %1, %2;" : "=l"(offset) : "r"(index), "r"(i32(step)));
  return *reinterpret_cast<const S*>(reinterpret_cast<const char*>(parameter) + offset);
}
