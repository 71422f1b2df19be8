// Decoder of baseline JPEGs with the bits of TensorFlow's: grey, 4:4:4, 4:2:2 and 4:2:0 in one scan.
// Data flows one way: headers.c, scan.c, tables.c, huffman.c, idct.c, rows.c, colour.c, and
// resize.c or antialias.c.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The reasons for a refusal. infeed_jpeg/__init__.py has a word for each, in this order.
typedef enum {
  DECODED, DAMAGED, PROGRESSIVE, CODING, PRECISION, COLOUR, SAMPLING, SIZE, WINDOW, MEMORY, FORMAT
} Status;

// What the headers say. The pointers lead into the record.
typedef struct {
  int width, height, components;
  int h, v;  // luma blocks of an MCU; each chroma component has one
  int restart_interval;
  bool has_wide_quant[4];
  const uint8_t *quant[4];       // 64 values, zigzag
  const uint8_t *huffman[2][4];  // DC, AC: 16 counts, then the symbols
  uint8_t ids[3], quant_of[3], dc_of[3], ac_of[3];
  const uint8_t *scan, *end;
} Picture;

typedef struct { int top, left, height, width; } Window;

// The part of a resized window that is wanted: the size of the whole, and where the part begins.
typedef struct { int height, width, top, left; } Part;

enum {
  LOOK = 10,      // bits of a look-up: more take longer to build, and miss the first cache
  MAX_SKIP = 14,  // bits of an entry of `skips`: four of them are in the buffer
  CHUNK = 16,     // MCUs between Huffman and IDCT: their coefficients stay in the first cache
  MARGIN = 64,    // bytes around each row, for neighbours and whole vectors
};

typedef struct {
  bool is_built;
  uint8_t counts[16], symbols[256];
  int32_t max_code[17], offset[17];
  uint16_t codes[1 << LOOK];  // symbol << 8 | length; 0: longer
  uint64_t pairs[1 << LOOK];  // of AC codes, as `skips`: see entropy.h
  uint32_t skips[1 << LOOK];
} Table;

typedef struct {
  uint64_t buffer;
  int count;
  const uint8_t *at;
} Bits;

typedef struct {
  int16_t quant[64] __attribute__((aligned(32)));
  int h, v;           // blocks of an MCU
  int width, height;  // pixels of the whole component
  const Table *dc, *ac;
  int prediction;
  int16_t *blocks;  // coefficients of a chunk: v rows
  uint8_t *plane;   // a ring of pixel rows; column 0 is the first MCU's
  size_t stride;
  int rows;
} Component;

typedef struct { void *data; size_t size; } Buffer;

// Those of components have one for each.
enum { SCAN, SEGMENTS, COEFFICIENTS, PLANES = COEFFICIENTS + 3, CHROMA = PLANES + 3, ROW = CHROMA + 3,
       RESIZE, SPANS, BUFFERS };

// All memory of a thread's decoder; it grows to the largest picture.
typedef struct {
  Table dc[4], ac[4];
  Buffer buffers[BUFFERS];
  Component component[3];
  int components;
  Window window;
  int mcus, mcu_rows;      // of the picture
  int first, past;         // columns of MCUs that the window needs
  int row, mcu;            // the next row of MCUs to decode, the next MCU of the bits
  uint32_t *segment_ends;  // offsets in the scan without stuffing, one for each restart
  int segments, segment, interval, to_go;
  int64_t segment_end;
  const uint8_t *limit;    // behind it bits are not the segment's
  Bits bits;
} Decoder;

// A row of chroma, the one that it is mixed with, and whether the picture ends at either side.
typedef struct {
  const uint8_t *near, *far;
  int count;
  bool is_left_end, is_right_end, is_h2v1;
} Chroma;

extern const uint8_t NATURAL_ORDER[64];

void *reserve(Decoder *d, int buffer, size_t bytes);  // NULL: no memory

Status read_headers(Picture *picture, const uint8_t *data, size_t size);
Status read_scan(Decoder *d, const Picture *picture);
bool build_table(Table *table, const uint8_t *definition, bool is_dc);
void start_segment(Decoder *d, int segment);
bool is_overrun(const Decoder *d);
bool decode_mcus(Decoder *d, int count);
bool skip_mcus(Decoder *d, int count);
void build_quant(int16_t *quant, const uint8_t *values, bool is_wide);
void transform_blocks(const Component *c, int count, int y, uint8_t *out);
Status start_rows(Decoder *d, const Picture *picture, Window window, int first_row);
bool make_row(Decoder *d, int row, uint32_t *rgbx);
void upsample(const Chroma *chroma, uint16_t *out);
void convert_colour(const uint8_t *const *pixels, int count, uint32_t *rgbx);
void convert_grey(const uint8_t *pixels, int count, uint32_t *rgbx);
Status resize(Decoder *d, const Picture *picture, Window window, Part part, bool flip, uint8_t *out, int height,
              int width);
Status resize_smoothly(Decoder *d, const Picture *picture, Window window, Part part, bool flip, uint8_t *out,
                       int height, int width);
