// The kernel of rows and of sums across them: a block goes down a slab of rows, which it has copied to shared memory
// some rows ahead, reads each once, writes what is made of it, and adds what goes into the sums in registers. A slab's
// sums are one row of the workspace; `finish` joins these.
#pragma once
#include "cluster.cuh"
#include "row_args.cuh"
#include "slabs.cuh"
#include "split_group.cuh"

// J: Rows, the program of the rows; Sums, that of the sums, whose elements it makes of an element and of what its row
// shares.
template <typename J> struct SlabArgs {
  RowArgs<typename J::Rows> given;
  Accumulator<typename J::Sums>* accumulators;
};

// Integers are stored as codes.
template <typename E, typename V> struct slab_code { using type = V; };
template <typename E> struct slab_code<E, i64> { using type = code_t<E>; };

// A reduction of a pass over a row of THREADS threads, and its room in shared memory: rows take turns.
template <typename P, typename Pass, int I, int THREADS, bool REDUCES = type_at<typename Pass::Makes, I>::reduces>
struct SlabReducer {
  using Make = type_at<typename Pass::Makes, I>;
  using How = typename Make::How;
  using V = state_t<How, typename Make::Value>;
  using Shared = typename P::Shared;
  static constexpr int WARPS = THREADS / 32;
  struct alignas(16) Scratch { V of[2][WARPS]; };
  Partial<How, V, THREADS> partial;
  V group[GROUP];

  static __device__ void begin(Shared& shared) {
    if constexpr (Make::finite != nullptr) shared.*Make::finite = true;
  }
  __device__ void set(int lane, typename Make::Value value, i32 first) { group[lane] = state_of<How>(value, first + lane); }
  template <bool WHOLE_ROWS> __device__ void add(i32 left) {
    if constexpr (WHOLE_ROWS) partial.add(group);
    else partial.add(group, 0, left);
  }
  __device__ void send(Shared& shared, Scratch& scratch, int turn) const {
    if constexpr (Make::finite != nullptr) shared.*Make::finite &= partial.finite;
    const V value = Partial<How, V, THREADS>::template across<32>(partial.accumulator);
    if (threadIdx.x % 32 == 0) scratch.of[turn][threadIdx.x / 32] = value;
  }
  static __device__ void receive(Shared& shared, const Scratch& scratch, int turn) {
    V value;
    if constexpr (WARPS <= 8 && sizeof(V) <= 8) {
      V each[WARPS];
#pragma unroll
      for (int i = 0; i < WARPS; ++i) each[i] = scratch.of[turn][i];
#pragma unroll
      for (int apart = 1; apart < WARPS; apart *= 2)
#pragma unroll
        for (int i = 0; i < WARPS; i += 2 * apart) each[i] = How::of(each[i], each[i + apart]);
      value = each[0];
    } else {
      using All = Partial<How, V, THREADS>;
      value = All::template across<direction<How> != 0 ? 32 : WARPS>(scratch.of[turn][threadIdx.x % WARPS]);
    }
    shared.*Make::member = result_of(value);
  }
};
// An output that an earlier pass knows too: the last one stores it.
template <typename P, typename Pass, int I, int THREADS> struct SlabReducer<P, Pass, I, THREADS, false> {
  struct Scratch {};
  static __device__ void begin(typename P::Shared&) {}
  template <typename V> __device__ void set(int, V, i32) {}
  template <bool WHOLE_ROWS> __device__ void add(i32) {}
  __device__ void send(typename P::Shared&, Scratch&, int) const {}
  static __device__ void receive(typename P::Shared&, const Scratch&, int) {}
};

// Where the words of an input's shares lie in a warp's part of shared memory: lanes copy neighbouring words, and those
// that read their own shares meet in no bank. Where rows start at any element, a warp has one word more.
template <typename E> struct SlabWords {
  using V = Lanes<E, GROUP>;
  static constexpr int width = sizeof(V) < 16 ? int(sizeof(V)) : 16, words = int(sizeof(V)) / width;
  using W = typename word<width>::type;
  static __device__ i32 at(i32 word) { return (word ^ (word >> 3 & (words - 1))) * width; }
};
constexpr int SLAB_WARP = 32 * GROUP;  // elements of a row that a warp takes at once

// The bytes of a word that a row has, where the others may be no operand's.
template <typename E> __device__ __noinline__ void copy_units(u8* to, const u8* from, i32 width, const u8* begin, const u8* end) {
  using S = storage_t<E>;
  for (i32 i = 0; i < width; i += int(sizeof(S)))
    if (from + i >= begin && from + i < end) *reinterpret_cast<S*>(to + i) = *reinterpret_cast<const S*>(from + i);
}

