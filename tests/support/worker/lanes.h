/* A backend that computes for its caller (`enqueue`), over the slab of another that has stored weights there: requests
 * are laid out as device.h does and copied to memory of a lane, which on a GPU is device memory, and back. Failures end
 * the running cmocka test with a message. */
#pragma once

#include "device.h"

enum { LANES_MOST = 4 };

struct lanes {
  struct device device; /* its arena is a host's image of a lane's memory */
  int count;
  uint8_t *memory[LANES_MOST];                            /* DEVICE_ARENA_BYTES each, as the device addresses them */
  void *streams[LANES_MOST];                              /* NULL on the cpu */
  struct backend_step steps[LANES_MOST][GEMM_STEPS_MOST]; /* with biases in the lane's memory */
};

/* False, with nothing opened, where this process cannot use the backend's device. */
bool lanes_open(struct lanes *lanes, const struct device *owner, int count, int64_t rows_most);
void lanes_close(struct lanes *lanes);
/* Makes usable what device_load has stored at `offset` with the owner. */
struct backend_weight *lanes_attach(struct lanes *lanes, const struct oracle_weight *weight, uint64_t offset);

/* Lays the request out in the lane's memory, all else of it poisoned; its job points there. */
struct backend_job lanes_stage(struct lanes *lanes, int lane, const struct device_request *request);
/* Makes y of a staged job poison again. */
void lanes_poison(struct lanes *lanes, int lane, const struct backend_job *job);
/* On the lane's stream; must be OK. */
void lanes_enqueue(struct lanes *lanes, int lane, const struct backend_job *job);
/* Waits for the stream, then as device_collect. The caller frees. */
void *lanes_collect(struct lanes *lanes, int lane, const struct device_request *request, const struct backend_job *job);
/* The same without a look at what is around: bytes at `at` of the lane's memory, when its stream has come so far. The
 * caller frees. */
void *lanes_read(struct lanes *lanes, int lane, const void *at, uint64_t bytes);
/* Stage, enqueue, collect. */
void *lanes_run(struct lanes *lanes, int lane, const struct device_request *request);
