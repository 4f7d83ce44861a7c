// What reductions are: what they make of two values, and of the eight neighbours that are joined first.
#pragma once
#include "lanes.cuh"
#include "quick.cuh"

constexpr int GROUP = 8;  // neighbours that are joined first: a thread's share

// `nothing` changes no bit of what it is joined with; `empty` is the reduction of no elements.
struct Sum {
  template <typename V> static __device__ V nothing() { return V(-0.0); }
  template <typename V> static __device__ V empty() { return V(0); }
  template <typename V> static __device__ V of(V a, V b) { return a + b; }
};
struct Product {
  template <typename V> static __device__ V nothing() { return V(1); }
  template <typename V> static __device__ V empty() { return V(1); }
  template <typename V> static __device__ V of(V a, V b) { return a * b; }
};
// NaN if any is NaN; +0 is above -0.
struct Largest {
  template <typename V> static __device__ V nothing();
  template <typename V> static __device__ V empty() { return nothing<V>(); }  // refused by the plan
  static __device__ i64 of(i64 a, i64 b) { return a > b ? a : b; }
  static __device__ i32 of(i32 a, i32 b) { return a > b ? a : b; }
  static __device__ f32 of(f32 a, f32 b) {
    f32 y;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
  }
  static __device__ f64 of(f64 a, f64 b) {
    return (a > b) | ((a == b) & (__double_as_longlong(b) < 0)) | is_nan(a) ? a : b;  // of zeros, a where b is -0
  }
};
template <> __device__ inline i64 Largest::nothing<i64>() { return i64(1ull << 63); }
template <> __device__ inline i32 Largest::nothing<i32>() { return i32(1u << 31); }
template <> __device__ inline f32 Largest::nothing<f32>() { return __uint_as_float(0xff800000u); }
template <> __device__ inline f64 Largest::nothing<f64>() { return __longlong_as_double(0xfff0000000000000ull); }
struct Smallest {
  template <typename V> static __device__ V nothing();
  template <typename V> static __device__ V empty() { return nothing<V>(); }  // refused by the plan
  static __device__ i64 of(i64 a, i64 b) { return a < b ? a : b; }
  static __device__ i32 of(i32 a, i32 b) { return a < b ? a : b; }
  static __device__ f32 of(f32 a, f32 b) {
    f32 y;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
  }
  static __device__ f64 of(f64 a, f64 b) {
    return (a < b) | ((a == b) & (__double_as_longlong(a) < 0)) | is_nan(a) ? a : b;  // of zeros, a where it is -0
  }
};
template <> __device__ inline i64 Smallest::nothing<i64>() { return i64(~0ull >> 1); }
template <> __device__ inline i32 Smallest::nothing<i32>() { return i32(~0u >> 1); }
template <> __device__ inline f32 Smallest::nothing<f32>() { return __uint_as_float(0x7f800000u); }
template <> __device__ inline f64 Smallest::nothing<f64>() { return __longlong_as_double(0x7ff0000000000000ull); }
struct Any {
  template <typename V> static __device__ V nothing() { return false; }
  template <typename V> static __device__ V empty() { return false; }
  static __device__ bool of(bool a, bool b) { return a || b; }
};
struct All {
  template <typename V> static __device__ V nothing() { return true; }
  template <typename V> static __device__ V empty() { return true; }
  static __device__ bool of(bool a, bool b) { return a && b; }
};

// The largest or smallest element with its index in the row: the first of equals, the first NaN if any is NaN. Any
// order gives the same.
template <typename V> struct ValueAndIndex {
  V value;
  i64 index;
};
template <bool LARGEST> struct ArgExtreme {
  template <typename P> static __device__ P nothing() {
    using V = decltype(P::value);
    if constexpr (LARGEST) return {Largest::nothing<V>(), i64(~0ull >> 1)};
    else return {Smallest::nothing<V>(), i64(~0ull >> 1)};
  }
  template <typename P> static __device__ P empty() { return nothing<P>(); }  // refused by the plan
  template <typename V> static __device__ ValueAndIndex<V> of(const ValueAndIndex<V>& a, const ValueAndIndex<V>& b) {
    const bool nan_a = a.value != a.value, nan_b = b.value != b.value;
    const bool before = LARGEST ? a.value > b.value : a.value < b.value;
    const bool same = a.value == b.value || (nan_a && nan_b);
    return same ? (a.index < b.index ? a : b) : before || nan_a ? a : b;
  }
};
struct ArgLargest : ArgExtreme<true> {};
struct ArgSmallest : ArgExtreme<false> {};

