/* The plans that clients have submitted of late, by content: equal ones of several sessions are one, so that their rows
 * go together. Those with a bias, which lies in an arena, are one session's own. The engine's thread. */
#pragma once

#include "../../../proto/shm/plan.h"
#include "objects.h"

enum { PLANS_MOST = 256 }; /* kept; of those that nothing uses, the one unused for longest goes first */

struct engine_plan {
  TAILQ_ENTRY(engine_plan) link;
  struct engine_session *session; /* whose arena the biases lie in; NULL: there is none */
  struct engine_weight *weights[GEMM_STEPS_MOST];
  struct backend_step steps[GEMM_STEPS_MOST];
  uint32_t count;
  uint32_t jobs; /* that use it, waiting or on the device */
  bool kept;     /* in the list; else it goes with its job */
  struct engine_traffic traffic;
};

struct plans {
  TAILQ_HEAD(plan_list, engine_plan) list; /* owned; used last first */
  uint32_t count;
};

void plans_init(struct plans *plans);
void plans_close(struct plans *plans);

/* The plan that a checked submission names, x and y of it in *product and *extent; everything in shared memory is
 * copied before it is looked at. Where all that are kept are in use, it is made for this submission alone. INVALID,
 * UNSUPPORTED, NOT_FOUND naming the field. */
MUST_CHECK enum status plans_find(struct plans *plans, struct engine_session *session,
                                  const struct ring_submission *submission, const struct gemm_product *product,
                                  struct gemm_extent *extent, struct engine_plan **out, struct error *error);
/* One job uses it no more. */
void plans_release(struct engine_plan *plan);
/* The weight or the arena goes, and no job uses it. */
void plans_forget_weight(struct plans *plans, const struct engine_weight *weight);
void plans_forget_session(struct plans *plans, const struct engine_session *session);
