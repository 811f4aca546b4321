/* y = x * W^T: types, weight formats, scale modes, sizes. Pure functions; the only place of the project that
 * multiplies dimensions, always with checked arithmetic.
 *
 * x is [M, K], W is [N, K] (row n of W makes column n of y), y is [M, N]; all row-major. */
#pragma once

#include "status.h"

#include <stdbool.h>
#include <stdint.h>

/* Element types of x, y, bias and stored tensors. The numbers travel. */
enum gemm_type {
  GEMM_TYPE_NONE = 0,
  GEMM_F32 = 1,
  GEMM_F16 = 2,
  GEMM_BF16 = 3,
  GEMM_INT8 = 4,
  GEMM_E4M3 = 5,
  GEMM_S32 = 6,
  GEMM_E8M0 = 7, /* a power of two: of scales alone */
  GEMM_E2M1 = 8, /* of codes alone, two a byte */
};

/* How a weight is stored, GEMM_FORMAT_<NAME>, and how it is scaled, GEMM_SCALE_<NAME>: rows of formats.def. The numbers
 * travel. */
enum gemm_format {
  GEMM_FORMAT_NONE = 0,
#define FORMAT(number, name, word, ...) GEMM_FORMAT_##name = (number),
#include "formats.def"
  GEMM_FORMATS,
};
enum gemm_scale {
#define SCALE(number, name, word, ...) GEMM_SCALE_##name = (number),
#include "formats.def"
  GEMM_SCALES,
};

/* How codes are made of real numbers. The numbers travel. */
enum gemm_method {
  GEMM_METHOD_DEFAULT = 0, /* as stored where the file is quantized; else the format's own */
  GEMM_METHOD_ABSMAX = 1,
  GEMM_METHOD_LEAST_SQUARES = 2, /* codes and scale of each group that minimize the squared error */
  GEMM_METHOD_TERNARY = 3,       /* {-1, 0, 1} times the mean magnitude */
};

/* What is done to each element of a product inside a plan, in f32. The numbers travel. */
enum gemm_activation {
  GEMM_ACTIVATION_NONE = 0,
  GEMM_RELU = 1, /* max(v, 0); a NaN stays one */
  GEMM_GELU = 2, /* v * erfc(-v / sqrt(2)) / 2 */
  GEMM_SILU = 3, /* v / (1 + exp(-v)) */
  /* Gated alone: g / (1 + exp(-1.702 g)) * (u + 1), where g is the gate, at most 7, and u is up, within -7 and 7. */
  GEMM_SWIGLU_CLAMPED = 4,
};
/* What is done to each row of x before it is multiplied, in this order: struct gemm_weight's `input` is a sum of them.
 * It is done in f32, with what the weight brings along. The numbers travel. */
enum gemm_input {
  GEMM_INPUT_NONE = 0,
  GEMM_INPUT_ORDER = 1, /* element p becomes element order[p] */
  GEMM_INPUT_SCALE = 2, /* codes are made with the weight's own scale of x, whatever the row holds */
  /* Times i, 1..GEMM_ROTATE_MOST, before codes are made: each group of 4^i elements is multiplied by the regular
   * Hadamard matrix of that size, see rotate.h. */
  GEMM_INPUT_ROTATE = 16,
};
enum { GEMM_ROTATE_MOST = 5 };

enum { GEMM_STEPS_MOST = 16 }; /* products of one plan */

#define GEMM_GROUP 128   /* of K: elements that share a scale, and the most that a tensor core sums before f32 */
#define GEMM_ALIGN 16    /* bytes: rows of codes, offsets of tensors in an arena */
#define GEMM_SECTION 256 /* bytes: alignment of scales behind codes */

struct gemm_weight {
  int64_t n, k; /* with experts: of each of them */
  enum gemm_format format;
  enum gemm_scale scale;
  int64_t experts; /* E: W is [E, N, K], of which a row of x takes those that it names by ids. 0: W is [N, K] */
  uint32_t input;  /* of enum gemm_input; with experts 0 */
};