// Of elements their number, one of them, how far their mean lies from it, and the sum of their squared distances from
// the mean. Such of two parts of a row make that of both (Chan, Golub and LeVeque 1979). Means are told by elements, so
// that what both have in common is not rounded.
template <typename V> struct Moments {
  V count, pivot, offset, squares;
};
template <typename A, typename B> constexpr bool same = false;
template <typename A> constexpr bool same<A, A> = true;
struct SquaredDeviations {
  template <typename M> static __device__ M nothing() { return {0, 0, 0, 0}; }
  template <typename M> static __device__ M empty() { return nothing<M>(); }
  template <typename V> static __device__ Moments<V> of_one(V value) { return {V(1), value, V(0), V(0)}; }
  // a is the part that comes first. Where means are further from elements than C reaches, squares are infinite.
  template <typename V> static __device__ Moments<V> of(const Moments<V>& a, const Moments<V>& b) {
    const V count = a.count + b.count;
    const V quotient = sure_quotient(b.count, count);  // under no condition: rows beside each other then have one
    const V share = a.count == b.count ? V(0.5) : quotient;
    const V apart = (b.pivot - a.pivot) + (b.offset - a.offset), offset = a.offset + apart * share;
    const bool none = a.count == V(0), near = is_finite(offset);
    const V more = near ? apart * (apart * (a.count * share)) : Smallest::nothing<V>();
    return {count, none ? b.pivot : a.pivot, none ? b.offset : near ? offset : V(0),
            none ? b.squares : (a.squares + b.squares) + more};
  }
};

// The largest element, and the sum of the exponentials of distances from what follows from it (log_sum_exp.cuh).
template <typename V> struct Exponentials {
  V largest, sum;
};
struct LogSumExp;

// Whether a reduction goes on with several values, which it makes of eight neighbours together.
template <typename How> constexpr bool parted = same<How, SquaredDeviations> || same<How, LogSumExp>;

template <typename How> struct extreme_of;
template <> struct extreme_of<ArgLargest> { using type = Largest; };
template <> struct extreme_of<ArgSmallest> { using type = Smallest; };

// What a reduction makes of values V while it goes on: V itself, V with its index in the row, or several.
template <typename How, typename V> struct state { using type = V; };
template <typename V> struct state<ArgLargest, V> { using type = ValueAndIndex<V>; };
template <typename V> struct state<ArgSmallest, V> { using type = ValueAndIndex<V>; };
template <typename V> struct state<SquaredDeviations, V> { using type = Moments<V>; };
template <typename V> struct state<LogSumExp, V> { using type = Exponentials<V>; };
template <typename How, typename V> using state_t = typename state<How, V>::type;
template <typename How, typename V> __device__ inline state_t<How, V> state_of(V value, i64 index) {
  if constexpr (parted<How>) return How::of_one(value);
  else if constexpr (sizeof(state_t<How, V>) == sizeof(V)) return value;
  else return {value, index};
}
template <typename V> __device__ inline V result_of(V value) { return value; }
template <typename V> __device__ inline i64 result_of(const ValueAndIndex<V>& found) { return found.index; }
template <typename V> __device__ inline V result_of(const Moments<V>& found) { return found.squares; }

