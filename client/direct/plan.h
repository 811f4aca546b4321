#ifndef CLIENT_DIRECT_PLAN_H
#define CLIENT_DIRECT_PLAN_H

#include "state.h"

void plan_release(struct gemmd_direct_plan *plan);

#endif
