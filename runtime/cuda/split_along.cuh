// A split reduction by threads along a row: each takes some of the row's accumulators, and all groups dealt to them.
// MODE: how the elements of rows lie.
#pragma once
#include "split_group.cuh"
#include "split_tuning.cuh"

// The split of a row that a block has, and what a thread takes of it. Of few rows, each warp takes a turn of the same
// 32 accumulators (`dealt`).
struct SplitAlong {
  i64 row, number, begin;  // begin: of the split's segment
  i32 size;                // elements of the segment
  i32 turns, apart;        // a thread's groups, and how far they lie from each other
  i32 own;                 // where the first of them begins in the segment
  bool dealt;

  __device__ SplitAlong(const Reduction& rows, i64 block) {
    row = rows.splits(block);
    const i32 span = i32(rows.accumulators >> rows.cut);
    const auto at = rows.split(i32(block - row * rows.splits.divisor), span);
    number = at.number, begin = at.begin;
    dealt = i32(blockDim.x) > span;
    size = i32(at.end - at.begin);
    turns = dealt ? 1 : i32(rows.turns);
    const i32 accumulators = i32(rows.accumulators);
    apart = dealt ? SEGMENT : accumulators * GROUP;
    own = (at.accumulator + i32(dealt ? threadIdx.x % 32 + threadIdx.x / 32 * accumulators : threadIdx.x)) * GROUP;
  }
};

// An input along a row. What all rows share need not be neighbours.
template <typename P, int N, int MODE> struct InputAlong {
  using E = element_in<P, N>;
  static constexpr int mode = N < operands_of<P>::arrays ? MODE : STEPPED;
  template <int TURNS> struct Groups { Lanes<E, GROUP> of[TURNS]; };
  const storage_t<E>* row;

  __device__ InputAlong(const ReduceArgs<P>& args, i64 at) {
    const auto& input = args.template elements<N>();
    row = input.array + args.rows.row_offset(at, input.reach.kept);
  }
  template <int TURNS>
  __device__ void load(Groups<TURNS>& groups, const ReduceArgs<P>& args, SplitAlong split, i32 start) const {
    const auto& input = args.template elements<N>();
    split_shares<mode, E, TURNS, SplitTraits<P>::once>(
        groups.of, row, split.begin, start, split.apart, split.size, args.rows, input.reach, input.array);
  }
};

// An output along a row. From any element on, a warp writes a stretch of the row in whole words; in pieces, neighbours.
template <typename P, int S, int MODE> struct OutputAlong {
  using E = stored_element<P, S>;
  using Memory = Stretch<E, 32, 1>;
  static constexpr int bytes = MODE == UNIT ? 8 * Memory::bytes : 0;  // of shared memory
  storage_t<E>* row;
  Memory stretch;

  __device__ OutputAlong(const ReduceArgs<P>& args, i64 at, u8* memory)
      : stretch{memory + (MODE == UNIT ? threadIdx.x / 32 * Memory::bytes : 0)} {
    const auto& output = args.template output<stored_output<P, S>>();
    row = output.array + args.rows.row_offset(at, output.reach.kept);
  }
  __device__ void store(const ReduceArgs<P>& args, const Lanes<E, GROUP>& lanes, i64 first, i32 left) const {
    if constexpr (MODE == UNIT) {
      const int lane = threadIdx.x % 32;
      stretch.put(lane, 0, lanes, left);
      stretch.template store<false>(row + first - lane * GROUP, min(left + lane * GROUP, 32 * GROUP), lane);
      Memory::wait();
    } else {
      const Reach& reach = args.template output<stored_output<P, S>>().reach;
      if constexpr (MODE == STEPPED) {
        if (args.rows.are_two(args.rows.along, args.rows.length)) {
          const i32 before = i32(threadIdx.x % 32) * GROUP;
          return keep_shares_in_pieces<E>(row, i32(first) - before, min(left + before, 32 * GROUP), args.rows, reach, lanes);
        }
      }
      if (left > 0) keep_share<MODE, E>(row, first, args.rows, reach, lanes);
    }
  }
};

