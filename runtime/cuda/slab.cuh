// The kernel of rows and of sums across them: a block goes down a slab of rows, which it has copied to shared memory
// some rows ahead, reads each once, writes what is made of it, and adds what goes into the sums in registers. A slab's
// sums are one row of the workspace; `finish` joins these.
#pragma once
#include "slab_memory.cuh"
#include "slabs.cuh"

// J: Rows, the program of the rows; Sums, that of the sums, whose elements it makes of an element and of what its row
// shares; its `finish` is that of the rows, of values that are kept for the sums alone.
template <typename J> struct SlabArgs {
  RowArgs<typename J::Rows> given;
  Accumulator<typename J::Sums>* accumulators;
};

// A thread of a block on its way down a slab. TEAMS of THREADS reduce a row each, then all of them make what becomes of
// these rows, one after the other: each thread has columns of its own, whose sums it holds. HOLDS: of one team, it
// holds its shares of columns in registers; else they lie in shared memory. N: inputs with elements along the row; R:
// sums.
template <typename J, int THREADS, int TEAMS, int CHUNKS, int MODE, bool HOLDS, typename N, typename R> struct SlabOf;
template <typename J, int THREADS, int TEAMS, int CHUNKS, int MODE, bool HOLDS, int... N, int... R>
struct SlabOf<J, THREADS, TEAMS, CHUNKS, MODE, HOLDS, Seq<N...>, Seq<R...>>
    : SlabMemoryOf<typename J::Rows, THREADS, TEAMS, CHUNKS, MODE, HOLDS, bounds_of<J> != 0, Seq<N...>> {
  using Memory = SlabMemoryOf<typename J::Rows, THREADS, TEAMS, CHUNKS, MODE, HOLDS, bounds_of<J> != 0, Seq<N...>>;
  using P = typename J::Rows;
  using Sums = typename J::Sums;
  using Operands = typename Memory::Operands;
  using Shared = typename P::Shared;
  using Across = typename Sums::SplitPass;
  using Last = type_at<typename P::Passes, P::Passes::size - 1>;
  using Shares = typename Memory::Shares;
  using Memory::args, Memory::length, Memory::shares_of_row, Memory::thread, Memory::lane;
  using Memory::share, Memory::own_share, Memory::order;
  static constexpr int ARRAYS = Operands::arrays, OWN = Memory::OWN;
  static constexpr u32 INPUTS = (1u << ARRAYS) - 1;
  static constexpr int FULL = Memory::FULL, OWN_FULL = FULL / TEAMS;
  template <int I> using How = typename reduction_at<Sums, I>::How;
  template <int I> using State = state_of_reduction<reduction_at<Sums, I>>;
  template <typename V> struct Each { V of[OWN][GROUP]; };
  // Whether threads keep what several passes use of an element, where they have registers for it.
  template <typename... Pass> static __device__ constexpr bool taken(List<Pass...>) {
    return ((Pass::HELD_TAKEN != 0) || ...);
  }
  static constexpr bool KEEPS = taken(typename P::Passes()) &&
      GROUP * int(CHUNKS * sizeof(typename P::Held) + OWN * (sizeof(State<R>) + ...)) / 4 +
          (HOLDS ? CHUNKS * GROUP * Operands::column_bits / 32 : 0) <=
              (Memory::CROSSED && MODE == WHOLE ? SLAB_KEEPS_WIDE : SLAB_KEEPS);
  template <typename Pass> static constexpr bool FIRST_PASS = same<Pass, type_at<typename P::Passes, 0>>;
  // What a pass finds made of `held`, and the inputs that it reads.
  template <typename Pass>
  static constexpr int KNOWN = KEEPS && !FIRST_PASS<Pass> && (TEAMS == 1 || !same<Pass, Last>) ? HOLDS_EARLIER : 0;
  template <typename Pass> static constexpr u32 READS = KNOWN<Pass> && !Pass::HELD_FRESH ? Pass::TAKES : Pass::READS;
  __device__ typename P::Held& held_of(int chunk, int i) { return held[KEEPS ? chunk : 0][KEEPS ? i : 0]; }

  const Across across;
  TupleOf<Seq<R...>, Each<State<R>>...> sums;
  typename P::Held held[KEEPS ? CHUNKS : 1][KEEPS ? GROUP : 1];  // what several passes use of a row's elements

  __device__ SlabOf(const RowArgs<P>& args, u8* memory)
      : Memory(args, memory),
        across(pass_for<Across>(typename Sums::Shared{typename Sums::C(args.rows.rows)})) {
#pragma unroll
    for (int chunk = 0; chunk < OWN; ++chunk) {
#pragma unroll
      for (int i = 0; i < GROUP; ++i) ((get<R>(sums).of[chunk][i] = How<R>::template nothing<State<R>>()), ...);
    }
  }
  // A pass that makes the reductions whose bit is set in WANTED.
  template <typename Pass, u32 WANTED, int... I, typename Then>
  __device__ void reduce(Shared& shared, i32 slot, int turn, Seq<I...>, const Then& then) {
    __shared__ Tuple<typename Reducer<Pass, WANTED, I>::Scratch...> scratches[TEAMS];
    auto& scratch = scratches[threadIdx.x / THREADS];
    Tuple<Reducer<Pass, WANTED, I>...> reducers;
    (Reducer<Pass, WANTED, I>::begin(shared), ...);
    const Pass pass = pass_for<Pass>(shared);
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
      if (chunk >= FULL && share(chunk) >= shares_of_row) break;
      const Shares own = this->template shares<READS<Pass>>(slot, share(chunk), chunk);
      auto make = [&](auto fast, bool& usual) {
#pragma unroll
        for (int i = 0; i < GROUP; ++i) {
          const auto made = pass.template of<int(fast), KNOWN<Pass>>(
              element_in_lane<P, READS<Pass>>(own, i), held_of(chunk, i), usual);
          (get<I>(reducers).set(i, get<I>(made), share(chunk) * GROUP), ...);
        }
      };
      bool usual = pass.fast();
      make(Constant<1>(), usual);
      if constexpr (Pass::CAREFUL)
        if (__builtin_expect(!usual, 0)) make(Constant<0>(), usual);
      const i32 left = chunk < FULL ? GROUP : length - share(chunk) * GROUP;
      (get<I>(reducers).template add<MODE == WHOLE>(left, order), ...);
    }
    // Side by side: shuffles wait for nothing else then.
    const Tuple<decltype(get<I>(reducers).of_warp(shared))...> found = {get<I>(reducers).of_warp(shared)...};
    if (lane == 0) (Reducer<Pass, WANTED, I>::tell(get<I>(found), get<I>(scratch), turn), ...);
    __syncthreads();
    then();
    (Reducer<Pass, WANTED, I>::receive(shared, get<I>(scratch), turn), ...);
  }
  template <typename Pass, u32 WANTED, int I>
  using Reducer = SlabReducer<P, Pass, I, THREADS, (WANTED >> I & 1) != 0>;
  // The first pass. Extremes that only bound a value are sought where a few elements do not show that it lies within.
  template <typename Pass, typename Then>
  __device__ void reduce_first(Shared& shared, i32 slot, int turn, const Then& then) {
    reduce<Pass, ~bounds_of<J>>(shared, slot, turn, typename Pass::Makes::Index(), then);
    typename P::Held none;
    bool usual = true;
    const typename P::Element element = {this->template sampled<(Pass::READS >> N & 1) != 0, N>(slot)...};
    const auto made = pass_for<Pass>(shared).template of<0, 0>(element, none, usual);
    if (__builtin_expect(!J::within_bounds(shared, made), 0))
      seek_bounds<Pass>(shared, slot, typename Pass::Makes::Index());
  }
  // Each warp of a row alone seeks these extremes.
  template <typename Pass, int... I> __device__ void seek_bounds(Shared& shared, i32 slot, Seq<I...>) {
    const Pass pass = pass_for<Pass>(shared);
    Tuple<Reducer<Pass, bounds_of<J>, I>...> reducers;
#pragma unroll 1
    for (i32 share = lane; share < shares_of_row; share += 32) {
      const Shares own = this->template shares<Pass::READS>(slot, share, -1);
#pragma unroll
      for (int i = 0; i < GROUP; ++i) {
        typename P::Held none;
        bool usual = true;
        const auto made = pass.template of<0, 0>(element_in_lane<P, Pass::READS>(own, i), none, usual);
        (get<I>(reducers).set(i, get<I>(made), share * GROUP), ...);
      }
      (get<I>(reducers).template add<MODE == WHOLE>(length - share * GROUP, order), ...);
    }
    (get<I>(reducers).take(shared), ...);
  }

  // What a share becomes as an output.
  template <typename Make, typename V> struct Made {
    using E = element_out<P, Make::output>;
    typename code_or<E, V>::type of[GROUP];
    __device__ void set(int lane, V value) { of[lane] = typename code_or<E, V>::type(value); }
  };
  template <typename... V> static __device__ List<V...> types_of(const Tuple<V...>&);
  using Values = decltype(types_of(static_cast<const Last*>(nullptr)->template of<true, 0>(
      *static_cast<const typename P::Element*>(nullptr), *static_cast<typename P::Held*>(nullptr),
      *static_cast<bool*>(nullptr))));
  template <int I> using Output = Made<type_at<typename Last::Makes, I>, type_at<Values, I>>;

  // Stores a share of an output. Where lanes' own shares would leave gaps in a warp's store, or do not lie in whole
  // words, they go through shared memory, where the warp's part of an input was.
  template <int I> static constexpr int output = type_at<typename Last::Makes, I>::output;
  template <int I> using Element = element_out<P, output<I>>;
  template <int I> static constexpr int stored_bytes = int(sizeof(Lanes<Element<I>, GROUP>));
  template <int I>
  static constexpr bool THROUGH =
      (MODE == UNIT || stored_bytes<I> > 16) && stored_bytes<I> == Memory::template share_bytes<0>;
  template <int I>
  __device__ void store(storage_t<Element<I>>* row, const Output<I>& made, i32 slot, i32 share, bool full) const {
    using E = Element<I>;
    constexpr int words = stored_bytes<I> / 16;
    Lanes<E, GROUP> lanes = {};
    set_all(lanes, made.of);
    const i32 begin = (share - lane) * GROUP;
    static_assert(MODE == WHOLE || THROUGH<I>);
    if constexpr (THROUGH<I>) {
      uint4* const own = reinterpret_cast<uint4*>(this->template place<0>(slot, share));
      u8* const shares = reinterpret_cast<u8*>(own - lane * words);
      __syncwarp();
      if (full || share < shares_of_row)
#pragma unroll
        for (int i = 0; i < words; ++i) own[order(i)] = reinterpret_cast<const uint4*>(lanes.data)[i];
      __syncwarp();
      if constexpr (MODE == WHOLE) {
        const uint4* const from = reinterpret_cast<const uint4*>(shares) + lane;
        uint4* const to = reinterpret_cast<uint4*>(at<E>(row, begin)) + lane;
#pragma unroll
        for (int i = 0; i < words; ++i)
          if (full || begin + (i * 32 + lane) / words * GROUP < length) to[i * 32] = from[i * 32];
      } else {
        const Stretch<E, 32, 1> stretch{shares};
        stretch.store_narrow(at<E>(row, begin), full ? SLAB_WARP : min(length - begin, SLAB_WARP), lane);
      }
    } else if (full || share < shares_of_row) {
      keep<WHOLE, E>(row, share * GROUP, length, args.template output<output<I>>().steps, lanes);
    }
  }

  // Where a row begins in each output.
  template <typename S> struct Starts;
  template <int... I> struct Starts<Seq<I...>> {
    Tuple<storage_t<Element<I>>*...> of;
    __device__ Starts(const RowArgs<P>& args, const RowSpace::Position& position)
        : of{row_of<Element<I>>(args.template output<output<I>>().array, args.rows, position,
                                args.template output<output<I>>().strides)...} {}
  };
  // What is known of a row once it is reduced.
  struct Row {
    Last pass;
    Shared shared;
    Starts<typename Last::Makes::Index> starts;
  };
  // The last pass: outputs, and what goes into the sums.
  template <int... I> __device__ void make(const Row& row, i32 slot, Seq<I...>) {
    const Last& pass = row.pass;
    const Shared& shared = row.shared;
    constexpr u32 READ = READS<Last> | INPUTS;
#pragma unroll
    for (int chunk = 0; chunk < OWN; ++chunk) {
      const i32 share = own_share(chunk);
      if (chunk >= OWN_FULL && share - lane >= shares_of_row) break;
      Tuple<Output<I>...> outputs;
      if (chunk < OWN_FULL || share < shares_of_row) {
        const Shares own = this->template shares<READ>(slot, share, chunk);
        auto rows = [&](auto fast, bool& usual) {
#pragma unroll
          for (int i = 0; i < GROUP; ++i) {
            const auto made = pass.template of<int(fast), KNOWN<Last>>(
                element_in_lane<P, READ>(own, i), held_of(chunk, i), usual);
            (get<I>(outputs).set(i, get<I>(made)), ...);
          }
        };
        bool usual = pass.fast();
        rows(Constant<1>(), usual);
        if constexpr (Last::CAREFUL)
          if (__builtin_expect(!usual, 0)) rows(Constant<0>(), usual);
        add(own, shared, chunk);
      }
      (store<I>(get<I>(row.starts.of), get<I>(outputs), slot, share, chunk < OWN_FULL), ...);
    }
    if constexpr ((THROUGH<I> || ...)) written_before_copies();
  }
  __device__ void add(const Shares& own, const Shared& shared, int chunk) {
    Tuple<GroupValues<typename reduction_at<Sums, R>::Value>...> values;
    summands<J, INPUTS>(values, across, own, shared, Seq<R...>());
#pragma unroll
    for (int i = 0; i < GROUP; ++i)
      ((get<R>(sums).of[chunk][i] = How<R>::of(get<R>(sums).of[chunk][i], get<R>(values).of[i])), ...);
  }

  template <int... I, typename Then>
  __device__ void reduce_all(Shared& shared, i32 slot, int turn, Seq<I...>, const Then& then) {
    auto nothing = [] {};
    (reduce_if_wanted<type_at<typename P::Passes, I>>(shared, slot, turn, first_of<I == 0>(then, nothing)), ...);
  }
  template <typename Pass, typename Then>
  __device__ void reduce_if_wanted(Shared& shared, i32 slot, int turn, const Then& then) {
    if (Pass::wanted(shared)) {
      if constexpr (bounds_of<J> != 0 && same<Pass, type_at<typename P::Passes, 0>>) {
        return reduce_first<Pass>(shared, slot, turn, then);
      } else {
        return reduce<Pass, ~0u>(shared, slot, turn, typename Pass::Makes::Index(), then);
      }
    }
    __syncthreads();
    then();
  }
  template <bool FIRST, typename A, typename B> static __device__ const auto& first_of(const A& a, const B& b) {
    if constexpr (FIRST) return a;
    else return b;
  }
  // Rows that have come, one of each team. `then` is called once no thread takes anything of the rows before any more.
  template <typename Then>
  __device__ void run(i64 row, i64 end, i32 slot, i32 bytes, int turn, const u32 (*skips)[8], const Then& then) {
    const int team = TEAMS == 1 ? 0 : threadIdx.x / THREADS;
    const RowSpace::Position position = args.rows.position(min(row + team, end - 1));
    this->align(slot + team * bytes, skips[team]);
    Shared shared = shared_at_start<P>(args, position, typename P::C(length));
    pick_all<P>(args, shared, length, [&](auto n) {
      return reinterpret_cast<const storage_t<element_in<P, n>>*>(this->template start_of<n>(position));
    });
    reduce_all(shared, slot + team * bytes, turn, make_seq<P::Passes::size - 1>(), then);
    J::finish(shared);
    const Row own = {pass_for<Last>(shared), shared, {args, position}};
    if constexpr (TEAMS == 1) {
      make(own, slot, typename Last::Makes::Index());
    } else {
      __shared__ alignas(16) u8 told[2][TEAMS][sizeof(Row)];
      if (thread == 0) reinterpret_cast<Row&>(told[turn][team]) = own;
      __syncthreads();
#pragma unroll 1
      for (int other = 0; other < TEAMS && row + other < end; ++other) {
        make(reinterpret_cast<const Row&>(told[turn][other]), slot + other * bytes, typename Last::Makes::Index());
      }
    }
  }

  // Leaves the slab's sums for `finish`.
  __device__ void keep_sums(Accumulator<Sums>* to) {
#pragma unroll
    for (int chunk = 0; chunk < OWN; ++chunk) {
      const i32 first = own_share(chunk) * GROUP;
      if (first >= length) break;
      (order.change(get<R>(sums).of[chunk]), ...);
      Eight<Accumulator<Sums>> eight;
#pragma unroll
      for (int i = 0; i < GROUP; ++i) eight.values[i] = {{get<R>(sums).of[chunk][i]}...};
      if constexpr (MODE == WHOLE) {
        *reinterpret_cast<Eight<Accumulator<Sums>>*>(to + first) = eight;
      } else {
#pragma unroll
        for (int i = 0; i < GROUP; ++i)
          if (first + i < length) to[first + i] = eight.values[i];
      }
    }
  }
};
template <typename J, int THREADS, int TEAMS, int CHUNKS, int MODE, bool HOLDS>
using Slab = SlabOf<
    J, THREADS, TEAMS, CHUNKS, MODE, HOLDS, make_seq<operands_of<typename J::Rows>::elements>,
    reductions_of<typename J::Sums>>;

