/* Products that take long, a piece at a time, with others between. As in struct backend_ops. */
#pragma once

#include "../../state.h"

enum status cuda_turns_begin(struct backend *, const struct backend_job *, uint32_t, struct backend_turns **,
                             struct error *);
enum status cuda_turns_submit(struct backend *, struct backend_turns *, uint64_t, struct error *);
void cuda_turns_abandon(struct backend *, struct backend_turns *);
void cuda_rest(struct backend *);

/* Bytes of the device that all panels take. */
uint64_t turns_bytes(const struct backend *backend);
/* Nothing is under way. */
void turns_close(struct backend *backend);
