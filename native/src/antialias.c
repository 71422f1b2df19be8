// Antialiased resize with the bits of tf.image.resize(antialias=True), tf.round and a cast: weights
// fall off linearly over as many source pixels as one of the result covers. Each row of the result
// is first made of rows of the source, then of its columns, in float32 without FMA.
#include <math.h>

#include "decoder.h"
#include "simd.h"

enum { MAX_RING_BYTES = 1 << 26 };

// The source pixels of each pixel of the result, and their weights.
typedef struct {
  int longest;     // pixels of a span
  int *first;
  float *weights;  // `longest` for each span; 0 behind its end
} Spans;

static float radius_of(int in, int out) {
  const float inverse = 1.0f / ((float)out / (float)in);
  return inverse > 1.0f ? inverse : 1.0f;
}

static int longest_span(int in, int out) { return 2 * (int)ceilf(radius_of(in, out)) + 1; }

static size_t bytes_of_spans(int in, int out, int count) {
  return (size_t)count * (sizeof(int) + longest_span(in, out) * sizeof(float));
}

// Of `count` pixels from `begin` on of a result of `out` pixels. Returns the memory behind them.
static void *place_spans(Spans *s, void *memory, int in, int out, int begin, int count) {
  const float inverse = 1.0f / ((float)out / (float)in), radius = radius_of(in, out), one = 1.0f / radius;
  *s = (Spans){longest_span(in, out), memory, (float *)memory + count};
  float *weights = s->weights;
  for (int i = 0; i < count; i++, weights += s->longest) {
    const float at = ((float)(begin + i) + 0.5f) * inverse;
    int low = (int)ceilf(at - radius - 0.5f), high = (int)floorf(at + radius - 0.5f);
    if (low < 0) low = 0;
    if (high > in - 1) high = in - 1;
    float total = 0.0f;
    for (int k = 0; k < s->longest; k++) {
      const float distance = fabsf(((float)(low + k) + 0.5f - at) * one);
      weights[k] = low + k <= high && distance < 1.0f ? 1.0f - distance : 0.0f;
      total += weights[k];
    }
    total = 1.0f / total;
    for (int k = 0; k < s->longest; k++) weights[k] *= total;
    s->first[i] = low;
  }
  return weights;
}

// The last source pixel with a weight, of span i.
static int last_of(const Spans *s, int i) {
  int k = s->longest - 1;
  while (k && s->weights[(size_t)i * s->longest + k] == 0.0f) k--;
  return s->first[i] + k;
}

// Not inlined, like the next: they need the registers.
static __attribute__((noinline)) void add_row(const uint32_t *source, float weight, int count, float *sums) {
  for (int x = 0; x < count; x += 2) *(f32x8 *)(sums + 4 * x) += to_floats(source + x) * weight;
}

// Adding it rounds to even as tf.round does, and leaves the integer in the lower bits.
static const float ROUND = 12582912.0f;

static __attribute__((noinline)) void join_columns(const Spans *s, int begin, const float *sums, int count,
                                                   bool flip, uint8_t *out) {
  const float *weights = s->weights;
  const int longest = s->longest;
  for (int x = 0; x < count; x++, weights += longest) {
    const float *from = sums + 4 * (s->first[x] - begin);
    f32x4 sum = {0};
    for (int k = 0; k < longest; k++) sum += *(const f32x4 *)(from + 4 * k) * weights[k];
    const u8x16 bytes = (u8x16)(sum + ROUND);
    const uint8_t pixel[3] = {bytes[0], bytes[4], bytes[8]};
    memcpy(out + 3 * (flip ? count - 1 - x : x), pixel, 3);
  }
}

Status resize_smoothly(Decoder *d, const Task *task) {
  Window window = task->window;
  const Part part = task->part;
  const int height = task->height, width = task->width;
  Spans columns, rows;
  char *memory = reserve(d, SPANS, bytes_of_spans(window.width, part.width, width) +
                                       bytes_of_spans(window.height, part.height, height));
  if (!memory) return MEMORY;
  memory = place_spans(&columns, memory, window.width, part.width, part.left, width);
  place_spans(&rows, memory, window.height, part.height, part.top, height);
  const int begin = columns.first[0], used = last_of(&columns, width - 1) + 1 - begin;
  const size_t stride = ((size_t)used * 4 + 2 * MARGIN + 63) / 64 * 64;
  if (stride * rows.longest > MAX_RING_BYTES) return SIZE;
  char *ring = reserve(d, ROW, stride * rows.longest);
  // A span's weights of 0 are read, too.
  const size_t bytes_of_sums = (size_t)(used + columns.longest + 1) * 4 * sizeof(float);
  float *sums = reserve(d, RESIZE, bytes_of_sums);
  if (!ring || !sums) return MEMORY;
  window.left += begin, window.width = used;
  Status status = start_upright_rows(d, task, window, rows.first[0]);
  int made = rows.first[0];
  for (int y = 0; y < height && status == DECODED; y++) {
    const int last = last_of(&rows, y);
    for (; made <= last && status == DECODED; made++)
      if (!make_upright_row(d, window.top + made, (uint32_t *)(ring + made % rows.longest * stride)))
        status = DAMAGED;
    memset(sums, 0, bytes_of_sums);
    for (int row = rows.first[y]; row <= last && status == DECODED; row++)
      add_row((uint32_t *)(ring + row % rows.longest * stride),
              rows.weights[(size_t)y * rows.longest + row - rows.first[y]], used, sums);
    if (status == DECODED)
      join_columns(&columns, begin, sums, width, task->flip, task->out + (size_t)y * 3 * width);
  }
  return status;
}
