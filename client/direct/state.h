/* What the files of the library share; private. Its functions return enum status and fill *error; public ones
 * return the negative, and leave the sentence for gemmd_direct_error. */
#pragma once

#include "../../kernels/backend.h"
#include "../../proto/limits.h"
#include "../../proto/shm/plan.h"
#include "../../proto/shm/published.h"
#include "../gemmclient_direct.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

/* A slab of gemmd's, mapped once for all weights in it. */
struct mapped {
  struct mapped *next;
  int fd; /* the session's, which keeps it as long as a weight in it is borrowed */
  unsigned uses;
  struct backend_slab *slab; /* owned */
};

struct told;
struct tuned;
struct finding;
enum { TUNED_PLACES = 64 };

struct gemmd_direct {
  gemmd_session *session;
  const struct backend_ops *ops;
  struct backend *backend; /* owned */
  struct backend_info info;
  int lanes;
  int64_t rows_most;
  struct mapped *mapped;
  /* tuned.c */
  unsigned device; /* gemmd's number of it, as of the last weight */
  bool asked;      /* for table and ring, of the gemmd that the session has found so often: */
  uint32_t resumes;
  struct told *told;                        /* all mappings of both, owned */
  struct told *_Atomic table;               /* NULL: there is none */
  struct finding *findings;                 /* of this process, owned; under the lock */
  _Atomic uint64_t found;                   /* how often something was added to them */
  void *_Atomic ring;                       /* likewise */
  LIST_HEAD(, gemmd_direct_weight) weights; /* all, owned */
  LIST_HEAD(, gemmd_direct_plan) plans;     /* all, owned */
  /* Over the lists of plans and of weights' kernels, and around what of the backend two threads must not call at once:
   * all but enqueue. */
  pthread_mutex_t lock;
};

struct gemmd_direct_kernel {
  struct gemmd_direct_kernel *next;
  const struct gemmd_direct_weight *weight;
  struct variant_problem problem;
  struct variant variant;
};

struct gemmd_direct_weight {
  struct gemmd_direct *direct;
  LIST_ENTRY(gemmd_direct_weight) link;
  gemmd_borrowed *borrowed; /* owned; of the session */
  gemmd_weight_info info;
  struct gemm_weight shape;
  struct mapped *mapped;
  struct backend_weight *handle;       /* owned */
  struct gemmd_direct_kernel *kernels; /* owned */
  unsigned plans;                      /* that name it */
  unsigned device;                     /* gemmd's number of it */
  _Atomic uint32_t number;             /* that gemmd knows the borrowed weight by */
  struct tuned *_Atomic tuned[TUNED_PLACES];
  struct tuned *tuned_all; /* owned, also those that have given way */
};

/* Around calls of the backend other than enqueue: one at a time, and the calling thread is left as it was. */
void *direct_enter(struct gemmd_direct *direct);
void direct_leave(struct gemmd_direct *direct, void *saved);
