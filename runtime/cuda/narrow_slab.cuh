// The kernel of narrow rows and of sums across them: a block goes down a slab of rows, many of them at once. A few
// threads hold a row, as in row.cuh, and leave what goes into the sums in shared memory; each thread of the block then
// adds a column of it, one row after the other.
#pragma once
#include "copies.cuh"
#include "row.cuh"
#include "slab.cuh"

// What threads have of a row of few accumulators, where several have groups of the same one: SPREAD have a group each;
// with two groups each, two threads have every other one.
template <typename How, typename V, int THREADS, int EACH, int SPREAD> struct SpreadPartial : Partial<How, V, THREADS, EACH> {
  using Base = Partial<How, V, THREADS, EACH>;
  static constexpr int HOLDERS = THREADS / SPREAD;
  static constexpr bool IN_WARP = THREADS <= 32;
  static constexpr int scratch_of(int rows) { return IN_WARP ? 1 : rows * THREADS; }

  __device__ V total(V* scratch) const {
    if constexpr (!ordered<How>) return Base::total(scratch);
    else return Base::template across<HOLDERS>(joined(scratch));
  }
  // The accumulator: its groups in their order.
  __device__ V joined(V* scratch) const {
    if constexpr (EACH == 2) {
      const bool later = (threadIdx.x & HOLDERS) != 0;
      const V own = this->other, beside = from_lane(own, HOLDERS);
      const V third = later ? beside : own, fourth = later ? own : beside;
      const V both = joined_lanes<How>(this->accumulator, from_lane(this->accumulator, HOLDERS), HOLDERS);
      return How::of(How::of(both, third), fourth);
    } else if constexpr (IN_WARP) {
      const int own = threadIdx.x % THREADS / HOLDERS;
      V all = from_lane(this->accumulator, own * HOLDERS);
#pragma unroll
      for (int i = 1; i < SPREAD; ++i) all = How::of(all, from_lane(this->accumulator, (own ^ i) * HOLDERS));
      return all;
    } else {
      scratch[threadIdx.x] = this->accumulator;
      __syncthreads();
      const V* const groups = scratch + threadIdx.x / THREADS * THREADS + threadIdx.x % HOLDERS;
      V all = groups[0];
#pragma unroll
      for (int i = 1; i < SPREAD; ++i) all = How::of(all, groups[i * HOLDERS]);
      return all;
    }
  }
};
template <typename How, typename V, int THREADS>
struct Partial<How, V, THREADS, 2, 2> : SpreadPartial<How, V, THREADS, 2, 2> {};
template <typename How, typename V> struct Partial<How, V, 8, 1, 2> : SpreadPartial<How, V, 8, 1, 2> {};
template <typename How, typename V> struct Partial<How, V, 16, 1, 4> : SpreadPartial<How, V, 16, 1, 4> {};
template <typename How, typename V> struct Partial<How, V, 32, 1, 4> : SpreadPartial<How, V, 32, 1, 4> {};
template <typename How, typename V> struct Partial<How, V, 64, 1, 4> : SpreadPartial<How, V, 64, 1, 4> {};

template <typename P, int THREADS, int CHUNKS, int BLOCK_>
struct NarrowSchedule : RowSchedule<P, THREADS, CHUNKS, true, WHOLE> {
  using Base = RowSchedule<P, THREADS, CHUNKS, true, WHOLE>;
  static constexpr int BLOCK = BLOCK_, ROWS = BLOCK / THREADS;
  static constexpr int SPREAD = THREADS / larger(FEWEST, THREADS * CHUNKS / ACCUMULATOR_GROUPS);
  static constexpr int EACH = SPREAD > 1 ? CHUNKS : 1;
  // Rows are copied ahead where elements have 2 bytes. Of 4 bytes there is no room for as many threads besides.
  static constexpr bool AHEAD = CHUNKS > 1, HOLD = AHEAD && Base::HOLD, LATER = false, NEAR = false;
};

// The row of a thread, of those that a block takes at once: `first` of these, `end` of the slab's.
template <typename P, int THREADS_, int CHUNKS, int BLOCK> struct ThreadRow<NarrowSchedule<P, THREADS_, CHUNKS, BLOCK>> {
  using S = NarrowSchedule<P, THREADS_, CHUNKS, BLOCK>;
  static constexpr int THREADS = THREADS_, ROWS = S::ROWS;
  i64 before;  // rows before the first
  u32 own;     // the thread's, or the last that exists
  bool live, plain;
  RowSpace::Position position;
  int thread;
  i32 length;
  RowStarts<P> starts;

  __device__ ThreadRow(const RowArgs<P>& args, i64 first, i64 end)
      : before(first),
        own(min(u32(threadIdx.x) / THREADS, u32(end - first) - 1)),
        live(own == u32(threadIdx.x) / THREADS),
        plain(args.rows.plain()),
        position(plain ? RowSpace::Position{first + own, false, 0, 0} : args.rows.position(first + own)),
        thread(threadIdx.x % THREADS) {
    const i32 elements = i32(starts.set(args, *this));
    length = live ? elements : 0;
  }
  template <typename Strides> __device__ i64 plain_offset(const Strides& strides) const {
    return before * strides.of[AXES - 1] + own * strides.of[AXES - 1];
  }
  __device__ i32 left() const { return length - thread * GROUP; }
  template <int N> __device__ auto input() const { return get<N>(starts.at); }
  template <int I> __device__ auto output() const { return get<RowStarts<P>::inputs + I>(starts.at); }
};

