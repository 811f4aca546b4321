/* One product by one kernel: as asked for, or as chosen where that does not take it. */
#pragma once

#include "../state.h"

/* Queues the product; `asked` may be NULL. *used: what computes it, and what it leaves. The device is current, and the
 * selector this thread's. */
MUST_CHECK enum status kernel_run(struct backend *backend, struct selector *selector, const struct kernel_call *call,
                                  const struct variant *asked, struct variant *used, struct kernel_sums *left,
                                  struct error *error);
/* True where what is left is y already, but for its stride: that of rows of n_padded. */
bool kernel_sums_are_y(const struct kernel_call *call, const struct kernel_sums *left);
/* Queues the pass that makes y of other sums. */
cudaError_t kernel_finish(const struct kernel_call *call, const struct kernel_sums *left);
