/* Weights in slabs. */
#pragma once

#include "../state.h"

/* As in struct backend_ops. */
enum status cuda_weight_plan(struct backend *, const struct gemm_weight *, struct backend_plan *, struct error *);
enum status cuda_weight_store(struct backend *, const struct gemm_weight *, const void *, struct backend_slab *,
                              uint64_t, struct error *);
enum status cuda_weight_attach(struct backend *, const struct gemm_weight *, uint32_t, struct backend_slab *, uint64_t,
                               struct backend_weight **, struct error *);
void cuda_weight_detach(struct backend *, struct backend_weight *);
enum status cuda_weight_checksum(struct backend *, struct backend_weight *, uint64_t *, struct error *);
enum status cuda_weight_read(struct backend *, struct backend_weight *, void *, struct error *);
