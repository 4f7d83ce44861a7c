// Neighbouring elements in registers: wide loads and stores where alignment allows, packed types included.
#pragma once
#include "small_floats.cuh"

// One of the two elements of a byte, the first of which is in the low half.
template <typename E> __device__ inline compute_t<E> half_of(const u8& byte, bool high) {
  if constexpr (Format<E>::real) {
    return widen_of(E{}, byte, high);
  } else if constexpr (Format<E>::has_sign) {
    return s8(high ? byte : byte << 4) >> 4;
  } else {
    return high ? byte >> 4 : byte & 15;
  }
}
template <typename E, typename V> __device__ inline u32 half_code(V value) {
  if constexpr (Format<E>::real) {
    return narrow_to<E>::from(value).bits;
  } else {
    return u32(i64(value)) & 15;
  }
}

// An element that is no memory's: its value is its index. An operand of such elements begins at address 0, so that what
// finds an element's address finds its value, however rows and strides lie.
struct Place {
  i64 index;
};
template <> struct Format<Place> : ExactFormat<Place, i64, 64, true> {};
template <typename E> constexpr bool IS_PLACE = false;
template <> constexpr bool IS_PLACE<Place> = true;
__device__ inline i64 widen(Place x) { return x.index; }

// A place that elements share, and how far two are apart, as formulas take them that compare it. NEAR: a schedule knows
// that indices along an axis are less than 2^31 - 1, so 32 bits compare; a constant once functions are inlined.
struct PlacesApart {
  i64 distance;
  bool near;

  static __device__ i32 saturated(i64 x) {
    return x > 0x7fffffff ? 0x7fffffff : x < -0x7fffffff ? -0x7fffffff : i32(x);
  }
  __device__ bool operator==(i64 x) const { return near ? i32(distance) == saturated(x) : distance == x; }
  __device__ bool operator<(i64 x) const { return near ? i32(distance) < saturated(x) : distance < x; }
  __device__ bool operator>(i64 x) const { return near ? i32(distance) > saturated(x) : distance > x; }
  __device__ bool operator!=(i64 x) const { return !(*this == x); }
  __device__ bool operator<=(i64 x) const { return !(*this > x); }
  __device__ bool operator>=(i64 x) const { return !(*this < x); }
};
struct SharedPlace {
  i64 index;
  bool near;

  SharedPlace() = default;
  __device__ explicit SharedPlace(i64 index) : index(index), near(false) {}
  __device__ SharedPlace(i64 index, bool near) : index(index), near(near) {}
  __device__ operator i64() const { return index; }
  __device__ PlacesApart operator-(const SharedPlace& other) const {
    return {index - other.index, near && other.near};
  }
};

// A place for which a random number is drawn: the `lane`-th of neighbours that begin at `first`. So compilers see which
// of them have words of one block.
struct DrawnPlace {
  i64 index, first;
  i32 lane;

  DrawnPlace() = default;
  __device__ DrawnPlace(i64 index) : index(index), first(index), lane(0) {}
  __device__ DrawnPlace(i64 first, i32 lane) : index(first + lane), first(first), lane(lane) {}
  __device__ operator i64() const { return index; }
};

// One element as it is stored.
template <typename S> __device__ __forceinline__ S fetch(const S* from) { return *from; }
__device__ __forceinline__ Place fetch(const Place* from) { return {i64(u64(from) / sizeof(Place))}; }

// How neighbours are held in registers: an element each, two elements a conversion, two elements to a byte.
enum Holding { ONE_EACH, IN_PAIRS, PACKED };
template <typename E> constexpr Holding holding = Format<E>::bits < 8 ? PACKED : small_float<E> ? IN_PAIRS : ONE_EACH;

// N neighbours of element type E as they are stored.
template <typename E, int N, Holding = holding<E>>
struct alignas(N * storage<E>::bits >= 128 ? 16 : N * storage<E>::bits / 8) Lanes {
  static constexpr int units = N * storage<E>::bits / 8 / int(sizeof(storage_t<E>));
  storage_t<E> data[units];

  __device__ compute_t<E> get(int lane) const { return widen(data[lane]); }
  template <typename V> __device__ void set(int lane, V value) { data[lane] = narrow_to<E>::from(value); }
};

// Two elements to a 32-bit word: one operation widens each, where the compiler would take a word apart first.
template <int N> struct alignas(N >= 8 ? 16 : N * 2) Lanes<bf16, N, ONE_EACH> {
  static constexpr int units = N;
  bf16 data[units];

  __device__ f32 get(int lane) const {
    if constexpr (N % 2 == 0) {
      const u32 pair = reinterpret_cast<const u32*>(data)[lane / 2];
      return __uint_as_float(lane & 1 ? pair & 0xffff0000u : pair << 16);
    }
    return widen(data[lane]);
  }
  template <typename V> __device__ void set(int lane, V value) { data[lane] = narrow_to<bf16>::from(value); }
};

