// Operands of row programs: what a kernel gets of each, and how the structs of a program are filled from it.
#pragma once
#include "program.cuh"
#include "row_moves.cuh"

// What a kernel gets of an operand, in slots of 8 bytes. Elements: an operand with elements along a row.
template <typename E> struct ElementsArgs {
  const storage_t<E>* array;
  Strides strides;
  Along steps;
  Span span;
};
template <typename E> struct ResultsArgs {
  storage_t<E>* array;
  Strides strides;
  Along steps;
};
template <typename A> struct PerRowArgs {
  A* array;
  Strides strides;
};

// What roles mean in a row program.
template <typename Role> struct RowRole;
template <typename E> struct RowRole<PerElement<E>> {
  static constexpr bool elements = true, column = false, run = false, per_row = false, scalar = false;
  using Input = ElementsArgs<E>;
  using Output = ResultsArgs<E>;
};
template <typename E> struct RowRole<PerColumn<E>> {
  static constexpr bool elements = true, column = true, run = false, per_row = false, scalar = false;
  using Input = ElementsArgs<E>;
};
template <typename E> struct RowRole<PerRun<E>> : RowRole<PerColumn<E>> {
  static constexpr bool run = true;
};
template <typename E, auto Member> struct RowRole<PerRow<E, Member>> {
  static constexpr bool elements = false, column = false, run = false, per_row = true, scalar = false;
  static constexpr auto member = Member;
  using Input = PerRowArgs<const storage_t<E>>;
  using Output = PerRowArgs<storage_t<E>>;
};
template <typename E> struct RowRole<ScalarOf<E>> {
  static constexpr bool elements = false, column = false, run = false, per_row = false, scalar = true;
  using Input = Scalar<E>;
};

template <typename Inputs, typename Attributes, typename Outputs> struct RowOperands;
template <typename... I, typename... A, typename... O> struct RowOperands<List<I...>, List<A...>, List<O...>> {
  static constexpr int inputs = sizeof...(I), attributes = sizeof...(A), outputs = sizeof...(O);
  static constexpr int elements = (RowRole<I>::elements + ... + 0);  // inputs with elements along a row
  static constexpr int columns = (RowRole<I>::column + ... + 0);     // the last ones of these, runs among them
  static constexpr int arrays = elements - columns;
  static constexpr int per_row = (RowRole<I>::per_row + ... + 0), scalars = (RowRole<I>::scalar + ... + 0);
  using Args = Tuple<typename RowRole<I>::Input..., A..., typename RowRole<O>::Output...>;

  // Bits of an element of all inputs with elements, or of all such outputs.
  static constexpr int array_bits =
      ((RowRole<I>::elements && !RowRole<I>::column ? storage<typename I::element>::bits : 0) + ... + 0);
  template <typename Role>  // whether whole shares of a column are read
  static constexpr bool is_read = RowRole<Role>::column && !RowRole<Role>::run && !IS_PLACE<typename Role::element>;
  static constexpr int column_bits = ((is_read<I> ? storage<typename I::element>::bits : 0) + ... + 0);
  static constexpr int columns_read = (int(is_read<I>) + ... + 0);
  static constexpr int result_bits = ((RowRole<O>::elements ? storage<typename O::element>::bits : 0) + ... + 0);

  // The index in Inputs of the n-th input with elements (a member of P::Element), and of the n-th of each row.
  static __device__ constexpr int with_elements(int n) {
    const bool wanted[] = {RowRole<I>::elements..., true};
    return nth(wanted, n);
  }
  static __device__ constexpr int of_each_row(int n) {
    const bool wanted[] = {RowRole<I>::per_row..., true};
    return nth(wanted, n);
  }

 private:
  static __device__ constexpr int nth(const bool* wanted, int n) {
    int i = 0;
    for (; !wanted[i] || n-- > 0; ++i) {}
    return i;
  }
};
template <typename P>
using operands_of = RowOperands<typename P::Inputs, typename P::Attributes, typename P::Outputs>;

