// Bits of the scan, and what the entries of a Huffman table mean.
#pragma once
#include <string.h>

#include "decoder.h"

// An AC entry: value << 16 | advance << 8 | length. The advance is the run and 1, END after the last
// coefficient, or UNFIT if the value does not fit into the look-up (size << 24 | advance << 16 |
// UNFIT << 8 | length), or not even the code (length 0). INVALID is the advance of no symbol.
enum { INVALID = 64, END = 128, UNFIT = 255 };

#define ADVANCE(entry) ((int)((entry) >> 8 & 255))
#define INLINE static inline __attribute__((always_inline))

INLINE int advance_of(int symbol) { return symbol & 15 || symbol == 0xf0 ? (symbol >> 4) + 1 : END; }

// At least 56 bits are in the buffer after it.
INLINE void refill(Bits *bits) {
  uint64_t word;
  memcpy(&word, bits->at, 8);
  bits->buffer |= __builtin_bswap64(word) >> bits->count;
  bits->at += (63 - bits->count) >> 3;
  bits->count |= 56;
}

INLINE uint32_t peek(const Bits *bits, int n) { return bits->buffer >> (64 - n); }

INLINE void drop(Bits *bits, int n) {
  bits->buffer <<= n;
  bits->count -= n;
}

// Reads a value of `size` bits, 0 to 15; the lower half stands for negative values.
INLINE int read_value(Bits *bits, int size) {
  int value = (int)(bits->buffer >> 1 >> (63 - size));
  drop(bits, size);
  return value < 1 << size >> 1 ? value - (1 << size) + 1 : value;
}
