// How elementwise schedules see a program: its operands by role, the arguments of a kernel, and the moves between
// operands, elements and values that all schedules share.
#pragma once
#include "program.cuh"
#include "quotient.cuh"
#include "tuning.cuh"

// Whether the fast forms of a program want each element in a range, which it then tells by `within`.
template <typename P, typename = void> constexpr bool RANGED = false;
template <typename P> constexpr bool RANGED<P, decltype(void(P::RANGED))> = P::RANGED;

// Whether a program has elements that it does not read, which places and attributes alone tell: then by `reads`.
template <typename P, typename = void> constexpr bool PICKS = false;
template <typename P> constexpr bool PICKS<P, decltype(void(P::PICKS))> = P::PICKS;

// Whether a formula takes so many instructions of f32 that a GPU's memory waits for them.
template <typename P, typename = void> constexpr bool IS_LONG = false;
template <typename P> constexpr bool IS_LONG<P, decltype(void(P::LONG))> = P::LONG;

// Whether a program's elements are random numbers, some of whose work neighbours share.
template <typename P, typename = void> constexpr bool RANDOM = false;
template <typename P> constexpr bool RANDOM<P, decltype(void(P::RANDOM))> = P::RANDOM;

// What a program is given of an operand that elements share.
template <typename C, typename E> struct in_shared { using type = formula_t<C, E>; };
template <typename C> struct in_shared<C, Place> { using type = SharedPlace; };
template <typename C, typename E> using shared_t = typename in_shared<C, E>::type;

template <typename R> constexpr bool IS_BLOCK = false;
template <typename E> constexpr bool IS_BLOCK<PerBlock<E>> = true;

template <typename R> constexpr bool IS_OF_ROW = false;
template <typename E> constexpr bool IS_OF_ROW<PerRow<E>> = true;

// The operands that have a role. What a run shares is PerRun, PerBlock or PerRow.
template <typename R> constexpr int ROLE = 0;
template <typename E> constexpr int ROLE<PerElement<E>> = 1;
template <typename E> constexpr int ROLE<ScalarOf<E>> = 2;
template <bool KEPT, typename O, typename L> struct Before { using type = L; };
template <typename O, typename... R> struct Before<true, O, List<R...>> { using type = List<O, R...>; };
template <int WANTED, typename L> struct OfRole { using type = List<>; };
template <int WANTED, typename O, typename... R> struct OfRole<WANTED, List<O, R...>>
    : Before<ROLE<O> == WANTED, O, typename OfRole<WANTED, List<R...>>::type> {};

// A program with its operands told apart.
//   I, i: inputs that have a value for each element; R, r: those that have one for each run; S, s: scalars;
//   A, a: attributes; O, o: outputs. Each with its number among those of its role.
template <typename P, typename I, typename R, typename S, typename A, typename O, typename Is, typename Rs, typename Ss,
          typename As, typename Os>
struct ElementwiseOf;
template <typename P, typename... I, typename... R, typename... S, typename... A, typename... O, int... i, int... r,
          int... s, int... a, int... o>