template <typename V> __device__ inline V from_lane(V value, int apart) {
  return __shfl_xor_sync(0xffffffffu, value, apart);
}
template <typename V> __device__ inline ValueAndIndex<V> from_lane(const ValueAndIndex<V>& found, int apart) {
  return {from_lane(found.value, apart), from_lane(found.index, apart)};
}
template <typename V> __device__ inline Moments<V> from_lane(const Moments<V>& found, int apart) {
  return {from_lane(found.count, apart), from_lane(found.pivot, apart), from_lane(found.offset, apart),
          from_lane(found.squares, apart)};
}
template <typename V> __device__ inline Exponentials<V> from_lane(const Exponentials<V>& found, int apart) {
  return {from_lane(found.largest, apart), from_lane(found.sum, apart)};
}
// What lanes have that differ in some bits, once they have joined each other: the first of them has joined in the row's
// order, the others did in another one, which makes a difference to moments alone.
template <typename How, int BITS, typename V> __device__ inline V same_in_lanes(const V& value) {
  if constexpr (same<How, SquaredDeviations>) {
    const int first = threadIdx.x % 32 & ~BITS;
    return {__shfl_sync(0xffffffffu, value.count, first), __shfl_sync(0xffffffffu, value.pivot, first),
            __shfl_sync(0xffffffffu, value.offset, first), __shfl_sync(0xffffffffu, value.squares, first)};
  } else {
    return value;
  }
}
// What a lane has and what the one has that differs from it in a bit, which both join in the row's order.
template <typename How, typename V> __device__ inline V joined_lanes(const V& own, const V& other, int bit) {
  if constexpr (!same<How, SquaredDeviations>) {
    return How::of(own, other);
  } else {
    const bool after = (threadIdx.x & bit) != 0;  // members are chosen, as an address would have to be in memory
    const V first = {after ? other.count : own.count, after ? other.pivot : own.pivot,
                     after ? other.offset : own.offset, after ? other.squares : own.squares};
    const V second = {after ? own.count : other.count, after ? own.pivot : other.pivot,
                      after ? own.offset : other.offset, after ? own.squares : other.squares};
    return How::of(first, second);
  }
}
// The largest magnitude of the finite values; 0 if there are none.
struct LargestMagnitude : Largest {
  template <typename V> static __device__ V nothing() { return V(0); }
  template <typename V> static __device__ V empty() { return Largest::empty<V>(); }
};

// The largest and the smallest where values that are not finite count as 0.
struct LargestFinite : Largest {};
struct SmallestFinite : Smallest {};

// Whether a reduction has one order only. An extreme may be found in any.
template <typename How>
constexpr bool ordered = same<How, Sum> || same<How, Product> || parted<How>;

template <typename How> constexpr int direction = 0;  // of an extreme: up or down
template <> constexpr int direction<Largest> = 1;
template <> constexpr int direction<LargestMagnitude> = 1;
template <> constexpr int direction<LargestFinite> = 1;
template <> constexpr int direction<Smallest> = -1;
template <> constexpr int direction<SmallestFinite> = -1;

// The largest or smallest value of a warp, of which each is a number or the canonical NaN, in one instruction of
// integers: their order is that of floats once the bits of negative ones are turned. NaN is above all numbers, or wraps
// around to below them.
template <int DIRECTION> __device__ inline f32 extreme_of_warp(f32 value) {
  const i32 bits = __float_as_int(value), ordered = bits ^ (bits >> 31 & 0x7fffffff);
  const i32 found = DIRECTION > 0 ? __reduce_max_sync(0xffffffffu, ordered)
                                  : i32(u32(__reduce_min_sync(0xffffffffu, i32(u32(ordered) + 1u))) - 1u);
  return __int_as_float(found ^ (found >> 31 & 0x7fffffff));
}
template <int DIRECTION> __device__ inline i32 extreme_of_warp(i32 value) {
  return DIRECTION > 0 ? __reduce_max_sync(0xffffffffu, value) : __reduce_min_sync(0xffffffffu, value);
}