// Shares of an input that is copied to shared memory ahead: each thread copies its own.
template <typename P, int THREADS, int BLOCK, int N>
struct ArrayShares<NarrowSchedule<P, THREADS, 2, BLOCK>, N>
    : LateShares<NarrowSchedule<P, THREADS, 2, BLOCK>, element_in<P, N>> {
  using S = NarrowSchedule<P, THREADS, 2, BLOCK>;
  using E = element_in<P, N>;
  using Args = RowArgs<P>;
  using Row = ThreadRow<S>;
  static_assert(sizeof(Lanes<E, GROUP>) == 16);
  struct { Lanes<E, GROUP> lanes[S::CHUNKS]; } own;

  static __device__ u8* place(int chunk) {
    extern __shared__ uint4 memory[];
    return reinterpret_cast<u8*>(memory) + (N * S::CHUNKS + chunk) * (BLOCK * 16) + threadIdx.x * 16;
  }
  static __device__ void copy(const Row& row) {
#pragma unroll
    for (int chunk = 0; chunk < S::CHUNKS; ++chunk) {
      const i32 first = (chunk * THREADS + row.thread) * GROUP;
      if (first >= row.length) break;
      copy_async<16>(place(chunk), reinterpret_cast<const u8*>(at<E>(row.template input<N>(), first)));
    }
  }
  __device__ void load(const Args&, const Row& row) {
#pragma unroll
    for (int chunk = 0; chunk < S::CHUNKS; ++chunk) {
      if ((chunk * THREADS + row.thread) * GROUP >= row.length) break;
      reinterpret_cast<uint4&>(own.lanes[chunk]) = *reinterpret_cast<const uint4*>(place(chunk));
    }
  }
  __device__ Lanes<E, GROUP> share(const Args&, const Row&, int chunk, i32, const ShareWords<E>&) const {
    return own.lanes[chunk];
  }
};

// J: as in slab.cuh. N: inputs with elements for each of a row's; R: sums.
template <typename J, int THREADS, int CHUNKS, int BLOCK, typename N, typename R> struct NarrowSlabOf;
template <typename J, int THREADS, int CHUNKS, int BLOCK, int... N, int... R>
struct NarrowSlabOf<J, THREADS, CHUNKS, BLOCK, Seq<N...>, Seq<R...>> {
  using P = typename J::Rows;
  using Sums = typename J::Sums;
  using S = NarrowSchedule<P, THREADS, CHUNKS, BLOCK>;
  using Row = ThreadRow<S>;
  using Passes = typename P::Passes;
  using Last = type_at<Passes, S::LAST>;
  using Across = typename Sums::SplitPass;
  using Shared = typename P::Shared;
  static constexpr u32 INPUTS = (1u << sizeof...(N)) - 1;
  static constexpr int COPIED = S::AHEAD ? int(sizeof...(N)) * CHUNKS * BLOCK * 16 : 0;  // bytes for rows
  static constexpr int OWN = (THREADS * CHUNKS * GROUP + BLOCK - 1) / BLOCK;             // columns of a thread
  template <int I> using How = typename reduction_at<Sums, I>::How;
  template <int I> using State = state_of_reduction<reduction_at<Sums, I>>;
  template <int I> using Value = typename reduction_at<Sums, I>::Value;
  template <typename V> struct alignas(16) Group { V of[GROUP]; };
  template <typename V> struct Own { V of[OWN]; };

  const RowArgs<P>& args;
  u8* const memory;  // what rows have for the sums: for each of these, a line of values a row
  const i32 length, line;
  const Across across;
  TupleOf<Seq<R...>, Own<State<R>>...> sums;

  __device__ NarrowSlabOf(const RowArgs<P>& args, uint4* memory)
      : args(args), memory(reinterpret_cast<u8*>(memory) + COPIED), length(i32(args.rows.length)), line(line_of(length)),
        across(pass_for<Across>(typename Sums::Shared{typename Sums::C(args.rows.rows)})) {
#pragma unroll
    for (int i = 0; i < OWN; ++i) ((get<R>(sums).of[i] = How<R>::template nothing<State<R>>()), ...);
  }
  // Values of a line. Those of neighbouring rows begin four banks of shared memory apart.
  static __device__ i32 line_of(i32 length) { return (length + GROUP - 1) / GROUP * GROUP + 4; }
  template <int I> static constexpr int bytes_before = ((R < I ? int(sizeof(Value<R>)) : 0) + ... + 0);
  template <int I> __device__ Value<I>* values() const {
    return reinterpret_cast<Value<I>*>(memory + bytes_before<I> * S::ROWS * line);
  }

