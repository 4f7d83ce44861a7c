// The logarithm of the gamma function and its derivative in steps that CPU and GPU have in common:
// `reference.gamma` has the same text in NumPy.
#pragma once
#include "gamma_f32.cuh"
#include "gamma_zeros.cuh"
#include "powers.cuh"
#include "trigonometric.cuh"

// Polynomials on pieces from 1 to 10 by u = x - 1: the highest power first, and behind the constant what its rounding
// lost. The first three are the logarithm over u (u - 1).
static __device__ const f64 gamma_logarithm_table[6][18] = {
  {0x1.e22b68bcae7cbp-11, -0x1.3eeef4eadb456p-10, 0x1.6755695536c14p-10, -0x1.df7b7c8dcb08ap-10,
   0x1.44e1d6520afcdp-9, -0x1.b5c21815c59eep-9, 0x1.28abf8639f74cp-8, -0x1.954521c43b61ap-8,
   0x1.1759df544285ep-7, -0x1.858dc67c49c09p-7, 0x1.13b466d35a91ap-6, -0x1.8e4684a8434f1p-6,
   0x1.28367ed88c3a9p-5, -0x1.ccfde37c04686p-5, 0x1.83575d02c83bep-4, -0x1.79f9bf0adea8dp-3,
   0x1.0c58fe25dca2cp-1, -0x1.7408ca896d44fp-55},
  {0x1.f98b9e72b500cp-19, -0x1.d37773f875e6ep-18, 0x1.901e99a0086c8p-17, -0x1.74d4c371fa69p-16,
   0x1.5ddb2852886f8p-15, -0x1.491b660598863p-14, 0x1.37765f53056e9p-13, -0x1.28f25f46cebb8p-12,
   0x1.1daed5bb4d2a9p-11, -0x1.16056279b24e8p-10, 0x1.12aa72f79a449p-9, -0x1.14f7c58ea8137p-8,
   0x1.1f9587fa1dab7p-7, -0x1.382e176f60b21p-6, 0x1.6cb6251711902p-5, -0x1.e96586307946ep-4,
   0x1.ccf151e09cde8p-2, 0x1.040bdfa1f2a11p-56},
  {0x1.b9756a3c95d9ap-27, -0x1.22d6fdd22620ep-25, 0x1.45cd99744a0fp-24, -0x1.b0bcc001dae26p-23,
   0x1.23d8f42f9b7aap-21, -0x1.87425c30165f5p-20, 0x1.07c6f4719879p-18, -0x1.666fe83c397adp-17,
   0x1.eb8f7679dae04p-16, -0x1.5501ac6d32794p-14, 0x1.e05c3c3939309p-13, -0x1.59511fff10c94p-11,
   0x1.feef08b133995p-10, -0x1.8a722dfc5e8b7p-8, 0x1.462044b0af66fp-6, -0x1.31d26e932300fp-4,
   0x1.84afe00cddfdfp-2, 0x1.fd00267b22ff4p-56},
  {0x1.ac7f4dc324b26p-35, -0x1.aeaae4b4477e3p-33, 0x1.7377d06a381e8p-31, -0x1.7b3b6748ce6c2p-29,
   0x1.8aac3602e447dp-27, -0x1.9b1cb6e7e4489p-25, 0x1.b2275724f9f32p-23, -0x1.d2e1c3bfb139ap-21,
   0x1.00eecb51eb701p-18, -0x1.23b5532a4073cp-16, 0x1.59c9bea733e78p-14, -0x1.b489d105cdcb3p-12,
   0x1.3039996d27f5cp-9, -0x1.f96d28c631fbap-7, 0x1.38ab02a5e1607p-3, 0x1.2ebac53262895p+0,
   0x1.7c9ff21d3df69p+0, 0x1.d7a618f4e9a57p-54},
  {0x1.60319e5ebc64p-44, -0x1.0bafe9bcdc725p-41, 0x1.5eb1533f38595p-39, -0x1.0f8bc3ac17496p-36,
   0x1.ad2b918029452p-34, -0x1.542e89f71ab4ep-31, 0x1.11e9e2812421fp-28, -0x1.c228aee03ca0dp-26,
   0x1.7b815685ce336p-23, -0x1.4aea49e1090fap-20, 0x1.2e26525717ad4p-17, -0x1.26c32786c3ba1p-14,
   0x1.3e95e998ea5a1p-11, -0x1.9bfaf7247b7a2p-8, 0x1.8e5bbada46c1cp-4, 0x1.a2bda98c1ee3ap+0,
   0x1.0a49a664571a8p+2, 0x1.f09cf6f4d0a08p-55},
  {0x1.550d1830c2a76p-53, -0x1.861063938d67fp-50, 0x1.860126b8c65dbp-47, -0x1.c75470fbe5499p-44,
   0x1.0f1dbf0974d1cp-40, -0x1.44bd27e3d6538p-37, 0x1.8b9f918e418ep-34, -0x1.ec74ff3ed8dbap-31,
   0x1.3adf034781e5ep-27, -0x1.a10bbd9305002p-24, 0x1.21a24540c60bp-20, -0x1.ae7b9001ed45dp-17,
   0x1.6300559077d07p-13, -0x1.5ed931762deacp-9, 0x1.03b74a78c4449p-4, 0x1.083d0d78f1f45p+1,
   0x1.29499da80f536p+3, -0x1.ec6693a931cf2p-51},
};
// The first two are the derivative over u - u0, its zero.
static __device__ const f64 gamma_derivative_table[6][19] = {
  {-0x1.e4da46099718bp-7, 0x1.2f093f560474fp-6, -0x1.369eb9bbce0adp-6, 0x1.844a5de4088b6p-6, -0x1.ed635b38c45f3p-6,
   0x1.34682df0b298cp-5, -0x1.81585d530e532p-5, 0x1.e1e1fb068b9a8p-5, -0x1.2d68e079d1d33p-4,
   0x1.79483b54946f1p-4, -0x1.d8cb5b94e1805p-4, 0x1.28dfeebc7edc3p-3, -0x1.7653f88cfd9aep-3,
   0x1.dbae8a2049471p-3, -0x1.3303dff259ac6p-2, 0x1.99d8501de709cp-2, -0x1.28888254be33fp-1,
   0x1.13236660188ap+0, 0x1.5b67d680a1cacp-55},
  {-0x1.09b975b0abfe8p-15, 0x1.d10fce83c8982p-15, -0x1.719f40b617711p-14, 0x1.437fed9bcd95ep-13,
   -0x1.1c4499d15ea8cp-12, 0x1.f1c6a078fb51ep-12, -0x1.b3f1c41da7359p-11, 0x1.7e0aae608b763p-10,
   -0x1.4f1c290f4b4c9p-9, 0x1.2660210dde1c2p-8, -0x1.0335d25aab73ep-7, 0x1.ca49472248d18p-7,
   -0x1.97cc6e105fe5dp-6, 0x1.6effaf57e602cp-5, -0x1.510ab0e548b52p-4, 0x1.41c830a3206e4p-3,
   -0x1.4e15b17372db3p-2, 0x1.b763ca67112ap-1, -0x1.05231abb9d97dp-57},
  {0x1.631998b999cb9p-24, -0x1.bc4331d5b755p-23, 0x1.c8237f5d7ad8ap-22, -0x1.1da25ea5c22dfp-20,
   0x1.6bdd21d1e0e15p-19, -0x1.c88ea54caa83bp-18, 0x1.1eb450a1c8693p-16, -0x1.692591f85a2a2p-15,
   0x1.c872e1d080f68p-14, -0x1.21de1cbb6fb92p-12, 0x1.72e0083e31eb9p-11, -0x1.dfdf12a9e0a16p-10,
   0x1.3bf9d580eca63p-8, -0x1.ac61ab99aa0c2p-7, 0x1.31b4c4359dfc1p-5, -0x1.e3bef327df0bbp-4,
   0x1.f62057f7296c9p-2, 0x1.680425af12b5ep-1, -0x1.8de5425897876p-58},
  {0x1.f1bc0ebab1aa8p-35, -0x1.d45c84625c61bp-33, 0x1.6a6fb241886f3p-31, -0x1.560978bd49a0cp-29,
   0x1.4896862d0d185p-27, -0x1.376a24f7b6865p-25, 0x1.27e7ba4a3d91dp-23, -0x1.1a8c80a7629bdp-21,
   0x1.0f58fb374ae6p-19, -0x1.069f5887f27ebp-17, 0x1.00eeca789d641p-15, -0x1.fe7d500e88ef8p-14,
   0x1.03574efe4fd32p-11, -0x1.10d622a46268fp-9, 0x1.3039996d27924p-7, -0x1.7b11de94a5321p-5,
   0x1.38ab02a5e1608p-2, 0x1.2ebac53262895p+0, -0x1.664a99e978f64p-56},
  {0x1.66ae3ef474204p-45, -0x1.fd6d186874373p-43, 0x1.2aa334f17c0b3p-40, -0x1.aa65c9d723bb7p-38,
   0x1.3618d85332f2p-35, -0x1.bdca0e7af27e2p-33, 0x1.41c6952a6b86ap-30, -0x1.d39c0057f0f8ep-28,
   0x1.5664cf6e8531ep-25, -0x1.fa6e6247529bdp-23, 0x1.7b81556b99cap-20, -0x1.218cffeafc82ep-17,
   0x1.c5397b83f7c81p-15, -0x1.7073f1694a537p-12, 0x1.3e95e998ea084p-9, -0x1.34fc395b5c6d5p-6,
   0x1.8e5bbada46c1dp-3, 0x1.a2bda98c1ee3ap+0, 0x1.b053f26e24849p-55},
  {0x1.32f3b921593afp-55, -0x1.476c5c2f160c6p-52, 0x1.253c646e26f2p-49, -0x1.3b0caae619792p-46,
   0x1.5845ce481dadp-43, -0x1.751f53a7dad46p-40, 0x1.9693434e3316ep-37, -0x1.be69d2f0943c8p-34,
   0x1.ee87ebda8502p-31, -0x1.15020b8d03167p-27, 0x1.3adf02b241ccep-24, -0x1.6cea454cf5804p-21,
   0x1.b27367e1e4d34p-18, -0x1.0d0d3a018cd51p-14, 0x1.6300559077a16p-11, -0x1.0722e518a25c1p-7,
   0x1.03b74a78c4449p-3, 0x1.083d0d78f1f45p+1, -0x1.ab06ca8e92f3ap-53},
};
__device__ inline i32 gamma_piece(f64 u) {
  return (u >= 0.5) + (u >= 1.0) + (u >= 2.0) + (u >= 3.5) + (u >= 5.75);
}
__device__ inline f64 gamma_center(i32 piece) {
  return piece < 3 ? (piece == 0 ? 0.25 : piece == 1 ? 0.75 : 1.5) : piece == 3 ? 2.75 : piece == 4 ? 4.625 : 7.375;
}
template <i32 COUNT> __device__ inline DoubleDouble on_piece(const f64 (&row)[COUNT], f64 t) {
  f64 p = row[0];
#pragma unroll
  for (i32 i = 1; i < COUNT - 2; ++i) p = p * t + row[i];
  const DoubleDouble sum = fast_two_sum(row[COUNT - 2], p * t);
  return {sum.high, sum.low + row[COUNT - 1]};
}

