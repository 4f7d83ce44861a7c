// What kernels of scans have in common: a program's two passes, the first of which makes what is scanned and the second
// the outputs; and what a thread has of a scan. The order is that of model/scan_order.py.
#pragma once
#include "row_schedule.cuh"

constexpr int SCAN_WARP = 32, SCAN_TILE = 8, SCAN_SEGMENT = 16;  // groups of a warp, warps of a tile, tiles of a segment
constexpr int SCAN_HELD_BITS = 128;  // of an element's inputs, at most, that threads hold until they make the outputs
constexpr int SCAN_THREADS = SCAN_WARP * SCAN_TILE;              // of a block

// What a scan goes on with: its values, or what two of them are joined as.
template <typename Make> using scan_state = state_t<typename Make::How, typename Make::Value>;

// The passes of a program that scans.
template <typename P> struct ScanPasses {
  using First = type_at<typename P::Passes, 0>;
  using Last = type_at<typename P::Passes, 1>;
  using Made = typename First::Makes;
  template <typename... Make> static __device__ constexpr int count(List<Make...>) { return (Make::scans + ... + 0); }
  static constexpr int scans = count(Made());  // which come before what else the pass makes
  template <int I> using scan = type_at<Made, I>;
  static constexpr bool reverse = scan<0>::reverse;
  // Whether inputs are read again for the outputs, for registers: nothing but their own elements is written before.
  static constexpr bool again = operands_of<P>::array_bits + operands_of<P>::column_bits > SCAN_HELD_BITS;
};

// Out of line, for what is seldom wanted.
template <typename E>
__device__ __noinline__ ShareWords<E> words_stepped_apart(
    const storage_t<E>* row, i64 first, i64 length, const Along& steps) {
  const Lanes<E, GROUP> lanes = share<STEPPED, E>(row, first, length, steps, nullptr, Span());
  return reinterpret_cast<const ShareWords<E>&>(lanes);
}
template <typename E>
__device__ inline Lanes<E, GROUP> share_stepped_apart(
    const storage_t<E>* row, i64 first, i64 length, const Along& steps) {
  const ShareWords<E> words = words_stepped_apart<E>(row, first, length, steps);
  return reinterpret_cast<const Lanes<E, GROUP>&>(words);
}
template <typename E>
__device__ __noinline__ void keep_stepped_apart(
    storage_t<E>* row, i64 first, i64 length, const Along& steps, const Lanes<E, GROUP> lanes) {
  keep<STEPPED, E>(row, first, length, steps, lanes);
}

// Whether a whole group of a row lies along one axis: then its elements are an equal distance apart.
template <typename E> __device__ inline bool evenly(i64 first, i64 length, const Along& steps) {
  return i32(steps.axes) == 1 && first + GROUP <= length;
}

// A group of a row whose elements lie some distance apart: those of most rows lie evenly, and are on their way
// together.
template <typename E>
__device__ inline Lanes<E, GROUP> stepped_share(const storage_t<E>* row, i64 first, i64 length, const Along& steps) {
  using V = Lanes<E, GROUP>;
  if (!evenly<E>(first, length, steps)) return share_stepped_apart<E>(row, first, length, steps);
  constexpr int each = GROUP / V::units;
  const i64 step = steps.of[INNER - 1];
  V lanes;
  row += first / each * step;
#pragma unroll
  for (int unit = 0; unit < V::units; ++unit, row += step) lanes.data[unit] = fetch(row);
  return lanes;
}
template <typename E>
__device__ inline void stepped_keep(
    storage_t<E>* row, i64 first, i64 length, const Along& steps, const Lanes<E, GROUP>& lanes) {
  using V = Lanes<E, GROUP>;
  if (!evenly<E>(first, length, steps)) return keep_stepped_apart<E>(row, first, length, steps, lanes);
  constexpr int each = GROUP / V::units;
  const i64 step = steps.of[INNER - 1];
  row += first / each * step;
#pragma unroll
  for (int unit = 0; unit < V::units; ++unit, row += step) *row = lanes.data[unit];
}

// Bytes of an element of all scans.
template <typename P, typename N> struct ScanBytesOf;
template <typename P, int... I> struct ScanBytesOf<P, Seq<I...>> {
  static constexpr int value = (int(sizeof(scan_state<typename ScanPasses<P>::template scan<I>>)) + ... + 0);
};
template <typename P> constexpr int scan_bytes = ScanBytesOf<P, make_seq<ScanPasses<P>::scans>>::value;

// What threads have of the inputs with elements: a group of each.
template <typename P, typename N> struct ScanSharesOf;
template <typename P, int... N> struct ScanSharesOf<P, Seq<N...>> {
  Tuple<Lanes<element_in<P, N>, GROUP>...> of;

  template <int MODE> __device__ void load(const RowArgs<P>& args, const RowStarts<P>& starts, i64 first, i64 length) {
    (load_one<MODE, N>(args, starts, first, length), ...);
  }

 private:
  template <int MODE, int I>
  __device__ void load_one(const RowArgs<P>& args, const RowStarts<P>& starts, i64 first, i64 length) {
    const auto& input = args.template elements<I>();
    const auto* const row = get<I>(starts.at);
    if constexpr (MODE == STEPPED) get<I>(of) = stepped_share<element_in<P, I>>(row, first, length, input.steps);
    else get<I>(of) = share<MODE, element_in<P, I>>(row, first, length, input.steps, input.array, input.span);
  }
};
template <typename P> using ScanShares = ScanSharesOf<P, make_seq<operands_of<P>::elements>>;

