// Vectors of 32 bytes by the compiler, and the few operations that it has no operator for.
#pragma once
#include <stdint.h>
#include <string.h>
#ifdef __AVX2__
#include <immintrin.h>
#endif

typedef uint8_t u8x16 __attribute__((vector_size(16)));
typedef uint8_t u8x32 __attribute__((vector_size(32)));
typedef int16_t i16x8 __attribute__((vector_size(16)));
typedef int16_t i16x16 __attribute__((vector_size(32)));
typedef int32_t i32x8 __attribute__((vector_size(32)));
typedef int32_t i32x16 __attribute__((vector_size(64)));
typedef int64_t i64x4 __attribute__((vector_size(32)));
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
VECTOR i16x16 clamp(i16x16 x) { return (x | (255 - x) >> 15) & ~(x >> 15) & 255; }

// a × x + b × y, rounded, in units of 2 to the power of -16.
VECTOR i16x16 weigh(i16x16 x, i16x16 y, int a, int b) {
  i32x16 sum = __builtin_convertvector(x, i32x16) * a + __builtin_convertvector(y, i32x16) * b;
  return __builtin_convertvector((sum + (1 << 15)) >> 16, i16x16);
}