  // Begins to copy rows.
  __device__ void copy(const Row& row) const {
    if constexpr (S::AHEAD) {
      (ArrayShares<S, N>::copy(row), ...);
      commit_copies();
    }
  }
  // What a row becomes, but for what it has for the sums, which goes to shared memory once no thread adds the rows
  // before any more. `then` is called once the row's reductions are made.
  template <typename Then, int... I>
  __device__ void make(const Row& row, const RowInputs<S>& inputs, const Then& then, Seq<I...>) {
    const bool columns_aligned = inputs.columns_aligned(row);
    typename P::Held held[S::HOLD ? CHUNKS * GROUP : 1];
    Shared shared = shared_at_start<P>(args, row.position, typename P::C(row.length));
    pick_all<P>(args, shared, row.length, [&](auto n) { return row.template input<n>(); });
    ((type_at<Passes, I>::wanted(shared)
          ? reduce_pass<S, type_at<Passes, I>>(args, row, inputs, columns_aligned, held, shared)
          : void()),
     ...);
    J::finish(shared);
    then();
    store_row<S, Last>(args, row, inputs, columns_aligned, held, shared, typename Last::Makes::Index());
    __syncthreads();
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
      const i32 first = (chunk * THREADS + row.thread) * GROUP;
      if (first >= row.length) break;
      keep(inputs.template chunk<INPUTS>(args, row, chunk, first, false, columns_aligned), shared,
           i32(row.own) * line + first);
    }
    __syncthreads();
  }
  template <typename Shares> __device__ void keep(const Shares& own, const Shared& shared, i32 to) {
    Tuple<Group<Value<R>>...> groups;
    summands<J, INPUTS>(groups, across, own, shared, Seq<R...>());
    ((*reinterpret_cast<Group<Value<R>>*>(values<R>() + to) = get<R>(groups)), ...);
  }
  // Adds so many rows.
  __device__ void add(i32 rows) {
#pragma unroll
    for (int i = 0; i < OWN; ++i) {
      const i32 column = i * BLOCK + threadIdx.x;
      if (column >= length) break;
#pragma unroll 8
      for (int row = 0; row < rows; ++row)
        ((get<R>(sums).of[i] = How<R>::of(get<R>(sums).of[i], State<R>(values<R>()[row * line + column]))), ...);
    }
  }
  // Leaves the slab's sums for `finish`.
  __device__ void keep_sums(Accumulator<Sums>* to) const {
#pragma unroll
    for (int i = 0; i < OWN; ++i) {
      const i32 column = i * BLOCK + threadIdx.x;
      if (column < length) to[column] = {{get<R>(sums).of[i]}...};
    }
  }
};

// THREADS hold CHUNKS groups each of a row, which lies in whole words. A block of BLOCK takes several rows at once.
template <typename J, int THREADS, int CHUNKS, int BLOCK, int ROOM>
__global__ void __launch_bounds__(BLOCK, ROOM) narrow_slab(const __grid_constant__ SlabArgs<J> args) {
  extern __shared__ uint4 memory[];
  using Slab = NarrowSlabOf<
      J, THREADS, CHUNKS, BLOCK, make_seq<operands_of<typename J::Rows>::arrays>, reductions_of<typename J::Sums>>;
  using S = typename Slab::S;
  const RowSpace& rows = args.given.rows;
  const i64 each = slab_of(rows.rows), begin = blockIdx.x * each, end = min(begin + each, rows.rows);
  Slab slab(args.given, memory);
  ThreadRow<S> next(args.given, begin, end);
  slab.copy(next);
  i32 before = 0;  // rows that wait to be added
#pragma unroll 1
  for (i64 first = begin; first < end; first += S::ROWS) {
    const ThreadRow<S> row = S::AHEAD ? next : ThreadRow<S>(args.given, first, end);
    const bool more = first + S::ROWS < end;
    if (S::AHEAD && more) next = ThreadRow<S>(args.given, first + S::ROWS, end);
    RowInputs<S> inputs;
    if constexpr (S::AHEAD) {
      slab.add(before);
      wait_for_all_but<0>();
      inputs.load(args.given, row);
    } else {
      inputs.load(args.given, row);
      slab.add(before);
    }
    slab.make(row, inputs, [&] {
      if (more) slab.copy(next);
    }, make_seq<S::LAST>());
    before = i32(min(end - first, i64(S::ROWS)));
  }
  let_next_begin();
  slab.add(before);
  slab.keep_sums(args.accumulators + blockIdx.x * rows.length);
}
