// The logarithm of the gamma function and its derivative in steps that CPU and GPU have in common:
// `reference.gamma` has the same text in NumPy.
#pragma once
#include "gamma_f32.cuh"
#include "gamma_zeros.cuh"
#include "powers.cuh"
#include "trigonometric.cuh"

// Polynomials on pieces from 3 to 10 by u = x - 1: the highest power first, and behind the constant what its rounding
// lost.
static __device__ const f64 gamma_logarithm_table[3][18] = {
  {0x1.ac7f4dc324b26p-35, -0x1.aeaae4b4477e3p-33, 0x1.7377d06a381e8p-31, -0x1.7b3b6748ce6c2p-29, 0x1.8aac3602e447dp-27,
   -0x1.9b1cb6e7e4489p-25, 0x1.b2275724f9f32p-23, -0x1.d2e1c3bfb139ap-21, 0x1.00eecb51eb701p-18, -0x1.23b5532a4073cp-16,
   0x1.59c9bea733e78p-14, -0x1.b489d105cdcb3p-12, 0x1.3039996d27f5cp-9, -0x1.f96d28c631fbap-7, 0x1.38ab02a5e1607p-3,
   0x1.2ebac53262895p+0, 0x1.7c9ff21d3df69p+0, 0x1.d7a618f4e9a57p-54},
  {0x1.60319e5ebc64p-44, -0x1.0bafe9bcdc725p-41, 0x1.5eb1533f38595p-39, -0x1.0f8bc3ac17496p-36, 0x1.ad2b918029452p-34,
   -0x1.542e89f71ab4ep-31, 0x1.11e9e2812421fp-28, -0x1.c228aee03ca0dp-26, 0x1.7b815685ce336p-23, -0x1.4aea49e1090fap-20,
   0x1.2e26525717ad4p-17, -0x1.26c32786c3ba1p-14, 0x1.3e95e998ea5a1p-11, -0x1.9bfaf7247b7a2p-8, 0x1.8e5bbada46c1cp-4,
   0x1.a2bda98c1ee3ap+0, 0x1.0a49a664571a8p+2, 0x1.f09cf6f4d0a08p-55},
  {0x1.550d1830c2a76p-53, -0x1.861063938d67fp-50, 0x1.860126b8c65dbp-47, -0x1.c75470fbe5499p-44, 0x1.0f1dbf0974d1cp-40,
   -0x1.44bd27e3d6538p-37, 0x1.8b9f918e418ep-34, -0x1.ec74ff3ed8dbap-31, 0x1.3adf034781e5ep-27, -0x1.a10bbd9305002p-24,
   0x1.21a24540c60bp-20, -0x1.ae7b9001ed45dp-17, 0x1.6300559077d07p-13, -0x1.5ed931762deacp-9, 0x1.03b74a78c4449p-4,
   0x1.083d0d78f1f45p+1, 0x1.29499da80f536p+3, -0x1.ec6693a931cf2p-51},
};
static __device__ const f64 gamma_derivative_table[3][19] = {
  {0x1.f1bc0ebab1aa8p-35, -0x1.d45c84625c61bp-33, 0x1.6a6fb241886f3p-31, -0x1.560978bd49a0cp-29, 0x1.4896862d0d185p-27,
   -0x1.376a24f7b6865p-25, 0x1.27e7ba4a3d91dp-23, -0x1.1a8c80a7629bdp-21, 0x1.0f58fb374ae6p-19, -0x1.069f5887f27ebp-17,
   0x1.00eeca789d641p-15, -0x1.fe7d500e88ef8p-14, 0x1.03574efe4fd32p-11, -0x1.10d622a46268fp-9, 0x1.3039996d27924p-7,
   -0x1.7b11de94a5321p-5, 0x1.38ab02a5e1608p-2, 0x1.2ebac53262895p+0, -0x1.664a99e978f64p-56},
  {0x1.66ae3ef474204p-45, -0x1.fd6d186874373p-43, 0x1.2aa334f17c0b3p-40, -0x1.aa65c9d723bb7p-38, 0x1.3618d85332f2p-35,
   -0x1.bdca0e7af27e2p-33, 0x1.41c6952a6b86ap-30, -0x1.d39c0057f0f8ep-28, 0x1.5664cf6e8531ep-25, -0x1.fa6e6247529bdp-23,
   0x1.7b81556b99cap-20, -0x1.218cffeafc82ep-17, 0x1.c5397b83f7c81p-15, -0x1.7073f1694a537p-12, 0x1.3e95e998ea084p-9,
   -0x1.34fc395b5c6d5p-6, 0x1.8e5bbada46c1dp-3, 0x1.a2bda98c1ee3ap+0, 0x1.b053f26e24849p-55},
  {0x1.32f3b921593afp-55, -0x1.476c5c2f160c6p-52, 0x1.253c646e26f2p-49, -0x1.3b0caae619792p-46, 0x1.5845ce481dadp-43,
   -0x1.751f53a7dad46p-40, 0x1.9693434e3316ep-37, -0x1.be69d2f0943c8p-34, 0x1.ee87ebda8502p-31, -0x1.15020b8d03167p-27,
   0x1.3adf02b241ccep-24, -0x1.6cea454cf5804p-21, 0x1.b27367e1e4d34p-18, -0x1.0d0d3a018cd51p-14, 0x1.6300559077a16p-11,
   -0x1.0722e518a25c1p-7, 0x1.03b74a78c4449p-3, 0x1.083d0d78f1f45p+1, -0x1.ab06ca8e92f3ap-53},
};
// Next to the first zeros below 0: polynomials by the distance from the zero, as above, and the zero in two parts.
static __device__ const f64 gamma_logarithm_beside[4][18] = {
  {0x1.f292389306889p+12, 0x1.1f4cbc5d70168p+12, 0x1.c4af43ce28af2p+10, 0x1.1a8d039dd5847p+10, 0x1.a92e2d85d5bb7p+8,
   0x1.286fcbf52078ep+8, 0x1.9297ad9da97acp+6, 0x1.48eaa80ac8038p+6, 0x1.809f04ee74267p+4, 0x1.8d32f682ad5d6p+4,
   0x1.7339fe04b2759p+2, 0x1.1718d7ca09e59p+3, 0x1.694a6058a7858p+0, 0x1.36eebb002f55dp+2, 0x1.83fe966af535fp+0,
   -0x1.775909a36a6a4p-55, -0x1.3a7fc9600f86cp+1, -0x1.55f64f98af8dp-55},
  {-0x1.022cce88e06b9p+26, 0x1.16fd33509a638p+24, -0x1.16b218e05b185p+22, 0x1.30bc80c93bb29p+20, -0x1.5070070350ed2p+18,
   0x1.75855760d099p+16, -0x1.a2d24784e8b2fp+14, 0x1.dba654bd3e628p+12, -0x1.12239be279627p+11, 0x1.4373f7d1dad15p+9,
   -0x1.8588458205bd7p+7, 0x1.f504accc9cc46p+5, -0x1.4185ac30c8bf3p+4, 0x1.3267f3c265a52p+3, -0x1.ea12da904b18cp+0,
   -0x1.220130f99b2cfp-54, -0x1.5fb410a1bd901p+1, 0x1.a19a96d2e6f85p-54},
  {0x1.16bac543d5d07p+38, 0x1.56f950a3a7c61p+35, 0x1.9fec7522423adp+32, 0x1.02c8212568b4bp+30, 0x1.4452185bf9aeap+27,
   0x1.99c873dc10f49p+24, 0x1.057f65c1b041fp+22, 0x1.51ea334056a4cp+19, 0x1.bb97aa0b738e5p+16, 0x1.293c3f78d4c1ap+14,
   0x1.99a6337da39dbp+11, 0x1.267203d776b0cp+9, 0x1.c1137124d5c5bp+6, 0x1.9d4d2977150efp+4, 0x1.f20a65f2fac55p+2,
   -0x1.1d258e4b0be84p-53, -0x1.9260dbc9e59afp+1, -0x1.f717cd335a7b3p-53},
  {-0x1.54956c03f6f11p+63, 0x1.04ea6831d20d6p+59, -0x1.7f5555d25c3abp+54, 0x1.290cba6c512dap+50, -0x1.cffd143ac256ap+45,
   0x1.6d135fa304b3ep+41, -0x1.2225fdacfaee1p+37, 0x1.d2f76cf0c1592p+32, -0x1.7dbbe0636b695p+28, 0x1.3e8f3aba4dd7bp+24,
   -0x1.116f7806d25fep+20, 0x1.e8f829f141961p+15, -0x1.d25359d4b2f38p+11, 0x1.f76deae0436bep+7, -0x1.4b99d966c5647p+4,
   0x1.9cba2450afff3p-50, -0x1.fa471547c2fe5p+1, -0x1.70d4561291237p-56},
};
static __device__ const f64 gamma_derivative_beside[4][18] = {
  {0x1.0882082756565p+17, -0x1.0271c3c94798ap+13, 0x1.01bcdf0af6f84p+15, -0x1.b3b6dbb68da4ap+10, 0x1.01556782aaa13p+13,
   -0x1.709434fb64dcep+8, 0x1.00f12482f306fp+11, -0x1.2d820c5f32bd1p+6, 0x1.00a29e87bb024p+9, -0x1.d69d76e6bc723p+3,
   0x1.008bfe27eb6d7p+7, -0x1.6168d467b73ebp+1, 0x1.02118e3b13c53p+5, -0x1.9e6287497864p-1, 0x1.1e12d46d5ae28p+3,
   0x1.0cbb010bd488ap-51, -0x1.02172b05ee26p-1, -0x1.2cd704405bff6p-57},
  {0x1.a8646300badb3p+19, -0x1.62bf4d41ce5bfp+18, 0x1.2cf0cf8dbed2ap+17, -0x1.eea4fc980eda8p+15, 0x1.bba368ca08735p+14,
   -0x1.61bd01f361639p+13, 0x1.4a0e83c884116p+12, -0x1.f21ff936128b7p+10, 0x1.f3719c2ae4b49p+9, -0x1.549402ed313f9p+8,
   0x1.84e00f75fe97dp+7, -0x1.b6914540deca7p+5, 0x1.3f4b97e4daf9dp+5, -0x1.f35db31e6a1d4p+2, 0x1.3e20e129a441ep+3,
   -0x1.944a31365ee6bp-52, -0x1.92d0cbc289d4ap+0, -0x1.2262d144a30e4p-56},
  {0x1.c8c02baeef5aep+21, -0x1.62f1dbf331849p+20, 0x1.0a67a7d400791p+19, -0x1.9ce0ee2911c8ep+17, 0x1.440641a24c0d5p+16,
   -0x1.f2bd8312bef99p+14, 0x1.8b62faa18cca8p+13, -0x1.2b2c92f91286p+12, 0x1.e70574fcb2167p+10, -0x1.615a45788968ep+9,
   0x1.32d7d4249df15p+8, -0x1.90d084fd9d995p+6, 0x1.99bd233efef94p+5, -0x1.98a9c8ee5f509p+3, 0x1.5b2582701b783p+3,
   -0x1.ec1f096d4fce9p-51, -0x1.4e2c19f679e5ap+1, 0x1.c7b999bd14f47p-54},
  {0x1.45b21a43b69e4p+23, -0x1.daf525f5c4c31p+21, 0x1.4b558694c4dbp+20, -0x1.e2cc96ef9c389p+18, 0x1.6127a6cdcf36bp+17,
   -0x1.00b1303ae44e8p+16, 0x1.78c3991475696p+14, -0x1.0fe6458e0c464p+13, 0x1.94149c687ba55p+11, -0x1.1d54b28e00e22p+10,
   0x1.b860d0e008c05p+8, -0x1.22e76b78ca974p+7, 0x1.f94be5ed016a7p+5, -0x1.0f036e4ba3313p+4, 0x1.74d47ec7ac492p+3,
   0x1.3f8f2b994019ap-52, -0x1.d1514b041b2a8p+1, 0x1.f71449c2a5446p-55},
};
template <i32 COUNT> __device__ inline DoubleDouble on_piece(const f64 (&row)[COUNT], f64 u) {
  f64 p = row[0];
  const f64 t = u - (u < 3.5 ? 2.75 : u < 5.75 ? 4.625 : 7.375);
#pragma unroll
  for (i32 i = 1; i < COUNT - 2; ++i) p = p * t + row[i];
  const DoubleDouble sum = fast_two_sum(row[COUNT - 2], p * t);
  return {sum.high, sum.low + row[COUNT - 1]};
}
// log gamma(1 + u) for u from 2 to 9, and its derivative.
__device__ inline i32 gamma_piece(f64 u) { return (u >= 3.5) + (u >= 5.75); }
__device__ inline DoubleDouble gamma_logarithm_one_plus(f64 u) {
  return on_piece(gamma_logarithm_table[gamma_piece(u)], u);
}
__device__ inline DoubleDouble gamma_derivative_one_plus(f64 u) {
  return on_piece(gamma_derivative_table[gamma_piece(u)], u);
}

