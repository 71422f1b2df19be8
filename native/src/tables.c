// Huffman tables: one look-up gives the runs, the values and the length of most pairs of symbols.
#include "entropy.h"

static bool is_same(const Table *table, const uint8_t *counts, int symbols) {
  return table->is_built && memcmp(table->counts, counts, 16) == 0 &&
         memcmp(table->symbols, counts + 16, symbols) == 0;
}

static int mask_behind(int length) { return length > LOOK ? (1 << (length - LOOK)) - 1 : 0; }

// The symbol that each key begins with, its value as if zeros were behind the key, and the bits of a key
// that it needs: those of its code, and the first one of the value, which is its sign.
static void find_symbols(const Table *table, Entry *symbols, uint8_t *needed) {
  for (int key = 0; key < 1 << LOOK;) {
    const int symbol = table->codes[key] >> 8, code = table->codes[key] & 255, size = symbol & 15;
    const int length = code + size, past = key + (code ? 1 << (LOOK - code) : 1);
    const bool is_end = !table->is_dc && size == 0 && symbol != 0xf0;
    // The end of a block writes a zero where a zero is.
    const int advance = table->is_dc ? 0 : is_end ? 1 : (symbol >> 4) + 1;
    const int turn = is_end ? TABLE | BLOCK : table->is_dc ? TABLE : 0, need = code + (size > 0);
    Entry entry = {length | turn, mask_behind(length), advance, advance, 0, 0};
    if (code == 0 || need > LOOK || length > MAX_LENGTH) entry = (Entry){MAX_LENGTH, 0, UNFIT, UNFIT, 0, 0};
    for (; key < past; key++) {
      const int value = key << MAX_LENGTH >> ((LOOK + MAX_LENGTH - length) & 31) & ((1 << size) - 1);
      entry.last_value = extend(value, size);
      symbols[key] = entry, needed[key] = need;
    }
  }
}

static void build_entries(Table *table) {
  Entry symbols[1 << LOOK];
  uint8_t needed[1 << LOOK];
  find_symbols(table, symbols, needed);
  for (int key = 0; key < 1 << LOOK; key++) {
    const Entry a = symbols[key];
    const int first = a.length & (BLOCK - 1), rest = key << first & ((1 << LOOK) - 1);
    const Entry b = symbols[rest];
    const int length = first + (b.length & (BLOCK - 1));
    const bool is_pair = !(a.length & TABLE) & (first + needed[rest] <= LOOK) & (length <= MAX_LENGTH);
    const Entry pair = {first + b.length, mask_behind(length), a.last, a.last + b.last, a.last_value, b.last_value};
    table->entries[key] = is_pair ? pair : a;
  }
}

// Returns false where libjpeg refuses the table.
bool build_table(Table *table, const uint8_t *definition, bool is_dc) {
  int symbols = 0;
  for (int i = 0; i < 16; i++) symbols += definition[i];
  if (is_same(table, definition, symbols)) return true;
  table->is_built = false, table->is_dc = is_dc;
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
  build_entries(table);
  return table->is_built = true;
}

// The first MCU's tables are those of all.
void repeat_tables(Decoder *d) {
  const int past = CHUNK * d->blocks * 2;
  for (int i = 2 * d->blocks; i < past; i++) d->tables[i] = d->tables[i - 2 * d->blocks];
  d->tables[past] = &d->last;
}
