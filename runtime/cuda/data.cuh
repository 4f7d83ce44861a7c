// Integers and booleans as data: arithmetic of 64 bits in two's complement, in which no result is undefined, and the
// elements that are no type of C++ by themselves. skuda.reference.integers has the same functions. Only sources that
// need them include this header.
#pragma once
#include "quotient.cuh"
#include "data_types.cuh"

// An element of u32, which no overload is chosen for otherwise, and the byte of a bool, which may be any in memory.
struct Word {
  u32 value;
};
struct Flag {
  u8 byte;
};
template <> struct Format<Word> : ExactFormat<Word, i64, 32, false> {};
template <> struct Format<Flag> : ExactFormat<Flag, bool, 8, true> {};
__device__ inline i64 widen(Word x) { return x.value; }
__device__ inline bool widen(Flag x) { return x.byte != 0; }
template <> struct narrow_to<Word> {
  __device__ static Word from(i64 x) { return {u32(x)}; }
};
template <> struct narrow_to<Flag> {
  __device__ static Flag from(bool x) { return {u8(x)}; }
};
template <> __device__ inline i64 stored<u32, i64>(i64 value) { return u32(value); }

// What kernels load and store an element as.
template <typename E> struct loaded_as { using type = E; };
template <> struct loaded_as<u32> { using type = Word; };
template <> struct loaded_as<bool> { using type = Flag; };
template <typename E> using element_t = typename loaded_as<E>::type;

// Sums, differences, products, negatives and magnitudes.
template <typename V> __device__ inline V plus(V a, V b) { return a + b; }
template <typename V> __device__ inline V minus(V a, V b) { return a - b; }
template <typename V> __device__ inline V times(V a, V b) { return a * b; }
template <typename V> __device__ inline V negated(V a) { return -a; }
template <typename V> __device__ inline V magnitude(V a) { return absolute(a); }
__device__ inline i64 plus(i64 a, i64 b) { return i64(u64(a) + u64(b)); }
__device__ inline i64 minus(i64 a, i64 b) { return i64(u64(a) - u64(b)); }
__device__ inline i64 times(i64 a, i64 b) { return i64(u64(a) * u64(b)); }
__device__ inline i64 negated(i64 a) { return i64(0 - u64(a)); }
__device__ inline i64 magnitude(i64 a) { return a < 0 ? negated(a) : a; }

// The quotient toward minus infinity, and what it leaves. By zero both are 0; by -1 the quotient is the negative, which
// the least integer has not, and a division would not give.
//
// A division of 64 bits takes its long way where a number is below 0. So numbers of 32 bits are divided by their sizes.
struct Sizes {
  u32 divisor, quotient, rest;  // of the sizes; by zero the quotient is by 1
  bool apart;                   // whether the signs differ

  __device__ Sizes(i32 a, i32 b) : divisor(b == 0 ? 1 : size(b)), apart((a ^ b) < 0) {
    quotient = size(a) / divisor, rest = size(a) - quotient * divisor;
  }
  static __device__ u32 size(i32 x) { return x < 0 ? 0u - u32(x) : u32(x); }
};
// The same of numbers of 16 bits in f32: the quotient to the nearest integer by an inverse, and what it leaves,
// exactly.
struct SmallQuotient {
  f32 count, rest;  // toward minus infinity; by zero those by 1, which leaves 0

  __device__ SmallQuotient(i32 a, i32 b) {
    const f32 x = from_integer(a), y = from_integer(b), by = b == 0 ? 1.0f : y;
    const f32 near = fused(x, inverse(by), INTEGER) - INTEGER, left = fused(-near, by, x);
    const bool beyond = left * by < 0.0f;
    count = beyond ? near - 1.0f : near, rest = beyond ? left + by : left;
  }
  static constexpr f32 INTEGER = 0x1.8p23f;  // a sum with it has an integer in its last bits
  static __device__ f32 from_integer(i32 x) { return __int_as_float(0x4b400000 + x) - INTEGER; }
  static __device__ i32 to_integer(f32 x) { return __float_as_int(x + INTEGER) - 0x4b400000; }
};

