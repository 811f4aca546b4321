/* Loads inside the test's own process: files made from arrays, and what a load of them gives or says. */
#pragma once

#include "proto/gemm.h"
#include "proto/status.h"
#include "proto/wire/message.h"

#include <stddef.h>
#include <stdint.h>

/* A safetensors file in the making; zeros at first. */
struct loading_file {
  char json[4096];
  size_t json_length;
  uint8_t *data;
  size_t bytes;
};

/* Adds a tensor of `rank` 0, 1 or 2; 3, of F32: as many matrices of so many rows and columns as the bytes are. */
void loading_add(struct loading_file *file, const char *name, const char *dtype, int rank, int64_t rows,
                 int64_t columns, const void *values, size_t bytes);
/* The finished file, open for reading and writing; *file is empty again. */
int loading_finish(struct loading_file *file);
/* A file of one tensor "w" [n, k]. */
int loading_f32(const float *values, int64_t n, int64_t k);

/* Random numbers, the caller's to free. */
float *loading_values(int64_t count);

/* What a load has made. */
struct loaded {
  struct message_load_done done;
  struct gemm_layout layout;
  uint8_t *bytes;
};

/* For the tensor "w". */
struct message_weight_load loading_request(enum gemm_format format, enum gemm_scale scale);
struct loaded loading_run(int fd, const struct message_weight_load *request, unsigned threads);
void loading_free(struct loaded *loaded);
const uint8_t *loading_row(const struct loaded *loaded, int64_t row);
float loading_scale(const struct loaded *loaded, int64_t index);
/* The load must end with `status` and a sentence that contains `reason`. */
void loading_refuse(int fd, const struct message_weight_load *request, enum status status, const char *reason);
