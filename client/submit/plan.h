/* Plans of a session; private. */
#pragma once

#include "../../proto/shm/plan.h"
#include "../session/session.h"

struct gemmd_plan {
  struct gemmd_session *session;
  LIST_ENTRY(gemmd_plan) link;
  uint32_t count;
  struct plan_step steps[GEMM_STEPS_MOST];
  uint32_t place_count;
  struct pending_part places[LIMIT_PARTS];     /* one a device; the handle says nothing */
  struct ring_step *descriptions[LIMIT_PARTS]; /* of these devices; in the arena, owned */
};

void plan_forget(struct gemmd_plan *plan);
/* The handles of all plans become those of the session with the next daemon. */
void plans_rename_handles(struct gemmd_session *session);