/* The canonical form of a weight, in which loaders write and backends read: rows of codes, then scales, then zero
 * points where the scale mode has them: a byte or an f16 beside each scale, then factors where it has these: an f32 for
 * each row of W, by which its scales are to be multiplied. Each from a multiple of GEMM_SECTION on. INT8, FP8     one
 * byte an element; rows padded with zeros to a multiple of 16 elements F16, BF16     two bytes an element; rows padded
 * with zeros to a multiple of 16 elements INT2(A8)      four codes a byte, the first in the lowest bits; rows padded
 * with code 1 (the value 0) to a multiple of 128 elements, so that a group never straddles the end INT4(A8)      two
 * codes a byte, the first in the low bits; rows padded with code 8 to a multiple of 128 elements MXFP4, NVFP4  the same
 * of e2m1, padded with zeros With experts: the rows of all of them one behind the other, expert e from row e * N on,
 * then the scales of all of them, then their zero points, then their factors. Each has those that it would have alone:
 * ONE is one an expert, BLOCK ceil(N/128) rows of blocks an expert. Behind all that, where `input` says so: the scale
 * of x, one f32, and the order of x's elements, K of u32, each from a multiple of GEMM_SECTION on. All sizes are in
 * bytes. */
struct gemm_layout {
  uint64_t row_bytes;     /* from one row of codes to the next */
  uint64_t codes_bytes;   /* n * row_bytes, for each expert */
  uint64_t scales_offset; /* codes_bytes rounded up to GEMM_SECTION */
  uint64_t scale_count;
  uint64_t scale_rows, scale_columns; /* scale_count == scale_rows * scale_columns, row-major */
  uint64_t scales_bytes;
  uint64_t total_bytes;                   /* to the end of the last of these that there are */
  uint64_t input_offset;                  /* of the scale of x, or of where it would be */
  uint64_t order_offset;                  /* the same of the order */
  uint64_t input_bytes;                   /* from input_offset to the end of both; 0: there is neither */
  uint64_t zeros_offset, zeros_bytes;     /* of one for each scale; 0: there are none */
  uint64_t factors_offset, factors_bytes; /* of an f32 for each row; 0: there are none */
};

/* Which experts a product over a weight with experts takes: row m of x goes to T of them, which makes T pairs. Pair
 * (m, t) is x[m] (or x[m * T + t] where x has a row for each pair) times expert ids[m * T + t]. An id that is no
 * expert, below 0 or not below E, skips: such a pair's row of y is zeros, and it adds nothing to a sum. An id may come
 * twice in a row, and counts twice then. */
struct gemm_choice {
  int64_t top;  /* T: 1..E; 0: the product is none over experts */
  bool x_pairs; /* x is [M*T, K]; else [M, K] */
  bool sum;     /* y is [M, N]: over t, in order, in f32, routing[m * T + t] times the pair's product, which is rounded
                   to y's type before as the sum is then. Else y is [M*T, N], and there is no routing */
  bool routed;  /* there is routing; else it is 1 */
  uint64_t ids_offset;     /* s32, [M, T], where x lies: in the arena, or in x_tensor */
  uint64_t routing_offset; /* f32, [M, T], there, too */
};

/* One product as a client asks for it. Offsets are bytes into whatever holds the tensors; strides are bytes
 * from one row to the next (0: rows are dense). */
struct gemm_product {
  int64_t m, n, k;
  enum gemm_type x_type, y_type;
  enum gemm_type bias_type; /* GEMM_TYPE_NONE: no bias. F32, F16 or BF16, [N] */
  uint64_t x_offset, y_offset;
  uint64_t x_stride, y_stride;
  uint64_t bias_offset;
  /* Memory of the client's own in which x, y or W lies, and its size: the offset is then into that. 0: in the arena. */
  uint32_t x_tensor, y_tensor, w_tensor;
  uint64_t x_tensor_bytes, y_tensor_bytes, w_tensor_bytes;
  uint64_t x_scale_offset;   /* f32, for x_type INT8 or E4M3 only: [M], or [M, ceil(K/128)] for BLOCK weights.
                                Ignored where y is S32. */
  struct gemm_choice choice; /* x is then F32, F16 or BF16, y one of these, bias [E, N] */
};

