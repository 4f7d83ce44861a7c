// Blocks of neighbours along an axis: how they come from memory, wherever their elements lie, and go there.
#pragma once
#include "lanes.cuh"

constexpr int BLOCK = 256;   // elements that a pass takes at once: loops over them become vectors
constexpr int AHEAD = 3072;  // bytes for which memory is asked early: blocks hide from the CPU that it reads a stream

template <bool FEW> struct kept_bits { using type = i64; };
template <> struct kept_bits<true> { using type = i32; };

// What blocks hold of a value V that is stored as an element E: of an integer no more bits than it keeps, so that
// vectors have more of them.
template <typename E, typename V> struct kept { using type = V; };
template <typename E> struct kept<E, i64> { using type = typename kept_bits<(storage<E>::bits <= 32)>::type; };
template <typename E, typename V> using kept_t = typename kept<E, V>::type;

// Where the elements of an operand lie along an axis. Of a packed operand offsets count nibbles, and `step` bytes from
// one pair to the next.
template <typename E> struct Line {
  storage_t<E>* data;
  i64 offset, step;

  i64 at(i64 index) const {
    if constexpr (storage<E>::bits < 8) return offset + (index >> 1) * 2 * step + (index & 1);
    else return offset + index * step;
  }
};

// Neighbours as a formula takes them, and as memory has them.
template <typename E, typename V> inline void widen_all(V* __restrict to, const storage_t<E>* from, int count) {
  for (int i = 0; i < count; ++i) to[i] = V(widen(from[i]));
}
template <typename E, typename V> inline void narrow_all(storage_t<E>* to, const V* values, int count) {
  for (int i = 0; i < count; ++i) to[i] = narrow_to<E>::from(values[i]);
}

// Eight of f16 at once, of which compilers make no vectors. The bits are those of the functions above.
#if defined(__F16C__) && defined(__AVX__) && defined(__GNUC__) && !defined(__clang__)
typedef short EightHalves __attribute__((vector_size(16)));
typedef f32 EightFloats __attribute__((vector_size(32)));
template <> inline void widen_all<f16, f32>(f32* __restrict to, const f16* from, int count) {
  int i = 0;
  for (EightHalves halves; i + 8 <= count; i += 8) {
    memcpy(&halves, from + i, sizeof halves);
    const EightFloats floats = __builtin_ia32_vcvtph2ps256(halves);
    memcpy(to + i, &floats, sizeof floats);
  }
  for (; i < count; ++i) to[i] = widen(from[i]);
}
template <> inline void narrow_all<f16, f32>(f16* to, const f32* values, int count) {
  int i = 0;
  for (EightFloats floats; i + 8 <= count; i += 8) {
    memcpy(&floats, values + i, sizeof floats);
    EightHalves halves = __builtin_ia32_vcvtps2ph256(floats, 0);
    halves = (halves & 0x7fff) > 0x7c00 ? EightHalves{} + 0x7fff : halves;  // NaN has one form
    memcpy(to + i, &halves, sizeof halves);
  }
  for (; i < count; ++i) to[i] = narrow_to<f16>::from(values[i]);
}
#endif

// Asks for the memory that lies ahead of some elements.
template <typename S> inline void ask_ahead(const S* from, int count) {
  const char* const later = reinterpret_cast<const char*>(from + count) + AHEAD;
  for (int i = 0; i < count * int(sizeof(S)); i += 64) __builtin_prefetch(later + i);
}

// Elements from `first` on as a formula takes them.
template <typename E, typename V> inline void load_block(V* __restrict to, const Line<E>& line, i64 first, int count) {
  if constexpr (IS_PLACE<E>) {
    const i64 start = i64(u64(line.data) / sizeof(E)) + line.offset + first * line.step;
    for (int i = 0; i < count; ++i) to[i] = V(start + i * line.step);
  } else if constexpr (storage<E>::bits < 8) {
    for (int i = 0; i < count; ++i) {
      const i64 at = line.at(first + i);
      to[i] = V(half_of<E>(line.data[at >> 1], at & 1));
    }
  } else if (line.step == 1) {
    const storage_t<E>* const from = line.data + line.offset + first;
    ask_ahead(from, count);
    widen_all<E>(to, from, count);
  } else if (line.step == 0) {
    const V value = V(widen(line.data[line.offset]));
    for (int i = 0; i < count; ++i) to[i] = value;
  } else {
    const storage_t<E>* const from = line.data + line.offset + first * line.step;
    for (int i = 0; i < count; ++i) to[i] = V(widen(from[i * line.step]));
  }
}

// Puts values in their places. Of a packed operand `first` is even, and a block ends with its line or is of whole
// pairs: the nibble that pads an odd line becomes 0.
template <typename E, typename V>
inline void store_block(const V* __restrict values, const Line<E>& line, i64 first, int count) {
  if constexpr (storage<E>::bits < 8) {
    for (int i = 0; i < count; i += 2) {
      const u32 low = half_code<E>(values[i]), high = i + 1 < count ? half_code<E>(values[i + 1]) : 0;
      line.data[line.at(first + i) >> 1] = u8(low | high << 4);
    }
  } else if (line.step == 1) {
    storage_t<E>* const to = line.data + line.offset + first;
    narrow_all<E>(to, values, count);
  } else {
    storage_t<E>* const to = line.data + line.offset + first * line.step;
    for (int i = 0; i < count; ++i) to[i * line.step] = narrow_to<E>::from(values[i]);
  }
}

// Vectors of eight, where a compiler can be told which elements change places.
#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define HAS_EIGHTS
typedef f32 Eight __attribute__((vector_size(32)));

// Sums of neighbours. The lanes of a vector stay in their halves.
inline Eight sum_neighbours(Eight a, Eight b) {
  return __builtin_shufflevector(a, b, 0, 2, 8, 10, 4, 6, 12, 14) +
         __builtin_shufflevector(a, b, 1, 3, 9, 11, 5, 7, 13, 15);
}
// Sums of eight groups of eight elements: of neighbours, then of neighbours of these.
inline void sum_eight_groups(const f32* values, f32* sums) {
  Eight group[8];
  memcpy(group, values, sizeof group);
  const Eight low = sum_neighbours(sum_neighbours(group[0], group[1]), sum_neighbours(group[2], group[3]));
  const Eight high = sum_neighbours(sum_neighbours(group[4], group[5]), sum_neighbours(group[6], group[7]));
  const Eight sum = __builtin_shufflevector(low, high, 0, 1, 2, 3, 8, 9, 10, 11) +
                    __builtin_shufflevector(low, high, 4, 5, 6, 7, 12, 13, 14, 15);
  memcpy(sums, &sum, sizeof sum);
}
#endif
#endif
