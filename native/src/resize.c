// Bilinear resize with the bits of tf.image.resize, tf.round and a cast: float32 without FMA.
#include <math.h>

#include "decoder.h"
#include "simd.h"

typedef struct { int32_t low; float weight; } Tap;

// Of an output pixel, the left (or upper) source pixel and the weight of the next; 0 at the ends.
static Tap tap(int i, int out, int in) {
  const float scale = in / (float)out;
  const float at = ((float)i + 0.5f) * scale - 0.5f, floor_at = floorf(at);
  int low = (int)floor_at, high = (int)ceilf(at);
  if (low < 0) low = 0;
  if (high > in - 1) high = in - 1;
  return (Tap){low, high > low ? at - floor_at : 0.0f};
}

// Pixels are kept as four floats, and those of eight in this order, so that blend_rows has four
// neighbours in each half of a vector.
static const uint8_t ORDER[8] = {0, 4, 1, 5, 2, 6, 3, 7};

typedef struct {
  int width, padded, first;
  int32_t *offsets;   // of source pixels
  float *weights;     // four of each pixel
  float *rows[2];     // row r of the picture at r & 1
  int row_at[2];
} Columns;

// Of `width` pixels, from `begin` on of all `out`.
static bool start_columns(Columns *c, Decoder *d, int in, int out, int begin, int width, bool flip) {
  c->width = width, c->padded = (width + 7) & ~7, c->first = tap(begin, out, in).low;
  char *memory = reserve(d, RESIZE, (size_t)c->padded * (4 + 3 * 16));
  if (!memory) return false;
  c->weights = (float *)memory;
  for (int i = 0; i < 2; i++) c->rows[i] = c->weights + 4 * c->padded * (i + 1), c->row_at[i] = -1;
  c->offsets = (int32_t *)(c->weights + 12 * c->padded);
  for (int i = 0; i < c->padded; i++) {
    int x = (i & ~7) + ORDER[i & 7];
    Tap t = x < width ? tap(begin + (flip ? width - 1 - x : x), out, in) : (Tap){c->first, 0};
    c->offsets[i] = t.low - c->first;
    for (int k = 0; k < 4; k++) c->weights[4 * i + k] = t.weight;
  }
  return true;
}

static void interpolate_row(const Columns *c, const uint32_t *source, float *out) {
  for (int i = 0; i < c->padded; i += 2) {
    f32x8 a = to_floats(source + c->offsets[i]), b = to_floats(source + c->offsets[i + 1]);
    f32x8 left = __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11);
    f32x8 right = __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
    f32x8 weight = *(const f32x8 *)(c->weights + 4 * i);
    *(f32x8 *)(out + 4 * i) = left + (right - left) * weight;
  }
}

static void blend_rows(const Columns *c, const float *top, const float *bottom, float weight,
                       uint8_t *out) {
  for (int x = 0; x < c->padded; x += 8) {
    f32x8 blended[4];
    for (int k = 0; k < 4; k++) {
      f32x8 t = *(const f32x8 *)(top + 4 * x + 8 * k), b = *(const f32x8 *)(bottom + 4 * x + 8 * k);
      blended[k] = t + (b - t) * weight;
    }
    u8x32 bytes = to_bytes(blended);
    u8x32 pixels = __builtin_shufflevector(bytes, bytes, 0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14,
      15, 15, 15, 15, 16, 17, 18, 20, 21, 22, 24, 25, 26, 28, 29, 30, 31, 31, 31, 31);
    uint8_t *at = out + 3 * x, edge[28];
    bool fits = x + 10 <= c->width;  // 28 bytes
    memcpy(fits ? at : edge, &pixels, 16);
    memcpy((fits ? at : edge) + 12, (char *)&pixels + 16, 16);
    if (!fits) memcpy(at, edge, x + 8 <= c->width ? 24 : 3 * (c->width - x));
  }
}

static const float *interpolated_row(Columns *c, Decoder *d, int row) {
  float *out = c->rows[row & 1];
  uint32_t *source = d->buffers[ROW].data;
  if (c->row_at[row & 1] == row) return out;
  if (!make_upright_row(d, row, source)) return NULL;
  interpolate_row(c, source, out);
  c->row_at[row & 1] = row;
  return out;
}

Status resize(Decoder *d, const Task *task) {
  const Part part = task->part;
  Window window = task->window;
  Columns columns;
  if (!start_columns(&columns, d, window.width, part.width, part.left, task->width, task->flip)) return MEMORY;
  const Tap last = tap(part.left + task->width - 1, part.width, window.width);
  window.left += columns.first, window.width = last.low + (last.weight > 0) + 1 - columns.first;
  if (!reserve(d, ROW, 4 * window.width + 2 * MARGIN)) return MEMORY;
  Status status = start_upright_rows(d, task, window, tap(part.top, part.height, window.height).low);
  for (int y = 0; y < task->height && status == DECODED; y++) {
    Tap t = tap(part.top + y, part.height, window.height);
    const float *top = interpolated_row(&columns, d, window.top + t.low);
    const float *bottom = top && t.weight > 0 ? interpolated_row(&columns, d, window.top + t.low + 1) : top;
    if (bottom) blend_rows(&columns, top, bottom, t.weight, task->out + (size_t)y * 3 * task->width);
    else status = DAMAGED;
  }
  return status;
}
