#pragma once

#include "state.h"

void plan_release(struct gemmd_direct_plan *plan);