// Whether the upper bits have nothing but the sign of the lower 16, of the lower half; said so that compilers see where
// they always have.
__device__ inline bool is_small(i64 x) { return x >> 15 == i64(u64(x) << 48) >> 63; }
__device__ inline bool is_narrow(i64 x) { return i32(x >> 32) == i32(i64(u64(x) << 32) >> 63); }

__device__ __noinline__ i64 wide_floor_quotient(i64 a, i64 b) {
  if (b == 0) return 0;
  if (b == -1) return negated(a);
  const i64 quotient = a / b;
  return quotient - (a % b != 0 && (a < 0) != (b < 0));
}
__device__ __noinline__ i64 wide_modulo(i64 a, i64 b) {
  if (b == 0 || b == -1) return 0;
  const i64 rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
__device__ inline i64 floor_quotient(i64 a, i64 b) {
  if (is_small(a) && is_small(b)) return b == 0 ? 0 : SmallQuotient::to_integer(SmallQuotient(i32(a), i32(b)).count);
  if (!(is_narrow(a) && is_narrow(b))) return wide_floor_quotient(a, b);
  const Sizes of{i32(a), i32(b)};
  const i64 quotient = of.apart ? -i64(of.quotient) - (of.rest != 0) : i64(of.quotient);
  return b == 0 ? 0 : quotient;
}
__device__ inline i64 modulo(i64 a, i64 b) {
  if (is_small(a) && is_small(b)) return SmallQuotient::to_integer(SmallQuotient(i32(a), i32(b)).rest);
  if (!(is_narrow(a) && is_narrow(b))) return wide_modulo(a, b);
  const Sizes of{i32(a), i32(b)};
  const i64 rest = of.apart && of.rest != 0 ? of.divisor - of.rest : of.rest;
  return b < 0 ? -rest : rest;
}
// Of reals as NumPy and PyTorch: from what fmod leaves, which is exact. By zero the quotient of `/`.
template <typename V> __device__ inline V floor_quotient(V a, V b) {
  if (b == 0) return a / b;
  const V rest = fmod(a, b);
  V quotient = (a - rest) / b;
  if (rest != 0 && (b < 0) != (rest < 0)) quotient = quotient - 1;
  if (quotient == 0) return copysign(V(0), a / b);
  const V whole = floor(quotient);
  return quotient - whole > V(0.5) ? whole + 1 : whole;
}
template <typename V> __device__ inline V modulo(V a, V b) { return remainder_floor(a, b); }

// Shifts by any number of bits: less than none counts as more than there are.
__device__ inline i64 shifted_left(i64 a, i64 by) { return u64(by) > 63 ? 0 : i64(u64(a) << by); }
__device__ inline i64 shifted_right(i64 a, i64 by) { return a >> (u64(by) > 63 ? 63 : by); }

// Bits, of integers and booleans.
template <typename V> __device__ inline V bits_and(V a, V b) { return V(a & b); }
template <typename V> __device__ inline V bits_or(V a, V b) { return V(a | b); }
template <typename V> __device__ inline V bits_xor(V a, V b) { return V(a ^ b); }
__device__ inline i64 bits_not(i64 a) { return ~a; }
__device__ inline bool bits_not(bool a) { return !a; }

// Of the bits that an integer type has: how many are 1, and how many are 0 above the first that is 1.
template <typename E> __device__ inline u64 own_bits(i64 x) { return u64(x) << (64 - storage<E>::bits); }
template <typename E> __device__ inline i64 popcount(i64 x) { return __popcll(own_bits<E>(x)); }
template <typename E> __device__ inline i64 clz(i64 x) {
  const u64 own = own_bits<E>(x);
  return own == 0 ? storage<E>::bits : __clzll(i64(own));
}