// The same for u from 0 to 1: a polynomial times the distances from zeros.
__device__ inline DoubleDouble gamma_logarithm_near(f64 u) {
  const f64 t = u - 0.5;
  const f64 p = fused_polynomial(t, 0x1.8ca55ab6b8718p-17, -0x1.36d84fee907ffp-16, 0x1.c7d009a4fae3ap-17,
      -0x1.6880fac68f031p-16, 0x1.672b94917149fp-15, -0x1.1cf3272629995p-14, 0x1.ba26ce28a34bp-14,
      -0x1.61854b057e6e9p-13, 0x1.1c7b46046a59cp-12, -0x1.cb502b140a127p-12, 0x1.750aa27fe4301p-11,
      -0x1.313e5323120b7p-10, 0x1.f814b951d538bp-10, -0x1.a5035375acabep-9, 0x1.64f0664fb6518p-8, -0x1.34dbda128eee5p-7,
      0x1.133423527ae27p-6, -0x1.007aa83cef9abp-5, 0x1.01af62a2929e1p-4, -0x1.2aed059bd6085p-3);
  const DoubleDouble value = pair_step(p, t, {0x1.eeb95b094c191p-2, 0x1.346863f58b075p-56});
  const DoubleDouble less = fast_two_sum(-1.0, u), zeros = two_product(u, less.high);
  return pair_product({zeros.high, zeros.low + u * less.low}, value);
}
__device__ inline DoubleDouble gamma_derivative_near(f64 u) {
  const f64 t = u - 0.5;
  const f64 p = fused_polynomial(t, -0x1.6b107f71aa124p-13, 0x1.104c9d0897b58p-12, -0x1.3db05b36d9a48p-13,
      0x1.dc8ae08af0fc4p-13, -0x1.f99f529bd0771p-12, 0x1.7b3b41b0b38cdp-11, -0x1.1002aaf6255f5p-10,
      0x1.980fc9c9f0be8p-10, -0x1.33661f9073563p-9, 0x1.cd3e42d157015p-9, -0x1.5a071c746535bp-8, 0x1.03c00801ba958p-7,
      -0x1.86355f6f68797p-7, 0x1.256475e5ac975p-6, -0x1.b9f8b1367959dp-6, 0x1.4de9aa05d3418p-5, -0x1.fb442029cdbf4p-5,
      0x1.8512e5905d18p-4, -0x1.2feeeb98a7cd8p-3, 0x1.eca189b8e6da1p-3, -0x1.b1cb63005ee97p-2);
  const DoubleDouble value = pair_step(p, t, {0x1.e6f0cbb873617p-1, -0x1.f789c8f062b61p-55});
  const DoubleDouble less = two_sum(u, -(0x1.d8b618d5af8fep-2));
  return pair_product({less.high, less.low - (-0x1.1e563779a1f5bp-56)}, value);
}
// By how far x is from a zero's first part; the second one counts in the slope too.
__device__ inline f64 gamma_beside(const f64 (&row)[18], f64 apart) {
  f64 p = row[0];
#pragma unroll
  for (i32 i = 1; i < 14; ++i) p = fused(p, apart, row[i]);
  const DoubleDouble slope = pair_step(p, apart, {row[14], row[15]}), distance = fast_two_sum(apart, -row[17]);
  const DoubleDouble product = pair_product(distance, {slope.high, slope.low - row[17] * p});
  return product.high + product.low;
}

