// Markers before the scan. What TensorFlow refuses or reads in another way is refused here.
#include <string.h>

#include "decoder.h"

enum {
  SOF0 = 0xc0, SOF1 = 0xc1, SOF2 = 0xc2, DHT = 0xc4, JPG = 0xc8, DAC = 0xcc, SOF15 = 0xcf,
  SOI = 0xd8, SOS = 0xda, DQT = 0xdb, DRI = 0xdd, APP0 = 0xe0, APP14 = 0xee, APP15 = 0xef, COM = 0xfe,
  MAX_SIDE = 65500, MAX_BYTES = 1 << 29,  // of libjpeg, of TensorFlow
};

typedef struct { bool is_jfif, is_adobe; uint8_t transform; } Application;

static int number(const uint8_t *at) { return at[0] << 8 | at[1]; }

static Status read_frame(Picture *p, const uint8_t *body, int n) {
  if (p->components != 0 || n < 6) return DAMAGED;
  if (body[0] != 8) return PRECISION;
  p->height = number(body + 1), p->width = number(body + 3);
  if (body[5] != 1 && body[5] != 3) return COLOUR;
  p->components = body[5];
  if (n != 6 + 3 * p->components) return DAMAGED;
  if (p->height == 0 || p->width == 0 || p->height > MAX_SIDE || p->width > MAX_SIDE) return SIZE;
  if ((int64_t)p->height * p->width * 3 >= MAX_BYTES) return SIZE;
  for (int i = 0; i < p->components; i++) {
    const uint8_t *part = body + 6 + 3 * i;
    int h = part[1] >> 4, v = part[1] & 15;
    p->ids[i] = part[0], p->quant_of[i] = part[2];
    if (part[2] > 3) return DAMAGED;
    if (i == 0) p->h = h, p->v = v;
    else if (h != 1 || v != 1) return SAMPLING;
  }
  if (p->components == 1) {  // one component has blocks of its own, with any factors
    if (p->h < 1 || p->h > 4 || p->v < 1 || p->v > 4) return DAMAGED;
    p->h = p->v = 1;
  }
  if (p->h < 1 || p->h > 2 || p->v < 1 || p->v > p->h) return SAMPLING;
  // libjpeg interpolates no chroma of two columns or one.
  return p->h == 2 && p->width <= 4 ? SIZE : DECODED;
}

static Status read_quant(Picture *p, const uint8_t *body, int n) {
  while (n > 0) {
    int is_wide = body[0] >> 4, index = body[0] & 15, size = 64 << is_wide;
    if (is_wide > 1 || index > 3 || n < 1 + size) return DAMAGED;
    p->quant[index] = body + 1, p->has_wide_quant[index] = is_wide;
    body += 1 + size, n -= 1 + size;
  }
  return DECODED;
}

static Status read_huffman(Picture *p, const uint8_t *body, int n) {
  while (n > 0) {
    if (n < 17 || body[0] >> 4 > 1 || (body[0] & 15) > 3) return DAMAGED;
    int symbols = 0;
    for (int i = 1; i <= 16; i++) symbols += body[i];
    if (symbols > 256 || n < 17 + symbols) return DAMAGED;
    p->huffman[body[0] >> 4][body[0] & 15] = body + 1;
    body += 17 + symbols, n -= 17 + symbols;
  }
  return DECODED;
}

static void read_application(Application *a, int marker, const uint8_t *body, int n) {
  if (marker == APP0 && n >= 14 && memcmp(body, "JFIF", 5) == 0) a->is_jfif = true;
  if (marker == APP14 && n >= 12 && memcmp(body, "Adobe", 5) == 0)
    a->is_adobe = true, a->transform = body[11];
}

// Only YCbCr and grey: by JFIF, else by Adobe's marker, else by the components' ids.
static bool is_usual_colour(const Picture *p, const Application *a) {
  if (p->components == 1 || a->is_jfif) return true;
  if (a->is_adobe) return a->transform == 1;
  return p->ids[0] == 1 && p->ids[1] == 2 && p->ids[2] == 3;
}

static Status read_scan_header(Picture *p, const Application *a, const uint8_t *body, int n) {
  if (p->components == 0 || n < 1) return DAMAGED;
  if (!is_usual_colour(p, a)) return COLOUR;
  if (body[0] != p->components) return CODING;  // several scans
  if (n != 4 + 2 * p->components) return DAMAGED;
  for (int i = 0; i < p->components; i++) {
    const uint8_t *part = body + 1 + 2 * i;
    p->dc_of[i] = part[1] >> 4, p->ac_of[i] = part[1] & 15;
    if (part[0] != p->ids[i] || p->dc_of[i] > 3 || p->ac_of[i] > 3) return DAMAGED;
    if (!p->quant[p->quant_of[i]]) return DAMAGED;
    if (!p->huffman[0][p->dc_of[i]] || !p->huffman[1][p->ac_of[i]]) return DAMAGED;
  }
  return DECODED;  // TensorFlow ignores the spectrum
}

Status read_headers(Picture *picture, const uint8_t *data, size_t size) {
  Application application = {0};
  *picture = (Picture){0};
  if (size < 2 || data[0] != 0xff || data[1] != SOI) return FORMAT;
  const uint8_t *at = data + 2, *end = data + size;
  for (;;) {
    if (end - at < 4 || at[0] != 0xff) return DAMAGED;
    int marker = at[1], n = number(at + 2) - 2;
    const uint8_t *body = at + 4;
    Status status = DECODED;
    if (n < 0 || end - body < n) return DAMAGED;
    at = body + n;
    if (marker == SOF0 || marker == SOF1) status = read_frame(picture, body, n);
    else if (marker == DQT) status = read_quant(picture, body, n);
    else if (marker == DHT) status = read_huffman(picture, body, n);
    else if (marker == DRI && n == 2) picture->restart_interval = number(body);
    else if (marker >= APP0 && marker <= APP15) read_application(&application, marker, body, n);
    else if (marker == SOF2) status = PROGRESSIVE;
    else if (marker > SOF2 && marker <= SOF15 && marker != JPG && marker != DAC) status = CODING;
    else if (marker == SOS) {
      picture->scan = at, picture->end = end;
      return read_scan_header(picture, &application, body, n);
    } else if (marker != COM) status = DAMAGED;
    if (status != DECODED) return status;
  }
}
