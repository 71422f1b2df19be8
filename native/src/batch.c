// Batches of pictures: what the library exports. Compiled for any processor.
#include <pthread.h>
#include <stdlib.h>

#include "decoder.h"

#define EXPORTED __attribute__((visibility("default")))

enum {
  MAX_SIDE = 1 << 16,        // of a resized window
  MAX_KEPT = 64,             // decoders kept for the next call
  MAX_KEPT_BYTES = 8 << 20,  // of each; larger ones are freed
};

// infeed_jpeg/__init__.py has the same fields.
typedef struct {
  int32_t count, height, width, antialias;
  const uint8_t *const *records;
  const size_t *sizes;
  const Window *windows;
  const Part *parts;            // NULL: the whole
  const uint8_t *orientations;  // NULL: all are upright
  const uint8_t *flips;
  uint8_t *out;
  uint8_t *status;
  int next;  // picture that no thread has taken yet
} Batch;

// A fork may copy the lock while another thread has it. So it is only tried, and without it a
// decoder is made and freed.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Decoder *kept[MAX_KEPT];
static int kept_count;

static Decoder *take_decoder(void) {
  Decoder *d = NULL;
  if (pthread_mutex_trylock(&lock) == 0) {
    if (kept_count) d = kept[--kept_count];
    pthread_mutex_unlock(&lock);
  }
  if (!d && (d = aligned_alloc(64, (sizeof *d + 63) & ~(size_t)63))) *d = (Decoder){0};
  return d;
}

static void return_decoder(Decoder *d) {
  size_t bytes = 0;
  for (int i = 0; i < BUFFERS; i++) bytes += d->buffers[i].size;
  if (bytes <= MAX_KEPT_BYTES && pthread_mutex_trylock(&lock) == 0) {
    if (kept_count < MAX_KEPT) kept[kept_count++] = d, d = NULL;
    pthread_mutex_unlock(&lock);
  }
  if (!d) return;
  for (int i = 0; i < BUFFERS; i++) free(d->buffers[i].data);
  free(d);
}

static bool is_inside(const Task *t) {
  const Window w = t->window;
  const Part p = t->part;
  const bool is_exchanged = t->orientation > 4;
  const int height = is_exchanged ? t->picture->width : t->picture->height;
  const int width = is_exchanged ? t->picture->height : t->picture->width;
  return w.top >= 0 && w.left >= 0 && w.height > 0 && w.width > 0 && w.height <= height - w.top &&
         w.width <= width - w.left && p.top >= 0 && p.left >= 0 && p.height < MAX_SIDE && p.width < MAX_SIDE &&
         p.height >= t->height && p.width >= t->width &&  // before a difference that could wrap
         t->height <= p.height - p.top && t->width <= p.width - p.left;
}

static Status decode(Decoder *d, const Batch *b, int i) {
  Picture picture;
  const Status status = read_headers(&picture, b->records[i], b->sizes[i]);
  if (status != DECODED) return status;
  const Task task = {
    .picture = &picture,
    .orientation = b->orientations ? b->orientations[i] : 1,
    .window = b->windows[i],
    .part = b->parts ? b->parts[i] : (Part){b->height, b->width, 0, 0},
    .flip = b->flips[i],
    .out = b->out + (size_t)i * b->height * b->width * 3,
    .height = b->height,
    .width = b->width,
  };
  if (!is_inside(&task)) return WINDOW;
  return (b->antialias ? resize_smoothly : resize)(d, &task);
}

// Elsewhere the code compiles, but no test has compared its bits with TensorFlow's.
static bool is_supported(void) {
#ifdef __x86_64__
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2");
#else
  return false;
#endif
}

// Takes pictures until none is left; several threads may decode one batch. Returns false, and does
// nothing, on a processor that the rest is not for.
EXPORTED bool infeed_jpeg_decode(Batch *b) {
  if (!is_supported()) return false;
  Decoder *d = take_decoder();
  for (int i; (i = __atomic_fetch_add(&b->next, 1, __ATOMIC_RELAXED)) < b->count;)
    b->status[i] = d ? decode(d, b, i) : MEMORY;
  if (d) return_decoder(d);
  return true;
}

// Writes the height and the width of each picture, or zeros where decode refuses its headers.
EXPORTED void infeed_jpeg_read_headers(int32_t count, const uint8_t *const *records,
                                       const size_t *sizes, int32_t (*out)[2]) {
  for (int i = 0; i < count; i++) {
    Picture picture;
    bool is_read = read_headers(&picture, records[i], sizes[i]) == DECODED;
    out[i][0] = is_read ? picture.height : 0;
    out[i][1] = is_read ? picture.width : 0;
  }
}