// One conversion widens two elements.
template <typename E, int N> struct alignas(N >= 16 ? 16 : N) Lanes<E, N, IN_PAIRS> {
  static constexpr int units = N;
  E data[units];

  __device__ f32 get(int lane) const {
    if constexpr (N % 2 == 0) return widen_of(E{}, reinterpret_cast<const unsigned short*>(data)[lane / 2], lane & 1);
    return widen(data[lane]);
  }
  template <typename V> __device__ void set(int lane, V value) { data[lane] = narrow_to<E>::from(value); }
};

// Two elements to a byte.
template <typename E, int N> struct alignas(N >= 32 ? 16 : N / 2) Lanes<E, N, PACKED> {
  static constexpr int units = N / 2;
  u8 data[units];

  __device__ compute_t<E> get(int lane) const { return half_of<E>(data[lane / 2], lane & 1); }
  template <typename V> __device__ void set(int lane, V value) {
    const u32 code = half_code<E>(value), byte = data[lane / 2];
    data[lane / 2] = u8(lane & 1 ? (byte & 15) | code << 4 : (byte & 240) | code);
  }
};

template <int BYTES> struct word { using type = uint4; };
template <> struct word<8> { using type = uint2; };
template <> struct word<4> { using type = u32; };
template <> struct word<2> { using type = unsigned short; };
template <> struct word<1> { using type = u8; };

// All lanes at once. Integers of 4 bits are put together four at a time, as bytes; small floats two at a time.
template <typename E, int N, typename V> __device__ inline void set_all(Lanes<E, N>& lanes, const V (&values)[N]) {
  if constexpr (storage<E>::bits < 8 && !Format<E>::real && N % 8 == 0) {
#pragma unroll
    for (int word = 0; word < N / 8; ++word) {
      u32 low = 0, high = 0;
#pragma unroll
      for (int byte = 0; byte < 4; ++byte) {
        low |= u32(u8(values[8 * word + 2 * byte])) << 8 * byte;
        high |= u32(u8(values[8 * word + 2 * byte + 1])) << 8 * byte;
      }
      reinterpret_cast<u32*>(lanes.data)[word] = (low & 0x0f0f0f0fu) | (high << 4 & 0xf0f0f0f0u);
    }
  } else if constexpr (small_float<E> && sizeof(V) == sizeof(f32) && N * storage<E>::bits % 32 == 0) {
    constexpr int bits = storage<E>::bits;
    using W = typename word<bits / 2>::type;  // four elements
#pragma unroll
    for (int word = 0; word < N / 4; ++word) {
      const V* four = values + 4 * word;
      reinterpret_cast<W*>(lanes.data)[word] =
          narrow_pair<E>(four[0], four[1]) | narrow_pair<E>(four[2], four[3]) << 2 * bits;
    }
  } else {
#pragma unroll
    for (int lane = 0; lane < N; ++lane) lanes.set(lane, values[lane]);
  }
}

// Takes another's lanes from `lane` on, where `lane` may lie before the first.
template <typename E, int N> __device__ inline void take_from(Lanes<E, N>& lanes, const Lanes<E, N>& other, int lane) {
  using V = Lanes<E, N>;
  using W = typename word<sizeof(V) < 4 ? int(sizeof(V)) : 4>::type;
#pragma unroll
  for (int i = 0; i < int(sizeof(V) / sizeof(W)); ++i) {
    const int kept = lane * storage<E>::bits - i * 8 * int(sizeof(W));  // bits of this word
    const W mask = W(kept <= 0 ? 0u : kept >= 32 ? ~0u : (1u << kept) - 1);
    W& to = reinterpret_cast<W*>(lanes.data)[i];
    to = W((to & mask) | (reinterpret_cast<const W*>(other.data)[i] & W(~mask)));
  }
}

// The array from an element on; a packed one starts at a byte.
template <typename E, typename P> __device__ inline P* at(P* array, i64 element) {
  return array + (storage<E>::bits < 8 ? element >> 1 : element);
}

// A vector that starts at any byte: the aligned 16-byte words around it, shifted into place.
template <int BYTES> __device__ inline void load_shifted(u32* to, const u8* from) {
  constexpr int WORDS = (BYTES + 15) / 16 + 1;
  const u32 skip = u32(u64(from) & 15);
  const uint4* around = reinterpret_cast<const uint4*>(from - skip);
  u32 w[WORDS * 4];
#pragma unroll
  for (int i = 0; i < WORDS; ++i) {
    const uint4 v = around[i];
    w[4 * i] = v.x, w[4 * i + 1] = v.y, w[4 * i + 2] = v.z, w[4 * i + 3] = v.w;
  }
#pragma unroll
  for (int i = 0; i + 2 < WORDS * 4; ++i) w[i] = skip & 8 ? w[i + 2] : w[i];
#pragma unroll
  for (int i = 0; i + 3 < WORDS * 4; ++i) w[i] = skip & 4 ? w[i + 1] : w[i];
#pragma unroll
  for (int i = 0; i < BYTES / 4; ++i) to[i] = __funnelshift_r(w[i], w[i + 1], (skip & 3) * 8);
}

