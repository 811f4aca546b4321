/* One product: rows of x staged, panels of W shared out over the threads. */
#pragma once

#include "../../backend.h"
#include "../pool.h"
#include "block.h"
#include "onednn/library.h"
#include "pause.h"
#include "stage.h"

/* What products need and share: one at a time. */
struct product_engine {
  const struct micro_ops *micro; /* the best that this machine can run, or the one that was asked for */
  struct cpu_pool *pool;
  struct stage stage;
  struct block_space *spaces;  /* owned; one a thread of the pool */
  struct cpu_library *library; /* owned; NULL: none */
  int cores;                   /* that this process may use */
  /* Products are computed in pieces of a millisecond or so, with a pause where it is time for one. NULL: whole. */
  struct cpu_pause *pause;
};

/* How one product is computed. None of it changes a bit of y, but another instruction set. */
struct product_way {
  const struct micro_ops *micro;
  int threads; /* of the pool's */
  int rows;    /* of x at a time */
  struct block_sizes sizes;
  bool library; /* oneDNN multiplies, where it can */
};

struct product_options {
  int threads, cores;
  const struct cpu_cores *pins; /* see cpu_pool_create */
  cpu_parallel parallel;        /* see cpu_pool_lent; NULL: threads of the engine's own */
  void *parallel_context;
  const char *set;        /* of instructions; NULL: the best */
  uint64_t library_bytes; /* see cpu_library_open */
};

MUST_CHECK enum status cpu_product_open(struct product_engine *engine, const struct product_options *options,
                                        struct error *error);
void cpu_product_close(struct product_engine *engine);
/* One more that has its own memory, and all else with `of`: its products are computed while one of `of` pauses, or the
 * other way round. cpu_product_close_beside only. NOMEM. */
MUST_CHECK enum status cpu_product_open_beside(const struct product_engine *of, struct cpu_pause *pause,
                                               struct product_engine *out, struct error *error);
void cpu_product_close_beside(struct product_engine *engine);
/* Bytes of its own that it has taken. */
uint64_t cpu_product_bytes(const struct product_engine *engine);
/* Gives them back, while no product is under way. */
void cpu_product_rest(struct product_engine *engine);

/* Writes all of y before it returns; CANCELLED as of cpu_pause_here. A y element's bits depend on its row of x and its
 * row of W alone: not on the other rows, nor on the number of threads. */
MUST_CHECK enum status cpu_product_run(struct product_engine *engine, const struct product_way *way,
                                       const struct backend_job *job, struct error *error);
/* Rows [begin, end) of a job that have a weight and a bias of their own. */
struct product_group {
  const struct backend_weight *weight; /* all of one shape */
  const void *bias;
  int64_t begin, end;
  int64_t cost; /* of one of its panels, by which they are shared out */
};

/* All of them in one run of the threads: the rows of the groups are those of the job's y, and of its x where `sources`
 * is NULL; else those rows of x, 0 .. PRODUCT_SOURCES - 1, the same for several. The job's weight and bias say nothing
 * beyond shape and type. As of cpu_product_run, and M is at most cpu_stage_room of the weights. Not with pauses. */
enum { PRODUCT_SOURCES = 256 };
MUST_CHECK enum status cpu_product_groups(struct product_engine *engine, const struct backend_job *job,
                                          const struct product_group *groups, int64_t count, const int32_t *sources,
                                          struct error *error);
/* What the backend takes by itself. */
struct product_way cpu_product_way(const struct product_engine *engine, const struct gemm_weight *shape, int64_t m);
/* The way's, but for a product that ends before who waits for it goes to sleep: that leaves them their cores. */
int cpu_product_threads(const struct product_engine *engine, const struct product_way *way,
                        const struct backend_job *job);
/* The same for so many columns by the plain loops. */
int cpu_product_plain_threads(const struct product_engine *engine, const struct backend_job *job, int64_t columns);
