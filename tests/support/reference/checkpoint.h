/* Writes safetensors files for tests. Running out of memory or disk ends the running cmocka test. */
#pragma once

#include "oracle.h"

#include <stddef.h>
#include <stdint.h>

enum { CHECKPOINT_TENSORS = 64 };

struct checkpoint_tensor {
  char name[64], dtype[12];
  int64_t rows, columns; /* columns 0: one dimension */
  void *data;            /* owned by the checkpoint */
  uint64_t bytes;
};

struct checkpoint {
  struct checkpoint_tensor tensors[CHECKPOINT_TENSORS];
  int count;
};

/* Adds a tensor; the data, `bytes` of it, is copied. `dtype` as safetensors writes it: "F32", "I8", ... */
void checkpoint_add(struct checkpoint *checkpoint, const char *name, const char *dtype, int64_t rows, int64_t columns,
                    const void *data, uint64_t bytes);
/* Adds a weight as it is stored: codes as `name`, its scales, if any, as `name`_scale, and zero points as `name`_zero.
 * Below 8 bits K is a multiple of 4. */
void checkpoint_add_weight(struct checkpoint *checkpoint, const char *name, const struct oracle_weight *weight);
/* Adds what the weight stands for, in F32. */
void checkpoint_add_values(struct checkpoint *checkpoint, const char *name, const struct oracle_weight *weight);
/* Writes the file, and frees what was added: the checkpoint is empty again. */
void checkpoint_write(struct checkpoint *checkpoint, const char *path);
/* A file of one weight. */
void checkpoint_write_one(const char *path, const char *name, const struct oracle_weight *weight);
