// Random numbers without a state, by Philox 4x32-10 (Salmon et al. 2011): `reference.random` has the same text in
// NumPy.
#pragma once
#include "elementary.cuh"
#include "lanes.cuh"

// A block of random words. The key is the seed; the first two words of the counter are the block's number, the other
// two the offset, lower words first.
struct RandomBlock {
  u32 first, second, third, fourth;
  __device__ u32 word(i32 at) const { return at < 2 ? (at == 0 ? first : second) : at == 2 ? third : fourth; }
};
__device__ inline RandomBlock random_block(i64 seed, i64 offset, i64 block) {
  u32 a = u32(block), b = u32(u64(block) >> 32), c = u32(offset), d = u32(u64(offset) >> 32);
  u32 key = u32(seed), other_key = u32(u64(seed) >> 32);
#pragma unroll
  for (i32 round = 0; round < 10; ++round) {
    const u32 left = __umulhi(0xd2511f53u, a), left_low = 0xd2511f53u * a;
    const u32 right = __umulhi(0xcd9e8d57u, c), right_low = 0xcd9e8d57u * c;
    a = right ^ b ^ key, b = right_low, c = left ^ d ^ other_key, d = left_low;
    key += 0x9e3779b9u, other_key += 0xbb67ae85u;
  }
  return {a, b, c, d};
}

// The word of an element. Four neighbours share a block: cleared bits tell the compiler so.
__device__ inline i64 random_bits(i64 seed, i64 offset, i64 index) {
  const i32 at = i32(index & 3);
  return random_block(seed, offset, (index ^ at) >> 2).word(at);
}

// The same of one of some neighbours, which lie in as few blocks wherever they begin.
__device__ inline i64 random_bits(i64 seed, i64 offset, const DrawnPlace& at) {
  const i64 block = (at.first >> 2) + at.lane / 4;
  const i32 skip = i32(at.first & 3);
  const RandomBlock low = random_block(seed, offset, block), high = random_block(seed, offset, block + 1);
  u32 word = 0;
#pragma unroll
  for (i32 i = 0; i < 4; ++i) {
    const i32 place = at.lane % 4 + i;
    word = skip == i ? (place < 4 ? low.word(place) : high.word(place - 4)) : word;
  }
  return word;
}

// What a neighbour of x in the float type E is made of: x is `whole` steps of 2^unit, and `share` of another one in
// units of 2^-32, which 32 random bits are compared with.
struct ShareOfSteps {
  u64 whole, share;
  i32 unit;
};
// Of x = significand * 2^exponent.
template <typename E> __device__ inline ShareOfSteps steps_of(u64 significand, i32 exponent) {
  constexpr i32 least = 2 - (1 << (Format<E>::exponent - 1)) - Format<E>::mantissa - (Format<E>::mantissa == 0);
  const i32 first = exponent + 63 - __clzll(i64(significand));  // the power of two of its first bit
  const i32 unit = max(max(first - Format<E>::mantissa, least), exponent), dropped = unit - exponent;
  if (dropped > 63) return {0, dropped > 95 ? 0 : significand >> (dropped - 32), unit};
  const u64 whole = significand >> dropped, rest = significand - (whole << dropped);
  return {whole, dropped > 32 ? rest >> (dropped - 32) : rest << (32 - dropped), unit};
}
// y * 2^k, rounded once where it is subnormal.
template <typename C> __device__ inline C scaled(C y, i32 k) {
  const i32 half = k >> 1;
  return y * power_of_two(y, half) * power_of_two(y, k - half);
}
__device__ inline f32 stepped(ShareOfSteps steps, i64 bits, f32 x) {
  return copysign(scaled(f32(steps.whole + (u32(bits) < steps.share)), steps.unit), x);
}
__device__ inline f64 stepped(ShareOfSteps steps, i64 bits, f64 x) {
  return copysign(scaled(f64(steps.whole + (u32(bits) < steps.share)), steps.unit), x);
}
template <typename E> __device__ inline f32 stochastic(f32 x, i64 bits) {
  const u32 size = __float_as_uint(x) & 0x7fffffffu, field = size >> 23;
  if (field == 255) return x;
  const u32 significand = field ? (size & 0x7fffffu) | 0x800000u : size;
  return stepped(steps_of<E>(significand, i32(field ? field : 1) - 150), bits, x);
}
template <typename E> __device__ inline f64 stochastic(f64 x, i64 bits) {
  const u64 size = u64(__double_as_longlong(x)) & 0x7fffffffffffffffull, field = size >> 52;
  if (field == 2047) return x;
  const u64 significand = field ? (size & 0xfffffffffffffull) | 0x10000000000000ull : size;
  return stepped(steps_of<E>(significand, i32(field ? field : 1) - 1075), bits, x);
}

