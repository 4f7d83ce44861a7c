// The schedule vec: neighbours in memory, in vectors.
#pragma once
#include "dependent_launch.cuh"
#include "elementwise_program.cuh"
#include "flat.cuh"

// Where a vector begins.
template <int LAYOUT> struct VecPosition {
  const Flat& flat;
  i32 first;
  // Elements between the operand's start and that of a vector that lies in lines, beside those of the vectors before.
  __device__ i64 gaps(i64 gap) const { return flat.template gaps<LAYOUT>(first, gap); }
};
struct VecMoves {
  template <typename E> struct Input {
    const storage_t<E>* data;
    i64 gap;
    template <int N, int LAYOUT> __device__ Lanes<E, N> load(const VecPosition<LAYOUT>& position) const {
      return load_flat<LAYOUT, E, N>(data, position.first, position.gaps(gap));
    }
    template <int LAYOUT> __device__ compute_t<E> read(const VecPosition<LAYOUT>& position, i32 at) const {
      return ::read<E>(data, at + position.gaps(gap));
    }
  };
  template <typename R> struct Run {
    using E = typename R::element;
    const storage_t<E>* data;
    i64 step;
    __device__ storage_t<E> entry(i32 index) const { return load_entry(data, index, step); }
  };
  template <typename E> struct Output {
    storage_t<E>* data;
    i64 gap;
    template <int N, bool PAIRS> __device__ i32 lead() const { return ::lead<N, PAIRS, E>(data); }
    template <int N, int LAYOUT>
    __device__ void store(const Lanes<E, N>& lanes, const VecPosition<LAYOUT>& position) const {
      ::store<LAYOUT != SHIFTED>(data, position.first + position.gaps(gap), lanes);
    }
    template <typename V, int LAYOUT>
    __device__ void write(V value, const VecPosition<LAYOUT>& position, i32 at, bool last) const {
      ::write<E>(data, at + position.gaps(gap), last, value);
    }
  };
};
template <typename P> using VecArgs = typename Elementwise<P>::template Arguments<Flat, VecMoves>;

// Threads of a block.
constexpr int vec_threads(int layout) { return layout == FEW ? SMALL_THREADS : ELEMENTWISE_THREADS; }
// One row: a thread takes LANES neighbours, GROUPS times, whatever runs they lie in.
template <typename P, int LANES, int GROUPS, int LAYOUT>
__global__ void __launch_bounds__(vec_threads(LAYOUT)) vec(const __grid_constant__ VecArgs<P> args) {
  using E = Elementwise<P>;
  using InputLanes = typename E::template InputLanes<LANES>;
  using OutputLanes = typename E::template OutputLanes<LANES>;
  using Position = VecPosition<LAYOUT>;
  constexpr int STEP = vec_threads(LAYOUT) * LANES;
  const Flat& flat = args.head;
  const i32 length = i32(flat.length);
  const i32 lead = LAYOUT == SHIFTED ? E::first_output(args).template lead<LANES, E::PACKED>() : 0;
  const i32 begin = i32(blockIdx.x) * (GROUPS * STEP) + i32(threadIdx.x) * LANES - lead;
  // Where a vector may begin that is loaded at once.
  const i32 low = LAYOUT == SHIFTED ? MARGIN : 0;
  const i32 last = LAYOUT == SHIFTED ? length - LANES - MARGIN : flat.template last<LANES>();

  if constexpr (LAYOUT == FEW) wait_for_earlier();
  // All loads are under way before the first is used. None depends on a branch: conversions would be moved into it, and
  // the next load would wait for them. Threads beyond the end read the last whole vector.
  InputLanes in[GROUPS];
  typename E::Entries entries[GROUPS];
  i32 end[GROUPS];
#pragma unroll
  for (int group = 0; group < GROUPS; ++group) {
    const i32 first = ::max(::min(begin + group * STEP, last), low);
    E::template load<LANES>(in[group], args, Position{flat, first});
    if constexpr (E::HAS_RUNS) {
      const auto run = flat.run_at(first);
      end[group] = run.end;
      E::load_entries(entries[group], args, run.index);
    }
  }
  if constexpr (LAYOUT == FEW) let_next_begin();
  __syncwarp();  // keeps the loads above from being moved after the first branch that uses them
  const auto scalars = E::scalars(args);
  const P whole = E::made_once(args, scalars);

  // Whole vectors whose lanes share a run that allows the fast forms.
  u32 rest = 0;
#pragma unroll
  for (int group = 0; group < GROUPS; ++group) {
    const i32 first = begin + group * STEP;
    P program = whole;
    if constexpr (E::HAS_RUNS) program = E::made(args, E::widened(entries[group]), scalars);
    bool fast = first >= low && first <= last;
    if constexpr (E::HAS_RUNS) fast = fast && first + LANES <= end[group];
    fast = fast && program.fast();
    if constexpr (RANGED<P>) {
#pragma unroll
      for (int lane = 0; lane < LANES; ++lane)
        fast = fast & program.within(E::template element<LANES>(in[group], lane));
    }
    if (!fast) {
      rest |= 1u << group;
      continue;
    }
    OutputLanes out;
    E::template compute<RANGED<P> ? FAST_WITHIN : FAST_FORM, LANES>(out, program, in[group]);
    E::template store<LANES>(args, out, Position{flat, first});
  }

  // The others: vectors that straddle runs, the row's end, unusual shared values.
#pragma unroll 1
  for (int group = 0; rest != 0; ++group, rest >>= 1) {
    if ((rest & 1) == 0) continue;
    const i32 first = begin + group * STEP, limit = ::min(first + LANES, length);
    const Position position = {flat, first};
    if constexpr (E::HAS_RUNS) {
      if (first >= low && first <= last) {  // run by run, all lanes at once
        InputLanes in;
        E::template load<LANES>(in, args, position);
        OutputLanes out = {};
        i32 done = first;
#pragma unroll 1
        while (done < limit) {
          const auto run = flat.run_at(done);
          const P program = E::made(args, E::read_entries(args, run.index), scalars);
          if (!program.fast()) break;
          OutputLanes next;
          E::template compute<FAST_FORM, LANES>(next, program, in);
          E::template take_from<LANES>(out, next, done - first);
          done = run.end;
        }
        if (done >= limit) {
          E::template store<LANES>(args, out, position);
          continue;
        }
      }
    }
#pragma unroll 1
    for (i32 at = ::max(first, 0); at < limit; ++at) {  // one element at a time
      P program = whole;
      if constexpr (E::HAS_RUNS) program = E::made(args, E::read_entries(args, flat.run_at(at).index), scalars);
      E::write(args, E::value(program, E::read(args, position, at)), position, at, at + 1 == length);
    }
  }
}
