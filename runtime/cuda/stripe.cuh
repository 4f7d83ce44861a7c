// The kernel of rows that lie beside each other in memory and are held: a block, or the blocks of a cluster, copy a
// stripe of them to shared memory, so that they are read once, however many passes follow. A thread has an accumulator
// of LANES neighbouring rows. It copies what it reads itself, so no thread waits for another's copies.
#pragma once
#include "cluster.cuh"
#include "split_args.cuh"
#include "split_group.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

constexpr int STRIPE_WARPS = 16;  // of a block, at most

// A program with one of its passes as that of a split reduction.
template <typename P, typename Pass> struct WithPass : P { using SplitPass = Pass; };

// All threads of all blocks of a cluster: what each wrote is there for all. Of one block, a barrier.
template <int BLOCKS> __device__ inline void stripe_barrier() {
  if constexpr (BLOCKS == 1) {
    __syncthreads();
  } else {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    cluster_wait();
  }
}
// Writes a value to the same place of another block's shared memory.
template <typename V> __device__ inline void put_in_block(V* place, const V& value, u32 block) {
  static_assert(sizeof(V) % 4 == 0);
  const u32* const words = reinterpret_cast<const u32*>(&value);
  const u32 there = in_block(place, block);
#pragma unroll
  for (int i = 0; i < int(sizeof(V)) / 4; ++i)
    asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(there + i * 4), "r"(words[i]) : "memory");
}

// A thread of a stripe: its rows, and which of their elements are its own: groups, `apart` elements from each other.
template <int LANES, int BLOCKS> struct StripeThread {
  i32 wide, rank, accumulator, length, turns, apart;
  Beside<LANES, true> columns;
  i64 row;  // the first

  __device__ StripeThread(const Reduction& rows, i64 stripe, i64 table)
      : wide(i32(rows.wide)), rank(i32(blockIdx.x % BLOCKS)), length(i32(rows.length)), turns(i32(rows.turns)),
        apart(i32(rows.accumulators) * GROUP), columns(rows, stripe - table * rows.tiles.divisor, wide, true) {
    accumulator = rank * i32(blockDim.x >> wide) + i32(threadIdx.x >> wide);
    row = table * rows.columns + columns.first;
  }
  __device__ i32 first(i32 turn) const { return turn * apart + accumulator * GROUP; }
  __device__ i32 exist(i32 turn) const { return min(length - first(turn), GROUP); }
};

// A group of places of an input.
template <typename E, int LANES> struct StripePlaces { Lanes<E, LANES> of[GROUP]; };
// What a thread has in shared memory of an input: LANES elements of each of its places, which lie blockDim.x apart.
template <typename P, int N, int LANES> struct StripeInput {
  using E = element_in<P, N>;
  using V = Lanes<E, LANES>;
  static constexpr int width = int(sizeof(V));
  using W = typename word<width>::type;
  static_assert(width >= 4 && width <= 16);
  u8* memory;

  template <typename T> __device__ void copy(const SplitArgs<P>& args, const T& thread, i32 turn, i32 exist) const {
    const auto& input = args.template elements<N>();
    const i64 step = input.reach.along.of[AXES - 1];
    const storage_t<E>* const from =
        input.array + args.rows.row_offset(thread.row, input.reach.kept) + thread.first(turn) * step;
#pragma unroll
    for (int i = 0; i < GROUP; ++i)
      if (i < exist)
        copy_async<width>(
            memory + (turn * GROUP + i) * i32(blockDim.x) * width, reinterpret_cast<const u8*>(from + i * step));
  }
  // Of places that do not exist, the last one's again.
  __device__ void read(V (&group)[GROUP], i32 turn, i32 exist) const {
#pragma unroll
    for (int i = 0; i < GROUP; ++i)
      reinterpret_cast<W&>(group[i]) = *reinterpret_cast<const W*>(
          memory + (turn * GROUP + min(i, exist - 1)) * i32(blockDim.x) * width);
  }
};

