// What the kernels ask of CUDA, for a C++ compiler of the CPU. PTX instructions are functions with `_` for each dot.
// runtime/cpu/device.h says the same for calls on the CPU, in steps that become vectors. Neither includes the other: where
// one is wrong, kernels here and kernels there differ. Both include bits.h.
#pragma once
#include <cstdlib>
#include <functional>
#include "../../runtime/cpu/bits.h"

#define __cluster_dims__(...)
#define __forceinline__ inline

using std::fmod;

// A GPU's: what is no NaN of two, and 0 is greater than -0. C leaves zeros open.
template <typename V> inline V number_of(V a, V b, bool first) { return a != a ? b : b != b || first ? a : b; }
template <typename V> inline V gpu_fmin(V a, V b) { return number_of(a, b, a < b || (a == b && std::signbit(a))); }
template <typename V> inline V gpu_fmax(V a, V b) { return number_of(a, b, a > b || (a == b && std::signbit(b))); }
#define fmin gpu_fmin
#define fmax gpu_fmax
#define fminf gpu_fmin<float>
#define fmaxf gpu_fmax<float>

inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
float __fmaf_rd(float a, float b, float c);
double __fma_rd(double a, double b, double c);
inline int __float2int_rn(float x) {
  if (x != x) return 0;
  return x >= 2147483648.f ? INT32_MAX : x <= -2147483648.f ? INT32_MIN : int(std::nearbyint(x));
}
inline int __double2int_rn(double x) {
  if (x != x) return 0;
  return x >= 2147483647. ? INT32_MAX : x <= -2147483648. ? INT32_MIN : int(std::nearbyint(x));
}
inline long long __float2ll_rn(float x) { return (long long)std::nearbyint(x); }
inline long long __double2ll_rn(double x) { return (long long)std::nearbyint(x); }
inline float __double2float_rz(double x) {
  const float near = float(x);
  return std::isfinite(x) && std::fabs(double(near)) > std::fabs(x) ? std::nextafterf(near, 0) : near;
}

// ---- PTX ----

