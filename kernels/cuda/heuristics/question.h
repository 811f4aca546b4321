/* What is asked of the backend's kernels for a product that is to be tuned: its sizes as they are stored and padded, as
 * each kind of kernel wants to know them. */
#ifndef KERNELS_CUDA_HEURISTICS_QUESTION_H
#define KERNELS_CUDA_HEURISTICS_QUESTION_H

#include "../families/sm90/int2/variants.h"
#include "../state.h"

struct question {
  struct layout layout;
  enum gemm_type x_type;
  int64_t m; /* not padded */
  struct choice_request request;
  struct library_product operands;
};

/* UNSUPPORTED where no weight of this shape is stored. */
MUST_CHECK enum status question_ask(struct backend *backend, const struct variant_problem *problem,
                                    struct question *out, struct error *error);
/* What the library is asked for in a way of choice_library_way. */
struct library_product question_product(const struct question *question, const struct choice *choice);
struct tile_problem question_tile(const struct question *question);
struct int2_problem question_int2(const struct backend *backend, const struct question *question);
/* What the backend chooses by itself. */
struct variant question_own(struct backend *backend, const struct question *question);

#endif
