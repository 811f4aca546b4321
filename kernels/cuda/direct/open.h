/* What a backend for enqueue opens: lanes in the place of streams, and next to nothing for loading. */
#pragma once

#include "../state.h"

MUST_CHECK enum status direct_open(struct backend *backend, const struct backend_config *config, struct error *error);
/* What is queued has ended, or is waited for here. */
void direct_close(struct backend *backend);

/* Whether so much may run at the same time, in this process and others, that kernels whose blocks wait for each other
 * must have them all. */
bool direct_crowded(const struct backend *backend);
