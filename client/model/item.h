/* The weights that are to be made of a model, private. */
#pragma once

#include "files.h"

/* One weight that is to be: rows behind rows of one or several of the model's. */
struct model_item {
  char name[LIMIT_NAME_BYTES];     /* as gemmd is to know it */
  char base[LIMIT_NAME_BYTES];     /* in the model */
  struct import_weight *pieces[8]; /* owned */
  uint32_t count;
  enum gemm_format format;
  uint32_t scale, method;
  bool columns;
  uint32_t experts;   /* E, stacked in each piece's tensor, or a tensor each, `{}` for their numbers; 0: it has none */
  uint64_t bytes;     /* of the files */
  struct error error; /* status not OK: it cannot be read */
};

struct model_plan {
  struct model_item *items; /* owned */
  size_t count, capacity;
  uint64_t bytes;
};