// A group made one by joining neighbours.
template <typename How, typename V, int N> __device__ inline V joined_neighbours(const V (&group)[N]) {
  V values[N];
#pragma unroll
  for (int i = 0; i < N; ++i) values[i] = group[i];
#pragma unroll
  for (int apart = 1; apart < N; apart *= 2)
#pragma unroll
    for (int i = 0; i < N; i += 2 * apart) values[i] = How::of(values[i], values[i + apart]);
  return values[0];
}
// The moments of a group, each of whose elements has a count of 1, or of 0 where the row does not have it. Where the
// mean is no number, an element is not finite, or squares leave the range of C.
template <typename V> __device__ inline Moments<V> moments_of(const Moments<V> (&group)[GROUP]) {
  const V pivot = group[0].pivot;
  V count = V(0), distances[GROUP], squares[GROUP];
#pragma unroll
  for (int i = 0; i < GROUP; ++i) {
    count = count + group[i].count;
    distances[i] = group[i].count == V(0) ? V(0) : group[i].pivot - pivot;
  }
  const V sum = joined_neighbours<Sum>(distances), offset = count == V(GROUP) ? sum * V(1.0 / GROUP) : divided(sum, count);
#pragma unroll
  for (int i = 0; i < GROUP; ++i) {
    const V distance = distances[i] - offset;
    squares[i] = group[i].count == V(0) ? V(0) : distance * distance;
  }
  const V total = joined_neighbours<Sum>(squares);
  if (__builtin_expect(is_finite(offset), 1)) return {count, pivot, offset, total};
  bool finite = true;
#pragma unroll
  for (int i = 0; i < GROUP; ++i) finite &= is_finite(group[i].pivot);
  return {count, pivot, V(0), finite ? Smallest::nothing<V>() : offset - offset};
}
// The same of a whole group; where the offset is not finite, they are for the function above.
template <typename V> __device__ inline Moments<V> moments_of_whole(const V (&values)[GROUP]) {
  V distances[GROUP], squares[GROUP];
#pragma unroll
  for (int i = 0; i < GROUP; ++i) distances[i] = values[i] - values[0];
  const V offset = joined_neighbours<Sum>(distances) * V(1.0 / GROUP);
#pragma unroll
  for (int i = 0; i < GROUP; ++i) squares[i] = (distances[i] - offset) * (distances[i] - offset);
  return {V(GROUP), values[0], offset, joined_neighbours<Sum>(squares)};
}
// The same of the first `exist` of a group, which are among its first N; `count` divides by their number. As that is an
// integer, remainders are exact, of numbers below 1 too.
template <int N, typename V>
__device__ inline Moments<V> moments_of_first(const V (&values)[GROUP], i32 exist, const DivisorFromOne<V>& count) {
  V distances[N], squares[N];
#pragma unroll
  for (int i = 0; i < N; ++i) distances[i] = i < exist ? values[i] - values[0] : V(0);
  const V offset = count.template quotient<FAST_WITHIN>(joined_neighbours<Sum>(distances));
#pragma unroll
  for (int i = 0; i < N; ++i) squares[i] = i < exist ? (distances[i] - offset) * (distances[i] - offset) : V(0);
  return {count.s, values[0], offset, joined_neighbours<Sum>(squares)};
}
// Whether these are right. Of six a quotient below the normal numbers may be a tie, which a product with an inverse
// does not decide.
template <typename V> __device__ inline bool sure_moments(const Moments<V>& found, i32 exist) {
  return is_finite(found.offset) & (exist != 6 || absolute(found.offset) >= limits<V>::scale_low);
}
// Not of sums of exponentials, which are made of elements: LogSumExp::of.
template <typename How, typename V> __device__ inline V joined(const V (&group)[GROUP]) {
  if constexpr (same<How, SquaredDeviations>) return moments_of(group);
  else return joined_neighbours<How>(group);
}

