// Chroma upsampling ("fancy", the triangle filter) and YCbCr to RGB, with libjpeg's bits.
#include "decoder.h"
#include "simd.h"

// Doubles a row: 9/16 of the pixel, 3/16 of its neighbours beside it and in the other row, and 1/16
// of the one across; 3/4 and 1/4 where there is no other row. At its ends the picture goes on with
// its last pixel.
void upsample(const Chroma *c, int16_t *sums, uint16_t *out) {
  const int n = c->count, even = c->is_h2v1 ? 4 : 8, odd = c->is_h2v1 ? 8 : 7;
  for (int i = -1; i <= n; i++) sums[i] = 3 * c->near[i] + c->far[i];
  if (c->is_left_end) sums[-1] = sums[0];
  if (c->is_right_end) sums[n] = sums[n - 1];
  for (int i = 0; i < n; i++) {
    uint16_t left = (uint16_t)(3 * sums[i] + sums[i - 1] + even) >> 4;
    uint16_t right = (uint16_t)(3 * sums[i] + sums[i + 1] + odd) >> 4;
    out[i] = left | right << 8;
  }
}

VECTOR i16x16 load(const uint8_t *at) {
  u8x16 bytes;
  memcpy(&bytes, at, 16);
  return __builtin_convertvector(bytes, i16x16);
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
