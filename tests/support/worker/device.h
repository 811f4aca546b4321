/* One open backend with an arena and a slab, for tests: puts a weight in, runs products, and guards every byte
 * around what a product may write. Failures end the running cmocka test with a message. */
#pragma once

#include "kernels/backend.h"
#include "tests/support/reference/oracle.h"

enum { DEVICE_ARENA_BYTES = 24 << 20, DEVICE_GUARD_BYTES = 64 };

struct device {
  const struct backend_ops *ops;
  struct backend *backend;
  struct backend_arena *arena;
  uint8_t *base; /* of the arena */
  int slab_fd;
  struct backend_slab *slab;
  uint64_t slab_bytes;
  uint64_t kept;                  /* bytes at the end of the arena that stay as they are */
  struct backend_experts experts; /* of the job that was staged last */
  uint32_t skipped;               /* by the job that ended last */
};

/* What to ask. The first m rows of x are used. Strides are dense plus the extra elements. */
struct device_request {
  struct backend_weight *weight;
  const struct gemm_weight *shape;
  const struct oracle_x *x;
  int64_t m;
  enum gemm_type y_type, bias_type;
  const void *bias; /* [n] of bias_type, or NULL */
  int64_t x_extra, y_extra;
  const struct variant *variant; /* NULL: the backend's own choice */
  /* A sequence instead of a product: `shape` then has K of the first step and the columns of y. Biases are those that
   * device_keep has returned. */
  const struct backend_step *steps;
  uint32_t step_count;
  /* Over a weight with experts: ids and routing are copied into the arena; bias is [E, n]. top 0: none. */
  struct backend_experts experts;
};

/* `slab_bytes` is rounded up to the device's granularity; 0: no slab. Kernels that are built at run time are kept in
 * $GEMMD_TEST_STATE; without it none are. */
void device_open(struct device *device, const struct backend_ops *ops, int in_flight, uint64_t slab_bytes);
/* Takes a slab that another process made; slab_fd stays the caller's. */
void device_import(struct device *device, int slab_fd, uint64_t slab_bytes);
/* Closes all but slab_fd. */
void device_close(struct device *device);

/* Of combinations of formats, sizes and types one in so many is asked for: a sanitizer's run looks for what a path does
 * wrong, and each format, size and type is in some; all are asked for in the run without. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { DEVICE_EVERY = 7 };
#else
enum { DEVICE_EVERY = 1 };
#endif

/* How many of oracle_kinds the backend takes: the first so many. */
int device_kinds(const struct backend_ops *ops);

/* Stores the weight at `offset` of the slab and makes it usable. */
struct backend_weight *device_load(struct device *device, const struct oracle_weight *weight, uint64_t offset);

/* A copy in the arena that requests leave alone. */
void *device_keep(struct device *device, const void *data, uint64_t bytes);
/* Lays the request out in the arena, all else of it poisoned. The job points into the arena. */
struct backend_job device_stage(struct device *device, const struct device_request *request);
/* What y's bytes are before a product; `at` is in the arena. */
void device_poison(void *at, uint64_t bytes);
/* Submits and polls until it is done. */
void device_finish(struct device *device, const struct backend_job *job);
/* The same by turns of so long, where the backend has such; returns how many there were. */
int device_finish_by_turns(struct device *device, const struct backend_job *job, uint64_t budget_ns);
/* Takes one turn; *done is what came of it. False where the product has ended. */
bool device_turn(struct device *device, struct backend_turns *turns, uint64_t budget_ns, struct backend_done *done);
/* Rows of y: m, or m * T. */
int64_t device_rows(const struct device_request *request);
/* Dense y, [device_rows, n], after a look at every byte around and every element within. The caller frees. */
void *device_collect(struct device *device, const struct device_request *request, const struct backend_job *job);
/* The three in a row. */
void *device_run(struct device *device, const struct device_request *request);

/* As device_run, but asked for as a chain of jobs of 1 to `rows_most` rows each, in another order than they lie. */
void *device_run_chain(struct device *device, const struct device_request *request, int64_t rows_most);

/* A group of tests over one backend: names what device_group_open opens before them, and device_group_close closes,
 * with its slab, behind them. */
void device_group(struct device *device, const struct backend_ops *ops, uint64_t slab_bytes);
int device_group_open(void **state);
int device_group_close(void **state);

/* Runs `group` with every backend of the build that has a device, or with the one that the first argument or
 * GEMMD_TEST_BACKEND names, and of its tests those whose names match the second, a pattern of * and ?. Returns main's
 * exit status: 1 where a group failed or none could run. */
int device_groups(int count, char **arguments, int (*group)(const struct backend_ops *ops));
