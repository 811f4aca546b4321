/* What a reader of checkpoints fills in, and what all of them use. A reader is a file here and a row of the table in
 * import.c. Pure: whoever uses it reads the files, and only what is asked for. */
#pragma once

#include "../../gemm.h"
#include "../../limits.h"
#include "../safetensors.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_t;

/* A tensor of one of the files. */
struct import_entry {
  const struct safetensors_tensor *tensor;
  uint32_t file;
  uint64_t part, parts; /* it is such a part of a tensor of so many equal ones (experts), and so are its scales where it
                           holds codes; 0 parts: it is whole */
};

/* The files of one model, or those of them that one weight takes. */
struct import_model {
  const struct safetensors *files; /* the caller's */
  size_t file_count;
  struct import_entry *entries; /* owned; by name */
  size_t count;
  struct json_t *config; /* owned: what the model's configuration says about quantization; NULL: nothing, or none */
  const char *method;    /* in `config`; NULL: none */
};

enum {
  IMPORT_FILES = 7, /* of the model that one weight lies in, its sidecars included; the last descriptor: config.json */
  IMPORT_AUX = 7,
};

/* Tensors beside the codes, read whole before anything is unpacked. */
enum import_aux {
  IMPORT_SCALES,
  IMPORT_ZEROS,
  IMPORT_INDEX,
  IMPORT_MARKER,   /* a text about the weight */
  IMPORT_X_SCALE,  /* of x, one element */
  IMPORT_ROTATION, /* of x: elements of a group, one I32 */
  IMPORT_FACTOR,   /* of the scales, for all rows or each */
};

/* One weight, as its files have it. */
struct import_weight {
  const struct importer *importer;
  char name[LIMIT_NAME_BYTES]; /* Hugging Face's */
  const struct import_entry *tensor, *aux[IMPORT_AUX];
  int64_t n, k;
  uint32_t experts; /* the tensor has so many such matrices stacked; 0: it is one */
  bool real;        /* numbers, to be rounded or quantized; else codes, taken as they are */
  /* Codes: that they are in (INT2: for INT2A8, too). Real: that holds them without loss, NONE where none does. */
  enum gemm_format format;
  enum gemm_scale scale; /* codes */
  uint32_t input;        /* codes: of enum gemm_input, as far as headers tell */
  /* By rows: `pack` elements of a row lie in `pack_bytes` bytes, rows behind each other. By columns: a word of
   * `pack_bytes` holds `pack` elements of one row of W, which is a column of the tensor. */
  bool by_columns;
  uint32_t pack, pack_bytes;
  uint32_t pack_rows;                       /* by columns: rows of W that such a word has `pack` elements of each; 1 */
  uint32_t row_group;                       /* rows of W that must be unpacked together */
  uint32_t parameter;                       /* the importer's own */
  bool symmetric;                           /* the importer's own: there is one zero point */
  uint64_t group;                           /* elements of a row that share a scale in the file: groups.h */
  uint32_t files[IMPORT_FILES], file_count; /* of the model: those with its tensors */
};

/* A part of a weight's bytes as they are in the file: `rows` rows of W from `first` on, `columns` from `column` on. */
struct import_tile {
  const uint8_t *raw;
  uint64_t stride; /* bytes from a row of the tensor to the next */
  uint64_t first, rows, column, columns;
};

/* The tensors beside the codes, by enum import_aux; NULL where the weight has none. Not aligned. */
struct import_data {
  const uint8_t *aux[IMPORT_AUX];
};

/* What a request says beside the tensor's name. */
struct import_wish {
  const char *scale_tensor; /* "" or NULL: by the usual names */
  enum gemm_scale scale;    /* that the scales must be; NONE: as they are */
};

enum import_claim {
  IMPORT_NOT_MINE,
  IMPORT_PART, /* of a weight that begins at another tensor, or no matrix */
  IMPORT_WEIGHT,
};

