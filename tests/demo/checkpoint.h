/* Reads a safetensors file with no code of the daemon's, so that the two check each other. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tensor_type { TENSOR_OTHER, TENSOR_F32, TENSOR_F16, TENSOR_BF16 };

struct tensor {
  const char *name; /* owned by the checkpoint */
  enum tensor_type type;
  int64_t rows, columns; /* 1 x n for a vector; 0 x 0 for everything that is neither vector nor matrix */
  const uint8_t *data;   /* in the mapped file */
};

struct checkpoint {
  void *header; /* json_t: owns the names */
  uint8_t *map;
  size_t bytes;
  struct tensor *tensors; /* owned */
  size_t count;
};

/* False after having said on stderr what is wrong with the file. */
bool checkpoint_open(struct checkpoint *checkpoint, const char *path);
void checkpoint_close(struct checkpoint *checkpoint);
/* NULL where there is none. */
const struct tensor *checkpoint_find(const struct checkpoint *checkpoint, const char *name);
/* The first whose name ends so; NULL where there is none. */
const struct tensor *checkpoint_find_suffix(const struct checkpoint *checkpoint, const char *suffix);

/* One row as f32; exact. */
void tensor_row(const struct tensor *tensor, int64_t row, float *out);
/* All of it, row-major; NULL where memory runs out. The caller frees it. */
float *tensor_values(const struct tensor *tensor);
