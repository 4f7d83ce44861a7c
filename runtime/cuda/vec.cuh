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
      ::store<!are_shifted(LAYOUT)>(data, position.first + position.gaps(gap), lanes);
    }
    template <typename V, int LAYOUT>
    __device__ void write(V value, const VecPosition<LAYOUT>& position, i32 at, bool last) const {
      ::write<E>(data, at + position.gaps(gap), last, value);
    }
  };
};
template <typename P> using VecArgs = typename Elementwise<P>::template Arguments<Flat, VecMoves>;

// A number of which the compiler does not know that it is one that it has: random numbers of it are made again, where
// they are wanted. Else they would be made before the branch, and take the registers of what comes after it.
__device__ inline i32 told_anew(i32 x) {
#ifdef __CUDACC_RTC__
  asm volatile("" : "+r"(x));
#endif
  return x;
}

// Threads of a block.
constexpr int vec_threads(int layout) { return layout == FEW ? SMALL_THREADS : ELEMENTWISE_THREADS; }

// Blocks that a multiprocessor has room for at least: of 2,048 threads, the most that any takes. 0 leaves that to the
// compiler. What is computed where a range does not hold is seldom wanted, and would take registers of many threads.
template <typename P> constexpr int vec_resident(int layout) {
  return RANDOM<P> && RANGED<P> ? 2048 / vec_threads(layout) : 0;
}

// Shares of N neighbours, of which the lanes of a warp have one after the other from any element on, `count` elements
// in all. They go by shared memory, so that each store of the warp writes neighbours.
template <typename E, int N>
__device__ inline void store_shares(storage_t<E>* to, const Lanes<E, N>& share, i32 count) {
  __shared__ alignas(16) Lanes<E, N> shares[ELEMENTWISE_THREADS / 32][32];
  const i32 lane = threadIdx.x & 31;
  Lanes<E, N>* const own = shares[threadIdx.x / 32];
  own[lane] = share;
  __syncwarp();
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const i32 at = i * 32 + lane;
    if (at < count) to[at] = own->data[at];
  }
  __syncwarp();
}

// Random numbers: a thread takes N neighbours from a multiple of N on, because four of them have words of one block.
template <typename P, int N> __device__ inline void draw(const VecArgs<P>& args) {
  using E = Elementwise<P>;
  const i32 first = i32(blockIdx.x * ELEMENTWISE_THREADS + threadIdx.x) * N, warp = first - i32(threadIdx.x & 31) * N;
  typename E::template InputLanes<N> in;
  typename E::template OutputLanes<N> out;
  E::template load<N>(in, args, VecPosition<ALIGNED>{args.head, first});
  const P program = E::made_once(args, E::scalars(args));
  if (program.fast()) E::template compute<FAST_FORM, N>(out, program, in);
  else E::template compute<GENERAL, N>(out, program, in);
  const i32 count = i32(args.head.length) - warp;
  E::each_output(
      args, [&](const auto& output, auto& share) { store_shares(output.data + warp, share, count); }, out);
}

// A thread's vectors: LANES neighbours from `begin` on, GROUPS times, as far apart as a block's threads reach, whatever
// runs they lie in.
template <typename P, int LANES, int GROUPS, int LAYOUT>
__device__ inline void take_vectors(const VecArgs<P>& args, i32 begin) {
  using E = Elementwise<P>;
  using InputLanes = typename E::template InputLanes<LANES>;
  using OutputLanes = typename E::template OutputLanes<LANES>;
  using Position = VecPosition<LAYOUT>;
  constexpr int STEP = vec_threads(LAYOUT) * LANES;
  const Flat& flat = args.head;
  const i32 length = i32(flat.length);
  // Where a vector may begin that is loaded at once.
  const i32 low = are_shifted(LAYOUT) ? MARGIN : 0;
  const i32 last = are_shifted(LAYOUT) ? length - LANES - MARGIN : flat.template last<LANES>();

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
  if constexpr (are_few(LAYOUT)) let_next_begin();
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
    if (!fast) {
      rest |= 1u << group;
      continue;
    }
    bool within = RANGED<P>;
    if constexpr (RANGED<P>) {
#pragma unroll
      for (int lane = 0; lane < LANES; ++lane)
        within = within & program.within(E::template element<LANES>(in[group], lane));
    }
    OutputLanes out;
    if (within) {
      E::template compute<FAST_WITHIN, LANES>(out, program, in[group]);
    } else {
      if constexpr (RANDOM<P>) E::template load<LANES>(in[group], args, Position{flat, told_anew(first)});
      E::template compute<FAST_FORM, LANES>(out, program, in[group]);
    }
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

// One row. Where a formula is long there may be fewer blocks than shares. Then each takes several, so that what a
// thread does once serves more elements. All threads of a block go on, or none.
template <typename P, int LANES, int GROUPS, int LAYOUT>
__global__ void __launch_bounds__(vec_threads(LAYOUT), vec_resident<P>(LAYOUT))
    vec(const __grid_constant__ VecArgs<P> args) {
  using E = Elementwise<P>;
  constexpr int BLOCK = vec_threads(LAYOUT) * LANES * GROUPS;  // elements
  // Those that begin anywhere, and integers of 64 bits, of which a vector has but half a block.
  if constexpr (E::DRAWS && (are_shifted(LAYOUT) || (LAYOUT == ALIGNED && E::WIDE_INTEGERS))) {
    if constexpr (are_few(LAYOUT)) wait_for_earlier();
    return draw<P, LANES * GROUPS>(args);
  }
  const i32 lead = are_shifted(LAYOUT) ? E::first_output(args).template lead<LANES, E::PACKED>() : 0;
  const i32 own = i32(threadIdx.x) * LANES - lead;
  if constexpr (are_few(LAYOUT)) wait_for_earlier();
  u32 start = blockIdx.x * u32(BLOCK);
  if constexpr (E::LONG && !are_few(LAYOUT)) {
#pragma unroll 1
    for (; start < u32(args.head.length) + u32(lead); start += gridDim.x * u32(BLOCK))
      take_vectors<P, LANES, GROUPS, LAYOUT>(args, i32(start) + own);
  } else {
    take_vectors<P, LANES, GROUPS, LAYOUT>(args, i32(start) + own);
  }
}