// The block of an element of f64, of which two neighbours share one. By fours, in which form compilers see which are
// equal.
__device__ inline RandomBlock block_of_pair(i64 seed, i64 offset, i64 index) {
  return random_block(seed, offset, (index >> 2) * 2 + (index >> 1 & 1));
}

// From 0 on, below 1: so many of 2^24 shares from the word of an element, in f64 of 2^53 from two words.
template <typename C> struct uniform_shares { static constexpr C all = C(0x1p24), each = C(0x1p-24); };
template <> struct uniform_shares<f64> { static constexpr f64 all = 0x1p53, each = 0x1p-53; };
__device__ inline u64 two_words(u32 low, u32 high) { return u64(high) << 32 | low; }
template <typename At> __device__ inline u32 shares_drawn(f32, i64 seed, i64 offset, const At& at) {
  return u32(random_bits(seed, offset, at)) >> 8;
}
template <typename At> __device__ inline u64 shares_drawn(f64, i64 seed, i64 offset, const At& at) {
  const i64 index = at;
  const RandomBlock block = block_of_pair(seed, offset, index);
  return (index & 1 ? two_words(block.third, block.fourth) : two_words(block.first, block.second)) >> 11;
}
template <typename C, typename At> __device__ inline C random_uniform(i64 seed, i64 offset, const At& at) {
  return C(shares_drawn(C(), seed, offset, at)) * uniform_shares<C>::each;
}

// Whether random numbers reach a limit that elements share, asked of their integers: `least` is the first that does.
template <typename C> struct LeastShare {
  static constexpr bool fast = true;
  decltype(shares_drawn(C(), 0, 0, i64(0))) least;

  LeastShare() = default;
  __device__ explicit LeastShare(C s)
      : least(!(s <= C(1)) ? uniform_shares<C>::all : s > C(0) ? ceil(s * uniform_shares<C>::all) : C(0)) {}
  __device__ bool reached_by(i64 seed, i64 offset, i64 index) const {
    return shares_drawn(C(), seed, offset, index) >= least;
  }
};
// In f32 of the word that the integer is the upper part of: `below` is the last that does not, if there is one.
template <> struct LeastShare<f32> {
  static constexpr bool fast = true;
  u32 below;
  bool each;

  LeastShare() = default;
  __device__ explicit LeastShare(f32 s)
      : below(s > 0.0f && s <= 1.0f ? (u32(ceil(s * uniform_shares<f32>::all)) << 8) - 1 : 0xffffffffu),
        each(s <= 0.0f) {}
  __device__ bool reached_by(i64 seed, i64 offset, i64 index) const {
    return each | (u32(random_bits(seed, offset, index)) > below);
  }
};

// A random word times a size that elements share, from 0 to 2^31 - 1, in units of 2^32 and rounded down.
struct Portion {
  static constexpr bool fast = true;
  u32 size;

  Portion() = default;
  __device__ explicit Portion(i64 wanted) : size(u32(clamp(wanted, i64(0), i64(0x7fffffff)))) {}
  __device__ i64 of(i64 seed, i64 offset, i64 index) const {
    return __umulhi(u32(random_bits(seed, offset, index)), size);
  }
};