// x below 3 in size by u from 0 to 1: log gamma(x) is log gamma(1 + u) less log |a b c d|, from 2 on more log a.
// `rest` is what b and u lost.
struct GammaSteps {
  f64 u, rest, a, b, c, d;
};
__device__ inline GammaSteps gamma_steps(f64 x) {
  const bool below = x < 0.0;
  const f64 less = x - 1.0, second = x + 1.0, b = below ? second : 1.0, rest = below ? x - (second - 1.0) : 0.0;
  const f64 a = x < 1.0 ? x : x < 2.0 ? 1.0 : less;
  const f64 c = x < -1.0 ? x + 2.0 : 1.0, d = x < -2.0 ? x + 3.0 : 1.0;
  const f64 left = x < -2.0 ? d : x < -1.0 ? c : b, right = x < 1.0 ? x : x < 2.0 ? less : less - 1.0;
  return {below ? left : right, rest, a, b, c, d};
}

// The same of x from 9 on by the asymptotic series. The logarithm is that of x; the rest takes x as it is scaled.
__device__ inline DoubleDouble gamma_logarithm_beyond(f64 x, f64 scaled) {
  const f64 inverse = divided(1.0, x), square = inverse * inverse;
  const DoubleDouble log = logarithm_pair(x, 0), less = two_sum(log.high, -1.0);
  const DoubleDouble product = pair_product(two_sum(scaled, -0.5), {less.high, less.low + log.low});
  const DoubleDouble sum = two_sum(product.high, stirling_pair().high);
  const f64 p = unfused_polynomial(square, 0x1.5bf021843d989p-8, -0x1.f201587f8597cp-10, 0x1.b93e423d82af7p-11,
      -0x1.38136bc9c521p-11, 0x1.a01a0194e5371p-11, -0x1.6c16c16c16344p-9, 0x1.5555555555555p-4);
  return {sum.high, sum.low + (product.low + (inverse * p + stirling_pair().low))};
}
__device__ inline DoubleDouble gamma_derivative_beyond(f64 x) {
  const f64 inverse = divided(1.0, x), square = inverse * inverse;
  const DoubleDouble log = logarithm_pair(x, 0), sum = two_sum(log.high, -divided(0.5, x));
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
  return logarithm_pair(subnormal ? x * 0x1p54 : x, subnormal ? -54 : 0);
}

