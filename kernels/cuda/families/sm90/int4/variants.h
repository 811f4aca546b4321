/* What products with 4-bit weights can be tuned in on Hopper: the configurations of int4_many. Pure. */
#pragma once

#include "../../family.h"
#include "../int4_many/config.h"

extern const struct variant_family int4_many_family;

/* As in struct kernel_family. Neighbours differ from `base` in one parameter by a step. */
bool int4_many_predict(const struct kernel_problem *problem, struct variant *out, double *us);
int int4_many_list(struct backend *backend, const struct kernel_problem *problem, bool all, struct variant *out,
                   int count, int most);
int int4_many_neighbours(struct backend *backend, const struct kernel_problem *problem, const struct variant *base,
                         bool all, struct variant *out, int most);
enum status int4_many_check(struct backend *backend, const struct kernel_problem *problem, struct variant *variant,
                            struct variant *nearest, struct error *error);

enum int4_many_kind int4_many_kind(const struct kernel_problem *problem);
/* False for a variant of another family or NULL. */
bool int4_many_of(const struct variant *variant, struct int2_many_config *out);
