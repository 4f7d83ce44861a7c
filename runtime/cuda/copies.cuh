// Copies into shared memory that are not waited for, and where the words of shares lie there.
#pragma once
#include "lanes.cuh"

// Copies WIDTH bytes into shared memory without waiting for them.
template <int WIDTH> __device__ inline void copy_async(u8* to, const u8* from) {
  const u32 there = u32(__cvta_generic_to_shared(to));
  if constexpr (WIDTH == 16)  // past the first cache: nothing reads these bytes again
    asm volatile("cp.async.cg.shared.global [%0], [%1], %2;" ::"r"(there), "l"(from), "n"(WIDTH) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(there), "l"(from), "n"(WIDTH) : "memory");
}
// Those since the last such call are a group.
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LATER> __device__ inline void wait_for_all_but() {
  asm volatile("cp.async.wait_group %0;" ::"n"(LATER) : "memory");
}

// Where a warp's shares lie: share after share, each of WORDS words of 16 bytes. Words change places within a share, so
// that lanes which read the same word of their own shares use different banks. This is the place of a word.
template <int WORDS> __device__ constexpr i32 word_place(i32 word) { return word ^ (word >> 3 & (WORDS - 1)); }
// Lanes copy neighbouring units of UNIT bytes, and go on 32 units further. Bytes to the place of a lane's i-th unit, by
// that of its first one, and to that.
template <int UNIT, int WORDS> __device__ inline i32 unit_place(i32 of_first, int i) {
  constexpr int apart = 32 * UNIT / 16;  // words
  return (of_first ^ (i * apart >> 3 & (WORDS - 1)) * 16) + i * apart * 16;
}
template <int UNIT, int WORDS> __device__ inline i32 first_unit_place(i32 lane) {
  return word_place<WORDS>(lane * UNIT / 16) * 16 + lane * UNIT % 16;
}
// Copies a lane's units of its warp's shares, the first of which is number `first` of a row: those that the row has.
template <int UNIT, int WORDS>
__device__ inline void copy_units(u8* shares, i32 of_first, const u8* from, i32 first, i32 length) {
#pragma unroll
  for (int i = 0; i < WORDS * 16 / UNIT; ++i)
    if (first + i * 32 < length) copy_async<UNIT>(shares + unit_place<UNIT, WORDS>(of_first, i), from + i * 32 * UNIT);
}
