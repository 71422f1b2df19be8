// Huffman tables: one look-up gives the run, the value and the length of most symbols.
#include <stdlib.h>

#include "entropy.h"

static uint32_t ac_entry(uint32_t key, int symbol, int length) {
  int size = symbol & 15, advance = advance_of(symbol);
  if (length + size > LOOK) return size << 24 | advance << 16 | UNFIT << 8 | length;
  int bits = key >> (LOOK - length - size) & ((1 << size) - 1);
  int value = bits < 1 << size >> 1 ? bits - (1 << size) + 1 : bits;
  return (uint32_t)(uint16_t)value << 16 | advance << 8 | (length + size);
}

static bool is_same(const Table *table, const uint8_t *counts, int symbols) {
  return table->is_built && memcmp(table->counts, counts, 16) == 0 &&
         memcmp(table->symbols, counts + 16, symbols) == 0;
}

// Returns false where libjpeg refuses the table.
bool build_table(Table *table, const uint8_t *definition, bool is_dc) {
  int symbols = 0;
  for (int i = 0; i < 16; i++) symbols += definition[i];
  if (is_same(table, definition, symbols)) return true;
  table->is_built = table->has_skips = false;
  memcpy(table->counts, definition, 16);
  memset(table->symbols, 0, sizeof table->symbols);
  memcpy(table->symbols, definition + 16, symbols);
  memset(table->dc, 0, sizeof table->dc);
  for (int i = 0; i < 1 << LOOK; i++) table->ac[i] = UNFIT << 8;
  uint32_t code = 0;
  for (int length = 1, at = 0; length <= 16; length++, code <<= 1) {
    const int count = table->counts[length - 1];
    table->offset[length] = at - (int)code;
    for (int i = 0; i < count; i++, at++, code++) {
      int symbol = table->symbols[at], look = is_dc ? DC_LOOK : LOOK;
      if (is_dc && symbol > 15) return false;
      if (length > look) continue;
      for (uint32_t key = code << (look - length); key < (code + 1) << (look - length); key++) {
        if (key >> look) return false;
        if (is_dc) table->dc[key] = symbol << 8 | length;
        else table->ac[key] = ac_entry(key, symbol, length);
      }
    }
    table->max_code[length] = count ? (int)code - 1 : -1;
    bool is_used = count > 0 || at < symbols;
    if (is_used && code >= 1u << length) return false;  // no code has ones alone
  }
  return table->is_built = true;
}

// Each entry has all symbols whose codes are in its bits, so that a block that is not needed takes few
// look-ups; the bits of the last value may be behind.
void build_skips(Table *table) {
  if (table->has_skips) return;
  for (uint32_t key = 0; key < 1 << LOOK; key++) {
    int length = 0, advance = 0;
    while (advance < END && length < LOOK) {
      uint32_t entry = table->ac[key << length & ((1 << LOOK) - 1)];
      int step = ADVANCE(entry), bits = entry & 255, value = abs((int16_t)(entry >> 16));
      int size = value ? 32 - __builtin_clz(value) : 0;
      if (step == UNFIT && bits == 0) break;
      if (step == UNFIT) step = entry >> 16 & 255, size = entry >> 24, bits += size;
      if (length + bits - size > LOOK || length + bits > MAX_SKIP) break;
      if (step < END && advance + step > 63) break;
      length += bits, advance += step;
    }
    table->skips[key] = length ? advance << 8 | length : UNFIT << 8;
  }
  table->has_skips = true;
}