// All inputs and outputs of a thread, and the groups of them that it works on.
template <typename P, int MODE, typename N, typename S> struct OperandsAlongOf;
template <typename P, int MODE, int... N, int... S> struct OperandsAlongOf<P, MODE, Seq<N...>, Seq<S...>> {
  static constexpr int TURNS = turns_along<P, MODE>();
  using Groups = Tuple<typename InputAlong<P, N, MODE>::template Groups<TURNS>...>;
  using Stored = Tuple<Lanes<stored_element<P, S>, GROUP>...>;
  static constexpr int bytes = (OutputAlong<P, S, MODE>::bytes + ... + 0);
  Tuple<InputAlong<P, N, MODE>...> inputs;
  Tuple<OutputAlong<P, S, MODE>...> outputs;

  __device__ OperandsAlongOf(const ReduceArgs<P>& args, i64 row, u8* memory)
      : inputs{InputAlong<P, N, MODE>(args, row)...},
        outputs{OutputAlong<P, S, MODE>(args, row, memory + before<S>())...} {}

  __device__ void load(Groups& groups, const ReduceArgs<P>& args, SplitAlong split, i32 start) const {
    (get<N>(inputs).load(get<N>(groups), args, split, start), ...);
  }
  __device__ void store(const ReduceArgs<P>& args, const Stored& stored, i64 first, i32 left) const {
    (get<S>(outputs).store(args, get<S>(stored), first, left), ...);
  }

  // One of the groups, as take_group has it.
  struct Group {
    const Groups& groups;
    Stored& stored;
    int turn;
    __device__ typename P::Element element(int i) const {
      return {formula_t<typename P::C, element_in<P, N>>(get<N>(groups).of[turn].get(i))...};
    }
    template <int I, typename V> __device__ void set(int i, V value) const { get<I>(stored).set(i, value); }
  };

 private:
  // Shared memory of the outputs before one.
  template <int I> static __device__ constexpr int before() {
    return ((S < I ? OutputAlong<P, S, MODE>::bytes : 0) + ... + 0);
  }
};
template <typename P, int MODE>
using OperandsAlong = OperandsAlongOf<P, MODE, make_seq<operands_of<P>::elements>, stores_of<P>>;

// The reductions as extremes of inputs as they are stored, where they are all that, and of such a type.
template <typename P, int X> using extreme_at = type_at<typename P::Extremes, X>;
template <typename P, int X>
using extremes_of = Extremes<typename extreme_at<P, X>::How, element_in<P, extreme_at<P, X>::raw>>;
template <typename P, int... X> __device__ constexpr bool has_extremes(Seq<X...>) {
  return sizeof...(X) > 0 && (extremes_of<P, X>::can && ...);
}
// The one whose index is sought in a second step.
template <typename P> __device__ constexpr bool seeks_index() {
  if constexpr (P::Extremes::size == 1)
    return sought<typename extreme_at<P, 0>::How, element_in<P, extreme_at<P, 0>::raw>>;
  else return false;
}

// The extremes of all groups that a thread has loaded.
template <typename P, typename S> struct FoundExtremesOf;
template <typename P, int... X> struct FoundExtremesOf<P, Seq<X...>> {
  Tuple<extremes_of<P, X>...> found;

  template <int MODE, typename Groups>
  __device__ void add(const Groups& groups, const SplitAlong& split, i32 start) {
#pragma unroll
    for (int t = 0; t < turns_along<P, MODE>(); ++t) {
      const i32 left = split.size - start - t * split.apart;
      if (left <= 0) break;
      (get<X>(found).add(
           MODE == WHOLE ? get<extreme_at<P, X>::raw>(groups).of[t]
                         : repeated(get<extreme_at<P, X>::raw>(groups).of[t], left)),
       ...);
    }
  }
  // Whether they are what is wanted: not where some element is not finite and that matters.
  __device__ bool known() const { return (get<X>(found).known() && ...); }
  __device__ void take(Accumulator<P>& total) const {
    ((total.StateSlot<P, X>::value = extreme_at<P, X>::Joined::of(total.StateSlot<P, X>::value, get<X>(found).value())),
     ...);
  }
};
template <typename P> using FoundExtremes = FoundExtremesOf<P, typename P::Extremes::Index>;

