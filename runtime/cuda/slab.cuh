// The kernel of rows and of sums across them: a block goes down a slab of rows, which it has copied to shared memory
// some rows ahead, reads each once, writes what is made of it, and adds what goes into the sums in registers. A slab's
// sums are one row of the workspace; `finish` joins these.
#pragma once
#include "slab_parts.cuh"
#include "slabs.cuh"
#include "split_group.cuh"

// J: Rows, the program of the rows; Sums, that of the sums, whose elements it makes of an element and of what its row
// shares.
template <typename J> struct SlabArgs {
  RowArgs<typename J::Rows> given;
  Accumulator<typename J::Sums>* accumulators;
};

// A thread of a block on its way down a slab. HOLDS: it holds its shares of columns in registers; else they lie in
// shared memory. N: inputs with elements along the row; R: sums.
template <typename J, int THREADS, int CHUNKS, int MODE, bool HOLDS, typename N, typename R> struct SlabOf;
template <typename J, int THREADS, int CHUNKS, int MODE, bool HOLDS, int... N, int... R>
struct SlabOf<J, THREADS, CHUNKS, MODE, HOLDS, Seq<N...>, Seq<R...>> {
  using P = typename J::Rows;
  using Sums = typename J::Sums;
  using Operands = operands_of<P>;
  using Shared = typename P::Shared;
  using Across = typename Sums::SplitPass;
  using Last = type_at<typename P::Passes, P::Passes::size - 1>;
  using Shares = Tuple<Lanes<element_in<P, N>, GROUP>...>;
  static constexpr int ARRAYS = Operands::arrays;
  static constexpr u32 INPUTS = (1u << ARRAYS) - 1;
  template <int I> using How = typename reduction_at<Sums, I>::How;
  template <int I> using State = state_of_reduction<reduction_at<Sums, I>>;
  template <int> using u32_of = u32;
  template <typename V> struct Each { V of[CHUNKS][GROUP]; };
  template <typename E> struct Columns { Lanes<E, GROUP> of[HOLDS ? CHUNKS : 1]; };
  // Bytes of a share of an input, and of the inputs before one.
  template <int K> static constexpr int share_bytes = int(sizeof(Lanes<element_in<P, K>, GROUP>));
  template <int K> static constexpr int bytes_before = ((N < K ? share_bytes<N> : 0) + ... + 0);
  static constexpr int AROUND = MODE == UNIT ? 16 : 0;  // bytes that the words around a row take besides
  // Bytes through which a warp stores an output.
  template <typename... O> static __device__ constexpr int widest(List<O...>) {
    int most = 0;
    ((most = larger(most, RowRole<O>::elements ? int(sizeof(Lanes<typename O::element, GROUP>)) : 0)), ...);
    return most;
  }
  static constexpr int STAGE = MODE == UNIT ? 32 * widest(typename P::Outputs()) + 16 : 0;

  const RowArgs<P>& args;
  u8* const memory;
  const i32 length, shares_of_row, lane, warp;
  const Across across;
  TupleOf<Seq<R...>, Each<State<R>>...> sums;
  Tuple<Columns<element_in<P, N>>...> columns;
  TupleOf<Seq<N...>, u32_of<N>...> skip;  // bytes of the aligned words before a row's first element
  u8* stage;
  u8* memory_of_columns;

