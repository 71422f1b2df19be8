// Target of fuzzing: any bytes, as a picture with a window, a flip and sizes that follow from them.
// Has the name that libFuzzer calls; mutate.c is a driver without it.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../src/decoder.h"

enum { MAX_SIDE_OUT = 40 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static Decoder *decoder;  // kept, as in the library: a picture must not meet the last one's state

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static uint8_t out[MAX_SIDE_OUT * MAX_SIDE_OUT * 3];
  Picture p;
  uint32_t hash = 2166136261u;
  for (size_t i = 0; i < size; i++) hash = (hash ^ data[i]) * 16777619u;
  if (!decoder) decoder = aligned_alloc(64, (sizeof *decoder + 63) & ~(size_t)63), *decoder = (Decoder){0};
  if (read_headers(&p, data, size) != DECODED) return 0;
  Window window = {0, 0, p.height, p.width};
  if (hash & 1) {
    window.top = hash % p.height, window.left = (hash >> 8) % p.width;
    window.height = 1 + (hash >> 4) % (p.height - window.top);
    window.width = 1 + (hash >> 12) % (p.width - window.left);
  }
  int height = 1 + (hash >> 3) % MAX_SIDE_OUT, width = 1 + (hash >> 17) % MAX_SIDE_OUT;
  // To the byte: behind it the sanitizer sees each access.
  uint8_t *exact = malloc((size_t)height * width * 3);
  Part part = {height + (hash >> 5) % 30, width + (hash >> 9) % 30, 0, 0};
  part.top = (hash >> 7) % (part.height - height + 1), part.left = (hash >> 11) % (part.width - width + 1);
  Status status = (hash & 4 ? resize : resize_smoothly)(decoder, &p, window, part, hash & 2, exact, height, width);
  if (status == DECODED) memcpy(out, exact, (size_t)height * width * 3);
  free(exact);
  return 0;
}
