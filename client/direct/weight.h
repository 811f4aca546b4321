#pragma once

#include "state.h"

/* Gives it back without asking whether anything uses it. */
void weight_release(struct gemmd_direct_weight *weight);