// log gamma(1 + u) for u from 0 to 9, and its derivative.
__device__ inline DoubleDouble gamma_logarithm_one_plus(f64 u) {
  const i32 piece = gamma_piece(u);
  const DoubleDouble value = on_piece(gamma_logarithm_table[piece], u - gamma_center(piece));
  if (!(u < 2.0)) return value;
  const DoubleDouble less = two_sum(u, -1.0), zeros = two_product(u, less.high);
  return pair_product({zeros.high, zeros.low + u * less.low}, value);
}
__device__ inline DoubleDouble gamma_derivative_one_plus(f64 u) {
  const i32 piece = gamma_piece(u);
  const DoubleDouble value = on_piece(gamma_derivative_table[piece], u - gamma_center(piece));
  if (!(u < 1.0)) return value;
  const DoubleDouble less = two_sum(u, -(0x1.d8b618d5af8fep-2));
  return pair_product({less.high, less.low - (-0x1.1e563779a1f5bp-56)}, value);
}

// The same of x from 9 on, by the asymptotic series. The logarithm is that of x; the rest takes x as it is scaled.
__device__ inline DoubleDouble gamma_logarithm_beyond(f64 x, f64 scaled) {
  const f64 inverse = divided(1.0, x), square = inverse * inverse;
  const DoubleDouble log = logarithm_pair(x, 0.0, 0), less = two_sum(log.high, -1.0);
  const DoubleDouble product = pair_product(two_sum(scaled, -0.5), {less.high, less.low + log.low});
  const DoubleDouble sum = two_sum(product.high, stirling_pair().high);
  const f64 p = unfused_polynomial(square, 0x1.5bf021843d989p-8, -0x1.f201587f8597cp-10, 0x1.b93e423d82af7p-11,
      -0x1.38136bc9c521p-11, 0x1.a01a0194e5371p-11, -0x1.6c16c16c16344p-9, 0x1.5555555555555p-4);
  return {sum.high, sum.low + (product.low + (inverse * p + stirling_pair().low))};
}
__device__ inline DoubleDouble gamma_derivative_beyond(f64 x) {
  const f64 inverse = divided(1.0, x), square = inverse * inverse;
  const DoubleDouble log = logarithm_pair(x, 0.0, 0), sum = two_sum(log.high, -divided(0.5, x));
  const f64 p = unfused_polynomial(square, -0x1.4b14e14b8fa7ap-2, 0x1.4c39499fa93d6p-4, -0x1.5937c8d0685e5p-6,
      0x1.f079fed551d1ap-8, -0x1.11110f60d65d9p-8, 0x1.0410410366caap-8, -0x1.1111111111046p-7, 0x1.5555555555555p-4);
  return {sum.high, sum.low + (log.low - square * p)};
}

