// Elementwise programs on the CPU: lines of the last axis, in pieces that threads take.
#pragma once
#include "strided.cuh"
#include "reductions.cuh"
#include "blocks.h"

constexpr i64 STRETCH = 2048;  // elements that are computed where they lie, at a time

// Whether elements are in memory what formulas take, or make, or become that in few instructions, as integers and bf16
// do: of these no blocks are needed.
template <typename E, typename V> constexpr bool as_it_stands =
    !IS_PLACE<E> && storage<E>::bits >= 8 && (same<storage_t<E>, V> || !Format<E>::real || same<E, bf16>);

// The inputs of a program that have a value for each element.
template <typename P, typename L, typename S> struct ElementBlocksOf;
template <typename P, typename... I, int... i> struct ElementBlocksOf<P, List<I...>, Seq<i...>> {
  using C = typename P::C;
  Tuple<Line<typename I::element>...> lines;
  Tuple<formula_t<C, typename I::element>[BLOCK]...> values;

  template <typename Args> ElementBlocksOf(const Args& args, const Coordinates& start) {
    ((get<i>(lines) = {const_cast<storage_t<typename I::element>*>(get<i>(args.items).data),
                       start.template offset<typename I::element, false>(args.head, get<i>(args.items).strides),
                       get<i>(args.items).strides.of[AXES - 1]}),
     ...);
  }
  void load(i64 first, int count) { (load_block(get<i>(values), get<i>(lines), first, count), ...); }
  typename P::Element element(int lane) const { return {get<i>(values)[lane]...}; }

  // The elements where they lie, if they are neighbours or one that repeats, which is `Repeated` then; `begin` is the
  // first byte of one array of them.
  static constexpr bool STAND = (as_it_stands<typename I::element, formula_t<C, typename I::element>> && ... && true);
  struct Repeated {
    Tuple<storage_t<typename I::element>[STRETCH]...> of;
  };
  struct Places {
    Tuple<const storage_t<typename I::element>*...> of;
    typename P::Element element(i64 index) const {
      return {formula_t<C, typename I::element>(widen(get<i>(of)[index]))...};
    }
  };
  bool stand() const { return ((get<i>(lines).step == 1 || get<i>(lines).step == 0) && ... && true); }
  void repeat(Repeated& repeated, i64 count) const { (repeat(get<i>(repeated.of), get<i>(lines), count), ...); }
  template <typename E> static void repeat(storage_t<E>* to, const Line<E>& line, i64 count) {
    if (line.step != 0) return;
    const storage_t<E> value = line.data[line.offset];
    for (i64 index = 0; index < count; ++index) to[index] = value;
  }
  Places places(const Repeated& repeated, i64 first) const {
    return {{get<i>(lines).step ? get<i>(lines).data + get<i>(lines).offset + first : get<i>(repeated.of)...}};
  }
  bool at(const void* begin) const {
    return ((static_cast<const void*>(get<i>(lines).data + get<i>(lines).offset) == begin) || ... || false);
  }
};
template <typename P, typename L> using ElementBlocksIn = ElementBlocksOf<P, L, typename L::Index>;
template <typename P> using ElementBlocks = ElementBlocksIn<P, typename OfRole<1, typename P::Inputs>::type>;

// The inputs that elements share.
template <typename P, typename L, typename S> struct SharedLinesOf;
template <typename P, typename... R, int... r> struct SharedLinesOf<P, List<R...>, Seq<r...>> {
  using E = Elementwise<P>;
  Tuple<Line<typename R::element>...> lines;
  bool changes = false;  // from each element to the next
  i64 run;               // else after so many
  const Space& space;

  template <typename Args> SharedLinesOf(const Args& args, const Coordinates& start)
      : run(args.head.last), space(args.head) {
    ((get<r>(lines) = {const_cast<storage_t<typename R::element>*>(get<E::RUNS_AT + r>(args.items).data),
                       start.template offset<typename R::element, IS_BLOCK<R>>(
                           args.head, get<E::RUNS_AT + r>(args.items).strides),
                       get<E::RUNS_AT + r>(args.items).strides.of[AXES - 1]}),
     ...);
    (note<R>(get<r>(lines).step), ...);
  }
  template <typename Role> void note(i64 step) {
    if (step == 0) return;
    if (blocked<Role>()) run = space.block.divisor;
    else changes = true;
  }
  template <typename Role> bool blocked() const { return IS_BLOCK<Role> && space.block_axis == AXES - 1; }

  typename E::Given at(i64 index) const { return {one<R>(get<r>(lines), index)...}; }
  template <typename Role>
  compute_t<typename Role::element> one(const Line<typename Role::element>& line, i64 index) const {
    return ::read<typename Role::element>(line.data, line.at(blocked<Role>() ? index / space.block.divisor : index));
  }
};
template <typename P, typename L> using SharedLinesIn = SharedLinesOf<P, L, typename L::Index>;
template <typename P> using SharedLines = SharedLinesIn<P, typename OfRole<0, typename P::Inputs>::type>;