/* A product's tensors in bytes, strides made explicit; what gemm_product_check computes. */
struct gemm_extent {
  uint64_t x_stride, y_stride;
  uint64_t x_row_bytes, y_row_bytes; /* dense bytes of one row */
  uint64_t x_bytes, y_bytes;         /* from the first byte of row 0 to the last byte of row m-1 */
  uint64_t bias_bytes, x_scale_bytes;
  uint64_t ids_bytes, routing_bytes;
};

/* Bytes of one element; 0 for a number that is no type. */
uint32_t gemm_type_bytes(enum gemm_type type);
const char *gemm_type_name(enum gemm_type type);       /* "f32"; "unknown" */
const char *gemm_format_name(enum gemm_format format); /* "int8"; "unknown" */
const char *gemm_scale_name(enum gemm_scale scale);    /* "row"; "unknown" */
const char *gemm_method_name(enum gemm_method method); /* "absmax"; "unknown" */
/* The reverse; *_NONE with false where the name is unknown. */
bool gemm_type_parse(const char *name, enum gemm_type *out);
bool gemm_format_parse(const char *name, enum gemm_format *out);
bool gemm_scale_parse(const char *name, enum gemm_scale *out);

/* What a weight format is: a row of formats.def. */
struct gemm_format_facts {
  const char *name;
  int bits;                        /* of an element of W */
  enum gemm_type element;          /* what an element of W is; NONE: integers of less than a byte, packed */
  int align;                       /* elements that a row of the canonical form is padded to a multiple of */
  uint8_t padding;                 /* each byte of a row behind K: zeros as codes */
  enum gemm_format stored_as;      /* whose canonical form it has; NONE: its own */
  int64_t k_most;                  /* that a weight may have */
  uint32_t scales;                 /* modes that it takes: bits 1 << enum gemm_scale */
  enum gemm_scale scale_default;   /* where whoever loads it names none */
  enum gemm_type scale_type;       /* in which scales are stored, where their mode does not say */
  uint32_t methods;                /* that make it of real numbers: bits 1 << enum gemm_method; 0: rounding alone */
  enum gemm_method method_default; /* where whoever loads it names none */
  uint32_t inputs;                 /* that it takes: a sum of enum gemm_input, rotation as GEMM_INPUT_ROTATE */
  enum gemm_type codes;            /* what activations are quantized to; NONE: they are read as they come */
  uint32_t x_types;                /* that it takes: bits 1 << enum gemm_type */
  bool raw;                        /* gives s32 sums, where x comes as codes */
  double sums_error;               /* relative, of a row of sums that any kernel makes: at most */
};
/* Of zeros for a number that is no format. */
const struct gemm_format_facts *gemm_format_facts(enum gemm_format format);
bool gemm_takes_scale(enum gemm_format format, enum gemm_scale scale);
/* DEFAULT goes with every format. */
bool gemm_takes_method(enum gemm_format format, enum gemm_method method);
/* The canonical form of one is that of the other. */
bool gemm_stored_alike(enum gemm_format a, enum gemm_format b);

/* What a scale mode is: a row of formats.def. */
struct gemm_scale_facts {
  const char *name;
  int64_t n, k;        /* elements of W that share a scale, along N and along K; 0: all there are */
  enum gemm_type type; /* in which they are stored; NONE: the format's own */
  bool zeros;          /* there is a zero point beside each */
  bool zeros_f16;      /* which is an f16; else a byte, that codes reach */
  bool factors;        /* there is one for each row of W, in f32 */
};
/* Of zeros for a number that is no mode. */
const struct gemm_scale_facts *gemm_scale_facts(enum gemm_scale scale);

/* In which a weight's scales are stored. */
enum gemm_type gemm_scale_type(const struct gemm_weight *weight);
/* Scale `index` of a weight whose scales are of this type. */
float gemm_scale_get(enum gemm_type type, const void *scales, uint64_t index);
void gemm_scale_put(enum gemm_type type, void *scales, uint64_t index, float value);
/* Zero point `index` of a weight of this mode, which has them. */
float gemm_zero_get(enum gemm_scale scale, const void *zeros, uint64_t index);
void gemm_zero_put(enum gemm_scale scale, void *zeros, uint64_t index, float value);
/* Elements of a row of W that share a scale: K where a row has one, or all have. */
int64_t gemm_scale_group(const struct gemm_weight *weight);