// From -6 to -3 log gamma(1 + u) less log |x (x + 1) .. u|, neither of them large.
template <bool CAREFUL> __device__ inline f64 stepped_gamma_logarithm(f64 x) {
  DoubleDouble product = {x, 0.0};
  f64 u = x;
#pragma unroll 1
  while (u < 0.0) {
    u += 1.0;
    product = pair_product(product, {u, 0.0});
  }
  const f64 sign = product.high < 0.0 ? -1.0 : 1.0;
  const DoubleDouble log = logarithm_pair(sign * product.high, sign * product.low, 0);
  const DoubleDouble value = gamma_logarithm_near(u), sum = two_sum(value.high, -log.high);
  const f64 result = sum.high + (sum.low + (value.low - log.low));
  if (!CAREFUL || fabs(result) >= 0x1p-4) return result;
  if (x < -4.0) return gamma_logarithm_near_zeros(x);
  const auto& zero = gamma_logarithm_beside[x > -3.5 ? 2 : 3];
  return gamma_beside(zero, x - zero[16]);
}
// Of 3 and more in size, of 0 and next to it, of poles and what is no number. CAREFUL: also where terms cancel; f32 has
// digits to spare there.
template <bool CAREFUL> __device__ __noinline__ f64 far_gamma_logarithm(f64 x) {
  if (x != x) return x;
  if (is_gamma_pole(x) || is_inf(x)) return infinity();
  const f64 size = fabs(x);
  if (size < 1.0) {
    const DoubleDouble log = pair_log(size);
    return -log.high - log.low;
  }
  if (x >= 0x1p500) {
    const DoubleDouble value = gamma_logarithm_beyond(x, x * 0x1p-200);
    return (value.high + value.low) * 0x1p200;
  }
  if (x > 0.0) {
    const DoubleDouble value = x >= 10.0 ? gamma_logarithm_beyond(x, x) : gamma_logarithm_one_plus(x - 1.0);
    return value.high + value.low;
  }
  if (x > -6.0) return stepped_gamma_logarithm<CAREFUL>(x);
  // log(pi / sin(pi |x|)) - log gamma(1 + |x|); from 9 on |x| is below it, and the other one is log gamma(|x|)
  const bool beyond = size >= 9.0;
  const DoubleDouble value = beyond ? gamma_logarithm_beyond(size, size) : gamma_logarithm_one_plus(size);
  const DoubleDouble below = pair_product(sine_and_cosine(size).sine, {beyond ? size : 1.0, 0.0});
  const DoubleDouble quotient = pair_quotient(pair_pi(), below);
  const DoubleDouble log = logarithm_pair(quotient.high, quotient.low, 0), sum = two_sum(-value.high, log.high);
  const f64 result = sum.high + (sum.low + (log.low - value.low));
  return CAREFUL && has_cancelled(result, value.high, 0.75) ? gamma_logarithm_near_zeros(x) : result;
}
__device__ inline f64 gamma_logarithm(f64 x) {
  const bool first = x > -2.625;
  const auto& zero = gamma_logarithm_beside[first ? 0 : 1];
  const f64 apart = x - (first ? -0x1.3a7fc9600f86cp+1 : -0x1.5fb410a1bd901p+1);
  if (fabs(apart) < 0.04) return gamma_beside(zero, apart);
  const GammaSteps of = gamma_steps(x);
  const DoubleDouble one = two_product(of.a, of.b);
  const DoubleDouble product = pair_product({one.high, one.low + of.a * of.rest}, two_product(of.c, of.d));
  if (!(fabs(x) < 3.0 && fabs(product.high) >= 0x1p-1000)) return far_gamma_logarithm<true>(x);
  const f64 sign = product.high < 0.0 ? -1.0 : 1.0, side = x < 2.0 ? -1.0 : 1.0;
  const DoubleDouble log = logarithm_terms(sign * product.high, sign * product.low, 0);
  const DoubleDouble value = gamma_logarithm_near(of.u), sum = two_sum(value.high, side * log.high);
  return sum.high + (sum.low + (value.low + side * log.low));
}

