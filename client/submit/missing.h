/* Weights that the next daemon has not, until they are loaded there; private. */
#pragma once

#include "plan.h"

#include "../weight/handle.h"

/* The next_handles of all weights become their handles, in requests and plans, too. Requests and plans name handles,
 * not weights. All are renamed at once: an old handle of one may be the new one of another. */
void handles_rename(struct gemmd_session *session);
/* Fails the parts in flight of weights that are missing. */
void missing_fail(struct gemmd_session *session);
/* The weight, or all of the plan, is there, after a look for it by name where it was missing. NOT_FOUND, with a
 * sentence that names it, where it still is. The session is alive before, and may have ended after. */
MUST_CHECK enum status missing_look(struct gemmd_weight *weight);
MUST_CHECK enum status missing_look_plan(struct gemmd_plan *plan);
