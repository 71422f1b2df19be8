// Rows of pixels: MCUs are decoded as far as the next row needs them, into rings of rows.
#include <stdlib.h>

#include "decoder.h"

void *reserve(Decoder *d, int buffer, size_t bytes) {
  Buffer *b = &d->buffers[buffer];
  if (b->size < bytes) {
    free(b->data);
    b->size = (bytes + 4095) & ~(size_t)4095;
    b->data = aligned_alloc(64, b->size);
    if (!b->data) b->size = 0;
  }
  return b->data;
}

static int smaller(int a, int b) { return a < b ? a : b; }

static Status start_component(Decoder *d, const Picture *p, int i) {
  Component *c = &d->component[i];
  Table *dc = &d->dc[p->dc_of[i]], *ac = &d->ac[p->ac_of[i]];
  c->h = i ? 1 : p->h, c->v = i ? 1 : p->v;
  c->width = (p->width * c->h + p->h - 1) / p->h, c->height = (p->height * c->v + p->v - 1) / p->v;
  if (!build_table(dc, p->huffman[0][p->dc_of[i]], true)) return DAMAGED;
  if (!build_table(ac, p->huffman[1][p->ac_of[i]], false)) return DAMAGED;
  c->first = d->blocks, d->blocks += c->h * c->v;
  for (int block = c->first; block < d->blocks; block++)
    d->tables[2 * block] = dc, d->tables[2 * block + 1] = ac;
  build_quant(c->quant, p->quant[p->quant_of[i]], p->has_wide_quant[p->quant_of[i]]);
  return DECODED;
}

// Two rows of MCUs are kept, for chroma needs the rows above and below.
static bool place_component(Decoder *d, int i) {
  Component *c = &d->component[i];
  c->rows = 16 * c->v;
  c->stride = (size_t)(d->past - d->first) * c->h * 8 + 2 * MARGIN;
  uint8_t *plane = reserve(d, PLANES + i, c->stride * c->rows);
  void *upsampled = reserve(d, CHROMA + i, d->window.width + 2 * MARGIN);
  if (!plane || !upsampled) return false;
  c->plane = plane + MARGIN;
  return true;
}

Status start_rows(Decoder *d, const Picture *p, Window window, int first_row) {
  int side = p->h == 2, above = p->v == 2;  // neighbours that chroma needs
  d->window = window, d->components = p->components, d->blocks = 0;
  d->mcus = (p->width + 8 * p->h - 1) / (8 * p->h), d->mcu_rows = (p->height + 8 * p->v - 1) / (8 * p->v);
  int left = window.left / p->h - side, right = (window.left + window.width - 1) / p->h + side;
  d->first = left < 0 ? 0 : left / 8, d->past = smaller(right / 8 + 1, d->mcus);
  int row = (window.top + first_row) / p->v - above;
  d->row = row < 0 ? 0 : row / 8, d->mcu = 0;
  for (int i = 0; i < p->components; i++) {
    Status status = start_component(d, p, i);
    if (status != DECODED) return status;
    if (!place_component(d, i)) return MEMORY;
  }
  repeat_tables(d);
  Status status = read_scan(d, p);
  if (status == DECODED) start_segment(d, 0);
  return status;
}

// Goes to an MCU, by the last restart before it if that is further on.
static bool seek(Decoder *d, int mcu) {
  if (d->interval && mcu / d->interval > d->segment) {
    start_segment(d, mcu / d->interval);
    d->mcu = d->segment * d->interval;
  }
  return skip_mcus(d, mcu - d->mcu);
}

static bool decode_row(Decoder *d) {
  if (!seek(d, d->row * d->mcus + d->first)) return false;
  for (int from = d->first; from < d->past; from += CHUNK) {
    int count = smaller(CHUNK, d->past - from);
    if (!decode_mcus(d, count)) return false;
    for (Component *c = d->component; c < d->component + d->components; c++)
      for (int y = 0; y < c->v; y++)
        transform_blocks(d, c, count, y, c->plane + (d->row * c->v + y) * 8 % c->rows * c->stride +
                                                 (from - d->first) * c->h * 8);
  }
  d->row++;
  return !is_overrun(d);
}

static uint8_t *plane_row(const Component *c, int row) {
  return c->plane + row % c->rows * c->stride;
}

// The rows of MCUs that a row of the picture needs, its chroma's neighbours among them.
static int rows_needed(const Decoder *d, int row) {
  const Component *luma = d->component, *chroma = luma + d->components - 1;
  int below = smaller(row / luma->v + (luma->v == 2), chroma->height - 1);
  int rows = row / (8 * luma->v);
  return 1 + (below / 8 > rows ? below / 8 : rows);
}

// Pixels of a component's row from the window's first column on.
static const uint8_t *component_row(Decoder *d, const Component *c, int row, uint16_t *upsampled) {
  int offset = d->window.left - d->first * 8 * c->h, v = d->component->v;
  if (c->h == d->component->h) return plane_row(c, row) + offset;
  int from = d->window.left / 2, past = (d->window.left + d->window.width + 1) / 2, near = row / v;
  int far = v == 1 ? near : row & 1 ? smaller(near + 1, c->height - 1) : near ? near - 1 : 0;
  Chroma chroma = {plane_row(c, near) + from - d->first * 8, plane_row(c, far) + from - d->first * 8,
                   past - from, from == 0, past == c->width, v == 1};
  upsample(&chroma, upsampled);
  return (uint8_t *)upsampled + d->window.left % 2;
}

// Makes a row of the picture, the window's columns of it. Rows are asked for in order.
bool make_row(Decoder *d, int row, uint32_t *rgbx) {
  while (d->row < rows_needed(d, row)) if (!decode_row(d)) return false;
  const uint8_t *pixels[3];
  for (int i = 0; i < d->components; i++)
    pixels[i] = component_row(d, &d->component[i], row, d->buffers[CHROMA + i].data);
  if (d->components == 3) convert_colour(pixels, d->window.width, rgbx);
  else convert_grey(pixels[0], d->window.width, rgbx);
  return true;
}
