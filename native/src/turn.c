// Upright rows. A window that is stored in another way is decoded and turned before its first row.
#include <string.h>

#include "decoder.h"

enum {
  MAX_TURNED_BYTES = 1 << 28,
  // The orientations with these bits are stored with their rows, or columns, in reverse, and then from
  // EXCHANGED on with rows for columns.
  ROWS_REVERSED = 1 << 3 | 1 << 4 | 1 << 6 | 1 << 7,
  COLUMNS_REVERSED = 1 << 2 | 1 << 3 | 1 << 7 | 1 << 8,
  EXCHANGED = 5,
};

static Window stored_window(const Task *t, Window w) {
  if (t->orientation >= EXCHANGED) w = (Window){w.left, w.top, w.width, w.height};
  if (ROWS_REVERSED >> t->orientation & 1) w.top = t->picture->height - w.top - w.height;
  if (COLUMNS_REVERSED >> t->orientation & 1) w.left = t->picture->width - w.left - w.width;
  return w;
}

static Status turn_rows(Decoder *d, const Task *t, Window stored, uint32_t *turned, uint32_t *row) {
  const bool is_exchanged = t->orientation >= EXCHANGED;
  ptrdiff_t down = is_exchanged ? 1 : stored.width, right = is_exchanged ? stored.height : 1;
  if (ROWS_REVERSED >> t->orientation & 1) turned += (stored.height - 1) * down, down = -down;
  if (COLUMNS_REVERSED >> t->orientation & 1) turned += (stored.width - 1) * right, right = -right;
  for (int y = 0; y < stored.height; y++) {
    if (!make_row(d, stored.top + y, row)) return DAMAGED;
    for (int x = 0; x < stored.width; x++) turned[y * down + x * right] = row[x];
  }
  return DECODED;
}

Status start_upright_rows(Decoder *d, const Task *t, Window window, int first_row) {
  d->turned = NULL;
  if (t->orientation == 1) return start_rows(d, t->picture, window, first_row);
  const size_t bytes = (size_t)window.width * window.height * 4;
  if (bytes > MAX_TURNED_BYTES) return SIZE;
  const Window stored = stored_window(t, window);
  uint32_t *turned = reserve(d, TURNED, bytes), *row = reserve(d, STORED_ROW, 4 * stored.width + 2 * MARGIN);
  if (!turned || !row) return MEMORY;
  d->turned = turned, d->upright = window;
  Status status = start_rows(d, t->picture, stored, 0);
  return status == DECODED ? turn_rows(d, t, stored, turned, row) : status;
}

// Makes a row of the upright picture, the window's columns of it. Rows are asked for in order.
bool make_upright_row(Decoder *d, int row, uint32_t *rgbx) {
  if (!d->turned) return make_row(d, row, rgbx);
  const Window w = d->upright;
  memcpy(rgbx, d->turned + (size_t)(row - w.top) * w.width, 4 * w.width);
  return true;
}
