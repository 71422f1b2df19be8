// Vectors of 32 bytes by the compiler, and the few operations that it has no operator for.
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>
#ifdef __AVX2__
#include <immintrin.h>
#endif

typedef uint8_t u8x8 __attribute__((vector_size(8)));
typedef uint8_t u8x16 __attribute__((vector_size(16)));
typedef uint8_t u8x32 __attribute__((vector_size(32)));
typedef int16_t i16x8 __attribute__((vector_size(16)));
typedef int16_t i16x16 __attribute__((vector_size(32)));
typedef uint32_t u32x4 __attribute__((vector_size(16)));
typedef int32_t i32x8 __attribute__((vector_size(32)));
typedef int32_t i32x16 __attribute__((vector_size(64)));
typedef int64_t i64x4 __attribute__((vector_size(32)));
typedef float f32x4 __attribute__((vector_size(16)));
typedef float f32x8 __attribute__((vector_size(32)));

#define VECTOR static inline __attribute__((always_inline))

// The upper half of each product.
VECTOR i16x16 multiply_high(i16x16 a, i16x16 b) {
#ifdef __AVX2__
  return (i16x16)_mm256_mulhi_epi16((__m256i)a, (__m256i)b);
#else
  return __builtin_convertvector(
      (__builtin_convertvector(a, i32x16) * __builtin_convertvector(b, i32x16)) >> 16, i16x16);
#endif
}

// Clamped to 0…255.
VECTOR i16x16 clamp(i16x16 x) {
#ifdef __AVX2__
  __m256i most = _mm256_set1_epi16(255), least = _mm256_setzero_si256();
  return (i16x16)_mm256_max_epi16(_mm256_min_epi16((__m256i)x, most), least);
#else
  return (x | (255 - x) >> 15) & ~(x >> 15) & 255;
#endif
}

// Bytes of both, clamped to 0…255.
VECTOR u8x32 join(i16x16 a, i16x16 b) {
#ifdef __AVX2__
  return (u8x32)_mm256_permute4x64_epi64(_mm256_packus_epi16((__m256i)a, (__m256i)b), 0xd8);
#else
  u8x16 both[2] = {__builtin_convertvector(clamp(a), u8x16), __builtin_convertvector(clamp(b), u8x16)};
  u8x32 joined;
  memcpy(&joined, both, 32);
  return joined;
#endif
}

// a × x + b × y, rounded, in units of 2 to the power of -16.
VECTOR i16x16 weigh(i16x16 x, i16x16 y, int16_t a, int16_t b) {
#ifdef __AVX2__
  __m256i factors = _mm256_set1_epi32((uint16_t)a | b << 16), half = _mm256_set1_epi32(1 << 15);
  __m256i low = _mm256_madd_epi16(_mm256_unpacklo_epi16((__m256i)x, (__m256i)y), factors);
  __m256i high = _mm256_madd_epi16(_mm256_unpackhi_epi16((__m256i)x, (__m256i)y), factors);
  low = _mm256_srai_epi32(_mm256_add_epi32(low, half), 16);
  return (i16x16)_mm256_packs_epi32(low, _mm256_srai_epi32(_mm256_add_epi32(high, half), 16));
#else
  i32x16 sum = __builtin_convertvector(x, i32x16) * a + __builtin_convertvector(y, i32x16) * b;
  return __builtin_convertvector((sum + (1 << 15)) >> 16, i16x16);
#endif
}

// The bytes of two neighbours as floats.
VECTOR f32x8 to_floats(const uint32_t *pixels) {
#ifdef __AVX2__
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)pixels)));
#else
  u8x8 bytes;
  memcpy(&bytes, pixels, 8);
  return __builtin_convertvector(__builtin_convertvector(bytes, i32x8), f32x8);
#endif
}

// Four vectors as bytes, rounded to even as tf.round does: their lower halves, then their upper ones.
VECTOR u8x32 to_bytes(const f32x8 *x) {
#ifdef __AVX2__
  __m256i a = _mm256_packus_epi32(_mm256_cvtps_epi32(x[0]), _mm256_cvtps_epi32(x[1]));
  __m256i b = _mm256_packus_epi32(_mm256_cvtps_epi32(x[2]), _mm256_cvtps_epi32(x[3]));
  return (u8x32)_mm256_packus_epi16(a, b);
#else
  u8x32 bytes;
  for (int i = 0; i < 32; i++) bytes[i] = (int)rintf(x[i / 4 % 4][i / 16 * 4 + i % 4]);
  return bytes;
#endif
}
