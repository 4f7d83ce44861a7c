// What the kernels of a split reduction take, and how they make a row's own outputs. Several blocks reduce a row, each
// a split of it to an accumulator; a second kernel joins these. P::SplitPass is the program's one pass over a row.
#pragma once
#include "split_joins.cuh"
#include "row_args.cuh"

// The reductions of a pass, which are the first of what it makes; outputs with an element for each of a row's follow.
template <typename Makes> struct MadeOf;
template <typename... M> struct MadeOf<List<M...>> {
  static constexpr int reductions = (int(M::reduces) + ... + 0), stores = sizeof...(M) - reductions;
};
template <typename P> using made_of = MadeOf<typename P::SplitPass::Makes>;
template <typename P> using reductions_of = make_seq<made_of<P>::reductions>;
template <typename P> using stores_of = make_seq<made_of<P>::stores>;
template <typename P, int R> using reduction_at = type_at<typename P::SplitPass::Makes, R>;
template <typename P, int S>
constexpr int stored_output = type_at<typename P::SplitPass::Makes, made_of<P>::reductions + S>::output;
template <typename P, int S> using stored_element = element_out<P, stored_output<P, S>>;

// What elements of a row come to: the state of each reduction.
template <typename R> using state_of_reduction = state_t<typename R::How, typename R::Value>;
template <typename P, int R> using StateSlot = Slot<R, state_of_reduction<reduction_at<P, R>>>;
template <typename P, typename S> struct AccumulatorOf;
template <typename P, int... R> struct AccumulatorOf<P, Seq<R...>> : StateSlot<P, R>... {
  template <int I> using How = typename reduction_at<P, I>::How;
  template <int I> using State = state_of_reduction<reduction_at<P, I>>;

  // That of no elements, to join others with; and that of a row without elements.
  static __device__ AccumulatorOf nothing() { return {{How<R>::template nothing<State<R>>()}...}; }
  static __device__ AccumulatorOf empty() { return {{How<R>::template empty<State<R>>()}...}; }
  __device__ void clear() { ((this->StateSlot<P, R>::value = How<R>::template nothing<State<R>>()), ...); }
  // Members, not `get`: what compilers make of a call here is not the same code.
  static __device__ AccumulatorOf of(const AccumulatorOf& a, const AccumulatorOf& b) {
    return {{How<R>::of(a.StateSlot<P, R>::value, b.StateSlot<P, R>::value)}...};
  }
  // That of the thread whose lane differs in a bit.
  __device__ AccumulatorOf beside(int bit) const { return {{::beside(this->StateSlot<P, R>::value, bit)}...}; }
};
template <typename P> using Accumulator = AccumulatorOf<P, reductions_of<P>>;

// The arguments: inputs, attributes, outputs; of a split reduction, then the workspace of the accumulators.
template <typename E> struct SplitInput {
  const storage_t<E>* array;
  Reach reach;
};
template <typename E> struct SplitOutput {
  storage_t<E>* array;
  Reach reach;
};
template <typename Role> struct SplitRole {
  using Input = SplitInput<typename Role::element>;
  using Output = SplitOutput<typename Role::element>;
};
template <typename E> struct SplitRole<ScalarOf<E>> { using Input = Scalar<E>; };
template <typename Inputs, typename Attributes, typename Outputs> struct SplitOperands;
template <typename... I, typename... A, typename... O> struct SplitOperands<List<I...>, List<A...>, List<O...>> {
  using Args = Tuple<typename SplitRole<I>::Input..., A..., typename SplitRole<O>::Output...>;
};
template <typename P> struct SplitArgs {
  using Operands = operands_of<P>;
  Reduction rows;
  typename SplitOperands<typename P::Inputs, typename P::Attributes, typename P::Outputs>::Args operands;

  template <int I> __device__ const auto& input() const { return get<I>(operands); }
  template <int I> __device__ const auto& attribute() const { return get<Operands::inputs + I>(operands); }
  template <int I> __device__ const auto& output() const {
    return get<Operands::inputs + Operands::attributes + I>(operands);
  }
  // The n-th input with elements along a row: a member of P::Element.
  template <int N> __device__ const auto& elements() const { return input<Operands::with_elements(N)>(); }
};
template <typename P> struct ReduceArgs : SplitArgs<P> { Accumulator<P>* accumulators; };