inline float max_NaN_f32(float a, float b) {
  if (a != a || b != b) return __int_as_float(0x7fffffff);
  if (a == b) return __uint_as_float(__float_as_uint(a) & __float_as_uint(b));
  return a > b ? a : b;
}
inline float min_NaN_f32(float a, float b) {
  if (a != a || b != b) return __int_as_float(0x7fffffff);
  if (a == b) return __uint_as_float(__float_as_uint(a) | __float_as_uint(b));
  return a < b ? a : b;
}
inline float cvt_f32_f16(unsigned short bits) { return float(same_bits<_Float16>(bits)); }
inline unsigned short cvt_rn_f16_f32(float x) { return x != x ? 0x7fff : same_bits<unsigned short>(_Float16(x)); }
inline unsigned short cvt_rn_bf16_f32(float x) {
  const unsigned bits = __float_as_uint(x);
  return x != x ? 0x7fff : (unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
// Two elements of a word.
template <typename Two> unsigned each_half(unsigned a, unsigned b, Two of) {
  return of(a & 0xffff, b & 0xffff) | of(a >> 16, b >> 16) << 16;
}
inline unsigned max_NaN_f16x2(unsigned a, unsigned b) {
  return each_half(a, b, [](unsigned x, unsigned y) -> unsigned {
    return cvt_rn_f16_f32(max_NaN_f32(cvt_f32_f16(x), cvt_f32_f16(y)));
  });
}
inline unsigned min_NaN_f16x2(unsigned a, unsigned b) {
  return each_half(a, b, [](unsigned x, unsigned y) -> unsigned {
    return cvt_rn_f16_f32(min_NaN_f32(cvt_f32_f16(x), cvt_f32_f16(y)));
  });
}
inline unsigned max_NaN_bf16x2(unsigned a, unsigned b) {
  return each_half(a, b, [](unsigned x, unsigned y) -> unsigned {
    return cvt_rn_bf16_f32(max_NaN_f32(__uint_as_float(x << 16), __uint_as_float(y << 16)));
  });
}
inline unsigned min_NaN_bf16x2(unsigned a, unsigned b) {
  return each_half(a, b, [](unsigned x, unsigned y) -> unsigned {
    return cvt_rn_bf16_f32(min_NaN_f32(__uint_as_float(x << 16), __uint_as_float(y << 16)));
  });
}
// Floats of 8 bits, by their definition: the nearest of all values, the even one of two, the largest for what is beyond.
struct Fp8 {
  float values[128];  // of the codes without a sign; infinite where a code is no number
  int highest = 0;    // the largest finite one

  Fp8(int fraction, int bias, int codes) : highest(codes - 1) {
    for (int code = 0; code < 128; ++code) {
      const int exponent = code >> fraction, rest = code & ((1 << fraction) - 1);
      const float whole = float(exponent ? rest + (1 << fraction) : rest);
      const float size = std::ldexp(whole, (exponent ? exponent : 1) - bias - fraction);
      values[code] = code < codes ? size : INFINITY;
    }
  }
  unsigned nearest(float x) const {
    if (x != x) return 0x7f;
    const float size = std::fabs(x);
    int low = 0, high = highest;
    while (high - low > 1) (values[(low + high) / 2] <= size ? low : high) = (low + high) / 2;
    const double below = double(size) - values[low], above = double(values[high]) - size;
    return unsigned(below < above || (below == above && low % 2 == 0) ? low : high) | (std::signbit(x) ? 0x80 : 0);
  }
  float value(unsigned code, float infinity) const {
    const int size = code & 0x7f;
    const float found = size <= highest ? values[size] : size == highest + 1 ? infinity : NAN;
    return code & 0x80 ? -found : found;
  }
};
inline const Fp8& e4m3_table() {
  static const Fp8 table(3, 7, 0x7f);
  return table;
}
inline const Fp8& e5m2_table() {
  static const Fp8 table(2, 15, 0x7c);
  return table;
}
// The first operand goes to the high byte.
inline unsigned short cvt_rn_satfinite_e4m3x2_f32(float high, float low) {
  return e4m3_table().nearest(high) << 8 | e4m3_table().nearest(low);
}
inline unsigned short cvt_rn_satfinite_e5m2x2_f32(float high, float low) {
  return e5m2_table().nearest(high) << 8 | e5m2_table().nearest(low);
}
inline unsigned cvt_rn_f16x2_e4m3x2(unsigned short pair) {
  return cvt_rn_f16_f32(e4m3_table().value(pair & 0xff, NAN)) |
         unsigned(cvt_rn_f16_f32(e4m3_table().value(pair >> 8, NAN))) << 16;
}
inline void griddepcontrol_wait() {}
inline void griddepcontrol_launch_dependents() {}

// ---- shared memory ----

// Of the blocks of a cluster one after the other: addresses are counted from the first one's.
constexpr unsigned SHARED_BYTES = 64 << 20;  // of a block: what each kernel of a source declares has an offset of its own
unsigned reserve_shared(size_t size);           // for a variable
void* shared_memory(unsigned offset);          // of this block
void* dynamic_shared_memory();
unsigned __cvta_generic_to_shared(const void* at);
unsigned mapa_shared__cluster_u32(unsigned at, unsigned block);
void st_shared__cluster_u32(unsigned at, unsigned value);
void st_async(unsigned at, const void* value, int size, unsigned signal);
inline void st_async_shared__cluster_mbarrier__complete_tx__bytes_b32(unsigned at, unsigned value, unsigned signal) {
  st_async(at, &value, 4, signal);
}
inline void st_async_shared__cluster_mbarrier__complete_tx__bytes_b64(unsigned at, long long value, unsigned signal) {
  st_async(at, &value, 8, signal);
}
void mbarrier_init_shared__cta_b64(unsigned at, int threads);
void mbarrier_arrive_expect_tx_shared__cta_b64(unsigned at, int bytes);
void mbarrier_try_wait_parity_shared__cta_b64(unsigned at);  // of the first phase, until it is over
void mbarrier_try_wait_parity_shared__cta_b64(unsigned at, unsigned parity);  // of a phase of this parity
void cp_async_bulk_shared__cluster_global_mbarrier__complete_tx__bytes(
    unsigned to, const void* from, int bytes, unsigned signal);
inline void fence_proxy_async_shared__cta() {}
inline void fence_mbarrier_init_release_cluster() {}
inline long long slct_s64_s32(long long a, long long b, int c) { return c >= 0 ? a : b; }
inline void prefetch_global_L2(const void* from) { (void)*static_cast<const volatile char*>(from); }
inline void cp_async_bulk_prefetch_L2_global(unsigned long long from, unsigned size) {
  if (from % 16 || size % 16) __builtin_trap();
  for (unsigned i = 0; i < size; i += 16) prefetch_global_L2(reinterpret_cast<const void*>(from + i));
}
void cp_async(unsigned to, const void* from, int size);  // what it copies comes when it is waited for
inline void cp_async_ca_shared_global(unsigned to, const void* from, int size = 16) { cp_async(to, from, size); }
inline void cp_async_cg_shared_global(unsigned to, const void* from, int size = 16) { cp_async(to, from, size); }
void cp_async_commit_group();
inline void prefetch_global_L1(const void*) {}
template <typename T> T __ldcs(const T* from) { return *from; }
void cp_async_wait_group(int later);
inline void cp_async_wait_all() { cp_async_commit_group(), cp_async_wait_group(0); }

// ---- the threads of a block, and those of a cluster ----

extern unsigned long long* exchanged;  // what a thread of this block shows the others of its warp
void barrier_cluster_arrive_relaxed_aligned();
void barrier_cluster_arrive_release_aligned();
void barrier_cluster_wait_acquire_aligned();
void __syncthreads();
void __syncwarp();
inline void __threadfence() {}
inline bool __syncthreads_or(bool value) {
  exchanged[threadIdx.x] = value;
  __syncthreads();
  for (unsigned thread = 0; thread < blockDim.x; ++thread) value |= exchanged[thread] != 0;
  __syncthreads();
  return value;
}
template <typename T> T __shfl_sync(unsigned, T value, int from) {
  static_assert(sizeof(T) <= sizeof *exchanged);
  memcpy(&exchanged[threadIdx.x], &value, sizeof value);
  __syncwarp();
  memcpy(&value, &exchanged[(threadIdx.x & ~31) + (from & 31)], sizeof value);
  __syncwarp();
  return value;
}
template <typename T> T __shfl_xor_sync(unsigned mask, T value, int apart) {
  return __shfl_sync(mask, value, (threadIdx.x & 31) ^ apart);
}
inline int __reduce_max_sync(unsigned mask, int value) {
  for (int apart = 1; apart < 32; apart *= 2) value = max(value, __shfl_xor_sync(mask, value, apart));
  return value;
}
inline int __reduce_min_sync(unsigned mask, int value) {
  for (int apart = 1; apart < 32; apart *= 2) value = min(value, __shfl_xor_sync(mask, value, apart));
  return value;
}
inline unsigned __reduce_min_sync(unsigned mask, unsigned value) {
  for (int apart = 1; apart < 32; apart *= 2) value = min(value, __shfl_xor_sync(mask, value, apart));
  return value;
}
inline bool __any_sync(unsigned mask, bool value) {
  for (int apart = 1; apart < 32; apart *= 2) value |= __shfl_xor_sync(mask, value, apart);
  return value;
}
inline bool __all_sync(unsigned mask, bool value) { return !__any_sync(mask, !value); }

// Runs every block, those of a cluster together; false if a thread waits for others that never come.
// `shared`: bytes of a block's shared memory beside what the kernel declares.
bool run_blocks(long long blocks, int threads, int cluster, int shared, const std::function<void()>& kernel);

#define index device_index  // POSIX has a function of that name
