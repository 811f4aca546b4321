/* What callers say of a product, as it goes through a ring; private. */
#pragma once

#include "../session/session.h"

/* Types, rows, strides and offsets of what the caller points to; N and K are left to be filled in. INVALID. */
MUST_CHECK enum status product_offsets(struct gemmd_session *session, const gemmd_product *from,
                                       struct gemm_product *out);
/* Ids and routing; NULL: there are none. After product_offsets. INVALID where they do not lie where x lies. */
MUST_CHECK enum status product_experts(struct gemmd_session *session, const gemmd_experts *experts,
                                       struct gemm_product *out);
/* All of x, y and the event that is the caller's own is on this device; LIMIT_DEVICES: nothing is. INVALID where they
 * differ. */
MUST_CHECK enum status product_device(struct gemmd_session *session, const gemmd_product *product, uint32_t *device);
/* The entry for the ring, but for handle and tag. */
void product_submission(const gemmd_product *from, const struct gemm_product *product, const struct gemm_extent *extent,
                        struct ring_submission *out);
