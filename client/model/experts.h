/* Weights of a model that are experts of one layer become one weight, private. */
#pragma once

#include "item.h"

/* Items whose names differ in the number behind "experts." alone are joined into the first of them, whose name loses
 * that number; the others are left with no pieces. NOT_FOUND: one is missing, or there are none; UNSUPPORTED. */
MUST_CHECK enum status model_experts_join(struct model_plan *plan, struct error *error);
/* The tensor's name with `{}` in the place of that number; false: there is none, or no room. */
bool model_experts_pattern(const char *name, char pattern[LIMIT_NAME_BYTES]);
