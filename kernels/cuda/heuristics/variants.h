/* What the cuda backend can be tuned in: cuBLASLt's algorithms by all their attributes, the configurations of our
 * kernels, and by hand the tiles of a kernel that is compiled at run time. */
#ifndef KERNELS_CUDA_HEURISTICS_VARIANTS_H
#define KERNELS_CUDA_HEURISTICS_VARIANTS_H

#include "../state.h"

/* variant_plain first, NULL at the end. */
extern const struct variant_family *const cuda_families[];

/* As in struct backend_ops. */
int cuda_variants(struct backend *backend, const struct variant_problem *problem, const struct variant *base, bool all,
                  struct variant *out, int most);
int cuda_library_variants(struct backend *backend, const struct variant_problem *problem, bool all, struct variant *out,
                          int most);
MUST_CHECK enum status cuda_variant_check(struct backend *backend, const struct variant_problem *problem,
                                          struct variant *variant, struct variant *nearest, struct error *error);

bool cuda_variant_foreign(const struct variant *variant);
MUST_CHECK enum status cuda_variant_build(struct backend *backend, const struct variant_problem *problem,
                                          const struct variant *variant, struct error *error);

/* The way of a variant that cuda_variant_check has passed; false where the backend is to choose by itself. */
bool cuda_variant_choice(const struct variant *variant, const struct choice_request *request, struct choice *out);

#endif
