/* The configurations of many/config.h as variants. Pure. */
#ifndef KERNELS_CUDA_FAMILIES_SM90_MANY_VARIANTS_H
#define KERNELS_CUDA_FAMILIES_SM90_MANY_VARIANTS_H

#include "../../family.h"
#include "config.h"

extern const struct variant_family many_family;

/* Only of a variant of the family. */
struct many_config many_of(const struct variant *variant);

/* As in struct kernel_family. */
bool many_predict(const struct kernel_problem *problem, struct variant *out, double *us);
int many_list(struct backend *backend, const struct kernel_problem *problem, bool all, struct variant *out, int count,
              int most);
enum status many_check(struct backend *backend, const struct kernel_problem *problem, struct variant *variant,
                       struct variant *nearest, struct error *error);

#endif