template <typename P, typename L, typename S> struct ResultLinesOf;
template <typename P, typename... O, int... o> struct ResultLinesOf<P, List<O...>, Seq<o...>> {
  using E = Elementwise<P>;
  template <typename R> using Kept = kept_t<typename R::element, formula_t<typename P::C, typename R::element>>;
  struct Values {
    Tuple<Kept<O>[BLOCK]...> of;
    template <typename V> void set(int lane, const V& value) { ((get<o>(of)[lane] = Kept<O>(get<o>(value))), ...); }
  };
  Tuple<Line<typename O::element>...> lines;

  template <typename Args> ResultLinesOf(const Args& args, const Coordinates& start) {
    ((get<o>(lines) = {get<E::OUTPUTS_AT + o>(args.items).data,
                       start.template offset<typename O::element, false>(
                           args.head, get<E::OUTPUTS_AT + o>(args.items).strides),
                       get<E::OUTPUTS_AT + o>(args.items).strides.of[AXES - 1]}),
     ...);
  }
  void store(const Values& values, i64 first, int count) const {
    (store_block(get<o>(values.of), get<o>(lines), first, count), ...);
  }

  // The same of places as of inputs.
  static constexpr bool STAND = (as_it_stands<typename O::element, Kept<O>> && ...);
  struct Places {
    Tuple<storage_t<typename O::element>*...> of;
    template <typename V> void set(i64 index, const V& value) {
      ((get<o>(of)[index] = narrow_to<typename O::element>::from(Kept<O>(get<o>(value)))), ...);
    }
  };
  bool neighbours() const { return ((get<o>(lines).step == 1) && ...); }
  Places places(i64 first) const { return {{get<o>(lines).data + get<o>(lines).offset + first...}}; }
  // Whether some are where inputs are: what is computed there could not be computed once more.
  template <typename I> bool in_place_of(const I& inputs) const {
    return (inputs.at(get<o>(lines).data + get<o>(lines).offset) || ...);
  }
};
template <typename P, typename L> using ResultLinesIn = ResultLinesOf<P, L, typename L::Index>;
template <typename P> using ResultLines = ResultLinesIn<P, typename P::Outputs>;

// From blocks to blocks, or from places to others; their addresses and the program are copied, so that no store may
// change them.
template <int FAST, typename To, typename P, typename From, typename Index>
inline void compute(To& to, const P& program, const From& in, Index begin, Index end) {
  const P own = program;
  without_branches([&] {
#pragma GCC ivdep
    for (Index lane = begin; lane < end; ++lane) to.set(lane, own.template of<FAST>(in.element(lane)));
  });
}

// Elements that share a program, in the form that it and they allow.
template <typename To, typename P, typename From, typename Index>
inline void compute_run(To& to, const P& program, const From& in, Index begin, Index end) {
  if (!program.fast()) return compute<GENERAL>(to, program, in, begin, end);
  if constexpr (RANGED<P>) {
    int within = 1;
    for (Index lane = begin; lane < end; ++lane) within &= program.within(in.element(lane));
    if (within) return compute<FAST_WITHIN>(to, program, in, begin, end);
  }
  compute<FAST_FORM>(to, program, in, begin, end);
}

template <typename P> void cpu_elementwise(const void* arguments, i64 begin, i64 end) {
  const auto& args = *static_cast<const StridedArgs<P>*>(arguments);
  using E = Elementwise<P>;
  const Space& space = args.head;
  const i64 pieces = (space.last + PIECE - 1) / PIECE;
  const auto scalars = E::scalars(args);
  const P whole = E::made_once(args, scalars);
  for (i64 unit = begin; unit < end; ++unit) {
    const i64 line = unit / pieces, from = unit % pieces * PIECE, to = min(from + PIECE, space.last);
    const Coordinates start(space, line * space.extent[AXES - 1].divisor);
    ElementBlocks<P> in(args, start);
    const SharedLines<P> shared(args, start);
    const ResultLines<P> out(args, start);
    P program = whole;
    i64 last = from;  // the run that `program` is for ends here
    if constexpr (ElementBlocks<P>::STAND && ResultLines<P>::STAND)
      if (in.stand() && out.neighbours() && !(E::HAS_RUNS && shared.changes) && !out.in_place_of(in)) {
        typename ElementBlocks<P>::Repeated repeated;
        in.repeat(repeated, min(to - from, STRETCH));
        for (i64 first = from, until; first < to; first = until) {
          if (E::HAS_RUNS && first >= last) {
            last = (first / shared.run + 1) * shared.run;
            program = E::made(args, shared.at(first), scalars);
          }
          until = min(min(to, first + STRETCH), E::HAS_RUNS ? last : to);
          auto results = out.places(first);
          compute_run(results, program, in.places(repeated, first), i64(0), until - first);
        }
        continue;
      }
    for (i64 first = from; first < to; first += BLOCK) {
      const int count = int(min(i64(BLOCK), to - first));
      typename ResultLines<P>::Values values;
      in.load(first, count);
      if (E::HAS_RUNS && shared.changes) {
        for (int lane = 0; lane < count; ++lane) {
          const P own = E::made(args, shared.at(first + lane), scalars);
          values.set(lane, E::value(own, in.element(lane)));
        }
      } else {
        for (int done = 0; done < count;) {
          if (E::HAS_RUNS && first + done >= last) {
            last = ((first + done) / shared.run + 1) * shared.run;
            program = E::made(args, shared.at(first + done), scalars);
          }
          const int until = E::HAS_RUNS ? int(min(i64(count), last - first)) : count;
          compute_run(values, program, in, done, until);
          done = until;
        }
      }
      out.store(values, first, count);
    }
  }
}
