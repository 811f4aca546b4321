/* The plain kernels: slow, for whatever there is. Pure. */
#ifndef KERNELS_CUDA_FAMILIES_PLAIN_VARIANTS_H
#define KERNELS_CUDA_FAMILIES_PLAIN_VARIANTS_H

#include "../family.h"

/* As in struct kernel_family; its variants are variant_plain's. */
bool plain_predict(const struct kernel_problem *problem, struct variant *out, double *us);
enum status plain_check(struct backend *backend, const struct kernel_problem *problem, struct variant *variant,
                        struct variant *nearest, struct error *error);
struct kernel_sums plain_leaves(const struct kernel_problem *problem, const struct variant *variant);

#endif