// A thread of a block on its way down a slab. N: inputs with elements along the row; R: sums.
template <typename J, int THREADS, int CHUNKS, int MODE, typename N, typename R> struct SlabOf;
template <typename J, int THREADS, int CHUNKS, int MODE, int... N, int... R>
struct SlabOf<J, THREADS, CHUNKS, MODE, Seq<N...>, Seq<R...>> {
  using P = typename J::Rows;
  using Sums = typename J::Sums;
  using Operands = operands_of<P>;
  using Shared = typename P::Shared;
  using Across = typename Sums::SplitPass;
  using Last = type_at<typename P::Passes, P::Passes::size - 1>;
  using Shares = Tuple<Lanes<element_in<P, N>, GROUP>...>;
  static constexpr int ARRAYS = Operands::arrays;
  static constexpr u32 ALL = (1u << Operands::elements) - 1, INPUTS = (1u << ARRAYS) - 1;
  // Whether a thread holds its shares of columns.
  static constexpr bool HOLDS = CHUNKS * GROUP * Operands::column_bits / 32 <= 16;
  template <int K> using Words = SlabWords<element_in<P, K>>;
  template <int I> using How = typename reduction_at<Sums, I>::How;
  template <int> using u32_of = u32;
  template <typename V> struct Each { V of[CHUNKS][GROUP]; };
  template <typename E> struct Columns { Lanes<E, GROUP> of[HOLDS ? CHUNKS : 1]; };
  // Bytes of a warp's piece of an input, and of the inputs before one.
  template <int K> static constexpr int piece_bytes =
      SLAB_WARP / 8 * storage<element_in<P, K>>::bits + (MODE == UNIT ? 16 : 0);
  template <int K> static constexpr int bytes_before = ((N < K ? piece_bytes<N> : 0) + ... + 0);

  const RowArgs<P>& args;
  u8* const memory;
  const i32 length, pieces, lane, warp;  // pieces: those of warps that a row has
  const Across across;
  TupleOf<Seq<R...>, Each<state_of_reduction<reduction_at<Sums, R>>>...> sums;
  Tuple<Columns<element_in<P, N>>...> columns;
  TupleOf<Seq<N...>, u32_of<N>...> skip;  // bytes of the aligned words before a row's first element