// The cosine of an angle, which is a share of a full turn, less some quarters: those of one angle have all in common
// but the choice at the end. The rest of a quarter is exact, its conversion is rounded. The last bit of the nearest
// quarter chooses, the one before it, which is the sign's own, is that of the sine.
__device__ inline f32 cosine_of_turns(u32 angle, u32 less) {
  const u32 nearest = angle + 0x20000000u, quarter = nearest - (less << 30);
  const f32 r = f32(i32(nearest & 0x3fffffffu) - 0x20000000) * 0x1p-32f, z = r * r;
  const f32 sine = fused_polynomial(z, -0x1.2d9302p+6f, 0x1.465e92p+6f, -0x1.4abbbap+5f, 0x1.921fb6p+2f) * r;
  const f32 cosine = fused_polynomial(z, 0x1.d99f54p+5f, -0x1.55c4eap+6f, 0x1.03c1dap+6f, -0x1.3bd3ccp+4f, 1.0f);
  const f32 size = quarter & 0x40000000u ? sine : cosine;
  return __uint_as_float(__float_as_uint(size) ^ ((quarter + 0x40000000u) & 0x80000000u));
}
__device__ inline f64 cosine_of_turns(u64 angle, u32 less) {
  const u64 nearest = (angle + 0x2000000000000000ull) >> 62;
  const u32 quarter = (u32(nearest) - less) & 3;
  const f64 r = f64(i64(angle - (nearest << 62))) * 0x1p-64, z = r * r;
  const f64 sine = unfused_polynomial(z, -0x1.6c58cc33d59e2p-1, 0x1.e8eec79c5f321p+1, -0x1.e3074b42c3fdbp+3,
      0x1.50783485c2d68p+5, -0x1.32d2cce62abbdp+6, 0x1.466bc6775aad9p+6, -0x1.4abbce625be53p+5,
      0x1.921fb54442d18p+2) * r;
  const f64 cosine = unfused_polynomial(z, -0x1.b2586b69e2c0bp+0, 0x1.f9cc15d54fc27p+2, -0x1.a6d1ec3d49c6ep+4,
      0x1.e1f5068303f71p+5, -0x1.55d3c7e3c8d5cp+6, 0x1.03c1f081b5aaap+6, -0x1.3bd3cc9be45dep+4, 1.0);
  const f64 size = quarter & 1 ? sine : cosine;
  return quarter == 1 || quarter == 2 ? -size : size;
}

// sqrt(-2 log(u)) of a share u from 2^-33 to 1. u = (1 + f) 2^k with 1 + f from sqrt(1/2) to sqrt(2), and
// -2 log(1 + f) = f^2 P(f) - 2 f. What is added for 0 and taken away again changes no other square or root.
__device__ inline f32 distance_of(f32 u) {
  const i32 power = (__float_as_int(u) - 0x3f3504f3) & i32(0xff800000u);  // 2^23 k
  const f32 f = __int_as_float(__float_as_int(u) - power) - 1.0f;
  const f32 p = fused_polynomial(f, -0x1.65c784p-3f, 0x1.2504a8p-2f, -0x1.318528p-2f, 0x1.535d2ep-2f,
      -0x1.98d2c0p-2f, 0x1.00049ap-1f, -0x1.5556f4p-1f, 0x1.fffffap-1f);
  const f32 square = fused(f32(power), -0x1.62e43p-23f, fused(f * f, p, -2.0f * f));
  return sure_root(square + 0x1p-100f) - 0x1p-50f;
}

// Of the normal distribution, by Box and Muller: two neighbours are the coordinates of a point, whose distance from 0
// is made from one word and whose angle from another one, in f64 from two words each.
__device__ inline f32 normal_of(f32, i64 seed, i64 offset, i64 index) {
  const RandomBlock block = random_block(seed, offset, (index ^ (index & 3)) >> 2);
  const u32 distance = index & 2 ? block.third : block.first, angle = index & 2 ? block.fourth : block.second;
  return distance_of(fused(f32(distance), 0x1p-32f, 0x1p-33f)) * cosine_of_turns(angle, u32(index & 1));
}
__device__ inline f64 normal_of(f64, i64 seed, i64 offset, i64 index) {
  const RandomBlock block = block_of_pair(seed, offset, index);
  const u64 distance = two_words(block.first, block.second), angle = two_words(block.third, block.fourth);
  const f64 share = f64((distance >> 11) + 1) * 0x1p-53;
  return sqrt(-2.0 * sure_logarithm(share)) * cosine_of_turns(angle, u32(index & 1));
}
template <typename C> __device__ inline C random_normal(i64 seed, i64 offset, i64 index) {
  return normal_of(C(), seed, offset, index);
}