// As PTX where there is a sign: compilers that know that nothing overflows multiply in 64 bits from the start.
template <bool SIGNED> __device__ inline i64 wide_product(u32 a, u32 b) {
  i64 y;
  if constexpr (SIGNED) asm("mul.wide.s32 %0, %1, %2;" : "=l"(y) : "r"(i32(a)), "r"(i32(b)));
  else y = i64(u64(a) * b);
  return y;
}
// The same of elements E as they are stored. Integers are brought together in 32 bits for as long as these hold what
// comes of them; wider ones have the same bits in any order.
template <typename How, typename E, typename V> __device__ inline V joined_stored(const V (&group)[GROUP]) {
  constexpr int bits = Format<E>::bits;
  if constexpr (!same<V, i64> || Format<E>::real || (!same<How, Sum> && !same<How, Product> && direction<How> == 0)) {
    return joined<How>(group);
  } else if constexpr (same<How, Product> && bits <= 16) {
    constexpr int FIT = 32 / bits;  // elements whose product has 32 bits
    u32 products[GROUP / FIT];
    V values[GROUP];
#pragma unroll
    for (int i = 0; i < GROUP / FIT; ++i) {
      products[i] = u32(group[i * FIT]);
#pragma unroll
      for (int j = 1; j < FIT; ++j) products[i] *= u32(group[i * FIT + j]);
    }
#pragma unroll
    for (int i = 0; i < GROUP; ++i)
      values[i] = i >= GROUP / FIT / 2 ? V(1) : wide_product<Format<E>::has_sign>(products[2 * i], products[2 * i + 1]);
    return joined<How>(values);
  } else if constexpr (same<How, Sum> ? bits <= 16 : direction<How> != 0 && bits + !Format<E>::has_sign <= 32) {
    i32 values[GROUP];
#pragma unroll
    for (int i = 0; i < GROUP; ++i) values[i] = i32(group[i]);
    return joined<How>(values);
  } else {
    return joined<How>(group);
  }
}

template <typename How, typename V> __device__ inline V of_finite(V (&values)[GROUP]) {
#pragma unroll
  for (int i = 0; i < GROUP; ++i) values[i] = is_finite(values[i]) ? values[i] : V(0);
  return joined<How>(values);
}

// Whether values are finite is asked of their group first; `finite` becomes false where one is not.
template <typename How, typename V> struct Group {
  static __device__ V of(V (&values)[GROUP], bool&) { return joined<How>(values); }
};
template <typename V> struct Group<LargestMagnitude, V> {
  static __device__ V of(V (&values)[GROUP], bool& finite) {
#pragma unroll
    for (int i = 0; i < GROUP; ++i) values[i] = absolute(values[i]);
    const V largest = joined<Largest>(values);
    if (is_finite(largest)) return largest;
    finite = false;
    return of_finite<Largest>(values);
  }
};

// Where the largest is positive and finite, values that count as 0 make no difference.
template <typename V> struct Group<LargestFinite, V> {
  static __device__ V of(V (&values)[GROUP], bool& finite) {
    const V largest = joined<Largest>(values);
    finite &= is_finite(largest);
    return largest > V(0) && is_finite(largest) ? largest : of_finite<Largest>(values);
  }
};
template <typename V> struct Group<SmallestFinite, V> {
  static __device__ V of(V (&values)[GROUP], bool& finite) {
    const V smallest = joined<Smallest>(values);
    finite &= is_finite(smallest);
    return smallest < V(0) && is_finite(smallest) ? smallest : of_finite<Smallest>(values);
  }
};

// A group made one as if all values were finite, and whether what comes of such groups then is what is wanted.
template <typename How, typename V> __device__ inline V joined_unasked(V (&values)[GROUP]) {
  if constexpr (same<How, LargestMagnitude>)
#pragma unroll
    for (int i = 0; i < GROUP; ++i) values[i] = absolute(values[i]);
  return joined<How>(values);
}
template <typename How, typename V> __device__ inline bool sure_of(V value) {
  if constexpr (same<How, LargestMagnitude>) return is_finite(value);
  else if constexpr (same<How, LargestFinite>) return is_finite(value) && value > V(0);
  else if constexpr (same<How, SmallestFinite>) return is_finite(value) && value < V(0);
  else return true;
}