// The elements of an output, of a group of places.
template <typename P, int O, int LANES> struct StripeOutput {
  using E = element_out<P, O>;
  Lanes<E, LANES> of[GROUP];

  template <typename V> __device__ void set(int i, int lane, V value) {
    of[i].set(lane, typename code_or<E, V>::type(value));
  }
};

template <typename P, int LANES, int BLOCKS, typename N> struct StripeOf;
template <typename P, int LANES, int BLOCKS, int... N> struct StripeOf<P, LANES, BLOCKS, Seq<N...>> {
  using C = typename P::C;
  using Shared = typename P::Shared;
  using Thread = StripeThread<LANES, BLOCKS>;
  using Groups = Tuple<StripePlaces<element_in<P, N>, LANES>...>;
  static constexpr int STATE = P::STRIPE * int(sizeof(C));  // bytes of what a pass reduces to, at most

  const SplitArgs<P>& args;
  const Thread thread;
  Tuple<StripeInput<P, N, LANES>...> inputs;
  u8* scratch;  // what warps have found; what blocks have, twice

  __device__ StripeOf(const SplitArgs<P>& args, const Thread& thread, u8* memory) : args(args), thread(thread) {
    ((get<N>(inputs).memory = memory + threadIdx.x * StripeInput<P, N, LANES>::width,
      memory += thread.turns * GROUP * i32(blockDim.x) * StripeInput<P, N, LANES>::width),
     ...);
    scratch = memory;
  }
  __device__ void copy() const {
#pragma unroll 1
    for (i32 turn = 0; turn < thread.turns; ++turn) {
      (get<N>(inputs).copy(args, thread, turn, thread.exist(turn)), ...);
      commit_copies();
    }
  }
  template <u32 READS> __device__ void read(Groups& groups, i32 turn, i32 exist) const {
    ((READS >> N & 1 ? get<N>(inputs).read(get<N>(groups).of, turn, exist) : void()), ...);
  }

  // One row's elements of a group, and what is stored of them.
  template <u32 READS, typename Stored> struct Group {
    const Groups& groups;
    Stored& stored;
    int lane;
    __device__ typename P::Element element(int i) const {
      return {value<N>(i)...};
    }
    template <int I> __device__ formula_t<C, element_in<P, I>> value(int i) const {
      if constexpr ((READS >> I & 1) != 0) return formula_t<C, element_in<P, I>>(get<I>(groups).of[i].get(lane));
      else return formula_t<C, element_in<P, I>>();
    }
    template <int S, typename V> __device__ void set(int i, V value) const { get<S>(stored).set(i, lane, value); }
  };

  // Adds a group's elements to what an accumulator has of each reduction.
  template <typename Q, typename Values, int... R>
  static __device__ void add(
      Accumulator<Q>& total, Shared& shared, const Values& values, i32 first, i32 exist, Seq<R...>) {
    (add_one<Q, R>(total, shared, get<R>(values).of, first, exist), ...);
  }
  template <typename Q, int R, typename V>
  static __device__ void add_one(
      Accumulator<Q>& total, Shared& shared, const V (&values)[GROUP], i32 first, i32 exist) {
    using Make = reduction_at<Q, R>;
    using How = typename Make::How;
    using State = state_t<How, V>;
    State& state = total.StateSlot<Q, R>::value;
    if constexpr (same<How, LogSumExp>) {  // which takes elements
      V group[GROUP];
#pragma unroll
      for (int i = 0; i < GROUP; ++i) group[i] = values[i];
      leave_out<How>(group, exist);
      state = How::of(state, group);
    } else {
      State states[GROUP];
#pragma unroll
      for (int i = 0; i < GROUP; ++i) states[i] = state_of<How>(values[i], first + i);
      if (__builtin_expect(exist < GROUP, 0)) cut<How>(states, exist);
      bool finite = true;
      state = How::of(state, ::Group<How, State>::of(states, finite));
      if constexpr (Make::finite != nullptr) shared.*Make::finite &= finite;
    }
  }
  template <typename Q, int... R>
  static __device__ void set(Shared& shared, const Accumulator<Q>& found, Seq<R...>) {
    ((shared.*reduction_at<Q, R>::member = result_of(get<R>(found))), ...);
  }
  template <typename Q, int... R> static __device__ void begin(Shared& shared, Seq<R...>) {
    (begin_one<reduction_at<Q, R>>(shared), ...);
  }
  template <typename Make> static __device__ void begin_one(Shared& shared) {
    if constexpr (Make::finite != nullptr) shared.*Make::finite = true;
  }

  // A pass that makes reductions: their results go to `shared`.
  template <int I> __device__ void reduce(Shared (&shared)[LANES]) const {
    using Pass = type_at<typename P::Passes, I>;
    using Q = WithPass<P, Pass>;
    if (!Pass::wanted(shared[0])) return;
    Pass passes[LANES];
    Accumulator<Q> totals[LANES];
#pragma unroll
    for (int lane = 0; lane < LANES; ++lane) {
      passes[lane] = pass_for<Pass>(shared[lane]);
      totals[lane].clear();
      begin<Q>(shared[lane], reductions_of<Q>());
    }
#pragma unroll 1
    for (i32 turn = 0; turn < thread.turns; ++turn) {
      if constexpr (I == 0) wait_for_copies(thread.turns - 1 - turn);
      const i32 first = thread.first(turn), exist = thread.exist(turn);
      if (exist <= 0) break;
      Groups groups;
      read<Pass::READS>(groups, turn, exist);
#pragma unroll
      for (int lane = 0; lane < LANES; ++lane) {
        Tuple<> nothing;
        Group<Pass::READS, Tuple<>> group{groups, nothing, lane};
        take<Q>(totals[lane], shared[lane], passes[lane], group, first, exist, reductions_of<Q>());
      }
    }
    join<I, Q>(totals, shared);
  }
  template <typename Q, typename G, int... R>
  static __device__ void take(
      Accumulator<Q>& total, Shared& shared, const typename Q::SplitPass& pass, G& group, i32 first, i32 exist,
      Seq<R...> reductions) {
    Tuple<GroupValues<typename reduction_at<Q, R>::Value>...> values;
    bool usual = pass.fast();
    make_values<true, Q>(values, pass, group, usual, reductions, Seq<>());
    if constexpr (Q::SplitPass::CAREFUL)
      if (__builtin_expect(!usual, 0)) make_values<false, Q>(values, pass, group, usual, reductions, Seq<>());
    add<Q>(total, shared, values, first, exist, reductions);
  }

  // Joins the accumulators of all threads below each other, in all blocks: trees of neighbours, of a warp's, of its
  // block's warps and of the blocks.
  template <int I, typename Q>
  __device__ void join(Accumulator<Q> (&totals)[LANES], Shared (&shared)[LANES]) const {
    using Found = Accumulator<Q>;
    static_assert(sizeof(Found) <= STATE);
    const i32 columns = LANES << thread.wide, warps = max(i32(blockDim.x) / 32, 1);
    Found* const of_warps = reinterpret_cast<Found*>(scratch);
    Found* const of_blocks = reinterpret_cast<Found*>(scratch + columns * STATE * (warps + I % 2 * BLOCKS));
    join_warps<LANES>(totals, thread.wide, blockDim.x, of_warps);
    for (i32 i = threadIdx.x; i < columns; i += blockDim.x) {
      const Found found = joined<STRIPE_WARPS>(of_warps, columns, i, blockDim.x);
#pragma unroll
      for (int block = 0; block < BLOCKS; ++block) {
        Found* const place = &of_blocks[thread.rank * columns + i];
        if constexpr (BLOCKS > 1) put_in_block(place, found, block);
        else *place = found;
      }
    }
    stripe_barrier<BLOCKS>();
#pragma unroll
    for (int lane = 0; lane < LANES; ++lane) {
      Found each[BLOCKS];
#pragma unroll
      for (int block = 0; block < BLOCKS; ++block)
        each[block] = of_blocks[block * columns + i32(threadIdx.x & ((1 << thread.wide) - 1)) * LANES + lane];
      Found found = tree(each);
      if (thread.length == 0) found = Found::empty();
      set<Q>(shared[lane], found, reductions_of<Q>());
    }
  }

  // The last pass: makes the outputs that have an element for each of a row's.
  template <typename Pass, int... S> __device__ void store(const Shared (&shared)[LANES], Seq<S...> stores) const {
    using Q = WithPass<P, Pass>;
    Pass passes[LANES];
#pragma unroll
    for (int lane = 0; lane < LANES; ++lane) passes[lane] = pass_for<Pass>(shared[lane]);
#pragma unroll 1
    for (i32 turn = 0; turn < thread.turns; ++turn) {
      const i32 exist = thread.exist(turn);
      if (exist <= 0) break;
      Groups groups;
      read<Pass::READS>(groups, turn, exist);
      using Stored = Tuple<StripeOutput<P, stored_output<Q, S>, LANES>...>;
      Stored stored = {};
#pragma unroll
      for (int lane = 0; lane < LANES; ++lane) {
        Group<Pass::READS, Stored> group{groups, stored, lane};
        Tuple<> nothing;
        bool usual = passes[lane].fast();
        make_values<true, Q>(nothing, passes[lane], group, usual, Seq<>(), stores);
        if constexpr (Pass::CAREFUL)
          if (__builtin_expect(!usual, 0))
            make_values<false, Q>(nothing, passes[lane], group, usual, Seq<>(), stores);
      }
      (store_places<stored_output<Q, S>>(get<S>(stored).of, thread.first(turn), exist), ...);
    }
  }
  template <int O>
  __device__ void store_places(const Lanes<element_out<P, O>, LANES> (&of)[GROUP], i32 first, i32 exist) const {
    const auto& output = args.template output<O>();
    store_columns<element_out<P, O>>(
        output.array + args.rows.row_offset(thread.row, output.reach.kept), first, exist, args.rows, output.reach,
        thread.columns, of);
  }

  // What rows have one of: by the threads of the first accumulator.
  template <int... O> __device__ void store_per_row(const Shared (&shared)[LANES], Seq<O...>) const {
    if (thread.accumulator != 0) return;
#pragma unroll
    for (int lane = 0; lane < LANES; ++lane)
      if (lane < thread.columns.count) (store_output<P, O>(args, thread.row + lane, shared[lane]), ...);
  }

  template <int... I> __device__ void run(Seq<I...>) const {
    using Last = type_at<typename P::Passes, int(sizeof...(I))>;
    wait_for_earlier();
    copy();
    let_next_begin();
    const Given<P> given(args);
    Shared shared[LANES];
#pragma unroll
    for (int lane = 0; lane < LANES; ++lane)
      shared[lane] = given.of_row(args, thread.row + thread.columns.step(lane));
    if constexpr (BLOCKS > 1) cluster_wait();
    (reduce<I>(shared), ...);
#pragma unroll
    for (int lane = 0; lane < LANES; ++lane) P::finish(shared[lane]);
    store_per_row(shared, make_seq<operands_of<P>::outputs>());
    if constexpr (Last::Makes::size > 0) store<Last>(shared, make_seq<Last::Makes::size>());
  }
};
template <typename P, int LANES, int BLOCKS>
using Stripe = StripeOf<P, LANES, BLOCKS, make_seq<operands_of<P>::elements>>;

template <typename P, int LANES, int BLOCKS>
__global__ void __cluster_dims__(BLOCKS) __launch_bounds__(32 * STRIPE_WARPS)
    stripe(const __grid_constant__ SplitArgs<P> args) {
  extern __shared__ uint4 memory[];
  if constexpr (BLOCKS > 1) cluster_arrive();  // no block writes to another before that has begun
  const i64 stripe = blockIdx.x / BLOCKS, table = args.rows.tiles(stripe);
  const StripeThread<LANES, BLOCKS> thread(args.rows, stripe, table);
  Stripe<P, LANES, BLOCKS>(args, thread, reinterpret_cast<u8*>(memory)).run(make_seq<P::Passes::size - 1>());
}
#endif
