/* Products on the device: batches, kernels, turns of long ones. */
#pragma once

#include "serve.h"

/* Starts one product at most, or gives one its next turn: its end should be published before the next one keeps this
 * thread. Returns how much was done. DEVICE_LOST in lost->status ends it all; the same holds for serve_finish. */
unsigned serve_start(struct serve *serve, struct error *lost);
unsigned serve_finish(struct serve *serve, struct error *lost);

/* When the oldest product on the device should end, by how long those before it took; 0 where there is none. */
uint64_t serve_expected_ns(struct serve *serve);
