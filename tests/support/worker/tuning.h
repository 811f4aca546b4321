/* The tuner over the real CPU backend with one small weight; the test is the engine's thread. Kernels of its own are
 * planted by replacing functions of `tuning.ops` before tuning_start: they are the CPU's own product, and whatever the
 * test adds to it. */
#pragma once

#include "daemon/worker/tune/tuner.h"
#include "daemon/worker/tune/tuner_requests.h"
#include "daemon/worker/tune/tuner_saves.h"

#include "device.h"

enum { TUNING_N = 96, TUNING_K = 300, TUNING_ROWS = 12 };
#define TUNING_ARENA_BYTES ((uint64_t)4 << 20)
/* A moment at which there has been no request for a while, whatever quiet_ns is. */
#define TUNING_LATE ((uint64_t)1 << 62)

extern const struct backend_ops cpu_backend;

struct tuning {
  struct backend_ops ops;
  struct device device;
  struct oracle_weight values;
  struct engine_weight weight;
  struct tuner *tuner;
  int saved, answered;
  bool disk_stands; /* what goes to it waits */
  struct engine_message *unsaved[8];
  int unsaved_count;
  struct engine_message *last_answer;
};
extern struct tuning tuning;

/* The families that `tuning.ops` has: the CPU's first two, and those planted; NULL at the end. */
void tuning_plant(const struct variant_family *one, const struct variant_family *other);
/* The device and its weight, [TUNING_N, TUNING_K] of fp8; no tuner yet. */
void tuning_open(void);
void tuning_close(void);

/* Options for tuning_start: nothing is kept, bursts of 300 us, an hour until it is quiet. */
struct tuner_options tuning_options(enum tune_mode mode);
void tuning_start(const struct tuner_options *options);
void tuning_stop(void);

/* What the disk has kept waiting is written, in order. */
void tuning_disk_goes_on(void);

/* One step with nobody waiting. The device must not be lost. */
uint64_t tuning_step(uint64_t now_ns);
/* Until there is nothing to do, in perfect quiet. */
void tuning_run(void);
/* What serves so many rows of f32, as a product that begins now would be told; it takes `device_ns`. NULL: the
 * backend's own choice. */
const struct variant *tuning_serving(int64_t rows, uint64_t device_ns);
/* The first of the shapes that were served. */
struct tune_shape tuning_listed(void);
