// Where the elements of rows lie, and how blocks of them come and go.
#pragma once
#include "row_schedule.cuh"
#include "slabs.cuh"
#include "blocks.h"

constexpr int TOGETHER = 16;     // rows taken together where neighbours in memory belong to different ones
constexpr int LINES_AHEAD = 32;  // of theirs, for which memory is asked before they are wanted

// Where the elements of a row lie in an operand: along up to INNER axes, the innermost of which is a Line.
template <typename E> struct RowLine {
  storage_t<E>* data;
  i64 offset;
  const Along* along;

  template <typename F> void each_line(i64 first, int count, const F& take) const {
    const i64 step = along->of[INNER - 1];
    if (along->axes <= 1) return take(Line<E>{data, offset, step}, first, 0, count);
    const i64 extent = along->extent[INNER - 1].divisor;
    for (int done = 0; done < count;) {
      const i64 at = first + done, inner = at % extent;
      const int some = int(min(i64(count - done), extent - inner));
      take(Line<E>{data, offset + along->to(at) - inner * step, step}, inner, done, some);
      done += some;
    }
  }
  // Whether the elements of TOGETHER rows lie beside each other: those of the next row one further.
  template <typename At> static bool beside(int count, const At& line) {
    const RowLine& start = line(0);
    bool found = count == TOGETHER && storage<E>::bits >= 8 && !IS_PLACE<E> && start.along->axes <= 1;
    for (int row = 1; row < count; ++row) found = found && line(row).offset == start.offset + row;
    return found;
  }
  // Elements of rows beside each other, in the order of memory: `of` gives a row's.
  template <typename Of> void each_beside(i64 first, int count, const Of& of) const {
    const i64 step = along->of[INNER - 1];
    for (int lane = 0; lane < count; ++lane) {
      storage_t<E>* const at = data + offset + (first + lane) * step;
      __builtin_prefetch(at + LINES_AHEAD * step);
      for (int row = 0; row < TOGETHER; ++row) of(at[row], row, lane);
    }
  }
  template <typename V> void load(V (&to)[BLOCK], i64 first, int count) const {
    each_line(first, count, [&](const Line<E>& line, i64 at, int done, int some) {
      load_block(&to[done], line, at, some);
    });
  }
  template <typename V> void store(const V (&values)[BLOCK], i64 first, int count) const {
    each_line(first, count, [&](const Line<E>& line, i64 at, int done, int some) {
      store_block(&values[done], line, at, some);
    });
  }
};

// A row's inputs with elements and its outputs.
template <typename P, typename N, typename I> struct RowLinesOf;
template <typename P, int... N, int... I> struct RowLinesOf<P, Seq<N...>, Seq<I...>> {
  using C = typename P::C;
  template <int COUNT> using ValuesOf = Tuple<formula_t<C, element_in<P, N>>[COUNT]...>;
  using Values = ValuesOf<BLOCK>;
  Tuple<RowLine<element_in<P, N>>...> in;
  Tuple<RowLine<element_out<P, I>>...> out;

  void set(const RowArgs<P>& args, const RowSpace::Position& at) {
    (set_input<N>(args, at), ...);
    (set_output<I>(args, at), ...);
  }
  // The elements of a block of some rows, as far as a pass reads them.
  template <u32 READS, typename Rows>
  static void load(Values* values, const Rows& rows, int count, i64 first, int some) {
    (load_one<READS, N>(values, rows, count, first, some), ...);
  }
  template <u32 READS, typename Of> static typename P::Element element(const Of& values, int lane) {
    return {one<READS, N>(values, lane)...};
  }

 private:
  template <int K> void set_input(const RowArgs<P>& args, const RowSpace::Position& at) {
    const auto& input = args.template elements<K>();
    get<K>(in) = {
        const_cast<storage_t<element_in<P, K>>*>(input.array), args.rows.offset(at, input.strides), &input.steps};
  }
  template <int K> void set_output(const RowArgs<P>& args, const RowSpace::Position& at) {
    if constexpr (RowRole<type_at<typename P::Outputs, K>>::elements) {
      const auto& output = args.template output<K>();
      get<K>(out) = {output.array, args.rows.offset(at, output.strides), &output.steps};
    }
  }
  template <u32 READS, int K, typename Rows>
  static void load_one(Values* values, const Rows& rows, int count, i64 first, int some) {
    if constexpr ((READS >> K & 1) != 0) {
      using E = element_in<P, K>;
      const auto line = [&](int row) -> const auto& { return get<K>(rows[row].lines.in); };
      if (RowLine<E>::beside(count, line))
        line(0).each_beside(first, some, [&](const storage_t<E>& from, int row, int lane) {
          get<K>(values[row])[lane] = formula_t<C, E>(widen(from));
        });
      else
        for (int row = 0; row < count; ++row) line(row).load(get<K>(values[row]), first, some);
    }
  }
  template <u32 READS, int K, typename Of> static auto one(const Of& values, int lane) {
    using V = formula_t<C, element_in<P, K>>;
    if constexpr ((READS >> K & 1) != 0) return get<K>(values)[lane];
    else return V();
  }
};
template <typename P>
using RowLines = RowLinesOf<P, make_seq<operands_of<P>::elements>, make_seq<operands_of<P>::outputs>>;

// A row on its way through a program.
template <typename P> struct RowState {
  RowLines<P> lines;
  RowSpace::Position at;
  typename P::Shared shared;
  i64 length;
  typename P::Held* held;
};