/* What is done to x before it is multiplied by codes, in full. */
struct import_input {
  uint32_t input; /* of enum gemm_input */
  float scale;
  uint32_t *order; /* [k], the caller's; filled in where `input` has an order */
  bool reorders;   /* columns of codes are in x's own order, and are to be put in that one, too */
};

struct importer {
  const char *name;
  /* Judges a tensor that a request names; `wish` NULL: of a model that is listed, where what is no matrix and what is
   * about another tensor is PART. A weight that cannot be read is IMPORT_WEIGHT with an error. */
  enum import_claim (*take)(const struct import_model *model, const struct import_entry *tensor,
                            const struct import_wish *wish, struct import_weight *out, struct error *error);
  /* Looks through the tensors beside the codes; NULL: nothing to look at. */
  enum status (*check)(const struct import_weight *weight, const struct import_data *data, struct error *error);
  /* Fills in *out, but for `order` itself. NULL: nothing is done to x. */
  enum status (*input)(const struct import_weight *weight, const struct import_data *data, struct import_input *out,
                       struct error *error);
  /* The row of the tensor that row n of W lies in; NULL: n. */
  uint64_t (*file_row)(const struct import_weight *weight, uint64_t n);
  /* Real: row `row` of the tile as f32. */
  void (*numbers)(const struct import_weight *weight, const struct import_tile *tile, uint64_t row, float *out);
  /* Codes, in canonical form, rows row_bytes apart; those of 2 bits into zeros. */
  void (*codes)(const struct import_weight *weight, const struct import_data *data, const struct import_tile *tile,
                uint8_t *out, uint64_t row_bytes);
  /* The factor in place `column` of the weight's scales of row n (ROW, ONE: 0; BLOCK: n counts blocks, too). NULL: they
   * lie with the codes. */
  float (*scale)(const struct import_weight *weight, const struct import_data *data, uint64_t n, uint64_t column);
  /* The zero point beside that scale; where the scale mode has them. One that is not finite, or, where the mode has
   * integers, that codes do not reach, is refused. */
  float (*zero)(const struct import_weight *weight, const struct import_data *data, uint64_t n, uint64_t column);
  /* The factor of the scales of row n; where the scale mode has them. */
  float (*factor)(const struct import_weight *weight, const struct import_data *data, uint64_t n);
  /* The same where they lie with the codes: GROUP scales of a row of the tile. */
  void (*tile_scales)(const struct import_weight *weight, const struct import_tile *tile, uint64_t row, float *out);
};

extern const struct importer import_plain, import_gptq, import_awq, import_packed, import_blocks4, import_bitnet,
    import_trirun, import_gguf, import_torchao;

/* ---- of use to all importers */

#define IMPORT_SHOW(text_) safetensors_show(text_).text

/* NULL where there is none. */
const struct import_entry *import_find(const struct import_model *model, const char *name);
/* `name` with `suffix` in place of what is behind its last `drop` bytes, in the model; NULL: none. */
const struct import_entry *import_beside(const struct import_model *model, const char *name, size_t drop,
                                         const char *suffix);
/* F32, F16 or BF16. */
bool import_is_real(enum safetensors_dtype dtype);
/* MXFP4 codes as gpt-oss has them: <name>_blocks. */
bool import_is_blocks(const struct safetensors_tensor *tensor);
/* Whether `name` ends so. */
bool import_ends(const char *name, const char *suffix);
/* `group` elements of x are rotated together; UNSUPPORTED where that is no size that is computed. */
MUST_CHECK enum status import_rotation(const struct safetensors_tensor *codes, int64_t group, uint32_t *input,
                                       struct error *error);
/* Begins to fill in: name, tensor, file. */
void import_begin(struct import_weight *out, const struct importer *importer, const struct import_entry *tensor);
/* N and K of a matrix. UNSUPPORTED for a tensor of other dimensions. */
MUST_CHECK enum status import_matrix(struct import_weight *out, struct error *error);
/* Notes that a tensor belongs to the weight. UNSUPPORTED where it lies in too many files. */
MUST_CHECK enum status import_add(struct import_weight *out, enum import_aux which, const struct import_entry *entry,
                                  struct error *error);