// MODE: WHOLE or UNIT. SMALL: bytes of shared memory for the rows of a block where several are to have room on a
// multiprocessor; LARGE: where two rows of each team need more. MOST: rows of a team at a time.
template <
    typename J, int THREADS, int TEAMS, int CHUNKS, int MODE, bool HOLDS, int ROOM, int SMALL, int LARGE, int MOST>
__global__ void __launch_bounds__(THREADS * TEAMS, ROOM) slab(const __grid_constant__ SlabArgs<J> args) {
  extern __shared__ uint4 memory[];
  __shared__ alignas(16) u64 signals[MOST];
  __shared__ alignas(16) u32 skips[MOST][TEAMS][8];
  using S = Slab<J, THREADS, TEAMS, CHUNKS, MODE, HOLDS>;
  const RowSpace& rows = args.given.rows;
  const i64 each = slab_of(rows.rows), begin = blockIdx.x * each, end = min(begin + each, rows.rows);
  u8* const lines = reinterpret_cast<u8*>(memory) + (-u32(__cvta_generic_to_shared(memory)) & (SLAB_LINE - 1));
  S slab(args.given, lines);
  const i32 row_bytes = slab.slot_bytes(), bytes = TEAMS * row_bytes;
  const i32 others = SLAB_LINE + slab.column_bytes();
  const i32 slots = min(MOST, ((bytes + others <= SMALL ? SMALL : LARGE) - others) / bytes);
  slab.memory_of_columns = lines + slots * bytes;
  slab.keep_columns();
  // The first thread of each team begins to copy its row; where there is none, the last one, so that all wait alike.
  auto copy = [&](i64 row, i32 slot) {
    const int team = threadIdx.x / THREADS;
    if (row < end)
      slab.copy(
          min(row + team, end - 1), slot * bytes + team * row_bytes, RowSignal(&signals[slot]), skips[slot][team]);
  };
  if (threadIdx.x == 0) {
    for (i32 slot = 0; slot < slots; ++slot) RowSignal(&signals[slot]).begin(TEAMS);
    RowSignal::begun();
  }
  if constexpr (TEAMS > 1) __syncthreads();
  const i32 ahead = max(slots - 1, 1);  // rows that are on their way; of one slot, the next row once this one is made
  if (slab.thread == 0)
    for (i32 slot = 0; slot < ahead; ++slot) copy(begin + slot * TEAMS, slot);
  __syncthreads();
  i32 slot = 0, before = slots - 1;  // where the rows lie, and those before them did
  u32 parity = 0;
  int turn = 0;
#pragma unroll 1
  for (i64 row = begin; row < end; row += TEAMS) {
    RowSignal(&signals[slot]).wait(parity);
    slab.run(row, end, slot * bytes, row_bytes, turn, skips[slot], [&] {
      if (slots > 1 && slab.thread == 0) copy(row + ahead * TEAMS, before);
    });
    if (slots == 1) {
      __syncthreads();
      if (slab.thread == 0) copy(row + TEAMS, 0);
    }
    before = slot;
    turn ^= 1;
    if (++slot == slots) slot = 0, parity ^= 1;
  }
  let_next_begin();
  slab.keep_sums(args.accumulators + blockIdx.x * rows.length);
}
