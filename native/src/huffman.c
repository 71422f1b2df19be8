// Huffman decoder of baseline scans. The inner loop has no branch that common symbols decide: the processor
// could not foresee it, and each wrong guess costs as much as two symbols.
#include "entropy.h"

const uint8_t NATURAL_ORDER[64] = {
  0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48,
  41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23,
  30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63};

typedef struct {
  Bits bits;
  const Table *const *tables;  // of the next symbol, and those that follow
  int16_t *block;
  size_t at;  // the last coefficient that is written
} Reader;

// Reads one symbol of any kind. Returns false for bits that are none, or lead out of the block.
INLINE bool read_symbol(Reader *r) {
  const Table *table = *r->tables;
  refill(&r->bits);
  int length = table->codes[peek(&r->bits, LOOK)] & 255;
  if (length == 0) length = LOOK + 1;
  while (length <= 16 && (int)peek(&r->bits, length) > table->max_code[length]) length++;
  if (length > 16) return false;
  const int symbol = table->symbols[(table->offset[length] + (int)peek(&r->bits, length)) & 255], size = symbol & 15;
  drop(&r->bits, length);
  const int value = extend(r->bits.buffer >> 1 >> (63 - size), size);
  drop(&r->bits, size);
  const bool is_end = !table->is_dc && size == 0 && symbol != 0xf0;
  if (!is_end) {
    if (!table->is_dc) r->at += (symbol >> 4) + 1;
    if (r->at > 63) return false;
    r->block[NATURAL_ORDER[r->at]] = value;
  }
  if (!table->is_dc && !is_end && r->at < 63) return true;
  if (!table->is_dc) r->block += 64;
  r->at = 0, r->tables++;
  return true;
}

// Reads the blocks of MCUs, whose first coefficients are differences. Returns false for invalid bits.
static bool read_blocks(Decoder *d, int count, int16_t *block) {
  Reader r = {d->bits, d->tables + (CHUNK - count) * d->blocks * 2, block, 0};
  for (const Table *table = *r.tables; table != &d->last;) {
    if (r.bits.at > d->limit) return false;
    refill(&r.bits);
    const Table *following = r.tables[1];
#pragma GCC unroll 1  // in a few registers
    for (int step = 0; step < 3; step++) {
      const Entry *e = &table->entries[peek(&r.bits, LOOK)];
      const uint32_t length = e->length;
      const size_t last = r.at + e->last;
      if (__builtin_expect(last >= 63, 0)) {
        if (!read_symbol(&r)) return false;
        table = *r.tables;
        break;
      }
      r.block[NATURAL_ORDER[r.at + e->first]] = e->first_value;
      r.block[NATURAL_ORDER[last]] = e->last_value + (r.bits.buffer >> (-length & 63) & e->behind);
      drop(&r.bits, length);
      r.at = length & TABLE ? 0 : last;
      table = length & TABLE ? following : table;
      r.block += length & BLOCK, r.tables += length / TABLE;
      following = r.tables[1];
    }
  }
  d->bits = r.bits;
  return true;
}

// Turns the differences of MCUs to DC coefficients, which may leave 16 bits: a block has the lower ones.
static void add_predictions(Decoder *d, int count, int16_t *blocks) {
  for (Component *c = d->component; c < d->component + d->components; c++)
    for (int mcu = 0; mcu < count; mcu++)
      for (int i = c->first; i < c->first + c->h * c->v; i++) {
        int16_t *dc = blocks + (mcu * d->blocks + i) * 64;
        *dc = c->prediction += *dc;
      }
}

// Reads the MCUs that come next, at most a chunk.
static bool read_mcus(Decoder *d, int count) {
  for (int done = 0, some; done < count; done += some) {
    if (d->interval && d->to_go == 0) {
      if (is_overrun(d) || d->segment + 1 >= d->segments) return false;
      start_segment(d, d->segment + 1);
    }
    some = d->interval && d->to_go < count - done ? d->to_go : count - done;
    int16_t *blocks = d->coefficients + done * d->blocks * 64;
    if (!read_blocks(d, some, blocks)) return false;
    add_predictions(d, some, blocks);
    d->to_go -= some, d->mcu += some;
  }
  return true;
}

bool decode_mcus(Decoder *d, int count) {
  memset(d->coefficients, 0, count * d->blocks * 128);
  return read_mcus(d, count);
}

bool skip_mcus(Decoder *d, int count) {
  for (; count > CHUNK; count -= CHUNK)
    if (!read_mcus(d, CHUNK)) return false;
  return read_mcus(d, count);
}
