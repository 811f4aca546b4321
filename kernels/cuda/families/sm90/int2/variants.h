/* What products with INT2 and INT2A8 weights can be tuned in on Hopper: the configurations of int2_few, int2_many and
 * int2a8. Pure. */
#pragma once

#include "../../family.h"
#include "../int2_few/config.h"
#include "../int2_many/config.h"
#include "../int2a8/config.h"

extern const struct variant_family int2_few_family, int2_many_family, int2a8_family;

/* As in struct kernel_family. The families know each other: which of them has a product depends on its rows. */
bool int2_few_predict(const struct kernel_problem *problem, struct variant *out, double *us);
bool int2_many_predict(const struct kernel_problem *problem, struct variant *out, double *us);
bool int2a8_predict(const struct kernel_problem *problem, struct variant *out, double *us);
int int2_few_list(struct backend *backend, const struct kernel_problem *problem, bool all, struct variant *out,
                  int count, int most);
int int2_many_list(struct backend *backend, const struct kernel_problem *problem, bool all, struct variant *out,
                   int count, int most);
int int2a8_list(struct backend *backend, const struct kernel_problem *problem, bool all, struct variant *out, int count,
                int most);
/* Of any of the three. Neighbours differ from `base` in one parameter by a step. */
int int2_neighbours(struct backend *backend, const struct kernel_problem *problem, const struct variant *base, bool all,
                    struct variant *out, int most);
enum status int2_check(struct backend *backend, const struct kernel_problem *problem, struct variant *variant,
                       struct variant *nearest, struct error *error);

/* The configuration for so many rows; false for a variant of another family or NULL. int2a8: `eights` is for whoever
 * launches to say. */
bool int2_few_of(const struct variant *variant, enum gemm_type x_type, enum gemm_type y_type, int64_t m,
                 struct int2_few_config *out);
bool int2_many_of(const struct variant *variant, struct int2_many_config *out);
bool int2a8_of(const struct variant *variant, int eights, struct int2a8_config *out);