// The sine and the cosine of pi times the distance from the nearest integer.
struct SineAndCosine {
  DoubleDouble sine, cosine;
};
__device__ inline SineAndCosine sine_and_cosine(f64 size) {
  const f64 turn = fabs(size - rint(size));
  const bool beyond = turn > 0.25;
  const f64 angle = beyond ? 0.5 - turn : turn;
  const DoubleDouble product = two_product(angle, pair_pi().high);
  const f64 low = product.low + angle * pair_pi().low;
  DoubleDouble s = sine_near(product.high, low), c = cosine_near(product.high, low);
  s = fast_two_sum(s.high, s.low), c = fast_two_sum(c.high, c.low);
  return {beyond ? c : s, beyond ? s : c};
}
__device__ inline bool is_gamma_pole(f64 x) { return x <= 0.0 && rint(x) == x; }
__device__ inline DoubleDouble pair_log(f64 x) {
  const bool subnormal = x < 0x1p-1022;
  return logarithm_pair(subnormal ? x * 0x1p54 : x, 0.0, subnormal ? -54 : 0);
}

// Where terms cancel below -2: up to -3 log gamma(x + 4) less log |x (x + 1) (x + 2) (x + 3)|, neither of them large.
__device__ __noinline__ f64 gamma_logarithm_cancelled(f64 x) {
  const f64 u = x + 3.0;
  if (u > 0.0) {
    const DoubleDouble product = pair_product(two_product(x, x + 1.0), two_product(-2.0 - x, u));
    const DoubleDouble log = logarithm_pair(product.high, product.low, 0), value = gamma_logarithm_one_plus(u);
    const DoubleDouble sum = two_sum(value.high, -log.high);
    const f64 result = sum.high + (sum.low + (value.low - log.low));
    if (fabs(result) >= 0x1p-4) return result;
  }
  return gamma_logarithm_near_zeros(x);
}
// CAREFUL: also where terms cancel; f32 has digits to spare there.
template <bool CAREFUL> __device__ inline f64 gamma_logarithm_of(f64 x) {
  if (x != x) return x;
  if (is_gamma_pole(x) || is_inf(x)) return infinity();
  const f64 size = fabs(x);
  if (size < 0x1p-60) {
    const DoubleDouble log = pair_log(size);
    return -log.high - log.low;
  }
  if (x >= 0x1p500) {
    const DoubleDouble value = gamma_logarithm_beyond(x, x * 0x1p-200);
    return (value.high + value.low) * 0x1p200;
  }
  if (x >= 1.0) {
    const DoubleDouble value = x >= 10.0 ? gamma_logarithm_beyond(x, x) : gamma_logarithm_one_plus(x - 1.0);
    return value.high + value.low;
  }
  const bool beyond = size >= 9.0;
  DoubleDouble value = beyond ? gamma_logarithm_beyond(size, size) : gamma_logarithm_one_plus(size), log;
  if (x > 0.0) {
    log = pair_log(x);
    log = {-log.high, -log.low};
  } else {
    // log(pi / sin(pi |x|)) - log gamma(1 + |x|); from 9 on |x| is below it, and the other one is log gamma(|x|)
    const DoubleDouble below = pair_product(sine_and_cosine(size).sine, {beyond ? size : 1.0, 0.0});
    const DoubleDouble quotient = pair_quotient(pair_pi(), below);
    log = logarithm_pair(quotient.high, quotient.low, 0);
    value = {-value.high, -value.low};
  }
  const DoubleDouble sum = two_sum(value.high, log.high);
  const f64 result = sum.high + (sum.low + (value.low + log.low));
  return CAREFUL && x < -2.0 && has_cancelled(result, value.high, 0.75) ? gamma_logarithm_cancelled(x) : result;
}
__device__ inline f64 gamma_logarithm(f64 x) { return gamma_logarithm_of<true>(x); }

