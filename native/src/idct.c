// Inverse DCT with the bits of libjpeg-turbo's JDCT_IFAST in SIMD: 16 bits that wrap.
#include "decoder.h"
#include "simd.h"

static const int16_t AAN[64] = {
  16384, 22725, 21407, 19266, 16384, 12873, 8867, 4520, 22725, 31521, 29692, 26722, 22725, 17855, 12299, 6270,
  21407, 29692, 27969, 25172, 21407, 16819, 11585, 5906, 19266, 26722, 25172, 22654, 19266, 15137, 10426, 5315,
  16384, 22725, 21407, 19266, 16384, 12873, 8867, 4520, 12873, 17855, 16819, 15137, 12873, 10114, 6967, 3552,
  8867, 12299, 11585, 10426, 8867, 6967, 4799, 2446, 4520, 6270, 5906, 5315, 4520, 3552, 2446, 1247};

// The factors of the coefficients, which have the scale of the transform in them.
void build_quant(int16_t *quant, const uint8_t *values, bool is_wide) {
  for (int i = 0; i < 64; i++) {
    int at = NATURAL_ORDER[i], value = is_wide ? values[2 * i] << 8 | values[2 * i + 1] : values[i];
    quant[at] = (int16_t)((value * AAN[at] + (1 << 11)) >> 12);
  }
}

// Eight rows of two blocks, side by side.
VECTOR void transform_columns(const i16x16 *in, i16x16 *out) {
  const i16x16 f1414 = (i16x16){} + (362 << 6), f1847 = (i16x16){} + (473 << 6);
  const i16x16 f1613 = (i16x16){} - (413 << 6), f1082 = (i16x16){} + (277 << 6);
  i16x16 a = in[0] + in[4], b = in[0] - in[4], c = in[2] + in[6];
  i16x16 d = multiply_high((in[2] - in[6]) << 2, f1414) - c;
  i16x16 even[4] = {a + c, b + d, b - d, a - c};
  i16x16 z13 = in[5] + in[3], z10 = in[5] - in[3], z11 = in[1] + in[7], z12 = in[1] - in[7];
  i16x16 z5 = multiply_high((z10 << 2) + (z12 << 2), f1847);
  i16x16 o7 = z11 + z13;
  i16x16 o6 = multiply_high(z10 << 2, f1613) - z10 + z5 - o7;
  i16x16 o5 = multiply_high((z11 - z13) << 2, f1414) - o6;
  i16x16 o4 = multiply_high(z12 << 2, f1082) - z5 + o5;
  out[0] = even[0] + o7, out[7] = even[0] - o7;
  out[1] = even[1] + o6, out[6] = even[1] - o6;
  out[2] = even[2] + o5, out[5] = even[2] - o5;
  out[4] = even[3] + o4, out[3] = even[3] - o4;
}

#define LOW16 0, 16, 1, 17, 2, 18, 3, 19, 8, 24, 9, 25, 10, 26, 11, 27
#define HIGH16 4, 20, 5, 21, 6, 22, 7, 23, 12, 28, 13, 29, 14, 30, 15, 31

VECTOR void transpose(i16x16 *m) {
  i32x8 a[8], b[8];
  for (int i = 0; i < 4; i++) {
    a[i] = (i32x8)__builtin_shufflevector(m[2 * i], m[2 * i + 1], LOW16);
    a[i + 4] = (i32x8)__builtin_shufflevector(m[2 * i], m[2 * i + 1], HIGH16);
  }
  for (int i = 0; i < 8; i += 2) {  // b: columns 01, 23 (upper rows, lower rows), 45, 67
    b[i] = __builtin_shufflevector(a[i], a[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    b[i + 1] = __builtin_shufflevector(a[i], a[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  for (int i = 0; i < 4; i++) {
    i64x4 upper = (i64x4)b[(i & 2) * 2 + (i & 1)], lower = (i64x4)b[(i & 2) * 2 + 2 + (i & 1)];
    m[2 * i] = (i16x16)__builtin_shufflevector(upper, lower, 0, 4, 2, 6);
    m[2 * i + 1] = (i16x16)__builtin_shufflevector(upper, lower, 1, 5, 3, 7);
  }
}

// Two blocks to 16 columns of pixels.
static void transform_pair(const int16_t *a, const int16_t *b, const int16_t *quant, uint8_t *out,
                           size_t stride) {
  i16x16 m[8], t[8];
  for (int r = 0; r < 8; r++) {
    const i16x8 *left = (const i16x8 *)(a + 8 * r), *right = (const i16x8 *)(b + 8 * r);
    const i16x8 q = *(const i16x8 *)(quant + 8 * r);
    m[r] = __builtin_shufflevector(*left * q, *right * q, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  }
  transform_columns(m, t);
  transpose(t);
  transform_columns(t, m);
  transpose(m);
  for (int r = 0; r < 8; r += 2) {
    u8x32 pixels = join((m[r] >> 5) + 128, (m[r + 1] >> 5) + 128);
    memcpy(out + r * stride, &pixels, 16);
    memcpy(out + (r + 1) * stride, (char *)&pixels + 16, 16);
  }
}

// Transforms the blocks of a chunk, in row y of their MCUs. MARGIN takes the pixels of the block beside an
// odd last one.
void transform_blocks(const Decoder *d, const Component *c, int count, int y, uint8_t *out) {
  const int step = d->blocks * 64, beside = c->h == 2 ? 64 : step;
  const int16_t *blocks = d->coefficients + (c->first + y * c->h) * 64;
  for (int x = 0; x < count * c->h; x += 2, out += 16, blocks += c->h == 2 ? step : 2 * step)
    transform_pair(blocks, blocks + beside, c->quant, out, c->stride);
}
