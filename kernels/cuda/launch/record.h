/* Kernels that this thread launches, as they went to the driver: to be launched the same way again. */
#pragma once

#include "../runtime/driver.h"
#include "launch.h"

enum {
  RECORD_LAUNCHES = 3,
  RECORD_BYTES = 1536, /* of all their parameters */
  RECORD_ATTRIBUTES = 3,
};

/* One kernel. It points into itself and the record: neither moves. */
struct recorded {
  CUfunction function;
  CUlaunchConfig config;
  CUlaunchAttribute attributes[RECORD_ATTRIBUTES];
  unsigned value_count;
  void *values[LAUNCH_PARAMETERS];
};

struct record {
  const struct driver *driver;
  int count;
  bool spoiled; /* it is not all that was queued */
  uint32_t used;
  struct recorded launches[RECORD_LAUNCHES];
  _Alignas(LAUNCH_ALIGN) uint8_t bytes[RECORD_BYTES];
};

/* From here on what this thread launches goes to the driver at once and is written down, until record_end. */
void record_begin(struct record *record, const struct driver *driver);
void record_end(void);
/* Whether it does so now. */
bool record_now(void);
/* Something is queued that is no kernel of ours. */
void record_spoil(void);
/* What launch_kernel does meanwhile. */
int record_launch(void *stream, const struct launch *launch, void **values);

void record_copy(struct record *to, const struct record *from);
/* The same kernels, launched in the same way with the same parameters. */
bool record_equal(const struct record *a, const struct record *b);
/* Launches all of it on the stream. */
CUresult record_run(struct record *record, CUstream stream);
