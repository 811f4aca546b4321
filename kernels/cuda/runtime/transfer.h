/* Rows between an arena and a slot's staging, queued on the slot's stream. */
#pragma once

#include "../state.h"

/* A matrix of `rows` rows of `row_bytes`. */
struct rows {
  uint64_t row_bytes, rows;
  void *device;
  uint64_t device_stride;
  void *host; /* in the arena */
  uint64_t host_stride;
};

/* Neither waits for the device, whether the arena is registered or not. */
cudaError_t transfer_in(struct slot *slot, const struct backend_arena *arena, const struct rows *rows);
cudaError_t transfer_out(struct slot *slot, const struct backend_arena *arena, const struct rows *rows);
