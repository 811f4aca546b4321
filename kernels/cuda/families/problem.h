/* A product as families of kernels are asked about it: sizes, types, how the weight lies, and the device. Pure. */
#pragma once

#include "../../../proto/gemm.h"
#include "../linkage.h"

#include <stdbool.h>
#include <stdint.h>

C_LINKAGE_BEGIN

struct kernel_device {
  int capability; /* 10 * major + minor */
  int multiprocessors;
  int shared_most;          /* bytes of shared memory that a block may have */
  uint64_t workspace_bytes; /* of device memory that a product may use beside its tensors */
  bool places;              /* its sparse matrix instructions take what INT2 tiles give them: sm90/int2/places.h */
};

struct kernel_problem {
  struct kernel_device device;
  enum gemm_format format;
  enum gemm_scale scale;
  bool tiled;                       /* packed formats: codes lie in tiles, weight/layout.h */
  int64_t n, k;                     /* of the weight; of each of its experts */
  int64_t experts, top;             /* 0: it has none; that each row of x takes */
  int64_t n_padded, k_padded;       /* as it is stored */
  int64_t m;                        /* FP8 with block scales: a multiple of four; with experts: pairs */
  enum gemm_type x_type;            /* as it comes: matters where the weight is INT2 */
  enum gemm_type y_type, bias_type; /* GEMM_TYPE_NONE: no bias */
  bool in_row;                      /* launched behind another product, so that W comes in while that one ends */
};

/* FP8 rows of fewer columns of y than this often cancel to less than what the tensor cores cut off; see
 * sm90/hopper/config.h. */
enum { FP8_COLUMNS_LEAST = 128 };
static inline bool kernel_problem_cancels(const struct kernel_problem *problem) {
  return problem->format == GEMM_FORMAT_FP8 && problem->n < FP8_COLUMNS_LEAST;
}

/* What kernels for weights of less than a byte an element take x as. */
static inline enum gemm_type kernel_problem_x_type(const struct kernel_problem *problem) {
  return gemm_quantizes_x(problem->format) ? GEMM_INT8 : problem->x_type;
}

C_LINKAGE_END
