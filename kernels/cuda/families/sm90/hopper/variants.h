/* The configurations of hopper/config.h as variants. Pure. */
#ifndef KERNELS_CUDA_FAMILIES_SM90_HOPPER_VARIANTS_H
#define KERNELS_CUDA_FAMILIES_SM90_HOPPER_VARIANTS_H

#include "../../family.h"
#include "config.h"

extern const struct variant_family hopper_family;

/* Only of a variant of the family. */
struct hopper_config hopper_of(const struct variant *variant);

/* As in struct kernel_family. */
bool hopper_predict(const struct kernel_problem *problem, struct variant *out, double *us);
int hopper_list(struct backend *backend, const struct kernel_problem *problem, bool all, struct variant *out, int count,
                int most);
int hopper_neighbours(struct backend *backend, const struct kernel_problem *problem, const struct variant *base,
                      bool all, struct variant *out, int most);
enum status hopper_check(struct backend *backend, const struct kernel_problem *problem, struct variant *variant,
                         struct variant *nearest, struct error *error);

#endif
