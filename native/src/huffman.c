// Huffman decoder of baseline scans: coefficients of the window's blocks, the rest in large steps.
#include "entropy.h"

const uint8_t NATURAL_ORDER[64] = {
  0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48,
  41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23,
  30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63};

// Returns symbol << 8 | length of a code that is longer than its look-up, or -1.
static __attribute__((noinline)) int long_symbol(const Table *table, uint64_t buffer) {
  for (int length = LOOK + 1; length <= 16; length++) {
    int code = buffer >> (64 - length);
    if (code <= table->max_code[length])
      return table->symbols[(table->offset[length] + code) & 255] << 8 | length;
  }
  return -1;
}

// Reads a code. Returns its symbol, or -1.
INLINE int read_code(Bits *bits, const Table *table) {
  refill(bits);
  int entry = table->codes[peek(bits, LOOK)];
  if (__builtin_expect(entry == 0, 0)) entry = long_symbol(table, bits->buffer);
  if (entry < 0) return -1;
  drop(bits, entry & 255);
  return entry >> 8;
}

// Adds a block's difference to the prediction, which may leave 16 bits: a block has the lower ones.
INLINE bool read_dc(Bits *bits, const Table *table, int *prediction) {
  int size = read_code(bits, table);
  if (size < 0) return false;
  *prediction += read_value(bits, size);
  return true;
}

// Reads an AC symbol of any kind, and its value. Returns the advance, or INVALID.
INLINE int read_symbol(Bits *bits, const Table *table, int *value) {
  int symbol = read_code(bits, table);
  if (symbol < 0) return INVALID;
  *value = read_value(bits, symbol & 15);
  return advance_of(symbol);
}

INLINE void store_pair(int16_t *out, uint64_t pair, int at, int next) {
  out[NATURAL_ORDER[at + (pair >> 8 & 255)]] = pair >> 32;
  out[NATURAL_ORDER[next]] = pair >> 48;
}

// Returns false for bits that are no block. Its coefficients are written if it is kept.
INLINE bool read_block(Bits *from, const Component *c, bool is_kept, int16_t *out, int *prediction) {
  const int steps = is_kept ? 5 : 4;  // of LOOK or MAX_SKIP bits, which are in the buffer
  Bits bits = *from;
  int at = 0;
  if (!read_dc(&bits, c->dc, prediction)) return false;
  if (is_kept) out[0] = *prediction;
  for (;;) {
    uint64_t pair;
    int next, step = 0, value;
    refill(&bits);
    for (; step < steps; step++, at = next) {
      pair = is_kept ? c->ac->pairs[peek(&bits, LOOK)] : c->ac->skips[peek(&bits, LOOK)];
      next = at + (pair >> 16 & 255);
      if (__builtin_expect(next >= 63, 0)) break;
      if (is_kept) store_pair(out, pair, at, next);
      drop(&bits, pair & 255);
    }
    if (step == steps) continue;
    if (next >= END && next < END + 63) {
      if (is_kept) store_pair(out, pair, at, next - END);
      drop(&bits, pair & 255);
      break;
    }
    int advance = read_symbol(&bits, c->ac, &value);
    if (advance > END) break;
    at += advance;
    if (at > 63) return false;
    if (is_kept) out[NATURAL_ORDER[at]] = value;
    if (at == 63) break;
  }
  *from = bits;
  return true;
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
        int16_t *out = c->blocks + (y * CHUNK * c->h + column * c->h + x) * 64;
        if (!read_block(bits, c, column >= 0, out, &c->prediction)) return false;
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