template <bool CAREFUL> __device__ inline f64 gamma_derivative_of(f64 x) {
  if (x == 0.0) return -copysign(infinity(), x);
  if (is_gamma_pole(x) || !is_finite(x)) return x > 0.0 ? x : not_a_number();
  const f64 size = fabs(x);
  if (size < 0x1p-60) return divided(-1.0, x);
  if (x >= 1.0) {
    const DoubleDouble value = x >= 10.0 ? gamma_derivative_beyond(x) : gamma_derivative_one_plus(x - 1.0);
    return value.high + value.low;
  }
  const bool beyond = size >= 9.0;
  DoubleDouble value = beyond ? gamma_derivative_beyond(size) : gamma_derivative_one_plus(size);
  if (x > 0.0 || beyond) {  // the derivative at 1 + |x| is that at |x| and 1 / |x|
    const DoubleDouble inverse = pair_quotient({1.0, 0.0}, {size, 0.0});
    const f64 sign = x > 0.0 ? -1.0 : 1.0;
    const DoubleDouble sum = two_sum(value.high, sign * inverse.high);
    value = {sum.high, sum.low + (value.low + sign * inverse.low)};
  }
  if (x > 0.0) return value.high + value.low;
  const SineAndCosine turn = sine_and_cosine(size);
  const DoubleDouble cotangent = pair_product(pair_pi(), pair_quotient(turn.cosine, turn.sine));
  const f64 sign = size - rint(size) < 0.0 ? -1.0 : 1.0;
  const DoubleDouble sum = two_sum(value.high, sign * cotangent.high);
  const f64 result = sum.high + (sum.low + (value.low + sign * cotangent.low));
  return CAREFUL && has_cancelled(result, value.high, 0.1875) ? gamma_derivative_near_zeros(x) : result;
}
__device__ inline f64 gamma_derivative(f64 x) { return gamma_derivative_of<true>(x); }

// Of f32 where terms cancel, and of special values.
__device__ __noinline__ f32 careful_gamma_logarithm(f32 x) { return f32(gamma_logarithm_of<false>(x)); }
__device__ __noinline__ f32 careful_gamma_derivative(f32 x) { return f32(gamma_derivative_of<false>(x)); }
