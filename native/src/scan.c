// The scan without its stuffing, and the segments that restart markers part.
#include <string.h>

#include "decoder.h"

enum { EOI = 0xd9, RST0 = 0xd0 };

// Refuses a scan that does not end at EOI, or has other markers than the restarts it must have:
// libjpeg would read on, and repair or refuse it.
Status read_scan(Decoder *d, const Picture *picture) {
  const uint8_t *at = picture->scan, *end = picture->end;
  d->interval = picture->restart_interval;
  d->segments = d->interval ? (d->mcus * d->mcu_rows - 1) / d->interval + 1 : 1;
  if (d->segments > end - at) return DAMAGED;
  uint8_t *const data = reserve(d, SCAN, end - at + MARGIN);
  d->segment_ends = reserve(d, SEGMENTS, d->segments * sizeof *d->segment_ends);
  if (!data || !d->segment_ends) return MEMORY;
  uint8_t *out = data;
  for (int segment = 0;;) {
    const uint8_t *marker = memchr(at, 0xff, end - at);
    if (!marker || end - marker < 2) return DAMAGED;
    memcpy(out, at, marker - at);
    out += marker - at, at = marker + 2;
    if (marker[1] == 0) {
      *out++ = 0xff;
      continue;
    }
    d->segment_ends[segment++] = out - data;
    if (segment == d->segments) {
      memset(out, 0, MARGIN);
      return marker[1] == EOI ? DECODED : DAMAGED;
    }
    if (marker[1] != RST0 + ((segment - 1) & 7)) return DAMAGED;
  }
}

void start_segment(Decoder *d, int segment) {
  const uint8_t *data = d->buffers[SCAN].data;
  d->segment = segment;
  d->segment_end = d->segment_ends[segment];
  d->bits = (Bits){.at = data + (segment ? d->segment_ends[segment - 1] : 0)};
  d->limit = data + d->segment_end + 8;
  d->to_go = d->interval;
  for (int c = 0; c < d->components; c++) d->component[c].prediction = 0;
}

bool is_overrun(const Decoder *d) {
  const uint8_t *data = d->buffers[SCAN].data;
  return (d->bits.at - data) * 8 - (d->bits.count & 63) > d->segment_end * 8;
}
