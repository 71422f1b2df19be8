// Huffman decoder of baseline scans: coefficients of the window's blocks, the rest in large steps.
#include "entropy.h"

// Returns the symbol of a code that is longer than its look-up, or -1.
static __attribute__((noinline)) int long_symbol(const Table *table, Bits *bits, int length) {
  for (; length <= 16; length++) {
    int code = peek(bits, length);
    if (code > table->max_code[length]) continue;
    drop(bits, length);
    return table->symbols[(table->offset[length] + code) & 255];
  }
  return -1;
}

// Adds a block's difference to the prediction. Refuses what libjpeg cannot store.
INLINE bool read_dc(Bits *bits, const Table *table, int *prediction) {
  refill(bits);
  int entry = table->dc[peek(bits, DC_LOOK)], size = entry >> 8;
  if (__builtin_expect(entry != 0, 1)) drop(bits, entry & 255);
  else if ((size = long_symbol(table, bits, DC_LOOK + 1)) < 0) return false;
  *prediction += read_value(bits, size);
  return *prediction == (int16_t)*prediction;
}

// Reads one AC symbol that its look-up does not decode as a whole, and its value. Returns the
// advance, or -1.
INLINE int read_slow(Bits *bits, const Table *table, uint32_t entry, int *value) {
  refill(bits);
  int size = entry >> 16, advance = entry >> 8 & 255;
  if (entry & LONG) {
    int symbol = long_symbol(table, bits, LOOK + 1);
    if (symbol < 0) return -1;
    size = symbol & 15;
    advance = size || symbol == 0xf0 ? (symbol >> 4) + 1 : END;
  } else drop(bits, entry & LENGTH);
  *value = read_value(bits, size);
  return advance;
}

// Skips one symbol and its value; returns the advance, or -64 for bits that are no symbol.
static __attribute__((noinline)) int skip_symbol(Bits *bits, const Table *table) {
  uint32_t entry = table->ac[peek(bits, LOOK)];
  int value;
  if (entry & SLOW) return read_slow(bits, table, entry, &value);
  drop(bits, entry & LENGTH);
  return entry >> 8 & 255;
}

const uint8_t NATURAL_ORDER[64] = {
  0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48,
  41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23,
  30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63};

// Returns the place of the last coefficient, or -1 for bits that are no block.
INLINE int read_block(Bits *from, const Component *c, int16_t *out, int *prediction) {
  Bits bits = *from;
  int at = 0, last = 0;
  if (!read_dc(&bits, c->dc, prediction)) return -1;
  out[0] = *prediction;
  while (at < 63) {
    refill(&bits);
    for (int step = 0; step < 5; step++) {  // 5 × LOOK bits are in the buffer
      uint32_t entry = c->ac->ac[peek(&bits, LOOK)];
      int value = (int16_t)(entry >> 16), advance = entry >> 8 & 255;
      if (__builtin_expect(entry & SLOW, 0)) {
        if ((advance = read_slow(&bits, c->ac, entry, &value)) < 0) return -1;
        step = 5;
      } else drop(&bits, entry & LENGTH);
      at += advance;
      if (at >= 63) {
        if (at > 63) break;
        out[63] = value, last = 63;
        break;
      }
      last = at, out[NATURAL_ORDER[at]] = value;
    }
  }
  *from = bits;
  return at == 63 || at >= END ? last : -1;
}

// Returns false for bits that are no block.
INLINE bool skip_block(Bits *from, const Component *c, int *prediction) {
  Bits bits = *from;
  int at = 0;
  if (!read_dc(&bits, c->dc, prediction)) return false;
  while (at < 63) {
    refill(&bits);
    for (int step = 0; step < 5; step++) {
      int skip = c->ac->skips[peek(&bits, LOOK)], next = at + (skip >> 8);
      if (__builtin_expect(skip == 0 || next >= 63, 0)) {
        bool is_end = next >= END && next < END + 63;
        if (!is_end) next = at + skip_symbol(&bits, c->ac);
        else drop(&bits, skip & 255);
        at = next;
        break;
      }
      at = next;
      drop(&bits, skip & 255);
    }
  }
  *from = bits;
  return at == 63 || at >= END;
}

// Decodes the MCU that comes next; the coefficients are kept if `column`, its place in the chunk,
// is not negative.
INLINE bool read_mcu(Decoder *d, Bits *bits, int column) {
  if (__builtin_expect(bits->at > d->limit, 0)) return false;
  if (d->interval && d->to_go-- == 0) {
    d->bits = *bits;
    if (is_overrun(d) || d->segment + 1 >= d->segments) return false;
    start_segment(d, d->segment + 1);
    d->to_go--, *bits = d->bits;
  }
  for (Component *c = d->component; c < d->component + d->components; c++) {
    for (int y = 0; y < c->v; y++) {
      for (int x = 0; x < c->h; x++) {
        if (column < 0) {
          if (!skip_block(bits, c, &c->prediction)) return false;
          continue;
        }
        int block = y * CHUNK * c->h + column * c->h + x;
        int last = read_block(bits, c, c->blocks + block * 64, &c->prediction);
        if (last < 0) return false;
        c->last[block] = last;
      }
    }
  }
  return true;
}

bool decode_mcus(Decoder *d, int count) {
  Bits bits = d->bits;
  for (Component *c = d->component; c < d->component + d->components; c++)
    for (int y = 0; y < c->v; y++)  // and the block beside the last one: the IDCT takes two
      memset(c->blocks + y * CHUNK * c->h * 64, 0, (count * c->h + 1) * 128);
  for (int column = 0; column < count; column++)
    if (!read_mcu(d, &bits, column)) return false;
  d->bits = bits, d->mcu += count;
  return true;
}

bool skip_mcus(Decoder *d, int count) {
  Bits bits = d->bits;
  for (int i = 0; i < count; i++)
    if (!read_mcu(d, &bits, -1)) return false;
  d->bits = bits, d->mcu += count;
  return true;
}