  __device__ SlabOf(const RowArgs<P>& args, u8* memory)
      : args(args), memory(memory), length(i32(args.rows.length)), pieces((length + SLAB_WARP - 1) / SLAB_WARP),
        lane(threadIdx.x % 32), warp(threadIdx.x / 32),
        across(pass_for<Across>(typename Sums::Shared{typename Sums::C(args.rows.rows)})) {
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
#pragma unroll
      for (int i = 0; i < GROUP; ++i) ((get<R>(sums).of[chunk][i] = How<R>::template nothing<state_of_reduction<reduction_at<Sums, R>>>()), ...);
      if constexpr (HOLDS)
        if (first(chunk) < length) (hold<N>(chunk), ...);
    }
  }
  __device__ i32 slot_bytes() const { return pieces * bytes_before<ARRAYS>; }
  __device__ i32 warp_first(int chunk) const { return (chunk * THREADS + warp * 32) * GROUP; }
  __device__ i32 first(int chunk) const { return (chunk * THREADS + i32(threadIdx.x)) * GROUP; }
  template <int K> __device__ Lanes<element_in<P, K>, GROUP> column(int chunk) const {
    const auto* const array = args.template elements<K>().array;
    if constexpr (MODE == WHOLE) return ::load<true, element_in<P, K>, GROUP>(array, first(chunk), length);
    else return load_some<false, element_in<P, K>, GROUP>(array, first(chunk), length);
  }
  template <int K> __device__ void hold(int chunk) {
    if constexpr (K >= ARRAYS) get<K>(columns).of[chunk] = column<K>(chunk);
  }
  // An input's part of a slot, from a warp's chunk on.
  template <int K> __device__ u8* part(i32 slot, int chunk) const {
    return memory + slot + pieces * bytes_before<K> + (chunk * (THREADS / 32) + warp) * piece_bytes<K>;
  }

  // Copies a row into a slot, without waiting for it.
  __device__ void copy(i64 row, i32 slot) const {
    const RowSpace::Position position = args.rows.position(row);
    (copy_input<N>(position, slot), ...);
  }
  template <int K> __device__ void copy_input(const RowSpace::Position& position, i32 slot) const {
    if constexpr (K < ARRAYS) {
      using E = element_in<P, K>;
      using Words = SlabWords<E>;
      const auto& input = args.template elements<K>();
      const auto* const row = row_of<E>(input.array, args.rows, position, input.strides);
#pragma unroll
      for (int chunk = 0; chunk < CHUNKS; ++chunk) {
        const i32 begin = warp_first(chunk);
        if (begin >= length) break;
        const u8* const from = reinterpret_cast<const u8*>(at<E>(row, begin));
        if constexpr (MODE == UNIT) {
          copy_around<K>(from, input, min(length - begin, SLAB_WARP), part<K>(slot, chunk));
        } else {
#pragma unroll
          for (int i = 0; i < Words::words; ++i) {
            const i32 word = i * 32 + lane;
            if (begin + word / Words::words * GROUP < length)
              copy_async<Words::width>(part<K>(slot, chunk) + Words::at(word), from + word * Words::width);
          }
        }
      }
    }
  }

  // The aligned words around a warp's piece.
  template <int K, typename Input> __device__ void copy_around(const u8* piece, const Input& input, i32 count, u8* to) const {
    using Words = SlabWords<element_in<P, K>>;
    constexpr int width = Words::width, share = int(sizeof(Lanes<element_in<P, K>, GROUP>));
    const u8* const start = piece - (u64(piece) & (width - 1));
    const u8* const end = piece + count * int(sizeof(storage_t<element_in<P, K>>));
    const u8* const low = reinterpret_cast<const u8*>(input.array) + input.span.low;
    const u8* const high = low + (input.span.size > 0 ? input.span.size - 1 + share + width : 0);
#pragma unroll
    for (int i = 0; i <= Words::words; ++i) {
      const i32 word = i * 32 + lane;
      const u8* const from = start + word * width;
      if ((i == Words::words && lane > 0) || from >= end) break;
      if (__builtin_expect(from >= low && from + width <= high, 1)) copy_async<width>(to + Words::at(word), from);
      else copy_units<element_in<P, K>>(to + Words::at(word), from, width, piece, end);
    }
  }

  // A thread's shares of a chunk, as far as they are read. `row`: where it begins in an input.
  template <u32 READS> __device__ Shares shares(i32 slot, int chunk) const {
    Shares found;
    (read<READS, N>(get<N>(found), slot, chunk), ...);
    return found;
  }
  template <u32 READS, int K> __device__ void read(Lanes<element_in<P, K>, GROUP>& lanes, i32 slot, int chunk) const {
    if constexpr ((READS >> K & 1) == 0) {
    } else if constexpr (K < ARRAYS) {
      using Words = SlabWords<element_in<P, K>>;
      using W = typename Words::W;
      const u8* const from = part<K>(slot, chunk);
      if constexpr (MODE == UNIT) {
        constexpr int width = Words::width;
        alignas(16) u32 around[(Words::words + 1) * width / 4];
#pragma unroll
        for (int i = 0; i <= Words::words; ++i)
          reinterpret_cast<W*>(around)[i] = *reinterpret_cast<const W*>(from + Words::at(lane * Words::words + i));
        shifted<ANY_WORD, int(sizeof(lanes)) / 4, width, int(sizeof(storage_t<element_in<P, K>>))>(
            reinterpret_cast<u32*>(lanes.data), around, get<K>(skip));
      } else {
#pragma unroll
        for (int i = 0; i < Words::words; ++i)
          reinterpret_cast<W*>(lanes.data)[i] = *reinterpret_cast<const W*>(from + Words::at(lane * Words::words + i));
      }
    } else if constexpr (HOLDS) {
      lanes = get<K>(columns).of[chunk];
    } else {
      lanes = column<K>(chunk);
    }
  }

  // A pass that makes reductions.
  template <typename Pass, int... I> __device__ void reduce(Shared& shared, i32 slot, int turn, Seq<I...>) const {
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

  // Stores a share of an output. Where lanes' own shares would leave gaps in a warp's store, they go through what the
  // warp has of an input.
  template <int I> __device__ void store(const RowSpace::Position& position, const Output<I>& made, i32 slot, int chunk) const {
    constexpr int O = type_at<typename Last::Makes, I>::output;
    using E = element_out<P, O>;
    using Words = SlabWords<E>;
    using W = typename Words::W;
    const auto& output = args.template output<O>();
    auto* const row = row_of<E>(output.array, args.rows, position, output.strides);
    Lanes<E, GROUP> lanes = {};
    set_all(lanes, made.of);
    if constexpr (MODE == UNIT && sizeof(lanes) <= sizeof(Lanes<element_in<P, 0>, GROUP>)) {
      const Stretch<E, 32, 1> stretch{part<0>(slot, chunk)};
      __syncwarp();
      stretch.put(lane, 0, lanes, GROUP);
      stretch.template store<false>(at<E>(row, warp_first(chunk)), min(length - warp_first(chunk), SLAB_WARP), lane);
    } else if constexpr (Words::words > 1 && sizeof(lanes) <= sizeof(Lanes<element_in<P, 0>, GROUP>)) {
      u8* const own = part<0>(slot, chunk);
      __syncwarp();
#pragma unroll
      for (int i = 0; i < Words::words; ++i)
        *reinterpret_cast<W*>(own + Words::at(lane * Words::words + i)) = reinterpret_cast<const W*>(lanes.data)[i];
      __syncwarp();
      const i32 begin = warp_first(chunk);
      u8* const to = reinterpret_cast<u8*>(at<E>(row, begin));
#pragma unroll
      for (int i = 0; i < Words::words; ++i) {
        const i32 word = i * 32 + lane;
        if (begin + word / Words::words * GROUP < length)
          *reinterpret_cast<W*>(to + word * Words::width) = *reinterpret_cast<const W*>(own + Words::at(word));
      }
    } else if (first(chunk) < length) {
      keep<MODE, E>(row, first(chunk), length, output.steps, lanes);
    }
  }

  // The last pass: outputs, and what goes into the sums.
  template <int... I> __device__ void make(const RowSpace::Position& position, const Shared& shared, i32 slot, Seq<I...>) {
    const Last pass = pass_for<Last>(shared);
    constexpr u32 READS = Last::READS | INPUTS;
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
      (store<I>(position, get<I>(outputs), slot, chunk), ...);
    }
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

  template <int... I> __device__ void reduce_all(Shared& shared, i32 slot, int turn, Seq<I...>) const {
    (reduce<type_at<typename P::Passes, I>>(
         shared, slot, turn, typename type_at<typename P::Passes, I>::Makes::Index()),
     ...);
  }
  template <int K> __device__ void find_skip(const RowSpace::Position& position) {
    if constexpr (K < ARRAYS) {
      using E = element_in<P, K>;
      const auto& input = args.template elements<K>();
      get<K>(skip) = u32(u64(row_of<E>(input.array, args.rows, position, input.strides))) & (SlabWords<E>::width - 1);
    }
  }
  __device__ void run(i64 row, i32 slot, int turn) {
    const RowSpace::Position position = args.rows.position(row);
    if constexpr (MODE == UNIT) (find_skip<N>(position), ...);
    Shared shared = shared_at_start<P>(args, position, typename P::C(length));
    reduce_all(shared, slot, turn, make_seq<P::Passes::size - 1>());
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
template <typename J, int THREADS, int CHUNKS, int MODE>
using Slab = SlabOf<
    J, THREADS, CHUNKS, MODE, make_seq<operands_of<typename J::Rows>::elements>, reductions_of<typename J::Sums>>;

// MODE: WHOLE or UNIT. SMALL: bytes of shared memory for the rows of a block where several are to have room on a
// multiprocessor; LARGE: where two rows need more. MOST: rows at a time.
template <typename J, int THREADS, int CHUNKS, int MODE, int ROOM, int SMALL, int LARGE, int MOST>
__global__ void __launch_bounds__(THREADS, ROOM) slab(const __grid_constant__ SlabArgs<J> args) {
  extern __shared__ uint4 memory[];
  const RowSpace& rows = args.given.rows;
  const i64 each = slab_of(rows.rows), begin = blockIdx.x * each, end = min(begin + each, rows.rows);
  Slab<J, THREADS, CHUNKS, MODE> slab(args.given, reinterpret_cast<u8*>(memory));
  const i32 bytes = slab.slot_bytes(), slots = min(MOST, (2 * bytes <= SMALL ? SMALL : LARGE) / bytes);
  i64 ahead = begin;
  i32 to = 0, from = 0;
#pragma unroll 1
  for (; ahead < begin + slots - 1; ++ahead, to += bytes) {
    if (ahead < end) slab.copy(ahead, to);
    commit_copies();
  }
#pragma unroll 1
  for (i64 row = begin; row < end; ++row, ++ahead) {
    __syncwarp();  // lanes copy for each other where the row before lay
    if (ahead < end) slab.copy(ahead, to);
    commit_copies();
    wait_for_copies(slots - 1);
    slab.run(row, from, int(row & 1));
    to = from;
    from = from + bytes == slots * bytes ? 0 : from + bytes;
  }
  let_next_begin();
  slab.keep_sums(args.accumulators + blockIdx.x * rows.length);
}
