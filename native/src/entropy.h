// Bits of the scan.
#pragma once
#include <string.h>

#include "decoder.h"

#define INLINE static inline __attribute__((always_inline))

// At least 56 bits are in the buffer after it.
INLINE void refill(Bits *bits) {
  uint64_t word;
  bits->count &= 63;
  memcpy(&word, bits->at, 8);
  bits->buffer |= __builtin_bswap64(word) >> bits->count;
  bits->at += (63 - bits->count) >> 3;
  bits->count |= 56;
}

INLINE uint32_t peek(const Bits *bits, int n) { return bits->buffer >> (64 - n); }

// Drops n bits, modulo 64.
INLINE void drop(Bits *bits, uint32_t n) {
  bits->buffer <<= n & 63;
  bits->count -= n;
}

// The lower half of the values of `size` bits stands for negative ones.
INLINE int extend(int value, int size) { return value < 1 << size >> 1 ? value - (1 << size) + 1 : value; }
