// Few long rows that become a value each, on the CPU: threads take parts of them, of whole segments (model/sum_order.py),
// and the one that ends last joins these in the order of the row.
#pragma once
#include "rows.h"

constexpr i64 PART_ELEMENTS = PART_SEGMENTS * SEGMENT;  // a power of two: so a part is a tree of its own

// Whether a program makes a row a value in one pass, and nothing of its elements.
template <typename... Make> constexpr bool only_reduces(List<Make...>) { return (Make::reduces && ...); }
template <typename P> constexpr bool comes_apart = false;
template <typename P> requires requires { typename P::SplitPass; }
constexpr bool comes_apart<P> = !in_slabs<P> && !P::BLOCKS && passes_of<P>::size == 2 && same<last_pass<P>, EmptyPass> &&
    only_reduces(typename type_at<passes_of<P>, 0>::Makes()) && !type_at<passes_of<P>, 0>::REPEATS;

// What a part has found of a reduction.
template <typename M> struct PartOf {
  Segments<typename M::How, typename M::V, true> total;
  bool finite;
};
// A call that is under way: its parts, and how many of them are not done. Those of all calls are a list.
template <typename Parts> struct Underway {
  const void* call;
  i64 left;
  std::unique_ptr<Parts[]> parts;
  Underway* next;
};
struct Locked {  // while it lives
  char* lock;
  explicit Locked(char* lock) : lock(lock) { while (__atomic_test_and_set(lock, __ATOMIC_ACQUIRE)) {} }
  ~Locked() { __atomic_clear(lock, __ATOMIC_RELEASE); }
};

template <typename P, typename I> struct RowParts;
template <typename P, int... I> struct RowParts<P, Seq<I...>> {
  using Pass = type_at<passes_of<P>, 0>;
  using Run = RunPass<P, Pass, Seq<I...>>;
  template <int K> using Of = Maker<P, Pass, K>;
  using Parts = Tuple<PartOf<Of<I>>...>;
  static inline Underway<Parts>* calls = nullptr;
  static inline char lock = 0;

  // The state of a call, whose first unit comes before all others.
  static Underway<Parts>* state(const void* call, i64 first, i64 units) {
    const Locked locked(&lock);
    Underway<Parts>** at = &calls;
    while (*at && (*at)->call != call) at = &(*at)->next;
    if (first == 0) {
      if (*at) forget(at);  // of one that was left
      calls = new Underway<Parts>{call, units, std::unique_ptr<Parts[]>(new Parts[units]), calls};
      at = &calls;
    }
    return *at;
  }
  static void forget(Underway<Parts>** at) {
    Underway<Parts>* const found = *at;
    *at = found->next;
    delete found;
  }
  static void end(const void* call) {
    const Locked locked(&lock);
    Underway<Parts>** at = &calls;
    while ((*at)->call != call) at = &(*at)->next;
    forget(at);
  }

  // As one pass over the row joins its segments.
  template <int K> static void join(typename P::Shared& shared, const Parts* parts, i64 count) {
    using How = typename Of<K>::How;
    using V = typename Of<K>::V;
    Segments<How, V, true> whole;
    V value = How::template nothing<V>();
    bool finite = true;
    const auto fold = [&](const auto& segments) {
      for (int height = 0; segments.count >> height; ++height)
        if (segments.count >> height & 1) value = How::of(segments.waiting[height], value);
    };
    for (i64 part = 0; part < count; ++part) {
      const auto& own = get<K>(parts[part]);
      finite = finite && own.finite;
      if (own.total.count < PART_SEGMENTS) fold(own.total);  // the last one, which is short
      else whole.add(own.total.waiting[__builtin_ctz(PART_SEGMENTS)]);
    }
    fold(whole);
    if constexpr (Of<K>::asks) shared.*Of<K>::Make::finite = finite;
    shared.*Of<K>::Make::member = result_of(value);
  }
  static RowState<P> row_of(const RowArgs<P>& args, i64 row) {
    RowState<P> state;
    begin_row(args, state, row);
    state.held = nullptr;
    return state;
  }
  template <int... O> static void finish(const RowArgs<P>& args, const Parts* parts, i64 each, Seq<O...>) {
    for (i64 row = 0; row < args.rows.rows; ++row) {
      RowState<P> state = row_of(args, row);
      (join<I>(state.shared, parts + row * each, each), ...);
      P::finish(state.shared);
      (store_shared<P, O>(args, state), ...);
    }
  }
  // Units `begin` to `end`: parts of one row, then of the next.
  static void run(const RowArgs<P>& args, const void* call, i64 begin, i64 end, i64 each) {
    Underway<Parts>* const own = state(call, begin, args.rows.rows * each);
    const int accumulators = accumulators_of(args.rows.length);
    for (i64 unit = begin; unit < end; ++unit) {
      RowState<P> row = row_of(args, unit / each);
      const i64 first = unit % each * PART_ELEMENTS;
      const auto& makers = Run::run_part(row, first, min(first + PART_ELEMENTS, row.length), accumulators);
      ((get<I>(own->parts[unit]) = {get<I>(makers).total, get<I>(makers).finite}), ...);
    }
    if (__atomic_sub_fetch(&own->left, end - begin, __ATOMIC_ACQ_REL) > 0) return;
    finish(args, own->parts.get(), each, make_seq<operands_of<P>::outputs>());
    RowParts::end(call);
  }
};

// Units `begin` to `end`: rows, or parts of few long ones, as kernels.py counts them. Where these do not come apart, the
// first part is the row.
template <typename P> void cpu_rows(const void* arguments, i64 begin, i64 end) {
  const auto& args = *static_cast<const RowArgs<P>*>(arguments);
  const i64 each = args.rows.rows > FEW_ROWS ? 1 : max(i64(1), (args.rows.length + PART_ELEMENTS - 1) / PART_ELEMENTS);
  if (each == 1) return run_whole_rows(args, begin, end);
  if constexpr (comes_apart<P>) {
    if (!lie_apart(args, make_seq<operands_of<P>::elements>())) {
      using Makes = typename type_at<passes_of<P>, 0>::Makes;
      return RowParts<P, typename Makes::Index>::run(args, arguments, begin, end, each);
    }
  }
  run_whole_rows(args, (begin + each - 1) / each, (end + each - 1) / each);
}
