// Decoder of baseline JPEGs with the bits of TensorFlow's: grey, 4:4:4, 4:2:2 and 4:2:0 in one scan.
// Data flows one way: headers.c, scan.c, tables.c, huffman.c, idct.c, rows.c, colour.c, turn.c, and
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

// A picture, and what is made of it.
typedef struct {
  const Picture *picture;
  int orientation;  // by EXIF, 1 to 8: 1 is upright
  Window window;    // of the upright picture
  Part part;
  bool flip;
  uint8_t *out;
  int height, width;
} Task;

enum {
  LOOK = 10,        // bits of a look-up: more take longer to build, and miss the first cache
  MAX_LENGTH = 18,  // bits of an entry: three of them are in the buffer
  CHUNK = 16,       // MCUs between Huffman and IDCT: their coefficients stay in the first cache
  MAX_BLOCKS = 6,   // of an MCU
  MARGIN = 64,      // bytes around each row and the scan, for neighbours and whole vectors
};

// What the next LOOK bits begin with: a symbol, or two of AC, with their values. A single one is the
// last and the first.
typedef struct {
  uint8_t length;       // bits of all; and TABLE if the next table follows, BLOCK if the next block does
  uint8_t behind;       // the mask of the last value's bits that are behind the look-up: they are added
  uint8_t first, last;  // from the coefficient before to these; UNFIT: the entry is none
  int16_t first_value, last_value;
} Entry;

enum { UNFIT = 64, BLOCK = 64, TABLE = 128 };

typedef struct {
  Entry entries[1 << LOOK];
  uint16_t codes[1 << LOOK];  // symbol << 8 | length; 0: longer
  bool is_built, is_dc;
  uint8_t counts[16], symbols[256];
  int32_t max_code[17], offset[17];
} Table;

typedef struct {
  uint64_t buffer;
  uint32_t count;  // of bits, modulo 64
  const uint8_t *at;
} Bits;

typedef struct {
  int16_t quant[64] __attribute__((aligned(32)));
  int h, v;           // blocks of an MCU
  int width, height;  // pixels of the whole component
  int first;          // its first block in an MCU
  int prediction;
  uint8_t *plane;     // a ring of pixel rows; column 0 is the first MCU's
  size_t stride;
  int rows;
} Component;

typedef struct { void *data; size_t size; } Buffer;

// Those of components have one for each.
enum { SCAN, SEGMENTS, PLANES, CHROMA = PLANES + 3, ROW = CHROMA + 3, RESIZE, SPANS,
       TURNED, STORED_ROW, BUFFERS };

// All memory of a thread's decoder; it grows to the largest picture.
typedef struct {
  Table dc[4], ac[4];
  Buffer buffers[BUFFERS];
  Component component[3];
  const uint32_t *turned;  // the pixels of `upright`, if they are stored in another way; or NULL
  Window upright;
  int components, blocks;  // of an MCU
  // The tables of a chunk's blocks, DC and AC, in the order of the bits; then the last one, which is zeros.
  const Table *tables[CHUNK * MAX_BLOCKS * 2 + 2];
  Table last;
  int16_t coefficients[(CHUNK + 1) * MAX_BLOCKS * 64] __attribute__((aligned(32)));  // of a chunk
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
void repeat_tables(Decoder *d);
void start_segment(Decoder *d, int segment);
bool is_overrun(const Decoder *d);
bool decode_mcus(Decoder *d, int count);
bool skip_mcus(Decoder *d, int count);
void build_quant(int16_t *quant, const uint8_t *values, bool is_wide);
void transform_blocks(const Decoder *d, const Component *c, int count, int y, uint8_t *out);
Status start_rows(Decoder *d, const Picture *picture, Window window, int first_row);
bool make_row(Decoder *d, int row, uint32_t *rgbx);
Status start_upright_rows(Decoder *d, const Task *task, Window window, int first_row);
bool make_upright_row(Decoder *d, int row, uint32_t *rgbx);
void upsample(const Chroma *chroma, uint16_t *out);
void convert_colour(const uint8_t *const *pixels, int count, uint32_t *rgbx);
void convert_grey(const uint8_t *pixels, int count, uint32_t *rgbx);
Status resize(Decoder *d, const Task *task);
Status resize_smoothly(Decoder *d, const Task *task);