  __device__ SlabOf(const RowArgs<P>& args, u8* memory)
      : args(args), memory(memory), length(i32(args.rows.length)), shares_of_row((length + GROUP - 1) / GROUP),
        lane(threadIdx.x % 32), warp(threadIdx.x / 32),
        across(pass_for<Across>(typename Sums::Shared{typename Sums::C(args.rows.rows)})) {
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
#pragma unroll
      for (int i = 0; i < GROUP; ++i) ((get<R>(sums).of[chunk][i] = How<R>::template nothing<State<R>>()), ...);
    }
  }
  // Bytes of a slot for an input: it begins a line, which copies are quicker for.
  template <int K> __device__ i32 part_bytes() const {
    return (shares_of_row * share_bytes<K> + AROUND + SLAB_LINE - 1) / SLAB_LINE * SLAB_LINE;
  }
  __device__ i32 slot_bytes() const { return ((N < ARRAYS ? part_bytes<N>() : 0) + ... + 0); }
  __device__ i32 warp_first(int chunk) const { return (chunk * THREADS + warp * 32) * GROUP; }
  __device__ i32 first(int chunk) const { return (chunk * THREADS + i32(threadIdx.x)) * GROUP; }
  // A thread's share of a column, read once.
  template <int K> __device__ Lanes<element_in<P, K>, GROUP> column(int chunk) const {
    using E = element_in<P, K>;
    const auto& input = args.template elements<K>();
    if constexpr (MODE == WHOLE) return ::load<true, E, GROUP>(input.array, first(chunk), length);
    const ShareWords<E> words = share_apart<E>(input.array, first(chunk), length, input.array, input.span);
    return reinterpret_cast<const Lanes<E, GROUP>&>(words);
  }
  template <int K> __device__ void keep_column(int chunk) {
    if constexpr (K < ARRAYS) {
    } else if constexpr (HOLDS) {
      get<K>(columns).of[chunk] = column<K>(chunk);
    } else {
      *column_at<K>(chunk) = column<K>(chunk);
    }
  }
  // Where it lies in shared memory.
  template <int K> __device__ Lanes<element_in<P, K>, GROUP>* column_at(int chunk) const {
    using V = Lanes<element_in<P, K>, GROUP>;
    u8* const start = memory_of_columns + shares_of_row * (bytes_before<K> - bytes_before<ARRAYS>);
    return reinterpret_cast<V*>(start) + chunk * THREADS + threadIdx.x;
  }
  __device__ i32 column_bytes() const {
    return HOLDS ? 0 : shares_of_row * (bytes_before<Operands::elements> - bytes_before<ARRAYS>);
  }
  __device__ void keep_columns() {
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; ++chunk)
      if (first(chunk) < length) (keep_column<N>(chunk), ...);
  }
  // An input's part of a slot, and where in it a thread's share lies.
  template <int K> __device__ u8* part(i32 slot) const {
    return memory + slot + ((N < K ? part_bytes<N>() : 0) + ... + 0);
  }
  template <int K> __device__ u8* place(i32 slot, int chunk) const {
    return part<K>(slot) + (chunk * THREADS + i32(threadIdx.x)) * share_bytes<K>;
  }

  // One thread begins to copy a row into a slot. `skips` gets what its aligned words have before it.
  __device__ void copy(i64 row, i32 slot, const RowSignal& signal, u32* skips) const {
    const RowSpace::Position position = args.rows.position(row);
    if constexpr (MODE == WHOLE) {
      signal.expect(length / GROUP * bytes_before<ARRAYS>);
      (copy_whole<N>(position, slot, signal), ...);
    } else {
      Tuple<Words<N>...> words = {words_of<N>(position, slot, skips)...};
      signal.expect(((N < ARRAYS ? get<N>(words).bytes : 0) + ... + 0));
      ((N < ARRAYS ? signal.copy(get<N>(words).to, get<N>(words).from, get<N>(words).bytes) : void()), ...);
    }
  }
  template <int K> __device__ const u8* start_of(const RowSpace::Position& position) const {
    const auto& input = args.template elements<K>();
    return reinterpret_cast<const u8*>(row_of<element_in<P, K>>(input.array, args.rows, position, input.strides));
  }
  template <int K>
  __device__ void copy_whole(const RowSpace::Position& position, i32 slot, const RowSignal& signal) const {
    if constexpr (K < ARRAYS) signal.copy(part<K>(slot), start_of<K>(position), length / GROUP * share_bytes<K>);
  }
  // The aligned words around a row that lie in the operand's bytes; of others the row's own elements are copied here.
  template <int> struct Words {
    u8* to;
    const u8* from;
    i32 bytes;
  };
  template <int K> __device__ Words<K> words_of(const RowSpace::Position& position, i32 slot, u32* skips) const {
    if constexpr (K < ARRAYS) {
      using S = storage_t<element_in<P, K>>;
      const auto& input = args.template elements<K>();
      const u8* const row = start_of<K>(position);
      const u8* const row_end = row + length * int(sizeof(S));
      const u8* const low = reinterpret_cast<const u8*>(input.array) + input.span.low;
      const u8* const high = low + input.span.size - 1 + share_bytes<K> + min(16, share_bytes<K>);
      const i32 skip = i32(u64(row)) & 15;
      const u8* begin = row - skip;
      const u8* end = row_end + (-u64(row_end) & 15);
      u8* to = part<K>(slot);
      skips[K] = skip;
      if (begin < low) {
        copy_units<S>(to + skip, row, begin + 16);  // of a row of more elements than that
        begin += 16, to += 16;
      }
      if (end > high) {
        end -= 16;
        copy_units<S>(to + (end - begin), end, row_end);
      }
      return {to, begin, i32(end - begin)};
    } else {
      return {};
    }
  }

  // A thread's shares of a chunk, as far as they are read.
  template <u32 READS> __device__ Shares shares(i32 slot, int chunk) const {
    Shares found;
    (read<READS, N>(get<N>(found), slot, chunk), ...);
    return found;
  }
  template <u32 READS, int K> __device__ void read(Lanes<element_in<P, K>, GROUP>& lanes, i32 slot, int chunk) const {
    if constexpr ((READS >> K & 1) == 0) {
    } else if constexpr (K < ARRAYS) {
      const uint4* const from = reinterpret_cast<const uint4*>(place<K>(slot, chunk));
      constexpr int words = share_bytes<K> / 16;
      alignas(16) u32 around[(words + 1) * 4];
#pragma unroll
      for (int i = 0; i < words + (MODE == UNIT); ++i) reinterpret_cast<uint4*>(around)[i] = from[i];
      if constexpr (MODE == UNIT) {
        shifted<ANY_WORD, share_bytes<K> / 4, 16, int(sizeof(storage_t<element_in<P, K>>))>(
            reinterpret_cast<u32*>(lanes.data), around, get<K>(skip));
      } else {
#pragma unroll
        for (int i = 0; i < share_bytes<K> / 4; ++i) reinterpret_cast<u32*>(lanes.data)[i] = around[i];
      }
    } else if constexpr (HOLDS) {
      lanes = get<K>(columns).of[chunk];
    } else {
      lanes = *column_at<K>(chunk);
    }
  }

  // A pass that makes reductions.
  template <typename Pass, int... I, typename Then>
  __device__ void reduce(Shared& shared, i32 slot, int turn, Seq<I...>, const Then& then) const {
    __shared__ Tuple<typename SlabReducer<P, Pass, I, THREADS>::Scratch...> scratch;
    Tuple<SlabReducer<P, Pass, I, THREADS>...> reducers;
    (SlabReducer<P, Pass, I, THREADS>::begin(shared), ...);
    const Pass pass = pass_for<Pass>(shared);
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
      if (first(chunk) >= length) break;
      const Shares own = shares<Pass::READS>(slot, chunk);
      auto make = [&](auto fast, bool& usual) {
#pragma unroll
        for (int i = 0; i < GROUP; ++i) {
          typename P::Held held;
          const auto made = pass.template of<int(fast), 0>(element_in_lane<P, Pass::READS>(own, i), held, usual);
          (get<I>(reducers).set(i, get<I>(made), first(chunk)), ...);
        }
      };
      bool usual = pass.fast();
      make(Constant<1>(), usual);
      if constexpr (Pass::CAREFUL)
        if (__builtin_expect(!usual, 0)) make(Constant<0>(), usual);
      (get<I>(reducers).template add<MODE == WHOLE>(length - first(chunk)), ...);
    }
    (get<I>(reducers).send(shared, get<I>(scratch), turn), ...);
    __syncthreads();
    then();
    (SlabReducer<P, Pass, I, THREADS>::receive(shared, get<I>(scratch), turn), ...);
  }

  // What a share becomes as an output.
  template <typename Make, typename V> struct Made {
    using E = element_out<P, Make::output>;
    typename slab_code<E, V>::type of[GROUP];
    __device__ void set(int lane, V value) { of[lane] = typename slab_code<E, V>::type(value); }
  };
  template <typename... V> static __device__ List<V...> types_of(const Tuple<V...>&);
  using Values = decltype(types_of(static_cast<const Last*>(nullptr)->template of<true, 0>(
      *static_cast<const typename P::Element*>(nullptr), *static_cast<typename P::Held*>(nullptr),
      *static_cast<bool*>(nullptr))));
  template <int I> using Output = Made<type_at<typename Last::Makes, I>, type_at<Values, I>>;

  // Stores a share of an output. Where lanes' own shares would leave gaps in a warp's store, they go through shared
  // memory: of WHOLE rows, where the warp's part of an input was.
  template <int I> static constexpr int output = type_at<typename Last::Makes, I>::output;
  template <int I> using Element = element_out<P, output<I>>;
  template <int I> static constexpr int stored_bytes = int(sizeof(Lanes<Element<I>, GROUP>));
  template <int I> static constexpr bool THROUGH = stored_bytes<I> > 16 && stored_bytes<I> == share_bytes<0>;
  template <int I>
  __device__ void store(storage_t<Element<I>>* row, const Output<I>& made, i32 slot, int chunk) const {
    using E = Element<I>;
    constexpr int words = stored_bytes<I> / 16;
    Lanes<E, GROUP> lanes = {};
    set_all(lanes, made.of);
    const i32 begin = warp_first(chunk);
    if constexpr (MODE == UNIT) {
      const Stretch<E, 32, 1> stretch{stage};
      __syncwarp();
      stretch.put(lane, 0, lanes, GROUP);
      stretch.template store<false>(at<E>(row, begin), min(length - begin, SLAB_WARP), lane);
    } else if constexpr (THROUGH<I>) {
      uint4* const own = reinterpret_cast<uint4*>(place<0>(slot, chunk));
      __syncwarp();
      if (first(chunk) < length)
#pragma unroll
        for (int i = 0; i < words; ++i) own[i] = reinterpret_cast<const uint4*>(lanes.data)[i];
      __syncwarp();
      const uint4* const from = own - lane * words + lane;
      uint4* const to = reinterpret_cast<uint4*>(at<E>(row, begin)) + lane;
#pragma unroll
      for (int i = 0; i < words; ++i)
        if (begin + (i * 32 + lane) / words * GROUP < length) to[i * 32] = from[i * 32];
    } else if (first(chunk) < length) {
      keep<WHOLE, E>(row, first(chunk), length, args.template output<output<I>>().steps, lanes);
    }
  }

  // The last pass: outputs, and what goes into the sums.
  template <int... I>
  __device__ void make(const RowSpace::Position& position, const Shared& shared, i32 slot, Seq<I...>) {
    const Last pass = pass_for<Last>(shared);
    constexpr u32 READS = Last::READS | INPUTS;
    Tuple<storage_t<Element<I>>*...> starts = {row_of<Element<I>>(
        args.template output<output<I>>().array, args.rows, position, args.template output<output<I>>().strides)...};
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
      if (warp_first(chunk) >= length) break;
      Tuple<Output<I>...> outputs;
      if (first(chunk) < length) {
        const Shares own = shares<READS>(slot, chunk);
        auto rows = [&](auto fast, bool& usual) {
#pragma unroll
          for (int i = 0; i < GROUP; ++i) {
            typename P::Held held;
            const auto made = pass.template of<int(fast), 0>(element_in_lane<P, READS>(own, i), held, usual);
            (get<I>(outputs).set(i, get<I>(made)), ...);
          }
        };
        bool usual = pass.fast();
        rows(Constant<1>(), usual);
        if constexpr (Last::CAREFUL)
          if (__builtin_expect(!usual, 0)) rows(Constant<0>(), usual);
        add(own, shared, chunk);
      }
      (store<I>(get<I>(starts), get<I>(outputs), slot, chunk), ...);
    }
    if constexpr (MODE == WHOLE && (THROUGH<I> || ...)) written_before_copies();
  }
  __device__ void add(const Shares& own, const Shared& shared, int chunk) {
    Tuple<GroupValues<typename reduction_at<Sums, R>::Value>...> values;
    auto make = [&](auto fast, bool& usual) {
#pragma unroll
      for (int i = 0; i < GROUP; ++i) {
        typename Sums::Held held;
        const auto made = across.template of<int(fast), 0>(
            J::element(element_in_lane<P, INPUTS>(own, i), shared), held, usual);
        ((get<R>(values).of[i] = get<R>(made)), ...);
      }
    };
    bool usual = across.fast();
    make(Constant<1>(), usual);
    if constexpr (Across::CAREFUL)
      if (__builtin_expect(!usual, 0)) make(Constant<0>(), usual);
#pragma unroll
    for (int i = 0; i < GROUP; ++i)
      ((get<R>(sums).of[chunk][i] = How<R>::of(get<R>(sums).of[chunk][i], get<R>(values).of[i])), ...);
  }

  template <int... I, typename Then>
  __device__ void reduce_all(Shared& shared, i32 slot, int turn, Seq<I...>, const Then& then) const {
    auto nothing = [] {};
    (reduce_if_wanted<type_at<typename P::Passes, I>>(shared, slot, turn, first_of<I == 0>(then, nothing)), ...);
  }
  template <typename Pass, typename Then>
  __device__ void reduce_if_wanted(Shared& shared, i32 slot, int turn, const Then& then) const {
    if (Pass::wanted(shared)) return reduce<Pass>(shared, slot, turn, typename Pass::Makes::Index(), then);
    __syncthreads();
    then();
  }
  template <bool FIRST, typename A, typename B> static __device__ const auto& first_of(const A& a, const B& b) {
    if constexpr (FIRST) return a;
    else return b;
  }
  // A row that has come. `then` is called once no thread takes anything of the row before any more.
  template <typename Then> __device__ void run(i64 row, i32 slot, const u32* skips, const Then& then) {
    const RowSpace::Position position = args.rows.position(row);
    if constexpr (MODE == UNIT) ((get<N>(skip) = N < ARRAYS ? skips[N] : 0), ...);
    Shared shared = shared_at_start<P>(args, position, typename P::C(length));
    pick_all<P>(args, shared, length, [&](auto n) {
      return reinterpret_cast<const storage_t<element_in<P, n>>*>(start_of<n>(position));
    });
    reduce_all(shared, slot, int(row & 1), make_seq<P::Passes::size - 1>(), then);
    P::finish(shared);
    make(position, shared, slot, typename Last::Makes::Index());
  }

  // Leaves the slab's sums for `finish`.
  __device__ void keep_sums(Accumulator<Sums>* to) const {
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
      if (first(chunk) >= length) break;
      Eight<Accumulator<Sums>> eight;
#pragma unroll
      for (int i = 0; i < GROUP; ++i) eight.values[i] = {{get<R>(sums).of[chunk][i]}...};
      if constexpr (MODE == WHOLE) {
        *reinterpret_cast<Eight<Accumulator<Sums>>*>(to + first(chunk)) = eight;
      } else {
#pragma unroll
        for (int i = 0; i < GROUP; ++i)
          if (first(chunk) + i < length) to[first(chunk) + i] = eight.values[i];
      }
    }
  }
};
template <typename J, int THREADS, int CHUNKS, int MODE, bool HOLDS>
using Slab = SlabOf<
    J, THREADS, CHUNKS, MODE, HOLDS, make_seq<operands_of<typename J::Rows>::elements>,
    reductions_of<typename J::Sums>>;

