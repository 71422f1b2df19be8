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
  Task task = {.picture = &p, .orientation = hash >> 13 & 1 ? 1 + (hash >> 21) % 8 : 1, .flip = hash & 2};
  const bool is_exchanged = task.orientation > 4;
  const int h = is_exchanged ? p.width : p.height, w = is_exchanged ? p.height : p.width;
  task.window = (Window){0, 0, h, w};
  if (hash & 1) {
    task.window.top = hash % h, task.window.left = (hash >> 8) % w;
    task.window.height = 1 + (hash >> 4) % (h - task.window.top);
    task.window.width = 1 + (hash >> 12) % (w - task.window.left);
  }
  const int height = task.height = 1 + (hash >> 3) % MAX_SIDE_OUT;
  const int width = task.width = 1 + (hash >> 17) % MAX_SIDE_OUT;
  // To the byte: behind it the sanitizer sees each access.
  uint8_t *exact = task.out = malloc((size_t)height * width * 3);
  task.part = (Part){height + (hash >> 5) % 30, width + (hash >> 9) % 30, 0, 0};
  task.part.top = (hash >> 7) % (task.part.height - height + 1);
  task.part.left = (hash >> 11) % (task.part.width - width + 1);
  Status status = (hash & 4 ? resize : resize_smoothly)(decoder, &task);
  if (status == DECODED) memcpy(out, exact, (size_t)height * width * 3);
  free(exact);
  return 0;
}
