// Huffman tables: one look-up gives the runs, the values and the length of most pairs of symbols.
#include "entropy.h"

enum { MASK = (1 << LOOK) - 1, NONE = 63 };  // NONE: more bits than there are

static const uint64_t SECOND_VALUE = (uint64_t)0xffff << 48;

static bool is_same(const Table *table, const uint8_t *counts, int symbols) {
  return table->is_built && memcmp(table->counts, counts, 16) == 0 &&
         memcmp(table->symbols, counts + 16, symbols) == 0;
}

// Each symbol as a pair without a second, and code << 24, the length of its code. The value is right if
// its bits are in the key.
static void find_symbols(const Table *table, uint64_t *symbols) {
  for (int key = 0; key <= MASK;) {
    const int symbol = table->codes[key] >> 8, code = table->codes[key] & 255, size = symbol & 15;
    const int length = code + size, past = key + (code ? 1 << (LOOK - code) : 1);
    uint64_t entry = (uint64_t)UNFIT << 16 | NONE << 24 | NONE;
    if (code && length <= MAX_SKIP)
      entry = code << 24 | advance_of(symbol) << 16 | (advance_of(symbol) & ~END) << 8 | length;
    for (; key < past; key++) {
      const uint64_t value = (uint16_t)extend(key >> ((LOOK - length) & 31) & ((1 << size) - 1), size);
      symbols[key] = value << 48 | value << 32 | entry;
    }
  }
}

static void build_pairs(Table *table) {
  uint64_t symbols[1 << LOOK];
  find_symbols(table, symbols);
  for (int key = 0; key <= MASK; key++) {
    const uint64_t a = symbols[key], b = symbols[key << (a & 15) & MASK];
    const uint64_t joined = (a & ~SECOND_VALUE) + (b & (SECOND_VALUE | 0xff00ff));
    const int length = a & 255, both = length + (b & 255), code = length + (b >> 24 & 255);
    const bool is_open = (a & END << 16) == 0;
    const uint64_t single = length <= LOOK ? a : UNFIT << 16;
    table->pairs[key] = is_open & (both <= LOOK) ? joined : single;
    // The bits of a skip's last value may be behind the key.
    table->skips[key] = is_open & (code <= LOOK) & (both <= MAX_SKIP) ? joined : a;
  }
}

// Returns false where libjpeg refuses the table.
bool build_table(Table *table, const uint8_t *definition, bool is_dc) {
  int symbols = 0;
  for (int i = 0; i < 16; i++) symbols += definition[i];
  if (is_same(table, definition, symbols)) return true;
  table->is_built = false;
  memcpy(table->counts, definition, 16);
  memset(table->symbols, 0, sizeof table->symbols);
  memcpy(table->symbols, definition + 16, symbols);
  memset(table->codes, 0, sizeof table->codes);
  uint32_t code = 0;
  for (int length = 1, at = 0; length <= 16; length++, code <<= 1) {
    const int count = table->counts[length - 1], keys = 1 << LOOK >> length;
    table->offset[length] = at - (int)code;
    for (int i = 0; i < count; i++, at++, code++) {
      if (is_dc && table->symbols[at] > 15) return false;
      if (code >> length) return false;
      for (int key = 0; key < keys; key++)
        table->codes[code * keys + key] = table->symbols[at] << 8 | length;
    }
    table->max_code[length] = count ? (int)code - 1 : -1;
    bool is_used = count > 0 || at < symbols;
    if (is_used && code >= 1u << length) return false;  // no code has ones alone
  }
  if (!is_dc) build_pairs(table);
  return table->is_built = true;
}
