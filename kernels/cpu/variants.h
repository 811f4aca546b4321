/* What the CPU backend can be tuned in, and which of it is worth trying. */
#pragma once

#include "product/product.h"

/* "plain", "cpu", "onednn", NULL. */
extern const struct variant_family *const cpu_families[];

/* The way of a variant that cpu_variant_check has passed. */
struct product_way cpu_variant_way(const struct product_engine *engine, const struct variant *variant);

/* As in struct backend_ops. */
MUST_CHECK enum status cpu_variant_check(const struct product_engine *engine, const struct variant_problem *problem,
                                         struct variant *variant, struct variant *nearest, struct error *error);
int cpu_variants(const struct product_engine *engine, const struct variant_problem *problem, bool all,
                 struct variant *out, int most);
/* The library has the weight in an order of its own, which takes milliseconds when it is first asked. */
int cpu_library_variants(const struct product_engine *engine, const struct variant_problem *problem,
                         struct variant *out, int most);
