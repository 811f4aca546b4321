/* What a load takes from files and what it becomes: tensors, their scales, the canonical weight. No I/O. */
#pragma once

#include "../../proto/gemm.h"
#include "../../proto/weights/import/import.h"
#include "../../proto/wire/message.h"
#include "expert.h"

enum { SOURCE_PIECES = 8 };

/* Rows begin .. begin + n of W: of one tensor's rows those from `row` on, and of these the columns from `column` on. */
struct source_piece {
  struct import_weight from;
  int64_t begin, n, row, column;
};

struct source {
  struct gemm_weight weight; /* checked */
  struct gemm_layout layout;
  enum gemm_method method; /* DEFAULT: nothing is quantized, the values go over as they are */
  bool stored;             /* the tensors hold codes and scales, which are taken as they are */
  struct source_piece pieces[SOURCE_PIECES];
  struct expert_slice slices[SOURCE_PIECES]; /* to which pieces may point */
  uint32_t count;
  float x_scale;   /* with GEMM_INPUT_SCALE */
  uint32_t *order; /* with GEMM_INPUT_ORDER, [k]; see input.h */
  bool reorders;   /* codes are to be put in that order */
};

/* Finds the tensors that the request names, by the table of importers, and how they fit together: rows behind rows,
 * and of each tensor the range that the request wants. Of a request with experts it is one of them, as a weight by
 * itself: number `expert`, from 0, of those that the request wants; else that is ignored. *out stays where it is. */
MUST_CHECK enum status source_resolve(const struct import_model *model, const struct message_weight_load *request,
                                      int64_t expert, struct source *out, struct error *error);

/* The piece that row n of W is in. */
const struct source_piece *source_piece_at(const struct source *source, uint64_t n);