// MODE: WHOLE or UNIT. SMALL: bytes of shared memory for the rows of a block where several are to have room on a
// multiprocessor; LARGE: where two rows need more. MOST: rows at a time.
template <typename J, int THREADS, int CHUNKS, int MODE, bool HOLDS, int ROOM, int SMALL, int LARGE, int MOST>
__global__ void __launch_bounds__(THREADS, ROOM) slab(const __grid_constant__ SlabArgs<J> args) {
  extern __shared__ uint4 memory[];
  __shared__ alignas(16) u64 signals[MOST];
  __shared__ alignas(16) u32 skips[MOST][8];
  using S = Slab<J, THREADS, CHUNKS, MODE, HOLDS>;
  const RowSpace& rows = args.given.rows;
  const i64 each = slab_of(rows.rows), begin = blockIdx.x * each, end = min(begin + each, rows.rows);
  u8* const lines = reinterpret_cast<u8*>(memory) + (-u32(__cvta_generic_to_shared(memory)) & (SLAB_LINE - 1));
  S slab(args.given, lines);
  constexpr i32 STAGES = THREADS / 32 * S::STAGE;
  const i32 bytes = slab.slot_bytes();
  const i32 others = SLAB_LINE + STAGES + slab.column_bytes();
  const i32 slots = min(MOST, ((2 * bytes + others <= SMALL ? SMALL : LARGE) - others) / bytes);
  slab.stage = lines + slots * bytes + threadIdx.x / 32 * S::STAGE;
  slab.memory_of_columns = lines + slots * bytes + STAGES;
  slab.keep_columns();
  auto copy = [&](i64 row, i32 slot) {
    if (row < end) slab.copy(row, slot * bytes, RowSignal(&signals[slot]), skips[slot]);
  };
  if (threadIdx.x == 0) {
    for (i32 slot = 0; slot < slots; ++slot) RowSignal(&signals[slot]).begin();
    RowSignal::begun();
    for (i32 slot = 0; slot + 1 < slots; ++slot) copy(begin + slot, slot);
  }
  __syncthreads();
  i32 slot = 0, before = slots - 1;  // where the row lies, and the one before it did
  u32 parity = 0;
#pragma unroll 1
  for (i64 row = begin; row < end; ++row) {
    RowSignal(&signals[slot]).wait(parity);
    slab.run(row, slot * bytes, skips[slot], [&] {
      if (threadIdx.x == 0) copy(row + slots - 1, before);
    });
    before = slot;
    if (++slot == slots) slot = 0, parity ^= 1;
  }
  let_next_begin();
  slab.keep_sums(args.accumulators + blockIdx.x * rows.length);
}