struct ElementwiseOf<P, List<I...>, List<R...>, List<S...>, List<A...>, List<O...>, Seq<i...>, Seq<r...>, Seq<s...>,
                     Seq<a...>, Seq<o...>> {
  using C = typename P::C;
  using Element = typename P::Element;
  using Shared = typename P::Shared;
  static constexpr bool HAS_INPUTS = sizeof...(I) > 0, HAS_RUNS = sizeof...(R) > 0;
  // Whether it makes random numbers of nothing that is in memory; whether these are integers of 64 bits.
  static constexpr bool DRAWS = RANDOM<P> && !HAS_RUNS && (IS_PLACE<typename I::element> && ...);
  static constexpr bool WIDE_INTEGERS =
      ((storage<typename O::element>::bits == 64 && !Format<typename O::element>::real) || ...);
  static constexpr bool LONG =
      IS_LONG<P> && ((storage<typename O::element>::bits == 32 && Format<typename O::element>::real) && ...);
  static constexpr bool HAS_ROWS = (IS_OF_ROW<R> || ...);
  // Whether rows have labels: something of their own beside places.
  static constexpr bool HAS_LABELS = ((IS_OF_ROW<R> && !IS_PLACE<typename R::element>) || ...) &&
                                     (IS_PLACE<typename R::element> || ...);
  static constexpr bool WRITES_PACKED = ((storage<typename O::element>::bits < 8) || ...);
  static constexpr bool PACKED = ((storage<typename I::element>::bits < 8) || ... ||
                                  ((storage<typename R::element>::bits < 8) || ... || WRITES_PACKED));

  // The parameter of a kernel, in slots of 8 bytes: a head, then what the schedule is told of each operand, which
  // Moves has together with how it is moved. This is the order in which the host packs them.
  template <typename Head, typename Moves> struct Arguments {
    Head head;
    Tuple<typename Moves::template Input<typename I::element>..., typename Moves::template Run<R>...,
          Scalar<typename S::element>..., A..., typename Moves::template Output<typename O::element>...>
        items;
  };
  static constexpr int RUNS_AT = sizeof...(I), SCALARS_AT = RUNS_AT + sizeof...(R);
  static constexpr int ATTRIBUTES_AT = SCALARS_AT + sizeof...(S), OUTPUTS_AT = ATTRIBUTES_AT + sizeof...(A);

  template <int N> using InputLanes = Tuple<Lanes<typename I::element, N>...>;
  template <int N> using OutputLanes = Tuple<Lanes<typename O::element, N>...>;
  using Entries = Tuple<storage_t<typename R::element>...>;  // of the inputs that a run shares, as they are stored
  using Given = Tuple<compute_t<typename R::element>...>;    // the same, widened
  using Scalars = Tuple<compute_t<typename S::element>...>;
  using Values = Tuple<formula_t<C, typename O::element>...>;
  template <int N> using LaneValues = Tuple<formula_t<C, typename O::element>[N]...>;

  // One of something for each operand of a role: of State::type<element>.
  template <typename State> using OfInputs = Tuple<typename State::template type<typename I::element>...>;
  template <typename State> using OfRuns = Tuple<typename State::template type<typename R::element>...>;
  template <typename State> using OfRoles = Tuple<typename State::template type<R>...>;  // of runs, by their roles
  template <typename State> using OfOutputs = Tuple<typename State::template type<typename O::element>...>;
  using InputStarts = Tuple<const storage_t<typename I::element>*...>;
  using RunStarts = Tuple<const storage_t<typename R::element>*...>;
  using OutputStarts = Tuple<storage_t<typename O::element>*...>;

  template <typename I_> using Bytes = u8*;
  template <typename Memory> __device__ static Tuple<Bytes<I>...> input_memory() {
    return {Memory::template at<typename I::element, i>()...};
  }
  template <typename Memory> __device__ static Tuple<Bytes<O>...> output_memory() {
    return {Memory::template at<typename O::element, int(sizeof...(I)) + o>()...};
  }

  // Calls `f` for each operand of a role in turn, with what the schedule is told of it and its own of some tuples.
  template <int ITEM, int AT, typename F, typename Args, typename... T>
  __device__ static void call(const F& f, const Args& args, T&... of) {
    f(get<ITEM>(args.items), get<AT>(of)...);
  }
  template <typename F, typename Args, typename... T>
  __device__ static void each_input(const Args& args, const F& f, T&... of) {
    (call<i, i>(f, args, of...), ...);
  }
  template <typename F, typename Args, typename... T>
  __device__ static void each_run(const Args& args, const F& f, T&... of) {
    (call<RUNS_AT + r, r>(f, args, of...), ...);
  }
  template <typename F, typename Args, typename... T>
  __device__ static void each_output(const Args& args, const F& f, T&... of) {
    (call<OUTPUTS_AT + o, o>(f, args, of...), ...);
  }
  // The same, and whether it is the first of its role, as a constant.
  template <int AT, typename F, typename Args, typename... T>
  __device__ static void call_and_first(const F& f, const Args& args, T&... of) {
    f(get<OUTPUTS_AT + AT>(args.items), Constant<AT == 0>(), get<AT>(of)...);
  }
  template <typename F, typename Args, typename... T>
  __device__ static void each_output_and_first(const Args& args, const F& f, T&... of) {
    (call_and_first<o>(f, args, of...), ...);
  }
  template <typename Args> __device__ static const auto& first_output(const Args& args) {
    return get<OUTPUTS_AT>(args.items);
  }

  // The usual moves. `where` is what a schedule finds its operands by.
  template <int N, typename Args, typename... W>
  __device__ static void load(InputLanes<N>& in, const Args& args, const W&... where) {
    ((get<i>(in) = get<i>(args.items).template load<N>(where...)), ...);
  }
  template <typename Args, typename... W> __device__ static Element read(const Args& args, const W&... where) {
    return {formula_t<C, typename I::element>(get<i>(args.items).read(where...))...};
  }
  using Read = Tuple<compute_t<typename I::element>...>;
  __device__ static Element element_of(const Read& read) { return {formula_t<C, typename I::element>(get<i>(read))...}; }
  template <typename Args, typename... W>
  __device__ static void load_entries(Entries& entries, const Args& args, const W&... where) {
    ((get<r>(entries) = get<RUNS_AT + r>(args.items).entry(where...)), ...);
  }
  template <typename Args, typename... W> __device__ static Given read_entries(const Args& args, const W&... where) {
    return {widen(get<RUNS_AT + r>(args.items).entry(where...))...};
  }
  template <typename Args, typename... W> __device__ static Given read_runs(const Args& args, const W&... where) {
    return {get<RUNS_AT + r>(args.items).read(where...)...};
  }
  __device__ static Given widened(const Entries& entries) { return {widen(get<r>(entries))...}; }
  template <typename Args> __device__ static Scalars scalars(const Args& args) {
    return {get<SCALARS_AT + s>(args.items).value()...};
  }
  template <int N, typename Args, typename... W>
  __device__ static void store(const Args& args, const OutputLanes<N>& out, const W&... where) {
    (get<OUTPUTS_AT + o>(args.items).store(get<o>(out), where...), ...);
  }
  template <typename Args, typename... W>
  __device__ static void write(const Args& args, const Values& values, const W&... where) {
    (get<OUTPUTS_AT + o>(args.items).write(get<o>(values), where...), ...);
  }
  template <int N> __device__ static void take_from(OutputLanes<N>& out, const OutputLanes<N>& other, int lane) {
    (::take_from(get<o>(out), get<o>(other), lane), ...);
  }

  // A program, made of what some elements share.
  template <typename Args, typename G>
  __device__ static P made(const Args& args, const G& given, const Scalars& scalars) {
    return P(Shared{shared_t<C, typename R::element>(get<r>(given))...,
                    formula_t<C, typename S::element>(get<s>(scalars))...,
                    formula_t<C, A>(get<ATTRIBUTES_AT + a>(args.items))...});
  }
  template <typename Args, typename G> __device__ static P made(const Args& args, const G& given) {
    return made(args, given, scalars(args));
  }
  // The same where all elements share it; nothing that counts where runs do.
  template <typename Args> __device__ static P made_once(const Args& args, const Scalars& scalars) {
    if constexpr (HAS_RUNS) return P();
    else return made(args, Given(), scalars);
  }
  template <typename Args> __device__ static P made_once(const Args& args) {
    if constexpr (HAS_RUNS) return P();
    else return made(args, Given(), scalars(args));
  }

  // Elements of vectors, and what becomes of them.
  template <int N> __device__ static Element element(const InputLanes<N>& in, int lane) {
    return {formula_t<C, typename I::element>(get<i>(in).get(lane))...};
  }
  template <int FAST, int N>
  __device__ static void compute(LaneValues<N>& values, int lane, const P& program, const InputLanes<N>& in) {
    const auto value = program.template of<FAST>(element<N>(in, lane));
    ((get<o>(values)[lane] = get<o>(value)), ...);
  }
  template <int N> __device__ static void pack(OutputLanes<N>& out, const LaneValues<N>& values) {
    (set_all(get<o>(out), get<o>(values)), ...);
  }
  template <int FAST, int N>
  __device__ static void compute(OutputLanes<N>& out, const P& program, const InputLanes<N>& in) {
    LaneValues<N> values;
#pragma unroll
    for (int lane = 0; lane < N; ++lane) compute<FAST, N>(values, lane, program, in);
    pack<N>(out, values);
  }
  template <int N, typename V> __device__ static void set(OutputLanes<N>& out, int lane, const V& value) {
    (get<o>(out).set(lane, get<o>(value)), ...);
  }
  // One element, in a form, and in the one that what it shares allows.
  template <int FAST> __device__ static Values value_in(const P& program, const Element& element) {
    const auto value = program.template of<FAST>(element);
    return {formula_t<C, typename O::element>(get<o>(value))...};
  }
  __device__ static Values value(const P& program, const Element& element) {
    return program.fast() ? value_in<FAST_FORM>(program, element) : value_in<GENERAL>(program, element);
  }
};
template <typename P, typename I, typename R, typename S, typename A, typename O>
using ElementwiseIn = ElementwiseOf<P, I, R, S, A, O, typename I::Index, typename R::Index, typename S::Index,
                                    typename A::Index, typename O::Index>;
template <typename P>
using Elementwise = ElementwiseIn<P, typename OfRole<1, typename P::Inputs>::type,
                                  typename OfRole<0, typename P::Inputs>::type,
                                  typename OfRole<2, typename P::Inputs>::type, typename P::Attributes,
                                  typename P::Outputs>;
