/* The configurations of few/config.h as variants. Pure. */
#ifndef KERNELS_CUDA_FAMILIES_FEW_VARIANTS_H
#define KERNELS_CUDA_FAMILIES_FEW_VARIANTS_H

#include "../family.h"
#include "config.h"

extern const struct variant_family few_family;

/* Only of a variant of the family. */
struct few_config few_of(const struct variant *variant);

/* As in struct kernel_family. */
bool few_predict(const struct kernel_problem *problem, struct variant *out, double *us);
int few_list(struct backend *backend, const struct kernel_problem *problem, bool all, struct variant *out, int count,
             int most);
enum status few_check(struct backend *backend, const struct kernel_problem *problem, struct variant *variant,
                      struct variant *nearest, struct error *error);

#endif
