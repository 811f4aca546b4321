/* Submissions that name plans; private. */
#pragma once

#include "../gemmclient.h"

/* gemmd_plan_submit, over experts where these are not NULL. */
int submit_plan(gemmd_plan *plan, const gemmd_product *product, const gemmd_experts *experts, uint64_t *ticket);
