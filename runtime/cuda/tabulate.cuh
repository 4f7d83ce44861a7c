// The schedules tabulate and look_up: a function of one element of 16 bits, of many elements. The first writes the
// program's results for all 65,536 numbers to the workspace. The second keeps these in shared memory and finds the
// results of the elements there: the same bits, and a long formula costs no more than a short one.
#pragma once
#include "dependent_launch.cuh"
#include "elementwise_program.cuh"
#include "flat.cuh"
#include "shift.cuh"

using Entry = unsigned short;
constexpr int TABLE_BYTES = 2 << 16;
constexpr int TABULATED = 2;     // entries that a thread of `tabulate` makes
constexpr int TABLED_LANES = 8;  // elements of a vector of `look_up`: 16 bytes
constexpr int TABLED_AHEAD = 2;  // vectors of a thread that are under way

struct TabledWords {
  template <typename E> using type = Around<E, TABLED_LANES>;
};
struct Tabled { i64 length; };
struct TabledMoves {
  template <typename E> struct Input { const storage_t<E>* data; };
  template <typename E> struct Output { storage_t<E>* data; };
  template <typename R> struct Run {};  // there are none
};
template <typename P> struct TabledArgs : Elementwise<P>::template Arguments<Tabled, TabledMoves> {
  u8* table;
};

template <typename P>
__global__ void __launch_bounds__(TABULATE_THREADS) tabulate(const __grid_constant__ TabledArgs<P> args) {
  using E = Elementwise<P>;
  let_next_begin();
  const P program = E::made_once(args);
  const u32 first = (blockIdx.x * TABULATE_THREADS + threadIdx.x) * TABULATED;
  typename E::template InputLanes<TABULATED> in;
  typename E::template OutputLanes<TABULATED> out;
  reinterpret_cast<u32&>(get<0>(in).data) = first | (first + 1) << 16;
#pragma unroll
  for (int lane = 0; lane < TABULATED; ++lane)
    E::template set<TABULATED>(out, lane, E::value(program, E::template element<TABULATED>(in, lane)));
  reinterpret_cast<u32*>(args.table)[first / TABULATED] = reinterpret_cast<const u32&>(get<0>(out).data);
}

// Both halves of a word.
__device__ inline u32 looked_up(const Entry* table, u32 word) {
  return u32(table[word & 0xffffu]) | u32(table[word >> 16]) << 16;
}

template <typename P>
__global__ void __launch_bounds__(LOOK_UP_THREADS) look_up(const __grid_constant__ TabledArgs<P> args) {
  extern __shared__ uint4 memory[];
  using Words = typename Elementwise<P>::template OfInputs<TabledWords>;
  const auto* const from = get<0>(args.items).data;
  auto* const to = Elementwise<P>::first_output(args).data;
  const Entry* const table = reinterpret_cast<const Entry*>(memory);

  // Vectors begin where those of the output do; where the arrays begin anywhere, the words around one lie inside too.
  const i32 length = i32(args.head.length), past = i32(u64(to) / sizeof(Entry)) & (TABLED_LANES - 1);
  const bool aligned = ((u64(from) | u64(to)) & 15) == 0;
  const i32 first = aligned ? 0 : 2 * TABLED_LANES - past;
  const i32 vectors = ::max(0, length - (aligned ? 0 : first + TABLED_LANES)) / TABLED_LANES;
  uint4* const out = reinterpret_cast<uint4*>(to + first);

  // Blocks take turns, so that what is under way lies together in memory. Beyond the end the last vector is read again.
  constexpr i32 TURN = TABLED_AHEAD * LOOK_UP_THREADS;
  const i32 apart = i32(gridDim.x) * TURN, begin = i32(blockIdx.x) * TURN + i32(threadIdx.x);
  const auto start = [&](i32 at) { return from + first + ::min(at, vectors - 1) * TABLED_LANES; };
  Words next[TABLED_AHEAD];
  auto load = [&](i32 at) {
#pragma unroll
    for (int k = 0; k < TABLED_AHEAD; ++k) get<0>(next[k]).load(start(at + k * LOOK_UP_THREADS), TABLED_LANES);
  };
  if (begin < vectors) load(begin);
  wait_for_earlier();
#pragma unroll
  for (int k = 0; k < TABLE_BYTES / 16 / LOOK_UP_THREADS; ++k)
    memory[threadIdx.x + k * LOOK_UP_THREADS] =
        reinterpret_cast<const uint4*>(args.table)[threadIdx.x + k * LOOK_UP_THREADS];
  __syncthreads();
#pragma unroll 1
  for (i32 at = begin; at < vectors; at += apart) {
    uint4 own[TABLED_AHEAD];
#pragma unroll
    for (int k = 0; k < TABLED_AHEAD; ++k) {
      const auto lanes = get<0>(next[k]).lanes(start(at + k * LOOK_UP_THREADS));
      own[k] = reinterpret_cast<const uint4&>(lanes);
    }
    load(at + apart);
#pragma unroll
    for (int k = 0; k < TABLED_AHEAD; ++k) {
      const uint4 v = own[k];
      const uint4 found = {
          looked_up(table, v.x), looked_up(table, v.y), looked_up(table, v.z), looked_up(table, v.w)};
      if (at + k * LOOK_UP_THREADS < vectors) out[at + k * LOOK_UP_THREADS] = found;
    }
  }
  const i32 edge = i32(threadIdx.x), rest = edge < first ? edge : edge + vectors * TABLED_LANES;
  if (blockIdx.x == 0 && rest < length)
    reinterpret_cast<Entry*>(to)[rest] = table[reinterpret_cast<const Entry*>(from)[rest]];
}