// What all rows share before the first pass: their count, scalars and attributes. They are read once for the rows of a
// thread; `of_row` adds what a row has one of.
template <typename P, typename Seq> struct GivenOf;
template <typename P, int... S, int... A, int... R> struct GivenOf<P, List<Seq<S...>, Seq<A...>, Seq<R...>>> {
  using C = typename P::C;
  using Operands = operands_of<P>;
  static constexpr int first_scalar = Operands::inputs - Operands::scalars;
  template <int I> using input_t = formula_t<typename P::C, typename type_at<typename P::Inputs, I>::element>;
  template <int I> using attribute_t = formula_t<typename P::C, type_at<typename P::Attributes, I>>;

  C count;
  Tuple<input_t<first_scalar + S>...> scalars;
  Tuple<attribute_t<A>...> attributes;

  __device__ explicit GivenOf(const SplitArgs<P>& args)
      : count(C(args.rows.length)),
        scalars{input_t<first_scalar + S>(args.template input<first_scalar + S>().value())...},
        attributes{attribute_t<A>(args.template attribute<A>())...} {}

  // Row: its number, or a TableColumn.
  template <int I, typename Row> static __device__ input_t<I> of_input(const SplitArgs<P>& args, const Row& row) {
    const auto& input = args.template input<I>();
    return input_t<I>(::widen(fetch(input.array + args.rows.row_offset(row, input.reach.kept))));
  }
  template <typename Row> __device__ typename P::Shared of_row(const SplitArgs<P>& args, const Row& row) const {
    return {count, of_input<Operands::of_each_row(R)>(args, row)..., get<S>(scalars)..., get<A>(attributes)...};
  }
  // For the pass: what it does not take is not read, for compilers keep the loops that find where it lies.
  template <typename Q = P> __device__ typename Q::SplitPass pass(const SplitArgs<P>& args, i64 row) const {
    if constexpr (Q::SplitPass::PER_ROW) return pass_for<typename Q::SplitPass>(of_row(args, row));
    else
      return pass_for<typename Q::SplitPass>(
          typename P::Shared{count, input_t<Operands::of_each_row(R)>()..., get<S>(scalars)..., get<A>(attributes)...});
  }
};
template <typename P>
using Given = GivenOf<P, List<make_seq<operands_of<P>::scalars>, make_seq<operands_of<P>::attributes>,
                              make_seq<operands_of<P>::per_row>>>;

// The outputs that a row has one of.
template <typename P, int O, typename Row>
__device__ inline void store_output(const SplitArgs<P>& args, const Row& row, const typename P::Shared& shared) {
  using Role = RowRole<type_at<typename P::Outputs, O>>;
  const auto& output = args.template output<O>();
  if constexpr (Role::per_row)
    output.array[args.rows.row_offset(row, output.reach.kept)] =
        narrow_to<element_out<P, O>>::from(shared.*Role::member);
}
template <typename P, typename Row, int... R, int... O>
__device__ inline void finish_row(
    const ReduceArgs<P>& args, const Row& row, const Accumulator<P>& found, Seq<R...>, Seq<O...>) {
  typename P::Shared shared = Given<P>(args).of_row(args, row);
  ((shared.*reduction_at<P, R>::member = result_of(get<R>(found))), ...);
  P::finish(shared);
  (store_output<P, O>(args, row, shared), ...);
}
template <typename P, typename Row>
__device__ inline void finish_row(const ReduceArgs<P>& args, const Row& row, Accumulator<P> found) {
  if (args.rows.length == 0) found = Accumulator<P>::empty();
  finish_row<P>(args, row, found, reductions_of<P>(), typename P::Outputs::Index());
}

// The same of a thread's columns of a table, `step` apart, of which `count` exist: an output's neighbours are stored as
// a vector where they lie so.
template <typename P, int O, int LANES, bool STORED = RowRole<type_at<typename P::Outputs, O>>::per_row>
struct OutputColumns {
  using E = element_out<P, O>;
  Lanes<E, LANES> lanes;

  __device__ void set(int lane, const typename P::Shared& shared) {
    lanes.set(lane, shared.*RowRole<type_at<typename P::Outputs, O>>::member);
  }
  __device__ void store(const SplitArgs<P>& args, const TableColumn& first, i32 step, i32 count) const {
    const auto& output = args.template output<O>();
    const i64 apart = step * output.reach.kept.of[AXES - 1];
    storage_t<E>* const to = output.array + args.rows.row_offset(first, output.reach.kept);
    if (apart == 1 && count == LANES) return ::store<false>(to, 0, lanes);
#pragma unroll
    for (int lane = 0; lane < LANES; ++lane)
      if (lane < count) to[lane * apart] = lanes.data[lane];
  }
};
template <typename P, int O, int LANES> struct OutputColumns<P, O, LANES, false> {
  __device__ void set(int, const typename P::Shared&) {}
  __device__ void store(const SplitArgs<P>&, const TableColumn&, i32, i32) const {}
};
template <typename P, int LANES, int... R, int... O>
__device__ inline void finish_columns(
    const ReduceArgs<P>& args, const Given<P>& given, const TableColumn& first, const Accumulator<P> (&found)[LANES],
    i32 step, i32 count, Seq<R...>, Seq<O...>) {
  Tuple<OutputColumns<P, O, LANES>...> outputs;
#pragma unroll
  for (int lane = 0; lane < LANES; ++lane) {
    const Accumulator<P> own = args.rows.length == 0 ? Accumulator<P>::empty() : found[lane];
    typename P::Shared shared =
        given.of_row(args, TableColumn{first.table, first.column + min(lane, count - 1) * step});
    ((shared.*reduction_at<P, R>::member = result_of(get<R>(own))), ...);
    P::finish(shared);
    (get<O>(outputs).set(lane, shared), ...);
  }
  (get<O>(outputs).store(args, first, step, count), ...);
}
template <typename P, int LANES>
__device__ inline void finish_columns(
    const ReduceArgs<P>& args, const Given<P>& given, const TableColumn& first, const Accumulator<P> (&found)[LANES],
    i32 step, i32 count) {
  finish_columns<P>(args, given, first, found, step, count, reductions_of<P>(), typename P::Outputs::Index());
}

// What a block has made of its split of a row: the row's outputs, if that is all of it; else for the kernel that joins.
template <typename P, typename Row>
__device__ inline void keep_total(const ReduceArgs<P>& args, const Row& row, i64 split, const Accumulator<P>& total) {
  if (args.rows.splits.divisor == 1) finish_row<P>(args, row, total);
  else args.accumulators[split * args.rows.rows + args.rows.row_at(row)] = total;
}
