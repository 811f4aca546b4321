#pragma once

#include "state.h"

/* Opens what gemmd tells and is told, where the session has found another one since. By the session's thread, and
 * without the lock: nobody else waits for what gemmd answers. */
void tuned_refresh(struct gemmd_direct *direct, unsigned device);
void tuned_close(struct gemmd_direct *direct);
/* The kernel that was published for such a product; NULL: the backend chooses. Valid as long as the weight. */
const struct variant *tuned_find(struct gemmd_direct_weight *weight, int64_t m, enum gemm_type x_type,
                                 enum gemm_type y_type, enum gemm_type bias_type);
void tuned_forget(struct gemmd_direct_weight *weight);
/* From here on the kernel of all such products of this process. */
MUST_CHECK enum status tuned_set(struct gemmd_direct *direct, const struct variant_problem *problem,
                                 const struct variant *variant, struct error *error);
/* The kernel that products use at present where nobody names one, of those that were found; false: none was. */
bool tuned_current(struct gemmd_direct *direct, const struct variant_problem *problem, struct variant *out);
/* A product was given to the device. */
void tuned_computes(const struct gemmd_direct_weight *weight);
