// How elementwise schedules see a program: its operands by role, the arguments of a kernel, and the moves between
// operands, elements and values that all schedules share.
#pragma once
#include "program.cuh"
#include "quotient.cuh"

constexpr int ELEMENTWISE_THREADS = 128;  // of a block

// Whether the fast forms of a program want each element in a range, which it then tells by `within`.
template <typename P, typename = void> constexpr bool RANGED = false;
template <typename P> constexpr bool RANGED<P, decltype(void(P::RANGED))> = P::RANGED;

// What a formula takes an item as: C for reals, bool or i64 for the others.
template <typename C, typename E> struct formula { using type = compute_t<E>; };
template <typename C> struct formula<C, f64> { using type = C; };
template <typename C> struct formula<C, f32> { using type = C; };
template <typename C> struct formula<C, f16> { using type = C; };
template <typename C> struct formula<C, bf16> { using type = C; };
template <typename C> struct formula<C, e4m3> { using type = C; };
template <typename C> struct formula<C, e5m2> { using type = C; };
template <typename C, typename E> using formula_t = typename formula<C, E>::type;

// The element types of the operands that have a role, in order.
template <typename E, typename L> struct Before;
template <typename E, typename... R> struct Before<E, List<R...>> { using type = List<E, R...>; };
template <template <typename> class Role, typename L> struct OfRole { using type = List<>; };
template <template <typename> class Role, typename O, typename... R>
struct OfRole<Role, List<O, R...>> : OfRole<Role, List<R...>> {};
template <template <typename> class Role, typename E, typename... R>
struct OfRole<Role, List<Role<E>, R...>> : Before<E, typename OfRole<Role, List<R...>>::type> {};

// The parameter of a kernel, in slots of 8 bytes: a head, then the inputs (one for each element, one for each run,
// scalars), the attributes, the outputs. Moves has what a schedule is told of each operand, and how it moves it.
template <typename Head, typename Moves, typename I, typename R, typename S, typename A, typename O> struct ArgumentsOf;
template <typename Head, typename Moves, typename... I, typename... R, typename... S, typename... A, typename... O>
struct ArgumentsOf<Head, Moves, List<I...>, List<R...>, List<S...>, List<A...>, List<O...>> {
  Head head;
  Tuple<typename Moves::template Input<I>..., typename Moves::template Run<R>..., Scalar<S>..., A...,
        typename Moves::template Output<O>...> items;
};
template <typename P, typename Head, typename Moves>
using Arguments = ArgumentsOf<Head, Moves, typename OfRole<PerElement, typename P::Inputs>::type,
                              typename OfRole<PerRun, typename P::Inputs>::type,
                              typename OfRole<ScalarOf, typename P::Inputs>::type, typename P::Attributes,
                              typename OfRole<PerElement, typename P::Outputs>::type>;

// A program with its operands told apart.
//   i: inputs that have a value for each element; r: those that have one for each run; s: scalars; o: outputs.
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
  static constexpr bool HAS_RUNS = sizeof...(R) > 0;
  static constexpr bool WRITES_PACKED = ((storage<O>::bits < 8) || ...);
  static constexpr bool PACKED = ((storage<I>::bits < 8) || ... || ((storage<R>::bits < 8) || ... || WRITES_PACKED));

  template <int N> using InputLanes = Tuple<Lanes<I, N>...>;
  template <int N> using OutputLanes = Tuple<Lanes<O, N>...>;
  using Entries = Tuple<storage_t<R>...>;  // of the inputs that a run shares, as they are stored
  using Given = Tuple<compute_t<R>...>;    // the same as numbers
  using Scalars = Tuple<compute_t<S>...>;
  using Values = Tuple<formula_t<C, O>...>;

  // What a schedule is told of each operand: the items of its arguments.
  static constexpr int RUNS_AT = sizeof...(I), SCALARS_AT = RUNS_AT + sizeof...(R);
  static constexpr int ATTRIBUTES_AT = SCALARS_AT + sizeof...(S), OUTPUTS_AT = ATTRIBUTES_AT + sizeof...(A);
  template <typename Args> __device__ static const auto& first_output(const Args& args) {
    return get<OUTPUTS_AT>(args.items);
  }

  // Moves, for all operands of a role in turn. `where` is what a schedule finds its operands by.
  template <int N, typename Args, typename... W>
  __device__ static void load(InputLanes<N>& in, const Args& args, const W&... where) {
    ((get<i>(in) = get<i>(args.items).template load<N>(where...)), ...);
  }
  template <typename Args, typename... W> __device__ static Element read(const Args& args, const W&... where) {
    return {formula_t<C, I>(get<i>(args.items).read(where...))...};
  }
  template <typename Args, typename... W>
  __device__ static void load_entries(Entries& entries, const Args& args, const W&... where) {
    ((get<r>(entries) = get<RUNS_AT + r>(args.items).entry(where...)), ...);
  }
  template <typename Args, typename... W> __device__ static Given read_entries(const Args& args, const W&... where) {
    return {widen(get<RUNS_AT + r>(args.items).entry(where...))...};
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
  template <typename Args> __device__ static P made(const Args& args, const Given& given, const Scalars& scalars) {
    return P(Shared{formula_t<C, R>(get<r>(given))..., formula_t<C, S>(get<s>(scalars))...,
                    formula_t<C, A>(get<ATTRIBUTES_AT + a>(args.items))...});
  }
  // The same where all elements share it; nothing that counts where runs do.
  template <typename Args> __device__ static P made_once(const Args& args, const Scalars& scalars) {
    if constexpr (HAS_RUNS) return P();
    else return made(args, Given(), scalars);
  }

  // Elements of vectors.
  template <int N> __device__ static Element element(const InputLanes<N>& in, int lane) {
    return {formula_t<C, I>(get<i>(in).get(lane))...};
  }
  template <int FAST, int N> __device__ static void compute(const P& program, const InputLanes<N>& in, OutputLanes<N>& out) {
    Tuple<formula_t<C, O>[N]...> values;
#pragma unroll
    for (int lane = 0; lane < N; ++lane) {
      const auto value = program.template of<FAST>(element<N>(in, lane));
      ((get<o>(values)[lane] = get<o>(value)), ...);
    }
    (set_all(get<o>(out), get<o>(values)), ...);
  }
  // One element, in the form that what it shares allows.
  __device__ static Values value(const P& program, const Element& element) {
    return {program.fast() ? formula_t<C, O>(get<o>(program.template of<FAST_FORM>(element)))
                           : formula_t<C, O>(get<o>(program.template of<GENERAL>(element)))...};
  }
};
template <typename P, typename I, typename R, typename S, typename A, typename O>
using ElementwiseIn = ElementwiseOf<P, I, R, S, A, O, typename I::Index, typename R::Index, typename S::Index,
                                    typename A::Index, typename O::Index>;
template <typename P>
using Elementwise = ElementwiseIn<P, typename OfRole<PerElement, typename P::Inputs>::type,
                                  typename OfRole<PerRun, typename P::Inputs>::type,
                                  typename OfRole<ScalarOf, typename P::Inputs>::type, typename P::Attributes,
                                  typename OfRole<PerElement, typename P::Outputs>::type>;