// Takes the groups that a thread has loaded.
template <typename P, int MODE>
__device__ inline void take_groups(
    Accumulator<P> (&total)[1], const ReduceArgs<P>& args, const typename P::SplitPass (&pass)[1],
    const OperandsAlong<P, MODE>& operands, const typename OperandsAlong<P, MODE>::Groups& groups,
    const SplitAlong& split, i32 start) {
  using Operands = OperandsAlong<P, MODE>;
  constexpr bool STRETCHES = SplitTraits<P>::stores && MODE != WHOLE;
#pragma unroll
  for (int t = 0; t < Operands::TURNS; ++t) {
    const i32 left = split.size - start - t * split.apart;
    if (left + (STRETCHES ? i32(threadIdx.x % 32) * GROUP : 0) <= 0) break;  // of a stretch, all of a warp write
    const i32 exist = min(left, GROUP);
    const i64 first = split.begin + start + t * split.apart;
    typename Operands::Stored stored = {};
    const auto group_of = [&](int) { return typename Operands::Group{groups, stored, t}; };
    if (!STRETCHES || left > 0)
      take_group<P, false>(
          total, pass, group_of, MODE == WHOLE || exist == GROUP, exist, first, reductions_of<P>());
    operands.store(args, stored, first, left);
  }
}

// The extreme's index in a block's split, in the thread that this is told.
template <typename P, int MODE>
__device__ inline bool seek_extreme(
    Accumulator<P>& total, const ReduceArgs<P>& args, const OperandsAlong<P, MODE>& operands, const SplitAlong& split,
    void* scratch) {
  constexpr int raw = extreme_at<P, 0>::raw;
  const auto& input = args.template elements<raw>();
  using How = typename extreme_at<P, 0>::How;
  return seek_in_split<How, MODE, element_in<P, raw>, turns_along<P, MODE>(), SplitTraits<P>::once>(
      get<0>(total), get<raw>(operands.inputs).row, split.begin, split.own, split.apart, split.size, split.turns,
      args.rows,
      input.reach, input.array, reinterpret_cast<u32*>(scratch));
}

template <typename P, int MODE>
__global__ void __launch_bounds__(SPLIT_THREADS, blocks_along<P, MODE>())
    along(const __grid_constant__ ReduceArgs<P> args) {
  using Operands = OperandsAlong<P, MODE>;
  __shared__ Accumulator<P> scratch[SPLIT_THREADS];
  __shared__ alignas(16) u8 stretches[Operands::bytes > 0 ? Operands::bytes : 16];
  let_next_begin();  // the kernel that joins is small: its blocks wait where the last ones of this one leave room
  wait_for_earlier();
  // An odd stage starts from the end: what it reads last, the start, is what the next one finds in the L2 cache.
  const i64 last = args.rows.rows * args.rows.splits.divisor - 1;
  const SplitAlong split(args.rows, P::STAGE % 2 ? last - blockIdx.x : blockIdx.x);
  const Operands operands(args, split.row, stretches);
  const typename P::SplitPass pass[1] = {Given<P>(args).pass(args, split.row)};
  Accumulator<P> total[1] = {Accumulator<P>::nothing()};
  bool has_total = threadIdx.x == 0;
  if constexpr (seeks_index<P>()) {
    has_total = seek_extreme<P, MODE>(total[0], args, operands, split, scratch);
  } else {
#pragma unroll 1
    for (i32 turn = 0; turn < split.turns; turn += Operands::TURNS) {
      const i32 start = turn * split.apart + split.own;
      typename Operands::Groups groups;
      operands.load(groups, args, split, start);
      if constexpr (has_extremes<P>(typename P::Extremes::Index())) {
        FoundExtremes<P> found;
        found.template add<MODE>(groups, split, start);
        if (__builtin_expect(found.known(), 1)) {
          found.take(total[0]);
          continue;
        }
      }
      take_groups<P, MODE>(total, args, pass, operands, groups, split, start);
    }
    join_accumulators(total, split.dealt, scratch);
  }
  if (has_total)
    keep_total<P>(args, split.row, split.number, seeks_index<P>() ? total[0] : joined<8>(scratch, 1, 0, blockDim.x));
}
