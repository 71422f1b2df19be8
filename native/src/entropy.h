// Bits of the scan, and what the entries of a Huffman table mean.
#pragma once
#include <string.h>

#include "decoder.h"

// What a look-up of up to two AC symbols gives. A pair: second value << 48 | first value << 32 |
// advance to the second << 16 | advance to the first << 8 | length. Where there is no second, it is the
// first again. A skip is its lower half.
// The advance of a symbol is its run and 1. The end of a block has a value as well, the zero where a zero
// is, and END in its advance. UNFIT is the advance where the bits of a look-up are too few, INVALID that
// of no symbol.
enum { INVALID = 64, END = 128, UNFIT = 255 };

#define INLINE static inline __attribute__((always_inline))

INLINE int advance_of(int symbol) { return symbol & 15 || symbol == 0xf0 ? (symbol >> 4) + 1 : END + 1; }

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

// The lower half of the values of `size` bits stands for negative ones.
INLINE int extend(int value, int size) { return value < 1 << size >> 1 ? value - (1 << size) + 1 : value; }

// Reads a value of `size` bits, 0 to 15.
INLINE int read_value(Bits *bits, int size) {
  int value = (int)(bits->buffer >> 1 >> (63 - size));
  drop(bits, size);
  return extend(value, size);
}
