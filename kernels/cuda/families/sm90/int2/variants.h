/* What products with INT2 and INT2A8 weights can be tuned in on Hopper: the configurations of int2_few, int2_many and
 * int2a8. Pure. */
#ifndef KERNELS_CUDA_FAMILIES_SM90_INT2_VARIANTS_H
#define KERNELS_CUDA_FAMILIES_SM90_INT2_VARIANTS_H

#include "../../../../variant.h"
#include "../int2_few/config.h"
#include "../int2_many/config.h"
#include "../int2a8/config.h"

extern const struct variant_family int2_few_family, int2_many_family, int2a8_family;

struct int2_problem {
  enum gemm_format format; /* INT2 or INT2A8 in tiles */
  enum gemm_type x_type, y_type;
  int64_t m, n, k;
  int sms;
};

/* Whether int2_many takes it where nobody says, and with what: with enough rows. x_type: INT8 for INT2A8. */
bool int2_goes_to_many(enum gemm_type x_type, enum gemm_type y_type, int64_t m, int64_t n, int64_t k, int sms,
                       struct int2_many_config *out, struct int2_many_plan *plan);
/* What computes the product where nobody says. */
struct variant int2_own(const struct int2_problem *problem);
/* What can run, best guess first; the first is int2_own's. `all`: everything. Returns how many, at most `most`. */
int int2_variants(const struct int2_problem *problem, bool all, struct variant *out, int most);
/* Those that can run and differ from `base`, of one of these families, in one parameter by a step. */
int int2_near(const struct int2_problem *problem, const struct variant *base, struct variant *out, int most);
/* UNSUPPORTED with the reason where the variant, of one of these families, cannot run. */
MUST_CHECK enum status int2_check(const struct int2_problem *problem, const struct variant *variant,
                                  struct error *error);

/* The configuration for so many rows; false for a variant of another family or NULL. int2a8: `eights` is for whoever
 * launches to say. */
bool int2_few_of(const struct variant *variant, enum gemm_type x_type, enum gemm_type y_type, int64_t m,
                 struct int2_few_config *out);
bool int2_many_of(const struct variant *variant, struct int2_many_config *out);
bool int2a8_of(const struct variant *variant, int eights, struct int2a8_config *out);

#endif