// As `far_gamma_logarithm`.
template <bool CAREFUL> __device__ __noinline__ f64 far_gamma_derivative(f64 x) {
  if (x == 0.0) return -copysign(infinity(), x);
  if (is_gamma_pole(x) || !is_finite(x)) return x > 0.0 ? x : not_a_number();
  const f64 size = fabs(x);
  if (size < 1.0) return divided(-1.0, x);
  if (x > 0.0) {
    const DoubleDouble value = x >= 10.0 ? gamma_derivative_beyond(x) : gamma_derivative_one_plus(x - 1.0);
    return value.high + value.low;
  }
  const bool beyond = size >= 9.0;
  DoubleDouble value = beyond ? gamma_derivative_beyond(size) : gamma_derivative_one_plus(size);
  if (beyond) {  // the derivative at 1 + |x| is that at |x| and 1 / |x|
    const DoubleDouble inverse = pair_quotient({1.0, 0.0}, {size, 0.0}), sum = two_sum(value.high, inverse.high);
    value = {sum.high, sum.low + (value.low + inverse.low)};
  }
  const SineAndCosine turn = sine_and_cosine(size);
  const DoubleDouble cotangent = pair_product(pair_pi(), pair_quotient(turn.cosine, turn.sine));
  const f64 sign = size - rint(size) < 0.0 ? -1.0 : 1.0;
  const DoubleDouble sum = two_sum(value.high, sign * cotangent.high);
  const f64 result = sum.high + (sum.low + (value.low + sign * cotangent.low));
  return CAREFUL && has_cancelled(result, value.high, 0.1875) ? gamma_derivative_near_zeros(x) : result;
}
// The derivative at 1 + u less the inverses of a, b, c and d, as one quotient; from 2 on more that of a.
template <bool CAREFUL> __device__ inline f64 gamma_derivative_of(f64 x) {
  const auto& zero = gamma_derivative_beside[(x <= -1.0) + (x <= -2.0) + (x <= -3.0)];
  const f64 apart = x - zero[16];
  if (fabs(apart) < 0.04) return gamma_beside(zero, apart);
  const GammaSteps of = gamma_steps(x);
  const DoubleDouble ab = two_product(of.a, of.b), one = {ab.high, ab.low + of.a * of.rest};
  const DoubleDouble two = two_product(of.c, of.d), d = pair_product(one, two);
  if (!(fabs(x) < 3.0 && fabs(d.high) >= 0x1p-60)) return far_gamma_derivative<CAREFUL>(x);
  const bool below = x < 0.0;
  const f64 twice = x + x, sum = twice + 1.0;  // slopes of a b and of c d
  const f64 slope = below ? sum : x < 1.0 ? 1.0 : x < 2.0 ? 0.0 : -1.0, slope_rest = below ? twice - (sum - 1.0) : 0.0;
  const f64 other = x < -2.0 ? twice + 5.0 : x < -1.0 ? 1.0 : 0.0;
  const DoubleDouble left = pair_product({slope, slope_rest}, two), right = pair_product(one, {other, 0.0});
  const DoubleDouble n = two_sum(left.high, right.high);
  const DoubleDouble less = pair_quotient({n.high, n.low + (left.low + right.low)}, d);
  const DoubleDouble value = gamma_derivative_near(of.u), result = two_sum(value.high, -less.high);
  return result.high + (result.low + ((value.low + 0.75 * of.rest) - less.low));
}
__device__ inline f64 gamma_derivative(f64 x) { return gamma_derivative_of<true>(x); }

// Of f32 where terms cancel, and of special values.
__device__ __noinline__ f32 careful_gamma_logarithm(f32 x) { return f32(far_gamma_logarithm<false>(x)); }
__device__ __noinline__ f32 careful_gamma_derivative(f32 x) { return f32(gamma_derivative_of<false>(x)); }