// The arguments of kernels over rows: inputs, attributes, outputs. Of: what they are for each of these; Space: where
// rows lie.
template <typename P, typename Space, typename Of> struct RowArgsOf {
  using Operands = operands_of<P>;
  Space rows;
  Of operands;

  template <int I> __device__ const auto& input() const { return get<I>(operands); }
  template <int I> __device__ const auto& attribute() const { return get<Operands::inputs + I>(operands); }
  template <int I> __device__ const auto& output() const {
    return get<Operands::inputs + Operands::attributes + I>(operands);
  }
  // The n-th input with elements along a row: a member of P::Element.
  template <int N> __device__ const auto& elements() const { return input<Operands::with_elements(N)>(); }
};
template <typename P> struct RowArgs : RowArgsOf<P, RowSpace, typename operands_of<P>::Args> {};
// The element type of an input with elements along a row, and of an output.
template <typename P, int N>
using element_in = typename type_at<typename P::Inputs, operands_of<P>::with_elements(N)>::element;
template <typename P, int N>
constexpr bool is_run = RowRole<type_at<typename P::Inputs, operands_of<P>::with_elements(N)>>::run;
template <typename P, int I> using element_out = typename type_at<typename P::Outputs, I>::element;


// What the elements of a row share before the first pass. Its members begin with the count, operands of each row,
// scalars and attributes; what passes find comes later.
template <typename P, typename Args, int... R, int... S, int... A>
__device__ inline typename P::Shared shared_at_start(
    const Args& args, const RowSpace::Position& row, typename P::C count, Seq<R...>, Seq<S...>, Seq<A...>) {
  using Inputs = typename P::Inputs;
  using Operands = operands_of<P>;
  constexpr int scalars = Operands::inputs - Operands::scalars;
  return {
      count,
      formula_t<typename P::C, typename type_at<Inputs, Operands::of_each_row(R)>::element>(::widen(
          fetch(args.template input<Operands::of_each_row(R)>().array +
                args.rows.offset(row, args.template input<Operands::of_each_row(R)>().strides))))...,
      formula_t<typename P::C, typename type_at<Inputs, scalars + S>::element>(
          args.template input<scalars + S>().value())...,
      formula_t<typename P::C, type_at<typename P::Attributes, A>>(args.template attribute<A>())...};
}
template <typename P, typename Args>
__device__ inline typename P::Shared shared_at_start(
    const Args& args, const RowSpace::Position& row, typename P::C count) {
  using Operands = operands_of<P>;
  return shared_at_start<P>(
      args, row, count, make_seq<Operands::per_row>(), make_seq<Operands::scalars>(), make_seq<Operands::attributes>());
}

// What one element of a row tells: read before the first pass, and taken before the first one that knows of it, so that
// no pass before waits for it. N: inputs with elements.
template <typename P, typename Pick, typename N> struct PickedOf;
template <typename P, typename Pick, int... N> struct PickedOf<P, Pick, Seq<N...>> {
  template <int K> static constexpr bool reads = (Pick::READS >> K & 1) != 0;
  bool found;
  Tuple<storage_t<element_in<P, N>>...> of;

  // `start`: gives where the row begins in the input of an index.
  template <typename Args, typename Start>
  __device__ void read(const Args& args, const typename P::Shared& shared, i64 length, const Start& start) {
    const i64 index = Pick::index(shared);
    found = index >= 0 && index < length;
    (read_input<N>(args, index, start), ...);
  }
  template <int K, typename Args, typename Start>
  __device__ void read_input(const Args& args, i64 index, const Start& start) {
    if constexpr (reads<K>)
      if (found) get<K>(of) = fetch(start(Constant<K>()) + args.template elements<K>().steps.to(index));
  }
  template <int K> __device__ auto value() const {
    using V = formula_t<typename P::C, element_in<P, K>>;
    if constexpr (reads<K>) return V(::widen(get<K>(of)));
    else return V();
  }
  __device__ void take(typename P::Shared& shared) const { Pick::set(shared, {value<N>()...}, found); }
};
template <typename P, typename... Pick>
__device__ Tuple<PickedOf<P, Pick, make_seq<operands_of<P>::elements>>...> picked_of(List<Pick...>);
template <typename P> using Picked = decltype(picked_of<P>(typename P::Picks()));

