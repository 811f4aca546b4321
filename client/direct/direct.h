/* What the files of the library share; private. Functions in here return enum status and fill *error; public ones
 * return the negative, and leave the sentence for gemmd_direct_error. */
#ifndef CLIENT_DIRECT_DIRECT_H
#define CLIENT_DIRECT_DIRECT_H

#include "../../kernels/backend.h"
#include "../../proto/limits.h"
#include "../../proto/shm/plan.h"
#include "../../proto/shm/published.h"
#include "../gemmclient_direct.h"

#include <pthread.h>
#include <stdatomic.h>

/* A slab of gemmd's, mapped once for all weights in it. */
struct mapped {
  struct mapped *next;
  int fd; /* the session's, which keeps it as long as a weight in it is borrowed */
  unsigned uses;
  struct backend_slab *slab; /* owned */
};

struct told;
struct tuned;
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
  struct told *told;                   /* all mappings of both, owned */
  struct told *_Atomic table;          /* NULL: there is none */
  void *_Atomic ring;                  /* likewise */
  struct gemmd_direct_weight *weights; /* all, owned */
  struct gemmd_direct_plan *plans;     /* all, owned */
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
  struct gemmd_direct_weight *next, *previous;
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

/* ---- error.c */

/* Keeps the sentence for this thread; returns the public status. */
int direct_result(enum status status, const struct error *error);

/* ---- direct.c */

/* Around calls of the backend other than enqueue: one at a time, and the calling thread is left as it was. */
void *direct_enter(struct gemmd_direct *direct);
void direct_leave(struct gemmd_direct *direct, void *saved);

/* ---- weight.c */

/* Gives it back without asking whether anything uses it. */
void weight_release(struct gemmd_direct_weight *weight);

/* ---- tuned.c */

/* Opens what gemmd tells and is told, where the session has found another one since. By the session's thread, and
 * without the lock: nobody else waits for what gemmd answers. */
void tuned_refresh(struct gemmd_direct *direct, unsigned device);
void tuned_close(struct gemmd_direct *direct);
/* The kernel that was published for such a product; NULL: the backend chooses. Valid as long as the weight. */
const struct variant *tuned_find(struct gemmd_direct_weight *weight, int64_t m, enum gemm_type x_type,
                                 enum gemm_type y_type, enum gemm_type bias_type);
void tuned_forget(struct gemmd_direct_weight *weight);

/* ---- product.c */

/* The job of a call with so many columns of y, checked as products with `whole`; its weight, bias and variant are left
 * to be filled in. */
MUST_CHECK enum status product_job(const struct gemmd_direct *direct, const gemmd_direct_product *product,
                                   const struct gemm_weight *whole, struct backend_job *out, struct error *error);

/* ---- plan.c */

void plan_release(struct gemmd_direct_plan *plan);

#endif
