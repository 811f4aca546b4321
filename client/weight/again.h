/* An open weight at the next daemon, by its name; private. */
#pragma once

#include "handle.h"

/* Its next_handles become those of the daemon that is there. NOT_FOUND, with nothing opened, where the name is none of
 * that daemon's, or that of something else by now. */
MUST_CHECK enum status weight_open_again(struct gemmd_weight *weight);
/* Its next_handles become some that no daemon gives: plans and requests that name the weight by them find it again when
 * it is loaded. */
MUST_CHECK enum status weight_stand_in(struct gemmd_weight *weight);
