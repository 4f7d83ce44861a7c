// Neighbouring elements in registers: wide loads and stores where alignment allows, packed types included.
#pragma once
#include "numbers.cuh"

// N neighbours of element type E as they are stored.
template <typename E, int N> struct alignas(N * storage<E>::bits >= 128 ? 16 : N * storage<E>::bits / 8) Lanes {
  static constexpr int units = N * storage<E>::bits / 8 / int(sizeof(storage_t<E>));
  storage_t<E> data[units];

  __device__ compute_t<E> get(int lane) const { return widen(data[lane]); }
  __device__ void set(int lane, compute_t<E> value) { data[lane] = narrow_to<E>::from(value); }
};

// Two elements to a byte. `set` fills a zeroed byte, so the nibble that pads an odd row stays 0.
template <int N> struct alignas(N >= 32 ? 16 : N / 2) Lanes<s4, N> {
  static constexpr int units = N / 2;
  u8 data[units];

  __device__ i64 get(int lane) const { return i64(s8(lane & 1 ? data[lane / 2] : data[lane / 2] << 4) >> 4); }
  __device__ void set(int lane, i64 value) { data[lane / 2] |= (value & 15) << (lane & 1 ? 4 : 0); }
};
template <int N> struct alignas(N >= 32 ? 16 : N / 2) Lanes<u4, N> {
  static constexpr int units = N / 2;
  u8 data[units];

  __device__ i64 get(int lane) const { return lane & 1 ? data[lane / 2] >> 4 : data[lane / 2] & 15; }
  __device__ void set(int lane, i64 value) { data[lane / 2] |= (value & 15) << (lane & 1 ? 4 : 0); }
};

template <int BYTES> struct word { using type = uint4; };
template <> struct word<8> { using type = uint2; };
template <> struct word<4> { using type = u32; };
template <> struct word<2> { using type = unsigned short; };
template <> struct word<1> { using type = u8; };

// Elements first .. first + N - 1 of a contiguous array of `size`; what lies beyond its end reads as 0.
// WIDE: the array starts on a 16-byte boundary, and `first` is a multiple of N.
template <bool WIDE, typename E, int N>
__device__ inline Lanes<E, N> load(const storage_t<E>* array, i64 first, i64 size) {
  using V = Lanes<E, N>;
  V lanes;
  const i64 unit = first * storage<E>::bits / 8 / i64(sizeof(storage_t<E>));
  if (WIDE && first + N <= size) {
    using W = typename word<alignof(V)>::type;
    const W* from = reinterpret_cast<const W*>(array + unit);
#pragma unroll
    for (int i = 0; i < int(sizeof(V) / sizeof(W)); ++i) reinterpret_cast<W*>(lanes.data)[i] = from[i];
  } else {
    const i64 units = (size * storage<E>::bits + 7) / 8 / i64(sizeof(storage_t<E>));
#pragma unroll
    for (int i = 0; i < V::units; ++i) lanes.data[i] = unit + i < units ? array[unit + i] : storage_t<E>{};
  }
  return lanes;
}

template <bool WIDE, typename E, int N>
__device__ inline void store(storage_t<E>* array, i64 first, i64 size, const Lanes<E, N>& lanes) {
  using V = Lanes<E, N>;
  const i64 unit = first * storage<E>::bits / 8 / i64(sizeof(storage_t<E>));
  if (WIDE && first + N <= size) {
    using W = typename word<alignof(V)>::type;
    W* to = reinterpret_cast<W*>(array + unit);
#pragma unroll
    for (int i = 0; i < int(sizeof(V) / sizeof(W)); ++i) to[i] = reinterpret_cast<const W*>(lanes.data)[i];
  } else {
    const i64 units = (size * storage<E>::bits + 7) / 8 / i64(sizeof(storage_t<E>));
#pragma unroll
    for (int i = 0; i < V::units; ++i)
      if (unit + i < units) array[unit + i] = lanes.data[i];
  }
}

// One value: a number that came with the launch, or an array of one element on the device.
template <typename E> struct Scalar {
  const storage_t<E>* array;
  f64 real;     // the number, where E is a float
  i64 integer;  // the number, where E is an integer

  __device__ compute_t<E> value() const;
};
template <typename E> struct is_real { static constexpr bool value = false; };
template <> struct is_real<f64> { static constexpr bool value = true; };
template <> struct is_real<f32> { static constexpr bool value = true; };
template <> struct is_real<f16> { static constexpr bool value = true; };
template <> struct is_real<bf16> { static constexpr bool value = true; };
template <typename E> __device__ inline compute_t<E> Scalar<E>::value() const {
  if (array != nullptr) return widen(*array);
  return is_real<E>::value ? compute_t<E>(real) : compute_t<E>(integer);
}
