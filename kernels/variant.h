/* One way to compute a product: a family of kernels and the values of its parameters. Variants are compared, kept in
 * files and sent to others as numbers and names, never as code. Pure. */
#pragma once

#include "../proto/gemm.h"
#include "../proto/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  VARIANT_PARAMETERS = 12,
  VARIANT_TEXT_BYTES = 256,
};

struct variant_parameter {
  const char *name, *meaning;
  int32_t low, high, step, fallback; /* low, low + step, .. high; fallback: where nobody names it */
};

/* A static table; two variants are of the same family where the pointers are equal. */
struct variant_family {
  const char *name;
  bool library; /* somebody else's kernels */
  size_t count;
  struct variant_parameter parameters[VARIANT_PARAMETERS];
};

struct variant {
  const struct variant_family *family; /* NULL: none */
  int32_t values[VARIANT_PARAMETERS];  /* 0 beyond the family's */
  uint64_t ready[8];                   /* the backend's, from its variant_check; says nothing that the values do not */
};

/* How the tensors of a product of two lie. What is added to y, and how many such products there are, makes no
 * difference to which kernel is best. */
struct variant_tensors {
  bool given; /* W is a tensor, as the weight's sizes and format say; else all is zeros */
  bool x_turned, w_turned;
  int align; /* bytes, 2..16, a power of two: of x, W and their strides */
};

/* What a choice depends on. */
struct variant_problem {
  struct gemm_weight weight;
  int64_t m; /* the largest of its bucket */
  enum gemm_type x_type, y_type, bias_type;
  int64_t top; /* experts that each of the M rows takes; 0: the weight has none */
  struct variant_tensors tensors;
};

/* Every backend's first family: simple and slow, what other kernels are compared with. Computes `columns` columns of y
 * from `first` on (0: all), or more, so that it can be had in pieces. */
extern const struct variant_family variant_plain;
void variant_plain_columns(const struct variant *variant, int64_t n, int64_t *first, int64_t *count);

/* The smallest of 1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024, 2048, .. that is not below m. */
int64_t variant_bucket(int64_t m);
bool variant_problem_equal(const struct variant_problem *a, const struct variant_problem *b);
/* "int8-row-4096x4096-f16-f16-none-m64": a name for files and people, unique. With tensors
 * "f16-none-256x25088-f16-f32-none-m128-rc16": x by rows, W by columns, aligned to 16 bytes. */
const char *variant_problem_text(const struct variant_problem *problem, char out[VARIANT_TEXT_BYTES]);
/* The reverse; INVALID with what is wrong. Only what variant_problem_text would write for a bucket is taken. */
MUST_CHECK enum status variant_problem_parse(const char *text, struct variant_problem *out, struct error *error);

/* Every parameter at its fallback. */
struct variant variant_default(const struct variant_family *family);
/* Family and values; not what the backend made ready. */
bool variant_equal(const struct variant *a, const struct variant *b);
/* "cpu threads=2 block_m=16"; "none". */
const char *variant_text(const struct variant *variant, char out[VARIANT_TEXT_BYTES]);
/* The reverse: parameters in any order, those not named at their fallback. Family "any" is the first one but the plain
 * one that has the parameters named. NOT_FOUND, UNSUPPORTED, INVALID naming the parameter, its
 * value and its range. */
MUST_CHECK enum status variant_parse(const struct variant_family *const *families, const char *text,
                                     struct variant *out, struct error *error);