// Two elements of 16 bits at once.
template <typename E> struct Pair;
template <> struct Pair<f16> {
  static constexpr u32 infinity = 0x7c007c00u;
  static __device__ u32 larger(u32 a, u32 b) {
    u32 y;
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
    return y;
  }
  static __device__ u32 smaller(u32 a, u32 b) {
    u32 y;
    asm("min.NaN.f16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
    return y;
  }
};
template <> struct Pair<bf16> {
  static constexpr u32 infinity = 0x7f807f80u;
  static __device__ u32 larger(u32 a, u32 b) {
    u32 y;
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
    return y;
  }
  static __device__ u32 smaller(u32 a, u32 b) {
    u32 y;
    asm("min.NaN.bf16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
    return y;
  }
};

// A share whose first stands for those that a row does not have: for extremes it makes no difference.
template <typename E> __device__ inline Lanes<E, GROUP> repeated(Lanes<E, GROUP> lanes, i32 count) {
  if (__builtin_expect(count >= GROUP, 1)) return lanes;
#pragma unroll
  for (int i = 1; i < Lanes<E, GROUP>::units; ++i) lanes.data[i] = i < count ? lanes.data[i] : lanes.data[0];
  return lanes;
}

// The extremes of elements as they are stored, where two of them fit a word. NaN if any is NaN.
template <typename How, typename E> struct Packed {
  static constexpr bool can = false;
};
template <typename How, typename E> struct PackedPairs {
  static constexpr bool can = direction<How> != 0;
  static constexpr bool magnitude = same<How, LargestMagnitude>;
  static constexpr bool sure = same<How, Largest> || same<How, Smallest>;  // whatever the elements are
  u32 largest = magnitude ? 0u : Pair<E>::infinity | 0x80008000u, smallest = Pair<E>::infinity;

  __device__ void add(const Lanes<E, GROUP>& lanes) {
#pragma unroll
    for (int i = 0; i < GROUP / 2; ++i) {
      const u32 pair = reinterpret_cast<const u32*>(lanes.data)[i];
      largest = Pair<E>::larger(largest, magnitude ? pair & 0x7fff7fffu : pair);
      smallest = Pair<E>::smaller(smallest, pair);
    }
  }
  // A share of which a row has `count` elements. What was found is made again where some are missing, not the elements:
  // else compilers would hold them twice.
  __device__ void add(const Lanes<E, GROUP>& lanes, i32 count) {
    PackedPairs found = *this;
    found.add(lanes);
    if (__builtin_expect(count < GROUP, 0)) {
      found = *this;
      found.add(repeated(lanes, count));
    }
    *this = found;
  }

  static __device__ f32 low(u32 pair) { return widen(E{(unsigned short)pair}); }
  static __device__ f32 high(u32 pair) { return widen(E{(unsigned short)(pair >> 16)}); }
  __device__ f32 greatest() const { return Largest::of(low(largest), high(largest)); }
  __device__ f32 least() const { return Smallest::of(low(smallest), high(smallest)); }

  // Whether `value` is what is wanted: it is not where some element is not finite and that matters.
  __device__ bool known() const {
    return sure || (is_finite(greatest()) && (magnitude || is_finite(least())));
  }
  __device__ f32 value() const { return direction<How> < 0 ? least() : greatest(); }
};

template <typename How> struct Packed<How, f16> : PackedPairs<How, f16> {};
template <typename How> struct Packed<How, bf16> : PackedPairs<How, bf16> {};

// The larger or smaller ones of two integers of 16 bits.
template <bool LARGEST, bool SIGNED> __device__ inline u32 better_halves(u32 a, u32 b) {
  if constexpr (LARGEST) return SIGNED ? __vmaxs2(a, b) : __vmaxu2(a, b);
  else return SIGNED ? __vmins2(a, b) : __vminu2(a, b);
}

// The extremes of integers of a byte, each the high half of 16 bits that are compared. What lies below makes no
// difference.
template <typename How, typename E> struct PackedBytes {
  static constexpr bool can = direction<How> != 0, sure = true, LARGEST = direction<How> > 0;
  static constexpr u32 nothing = Format<E>::has_sign ? (LARGEST ? 0x80008000u : 0x7fff7fffu) : LARGEST ? 0u : ~0u;
  u32 even = nothing, odd = nothing;  // of the bytes of a word

  static __device__ u32 of(u32 a, u32 b) { return better_halves<LARGEST, Format<E>::has_sign>(a, b); }
  __device__ void add(const Lanes<E, GROUP>& lanes) {
#pragma unroll
    for (int i = 0; i < GROUP / 4; ++i) {
      const u32 word = reinterpret_cast<const u32*>(lanes.data)[i];
      even = of(even, word << 8);
      odd = of(odd, word);
    }
  }
  __device__ void add(const Lanes<E, GROUP>& lanes, i32 count) { add(repeated(lanes, count)); }
  __device__ bool known() const { return true; }
  __device__ i64 value() const {
    const u32 both = of(even, odd), found = of(both, both << 16);
    return Format<E>::has_sign ? i32(found) >> 24 : i32(found >> 24);
  }
};
template <> struct Packed<Largest, s8> : PackedBytes<Largest, s8> {};
template <> struct Packed<Smallest, s8> : PackedBytes<Smallest, s8> {};
template <> struct Packed<Largest, u8> : PackedBytes<Largest, u8> {};
template <> struct Packed<Smallest, u8> : PackedBytes<Smallest, u8> {};

// The sum of integers of 16 bits and less in 32 bits, and their product in these for as long as they hold it.
template <typename E> struct PackedSum {
  static constexpr bool can = Format<E>::bits <= 16;
  i32 sum = 0;

  __device__ void add(const Lanes<E, GROUP>& lanes) {
    if constexpr (Format<E>::bits == 8) {
#pragma unroll
      for (int i = 0; i < GROUP / 4; ++i) {
        const u32 word = reinterpret_cast<const u32*>(lanes.data)[i];
        if constexpr (Format<E>::has_sign)
          asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(sum) : "r"(word), "r"(0x01010101), "r"(sum));
        else
          asm("dp4a.u32.u32 %0, %1, %2, %3;" : "=r"(sum) : "r"(word), "r"(0x01010101), "r"(sum));
      }
    } else {
#pragma unroll
      for (int i = 0; i < GROUP; ++i) sum += i32(lanes.get(i));
    }
  }
  __device__ void add(Lanes<E, GROUP> lanes, i32 count) {
#pragma unroll
    for (int i = 1; i < GROUP; ++i) lanes.data[i] = i < count ? lanes.data[i] : 0;
    add(lanes);
  }
  __device__ bool known() const { return true; }
  __device__ i64 value() const { return sum; }
};
template <typename E> struct PackedProduct {
  static constexpr bool can = Format<E>::bits <= 16;
  i64 product = 1;

  __device__ void add(const Lanes<E, GROUP>& lanes) {
    i64 group[GROUP];
#pragma unroll
    for (int i = 0; i < GROUP; ++i) group[i] = lanes.get(i);
    product *= joined_stored<Product, E>(group);
  }
  __device__ void add(Lanes<E, GROUP> lanes, i32 count) {
#pragma unroll
    for (int i = 1; i < GROUP; ++i) lanes.data[i] = i < count ? lanes.data[i] : 1;
    add(lanes);
  }
  __device__ bool known() const { return true; }
  __device__ i64 value() const { return product; }
};
template <typename How, typename E> struct PackedIntegers;
template <typename E> struct PackedIntegers<Sum, E> : PackedSum<E> {};
template <typename E> struct PackedIntegers<Product, E> : PackedProduct<E> {};

// What a pass found of the elements that a row does not have counts for nothing.
template <typename How, typename V> __device__ inline void cut(V (&values)[GROUP], i32 count) {
#pragma unroll
  for (int i = 1; i < GROUP; ++i) values[i] = i < count ? values[i] : How::template nothing<V>();
}
