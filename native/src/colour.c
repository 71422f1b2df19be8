// Chroma upsampling ("fancy", the triangle filter) and YCbCr to RGB, with libjpeg's bits.
#include "decoder.h"
#include "simd.h"

VECTOR i16x16 load(const uint8_t *at) {
  u8x16 bytes;
  memcpy(&bytes, at, 16);
  return __builtin_convertvector(bytes, i16x16);
}

// Doubles a row: 9/16 of the pixel, 3/16 of its neighbours beside it and in the other row, and 1/16
// of the one across; 3/4 and 1/4 where there is no other row. At its ends the picture goes on with
// its last pixel.
void upsample(const Chroma *c, uint16_t *out) {
  const uint8_t *near = c->near, *far = c->far;
  const int16_t even = c->is_h2v1 ? 4 : 8, odd = c->is_h2v1 ? 8 : 7;
  for (int i = 0; i < c->count; i += 16) {
    const i16x16 before = load(near + i - 1) * 3 + load(far + i - 1);
    const i16x16 middle = load(near + i) * 9 + load(far + i) * 3;
    const i16x16 behind = load(near + i + 1) * 3 + load(far + i + 1);
    const i16x16 pairs = (middle + before + even) >> 4 | (middle + behind + odd) >> 4 << 8;
    memcpy(out + i, &pairs, 32);
  }
  const int last = c->count - 1;
  uint8_t *ends = (uint8_t *)out;
  if (c->is_left_end) ends[0] = (12 * near[0] + 4 * far[0] + even) >> 4;
  if (c->is_right_end) ends[2 * last + 1] = (12 * near[last] + 4 * far[last] + odd) >> 4;
}

VECTOR void store(i16x16 r, i16x16 g, i16x16 b, uint32_t *out) {
  i16x16 rg = clamp(r) | clamp(g) << 8;
  b = clamp(b);
  i16x16 left = __builtin_shufflevector(rg, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  i16x16 right = __builtin_shufflevector(rg, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  memcpy(out, &left, 32);
  memcpy(out + 8, &right, 32);
}

// Factors are of 16 bits: 1.402 = 1 + 0.402, 1.772 = 2 - 0.228, -0.71414 = 0.28586 - 1.
void convert_colour(const uint8_t *const *pixels, int count, uint32_t *rgbx) {
  const i16x16 f402 = (i16x16){} + 26345, f228 = (i16x16){} - 14942;
  for (int i = 0; i < count; i += 16) {
    i16x16 y = load(pixels[0] + i), cb = load(pixels[1] + i) - 128, cr = load(pixels[2] + i) - 128;
    i16x16 r = y + cr + ((multiply_high(cr << 1, f402) + 1) >> 1);
    i16x16 b = y + (cb << 1) + ((multiply_high(cb << 1, f228) + 1) >> 1);
    i16x16 g = y - cr + weigh(cb, cr, -22554, 18734);
    store(r, g, b, rgbx + i);
  }
}

void convert_grey(const uint8_t *pixels, int count, uint32_t *rgbx) {
  for (int i = 0; i < count; i++) rgbx[i] = pixels[i] * 0x010101u;
}
