// Driver of fuzzing without libFuzzer: changes the files given and runs the target on each.
//
//     mutate SECONDS SEED FILE...
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../src/decoder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t state;

static uint32_t below(uint32_t n) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return n ? (uint32_t)(state >> 33) % n : 0;
}

static const uint8_t MARKERS[] = {0xc0, 0xc2, 0xc4, 0xd0, 0xd7, 0xd9, 0xda, 0xdb, 0xdd, 0xe0, 0xee, 0xff, 0};

// Changes, moves, cuts or repeats bytes: half of the time in the headers.
static size_t change(uint8_t *data, size_t size, size_t capacity) {
  size_t span = below(2) && size > 700 ? 700 : size, at = below(span), length = 1 + below(16);
  if (at + length > size) return size;
  switch (below(8)) {
    case 0: data[at] = 0xff, data[at + length - 1] = MARKERS[below(sizeof MARKERS)]; break;
    case 1: data[at] ^= 1 << below(8); break;
    case 2: memmove(data + at, data + at + length, size - at - length); return size - length;
    case 3:
      if (size + length > capacity) break;
      memmove(data + at + length, data + at, size - at);
      return size + length;
    case 4: memmove(data + at, data + below(size - length), length); break;
    case 5: return below(4) ? size : at;
    case 6: data[at] += below(3) - 1; break;
    default: data[at] = below(256);
  }
  return size;
}

int main(int count, char **arguments) {
  if (count < 4) return 2;
  const time_t end = time(NULL) + atol(arguments[1]);
  state = strtoull(arguments[2], NULL, 10);
  long inputs = 0;
  fprintf(stderr, "seed %s\n", arguments[2]);  // which repeats the inputs
  for (; time(NULL) < end;) {
    uint8_t *data = malloc(1 << 20);
    FILE *file = fopen(arguments[3 + below(count - 3)], "rb");
    if (!data || !file) return 2;
    const size_t size = fread(data, 1, 1 << 19, file);
    fclose(file);
    for (int i = 0; i < 100; i++, inputs++) {
      uint8_t *changed = malloc(size + 64);
      memcpy(changed, data, size);
      size_t now = size;
      for (int k = below(6); k >= 0; k--) now = change(changed, now, size + 64);
      uint8_t *exact = malloc(now);  // to the byte, for the sanitizer
      memcpy(exact, changed, now);
      LLVMFuzzerTestOneInput(exact, now);
      free(exact), free(changed);
    }
    free(data);
  }
  printf("%ld inputs\n", inputs);
  return 0;
}