// A word of memory. ONCE: nothing reads it again, so that caches keep what they hold in its place.
template <bool ONCE, typename W> __device__ inline W load_word(const W* from) {
  if constexpr (ONCE) return __ldcs(from);
  else return *from;
}

// Elements first .. first + N - 1 of a row of `length`, all of which exist.
// ALIGNED: rows start on the vector's boundaries, and `first` is a multiple of N.
template <bool ALIGNED, typename E, int N, bool ONCE = false>
__device__ inline Lanes<E, N> load(const storage_t<E>* row, i64 first, i64 length) {
  using V = Lanes<E, N>;
  constexpr int bits = storage<E>::bits, bytes = N * bits / 8;
  constexpr int before = 128 / bits, after = ((bytes + 15) / 16 * 16 + 16 - bytes) * 8 / bits;  // what load_shifted reads
  V lanes;
  const storage_t<E>* from = at<E>(row, first);
  using W = typename word<alignof(V)>::type;
  if constexpr (IS_PLACE<E>) {
    const i64 begin = fetch(from).index;
#pragma unroll
    for (int i = 0; i < N; ++i) lanes.data[i] = {begin + i};
  } else if (ALIGNED || (u64(from) & (alignof(V) - 1)) == 0) {
#pragma unroll
    for (int i = 0; i < int(sizeof(V) / sizeof(W)); ++i)
      reinterpret_cast<W*>(lanes.data)[i] = load_word<ONCE>(reinterpret_cast<const W*>(from) + i);
  } else if (bits <= 16 && bytes % 4 == 0 && first >= before && first + N + after <= length) {
    load_shifted<bytes>(reinterpret_cast<u32*>(lanes.data), reinterpret_cast<const u8*>(from));
  } else {
#pragma unroll
    for (int i = 0; i < V::units; ++i) lanes.data[i] = from[i];
  }
  return lanes;
}

template <bool ALIGNED, typename E, int N>
__device__ inline void store(storage_t<E>* row, i64 first, const Lanes<E, N>& lanes) {
  using V = Lanes<E, N>;
  storage_t<E>* to = at<E>(row, first);
  using W = typename word<alignof(V)>::type;
  if (ALIGNED || (u64(to) & (alignof(V) - 1)) == 0) {
#pragma unroll
    for (int i = 0; i < int(sizeof(V) / sizeof(W)); ++i)
      reinterpret_cast<W*>(to)[i] = reinterpret_cast<const W*>(lanes.data)[i];
  } else {
#pragma unroll
    for (int i = 0; i < V::units; ++i) to[i] = lanes.data[i];
  }
}

// The same where the row may end inside the vector: what lies beyond reads as 0 and is not written.
template <bool ALIGNED, typename E, int N>
__device__ inline Lanes<E, N> load_some(const storage_t<E>* row, i64 first, i64 length) {
  if (first + N <= length) return load<ALIGNED, E, N>(row, first, length);
  using V = Lanes<E, N>;
  V lanes;
#pragma unroll
  for (int i = 0; i < V::units; ++i)
    lanes.data[i] = first + i * (N / V::units) < length ? fetch(at<E>(row, first) + i) : storage_t<E>{};
  return lanes;
}
template <bool ALIGNED, typename E, int N>
__device__ inline void store_some(storage_t<E>* row, i64 first, i64 length, const Lanes<E, N>& lanes) {
  if (first + N <= length) return store<ALIGNED>(row, first, lanes);
  using V = Lanes<E, N>;
#pragma unroll
  for (int i = 0; i < V::units; ++i) {
    const i64 element = first + i * (N / V::units);
    if (element >= length) break;
    storage_t<E> unit = lanes.data[i];
    if constexpr (storage<E>::bits < 8)  // the nibble that pads an odd row is 0
      if (element + 1 == length) unit &= 15;
    at<E>(row, first)[i] = unit;
  }
}

// One value: a number that came with the launch, or an array of one element on the device.
template <typename E> struct Scalar {
  const storage_t<E>* array;
  f64 real;     // the number, where E is a float
  i64 integer;  // the number, where E is an integer

  __device__ compute_t<E> value() const;
};
template <typename E> __device__ inline compute_t<E> Scalar<E>::value() const {
  if (array != nullptr) {
    if constexpr (storage<E>::bits < 8) {
      return half_of<E>(*array, false);
    } else {
      return widen(*array);
    }
  }
  return Format<E>::real ? compute_t<E>(real) : compute_t<E>(integer);
}