// Computes a pass for a group. take: called with each element's place in it, and its values.
template <typename P, bool FAST, int KNOWN, typename Pass, typename Take>
__device__ inline void compute_lanes(
    const Pass& pass, const ScanShares<P>& shares, typename P::Held* held, bool& usual, const Take& take) {
#pragma unroll
  for (int lane = 0; lane < GROUP; ++lane)
    take(lane, pass.template of<FAST, KNOWN>(element_in_lane<P, Pass::READS>(shares.of, lane), held[lane], usual));
}
template <typename P, int KNOWN, typename Pass, typename Take>
__device__ inline void compute_group(
    const Pass& pass, const ScanShares<P>& shares, typename P::Held* held, const Take& take) {
  bool usual = pass.fast();
  compute_lanes<P, true, KNOWN>(pass, shares, held, usual, take);
  if constexpr (Pass::CAREFUL)
    if (__builtin_expect(!usual, 0)) compute_lanes<P, false, KNOWN>(pass, shares, held, usual, take);
}

// A group of a scan: what is scanned, then the scan of the group alone.
template <typename Make> struct ScanGroup {
  using How = typename Make::How;
  using V = scan_state<Make>;
  static constexpr int before = Make::reverse ? 1 : -1;  // where the element is that comes before one
  V of[GROUP];

  // Elements from `left` on are not the row's. Returns the total.
  __device__ V scan(i64 left) {
    if (left < GROUP)
#pragma unroll
      for (int lane = 0; lane < GROUP; ++lane)
        if (lane >= left) of[lane] = How::template nothing<V>();
#pragma unroll
    for (int i = 1; i < GROUP; ++i) {
      const int lane = Make::reverse ? GROUP - 1 - i : i;
      of[lane] = How::of(of[lane + before], of[lane]);
    }
    return of[Make::reverse ? 0 : GROUP - 1];
  }
  // The scan of the row at an element. all: of what comes before the group.
  __device__ V value(int lane, V all, bool first) const {
    if constexpr (Make::exclusive) {
      if (first) return How::template empty<V>();
      return lane == (Make::reverse ? GROUP - 1 : 0) ? all : How::of(all, of[lane + before]);
    } else {
      return How::of(all, of[lane]);
    }
  }
};

// Where a row lies, whichever block has it.
template <typename P> struct DownRow {
  static constexpr bool plain = false;
  RowSpace::Position position;
  __device__ i64 plain_offset(const Strides&) const { return 0; }
};

// What a row has before a tile: the tiles of this segment, and the segments.
template <typename How, typename V> struct ScanCarry {
  V tiles = How::template nothing<V>(), segments = How::template nothing<V>();
  int done = 0;

  __device__ V before() const { return How::of(segments, tiles); }
  __device__ void add(V tile) {
    tiles = How::of(tiles, tile);
    if (++done < SCAN_SEGMENT) return;
    segments = How::of(segments, tiles);
    tiles = How::template nothing<V>();
    done = 0;
  }
};

// Computes a group's outputs and stores them.
template <typename P, typename Make, typename V> struct ScanStored { using type = V; };
template <typename P, int O> struct ScanStored<P, Store<O>, i64> { using type = code_t<element_out<P, O>>; };
template <typename... V> __device__ List<V...> scan_types(const Tuple<V...>&);
template <typename P, typename Pass, int I> struct ScanStore {
  using Make = type_at<typename Pass::Makes, I>;
  using Values = decltype(scan_types(static_cast<const Pass*>(nullptr)->template of<true, 0>(
      *static_cast<const typename P::Element*>(nullptr), *static_cast<typename P::Held*>(nullptr),
      *static_cast<bool*>(nullptr))));
  using Type = typename ScanStored<P, Make, type_at<Values, I>>::type;
  static constexpr int O = Make::output;
  using E = element_out<P, O>;
  Type of[GROUP];

  template <typename V> __device__ void set(int lane, const V& value) { of[lane] = Type(value); }
  __device__ Lanes<E, GROUP> lanes() const {
    Lanes<E, GROUP> lanes = {};
    set_all(lanes, of);
    return lanes;
  }
  template <int MODE>
  __device__ void store(const RowArgs<P>& args, const RowStarts<P>& starts, i64 first, i64 length) const {
    const auto& steps = args.template output<O>().steps;
    auto* const row = get<RowStarts<P>::inputs + O>(starts.at);
    if constexpr (MODE == STEPPED) stepped_keep<E>(row, first, length, steps, lanes());
    else keep<MODE, E>(row, first, length, steps, lanes());
  }
};
template <typename P, typename Pass, typename Stores, int... I>
__device__ inline void compute_stores(
    const Pass& pass, const ScanShares<P>& shares, typename P::Held* held, Stores& stores, Seq<I...>) {
  compute_group<P, HOLDS_EARLIER>(pass, shares, held, [&](int lane, const auto& values) {
    (get<I>(stores).set(lane, get<I>(values)), ...);
  });
}
template <typename P, int MODE, typename Pass, int... I>
__device__ inline void store_group(
    const RowArgs<P>& args, const RowStarts<P>& starts, const Pass& pass, const ScanShares<P>& shares,
    typename P::Held* held, i64 first, i64 length, Seq<I...> indices) {
  Tuple<ScanStore<P, Pass, I>...> stores;
  compute_stores<P>(pass, shares, held, stores, indices);
  (get<I>(stores).template store<MODE>(args, starts, first, length), ...);
}

template <typename P, int... I>
__device__ inline void store_of_row(const RowStarts<P>& starts, const typename P::Shared& shared, Seq<I...>) {
  (store_per_row<P, I>(get<RowStarts<P>::inputs + I>(starts.at), shared), ...);
}