/* Codes of 2 bits: INT2 and INT2A8, which differ in what happens to x alone. */
bool gemm_is_int2(enum gemm_format format);
/* Codes of less than a byte, with the scales of a group or a row beside them. */
bool gemm_is_packed(enum gemm_format format);
/* 16 bits: W in the type of x, without scales. */
bool gemm_is_wide(enum gemm_format format);
/* f32, f16 and bf16 activations are quantized on the way, a row or block at a time. */
bool gemm_quantizes_x(enum gemm_format format);

/* Rounds up; both of these saturate to UINT64_MAX instead of wrapping. `to` is a power of two. */
uint64_t gemm_round_up(uint64_t value, uint64_t to);
/* Quotient rounded up. */
uint64_t gemm_ceil_div(uint64_t value, uint64_t by);
/* Stages of the rotation that `input` asks for, groups being of 4^stages elements; 0: there is none. */
uint32_t gemm_rotation(uint32_t input);
/* Scales of a row of x: 1, or ceil(k/128) for BLOCK weights. */
uint64_t gemm_x_scale_columns(const struct gemm_weight *weight);

/* Format, scale mode and dimensions fit together. INVALID naming the field otherwise. */
MUST_CHECK enum status gemm_weight_check(const struct gemm_weight *weight, struct error *error);
/* The canonical layout of a weight; checks the weight first. TOO_LARGE where 64 bits do not hold a size. */
MUST_CHECK enum status gemm_layout_compute(const struct gemm_weight *weight, struct gemm_layout *out,
                                           struct error *error);
/* 1 where there are none: how many matrices [N, K] a weight is. */
int64_t gemm_matrices(const struct gemm_weight *weight);
/* One expert of it, as a weight by itself. */
struct gemm_weight gemm_expert(const struct gemm_weight *weight);
/* Rows of x and of y; M where there are no experts. The product has been checked. */
int64_t gemm_x_rows(int64_t m, const struct gemm_choice *choice);
int64_t gemm_y_rows(int64_t m, const struct gemm_choice *choice);

/* The product fits the weight (N, K, types) and every tensor lies in [tensors_begin, arena_bytes), or in the device
 * memory that is named for it: offsets
 * aligned to GEMM_ALIGN, strides at least a row and multiples of the element, y apart from x, bias and x scale.
 * Fills *out. INVALID or UNSUPPORTED naming the field otherwise. */
MUST_CHECK enum status gemm_product_check(const struct gemm_product *product, const struct gemm_weight *weight,
                                          uint64_t tensors_begin, uint64_t arena_bytes, struct gemm_extent *out,
                                          struct error *error);

/* The weight that a tensor [n, k] of x's type stands for. UNSUPPORTED: x type is neither F16 nor BF16. */
MUST_CHECK enum status gemm_tensor_weight(const struct gemm_product *product, struct gemm_weight *out,
                                          struct error *error);
/* A product whose W is a tensor at w_offset, *w_stride bytes from row to row (0: dense; filled in): everything that
 * gemm_product_check says, of W too, and y apart from it. */
MUST_CHECK enum status gemm_tensors_check(const struct gemm_product *product, uint64_t w_offset, uint64_t *w_stride,
                                          uint64_t tensors_begin, uint64_t arena_bytes, struct gemm_extent *out,
                                          struct error *error);

/* Which x and y types a weight format takes: DESIGN's table of numerics.
 *   INT8  x f32/f16/bf16/int8, y f32/f16/bf16, or s32 where x is int8
 *   FP8   x f32/f16/bf16/e4m3, y f32/f16/bf16
 *   INT2  x f32/f16/bf16,      y f32/f16/bf16; INT2A8 x int8 too; 4 bits the same
 *   F16   x f16, BF16 x bf16,  y f32/f16/bf16 */
bool gemm_takes_x(enum gemm_format format, enum gemm_type x_type);
bool gemm_takes_y(enum gemm_format format, enum gemm_type x_type, enum gemm_type y_type);

/* error_compose for the errors of gemm_product_check: types by their names, and what an offset collides with. */
void gemm_error_compose(struct error *error);
