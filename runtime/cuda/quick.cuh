// What rows do faster than elementwise operations, with the same bits, because a row knows more of its elements: the
// extremes of all that is finite among them, from an earlier pass, and that one of two conditions follows from the
// other.
#pragma once
#include "elementary.cuh"

// Quick<T>, where functions name the type that they are as precise as: by instructions of the GPU. The CPU, which lacks
// them, takes the steps of T.
template <typename T> constexpr bool IS_QUICK = false;
template <typename T> struct Plain { using type = T; };
#ifdef __CUDACC_RTC__
template <typename T> struct Quick {};
template <typename T> constexpr bool IS_QUICK<Quick<T>> = true;
template <typename T> struct Plain<Quick<T>> { using type = T; };

// e^x and 1 / x, in f32 within 2^-16 and 2^-22 of the value; 0 in place of subnormal numbers.
__device__ inline f32 hardware_power(f32 x) {
  f32 y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline f32 hardware_inverse(f32 x) {
  f32 y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline f32 hardware_exponential(f32 x) { return hardware_power(x * 0x1.715476p+0f); }
// f64 has no such instructions.
__device__ inline f64 hardware_inverse(f64 x) { return 1.0 / x; }
__device__ inline f64 hardware_exponential(f64 x) { return exponential(x); }
#else
template <typename T> using Quick = T;
#endif

// What follows where a quick form does not hold is out of line: it is seldom wanted, and code that is jumped over has
// to be fetched too, which is what a kernel of few rows waits for.
template <typename C> __device__ __noinline__ C careful_exponential(C x) { return exponential(x); }
template <typename C> __device__ __noinline__ C careful_logistic(C x, C u) {
  return divided(x, C(1) + exponential(u));
}

// As quick_exponential, where the power of two is added to the exponent: the product is a normal number.
__device__ inline f32 near_exponential(f32 x) {
  const f32 power = exponential_power(x);
  const f32 mantissa = exponential_near(x, power - 0x1.8p23f);
  return __int_as_float(i32((u32(__float_as_int(power)) << 23) + u32(__float_as_int(mantissa))));
}
template <int FAST> __device__ inline f32 row_exponential(f32 x, bool& usual) {
  if (!FAST) return x < -104.0f ? 0.0f : careful_exponential(x);  // masked elements, -inf, need no call
  usual &= fabsf(x) <= 87.0f;
  return near_exponential(x);
}
template <int FAST> __device__ inline f64 row_exponential(f64 x, bool& usual) {
  if (!FAST) return x < -746.0 ? 0.0 : careful_exponential(x);
  return quick_exponential(x, usual);
}
template <int FAST, typename C> __device__ inline C row_quotient(C x, C s, bool& usual) {
  return FAST ? quick_quotient(x, s, inverse(s), usual) : general_quotient(x, s);
}

// x / s, where x is an element of type E: no narrow one but 0 is too small.
template <int FAST, typename E, typename C> __device__ inline C quotient_of(C x, const Divisor<C>& by, bool& usual) {
  if constexpr (FAST && NARROW<E>) {
    usual &= (by.s >= limits<C>::scale_low) & (by.s <= limits<C>::scale_high) & (absolute(x) <= limits<C>::value_high);
    const C q0 = x * by.y;
    return fused(-fused(by.s, q0, -x), by.y, q0);
  } else {
    return quotient<FAST>(x, by, usual);
  }
}

// x / (1 + e^-x). Up to 2^-26 the divisor is 2, so that the quotient is q0 and no remainder is left that counts;
// beyond, nothing leaves the range of normal numbers where the divisor lies in 1 .. 2^100.
template <int FAST, typename C> __device__ inline C logistic_product(C x, bool& usual) {
  if constexpr (FAST && sizeof(C) == sizeof(f32)) {
    usual &= absolute(x) <= C(69);
    return sure_quotient(x, C(1) + near_exponential(-x));
  } else if constexpr (FAST) {
    return row_quotient<FAST>(x, C(1) + row_exponential<FAST>(-x, usual), usual);
  } else {
    return careful_logistic(x, -x);
  }
}

// x / (1 + e^u), where x is finite if u is. A narrow dividend is at least 2^-24 if it is not 0 and the divisor lies in
// 1 .. 2^100, so nothing on the way leaves the range of normal numbers: one condition is asked in place of six.
template <int FAST, typename E, typename C> __device__ inline C logistic_quotient(C x, C u, bool& usual) {
  if constexpr (FAST && NARROW<E> && sizeof(C) == sizeof(f32)) {
    usual &= absolute(u) <= C(69);
    return sure_quotient(x, C(1) + near_exponential(u));
  } else if constexpr (FAST) {
    return row_quotient<FAST>(x, C(1) + row_exponential<FAST>(u, usual), usual);
  } else {
    return careful_logistic(x, u);
  }
}

// An index along a row of so many elements: of rows that are not too long, 32 bits tell indices apart.
__device__ __noinline__ bool same_place(i64 a, i64 b) { return a == b; }
template <typename C> struct PlaceOf {
  i64 index;
  i32 near;  // -1 where no element has it
  bool fast;

  PlaceOf() = default;
  __device__ PlaceOf(i64 index, C count)
      : index(index), near(index >= 0 && index <= 0x7fffffff ? i32(index) : -1), fast(count < C(0x1p31)) {}
  // Whether it is at none of COUNT places from one on.
  template <int COUNT> __device__ bool apart(i64 place) const { return u32(near) - u32(place) >= COUNT; }
  template <int FAST> __device__ bool at(i64 place) const {
    if constexpr (FAST == FAST_GROUP) return false;
    return FAST || fast ? i32(place) == near : same_place(place, index);
  }
};

// v rounded to the nearest integer, ties to even, for |v| < 2^22: its last bits hold it.
__device__ inline f32 to_integer(f32 v) { return v + 0x1.8p23f; }
__device__ inline i32 integer_in(f32 rounded) { return __float_as_int(rounded) - 0x4b400000; }

// Steps of a value that may not be finite, or beyond the bounds. Out of line: few rows have any.
template <typename C> __device__ __noinline__ i64 careful_steps(C x, C s, i64 low, i64 high) {
  const Steps<C> steps(s, low, high);
  return steps.fast ? steps.template value<true>(x) : steps.template value<false>(x);
}
// The same where the value may also be next to a tie. y: 1 / s where it is finite and inside the bounds; else 0.
template <typename C> __device__ __noinline__ i64 divided_steps(C x, C s, C y, i64 low, i64 high) {
  if (y == C(0)) return careful_steps(x, s, low, high);
  const f32 q0 = x * y;
  return integer_in(to_integer(fused(fused(-s, q0, x), y, q0)));
}

// The same of quick steps, whatever a thread's other values are: by the product wherever that holds.
template <typename C> __device__ __noinline__ i64 product_steps(C x, C s, C y, i64 low, i64 high) {
  if (!(s >= limits<f32>::scale_low && s <= limits<f32>::scale_high && absolute(x * y) < C(0x1p21)))
    return careful_steps(x, s, low, high);
  const i64 code = integer_in(fused(x, y, 0x1.8p23f));
  return code > high ? high : code < low ? low : code;
}

// Steps of values of which a thread's are finite (`finite`) and then lie in smallest .. greatest. Where the quotients
// of these two are inside the bounds, so are all, and nothing has to be cut. Elements of 16 bits, E, are divided; the
// quotient of a small dividend may be inexact, but rounds to 0 like the right one. Values of C are not even that: the
// products with a number below 1 / s and with one above it enclose the quotient, as it is and as it is rounded to C,
// and where both are rounded to the same integer, so is it. That leaves quotients within a relative 2^-21 of a tie, of
// which elements of few bits give many: Quick ones are not asked. SMALL: the bounds are of 16 bits whatever they are.
template <typename C, typename E, bool SMALL> struct RowSteps {
  static constexpr bool ENCLOSED = sizeof(C) == sizeof(f32) && storage<typename Plain<E>::type>::bits > 16;
  Steps<C> steps;
  C below, above;  // 1 / s lies between, three units in the last place of RN(1 / s) from either
  bool fast;

  RowSteps() = default;
  __device__ RowSteps(C s, i64 low, i64 high, C smallest, C greatest, bool finite) : steps(s, low, high) {
    if constexpr (sizeof(C) == sizeof(f32)) {
      usual(finite);
      fast &= rounded(smallest) >= C(i32(low)) && rounded(greatest) <= C(i32(high));
    } else {
      fast = steps.fast;
    }
  }
  // Of magnitudes up to the greatest. A quotient of up to 1/4 more than a bound rounds to it; what is off by the last
  // places is off by less.
  __device__ RowSteps(C s, i64 low, i64 high, C greatest, bool finite) : steps(s, low, high) {
    if constexpr (sizeof(C) == sizeof(f32)) {
      usual(finite);
      const C most = greatest * steps.y - 0.25f;
      fast &= most <= C(i32(high)) && most <= -C(i32(low));
    } else {
      fast = steps.fast;
    }
  }

  __device__ f32 quotient(f32 x) const {
    const f32 q0 = x * steps.y;
    return fused(fused(-steps.s, q0, x), steps.y, q0);
  }
  __device__ f32 rounded(f32 x) const { return to_integer(quotient(x)) - 0x1.8p23f; }

  template <int FAST> __device__ i64 value(C x, bool& usual) const {
    if constexpr (FAST && sizeof(C) == sizeof(f32)) return integer_in(sum<FAST>(x, usual));
    else if constexpr (FAST) return steps.template value<true>(x);
    else if constexpr (IS_QUICK<E> && sizeof(C) == sizeof(f32))
      return product_steps(x, steps.s, steps.y, steps.low, steps.high);
    else if constexpr (ENCLOSED) return divided_steps(x, steps.s, fast ? steps.y : C(0), steps.low, steps.high);
    else return careful_steps(x, steps.s, steps.low, steps.high);
  }
  template <int FAST> __device__ C real(C x, bool& usual) const {
    if constexpr (FAST && sizeof(C) == sizeof(f32)) return sum<FAST>(x, usual) - 0x1.8p23f;
    else return C(value<FAST>(x, usual));
  }

 private:
  __device__ void usual(bool finite) {
    constexpr i64 MOST = 1 << 16;
    below = __uint_as_float(__float_as_uint(steps.y) - 3);
    above = __uint_as_float(__float_as_uint(steps.y) + 3);
    fast = finite && steps.s >= limits<f32>::scale_low && steps.s <= limits<f32>::scale_high &&
           (SMALL || (steps.low >= -MOST && steps.low <= MOST && steps.high >= -MOST && steps.high <= MOST));
  }

  // The quotient as `to_integer` rounds it.
  template <int FAST> __device__ f32 sum(f32 x, bool& usual) const {
    if constexpr (IS_QUICK<E>) return fused(x, steps.y, 0x1.8p23f);
    if constexpr (!ENCLOSED) return to_integer(quotient(x));
    const f32 first = fused(x, below, 0x1.8p23f);
    usual &= first == fused(x, above, 0x1.8p23f);
    return first;
  }
};

// What an output of integers E is put together from: as few bits as it keeps.
template <bool NARROW_CODE> struct code { using type = i64; };
template <> struct code<true> { using type = s8; };
template <typename E> using code_t = typename code<(storage<E>::bits <= 8)>::type;
// What a value V is held as until it is stored as an E.
template <typename E, typename V> struct code_or { using type = V; };
template <typename E> struct code_or<E, i64> { using type = code_t<E>; };