template <typename P, typename Args, typename Start, int... I>
__device__ inline void read_picked(
    Picked<P>& picked, const Args& args, const typename P::Shared& shared, i64 length, const Start& start, Seq<I...>) {
  (get<I>(picked).read(args, shared, length, start), ...);
}
template <typename P, typename Args, typename Start>
__device__ inline Picked<P> read_picked(
    const Args& args, const typename P::Shared& shared, i64 length, const Start& start) {
  Picked<P> picked = {};
  read_picked<P>(picked, args, shared, length, start, make_seq<P::Picks::size>());
  return picked;
}
// Those that pass PASS is the first to know of. -1: all of them.
template <int PASS, typename P, int... I>
__device__ inline void take_picked(const Picked<P>& picked, typename P::Shared& shared, Seq<I...>) {
  ((PASS < 0 || type_at<typename P::Picks, I>::BEFORE == PASS ? get<I>(picked).take(shared) : void()), ...);
}
template <int PASS, typename P>
__device__ inline void take_picked(const Picked<P>& picked, typename P::Shared& shared) {
  take_picked<PASS, P>(picked, shared, make_seq<P::Picks::size>());
}
// Both at once.
template <typename P, typename Args, typename Start>
__device__ inline void pick_all(const Args& args, typename P::Shared& shared, i64 length, const Start& start) {
  take_picked<-1, P>(read_picked<P>(args, shared, length, start), shared);
}

template <typename... Pass> __device__ constexpr bool makes_random(List<Pass...>) { return (Pass::RANDOM || ...); }

// A pass as it is made for a row. Passes that take nothing of what it shares have no such constructor.
template <typename Pass, typename Shared> __device__ inline Pass pass_for(const Shared& shared) {
  if constexpr (__is_constructible(Pass, const Shared&)) return Pass(shared);
  else return Pass{};
}

// One element of each input with elements, for a pass that reads those whose bit of READS is set. `shares`: of each of
// them what has a lane for each of a group's elements. BESIDE: which are neighbours in the index space too.
template <typename P, u32 READS, bool BESIDE, int N, typename Shares>
__device__ inline auto value_in_lane(const Shares& shares, int lane) {
  using V = formula_t<typename P::C, element_in<P, N>>;
  if constexpr ((READS >> N & 1) == 0) return V();
  else if constexpr (BESIDE && IS_PLACE<element_in<P, N>>) return DrawnPlace(get<N>(shares).get(0), lane);
  else return V(get<N>(shares).get(lane));
}
template <typename P, u32 READS, bool BESIDE, typename Shares, int... N>
__device__ inline typename P::Element element_in_lane(const Shares& shares, int lane, Seq<N...>) {
  return {value_in_lane<P, READS, BESIDE, N>(shares, lane)...};
}
template <typename P, u32 READS, bool BESIDE = false, typename Shares>
__device__ inline typename P::Element element_in_lane(const Shares& shares, int lane) {
  return element_in_lane<P, READS, BESIDE>(shares, lane, make_seq<operands_of<P>::elements>());
}
// The inputs alone, and the element that is made of them.
template <typename P, u32 READS, typename Shares, int... N>
__device__ inline auto inputs_in_lane(const Shares& shares, int lane, Seq<N...>) {
  return Tuple<formula_t<typename P::C, element_in<P, N>>...>{value_in_lane<P, READS, false, N>(shares, lane)...};
}
template <typename P, u32 READS, typename Shares>
__device__ inline auto inputs_in_lane(const Shares& shares, int lane) {
  return inputs_in_lane<P, READS>(shares, lane, make_seq<operands_of<P>::elements>());
}
template <typename P, typename Inputs, int... N>
__device__ inline typename P::Element element_of(const Inputs& inputs, Seq<N...>) { return {get<N>(inputs)...}; }
template <typename P, typename Inputs> __device__ inline typename P::Element element_of(const Inputs& inputs) {
  return element_of<P>(inputs, make_seq<operands_of<P>::elements>());
}
// Whether the quick forms of a group hold, and which these are. READS: the inputs in `shares`.
template <typename Pass> constexpr int quick_form = Pass::GROUPED ? FAST_GROUP : FAST_FORM;
template <typename P, u32 READS, typename Pass, typename Shares>
__device__ inline bool is_quick(const Pass& pass, const Shares& shares) {
  if constexpr (Pass::GROUPED) return pass.fast() && pass.apart(element_in_lane<P, READS>(shares, 0));
  else return pass.fast();
}

// Stores an output if it is one that a row has one of. `row`: where the row begins in it.
template <typename P, int I>
__device__ inline void store_per_row(storage_t<element_out<P, I>>* row, const typename P::Shared& shared) {
  using Role = RowRole<type_at<typename P::Outputs, I>>;
  if constexpr (Role::per_row) *row = narrow_to<element_out<P, I>>::from(shared.*Role::member);
}
