/* What the cuda backend can be tuned in: walks over the table of families, by name or by problem. */
#pragma once

#include "../state.h"

/* As in struct backend_ops; the families also of products of two tensors. */
extern const struct variant_family *const tuning_families[];
int cuda_variants(struct backend *backend, const struct variant_problem *problem, const struct variant *base, bool all,
                  struct variant *out, int most);
int cuda_library_variants(struct backend *backend, const struct variant_problem *problem, bool all, struct variant *out,
                          int most);
int cuda_compiled_variants(struct backend *backend, const struct variant_problem *problem, bool all,
                           struct variant *out, int most);
MUST_CHECK enum status cuda_variant_check(struct backend *backend, const struct variant_problem *problem,
                                          struct variant *variant, struct variant *nearest, struct error *error);
void cuda_variant_needs(struct backend *backend, const struct variant_problem *problem, const struct variant *variant,
                        struct backend_needs *out);
bool cuda_variant_foreign(const struct variant *variant);
MUST_CHECK enum status cuda_variant_build(struct backend *backend, const struct variant_problem *problem,
                                          const struct variant *variant, struct error *error);
