/* Threads with memory and a stream of their own each, by which a weight goes to the device, or through it, a slice a
 * thread at a time: while one copies, another computes. They run below products: the device takes their work at its
 * lowest priority, and the host at a lower one. */
#pragma once

#include "../../../proto/status.h"

#include <driver_types.h>
#include <stdint.h>

enum {
  LANES_MOST = 6,
  LANE_IN = 8 << 20,    /* bytes of a slice as it comes */
  LANE_OUT = 4 << 20,   /* as it becomes */
  LANE_SCALES = 1 << 18 /* its scales; also what is asked of the device beside */
};

struct lane {
  cudaStream_t stream;
  cudaEvent_t done;
  uint8_t *pinned_in, *pinned_out, *pinned_scales;
  uint8_t *in, *out, *scales; /* on the device */
};

struct lanes {
  int device; /* the runtime's number */
  struct lane lane[LANES_MOST];
  _Atomic int count; /* that are open: 0 until they are wanted for the first time */
};

struct lanes_job {
  uint64_t slices;
  enum status (*work)(void *context, struct lane *lane, uint64_t slice, struct error *error); /* any thread */
  void *context;
};

/* Works on all slices, each lane on one at a time. The error is that of the first slice that failed. Opens the lanes
 * where they are not yet: one at least, NOMEM without. One call at a time. */
MUST_CHECK enum status lanes_run(struct lanes *lanes, const struct lanes_job *job, struct error *error);
/* Waits until what the lane has queued has ended; `queued`: how queueing it went. */
cudaError_t lane_finish(struct lane *lane, cudaError_t queued);
uint64_t lanes_bytes(const struct lanes *lanes); /* of the device */
void lanes_close(struct lanes *lanes);
