/* Lists of variants that a family offers to be measured. Pure. */
#pragma once

#include "../../variant.h"
#include "problem.h"

struct listing_rules {
  bool (*fits)(const struct kernel_problem *problem, const struct variant *variant);
  /* Whether two of a family are the same kernel for a problem; NULL: where their values are. */
  bool (*same)(const struct kernel_problem *problem, const struct variant *left, const struct variant *right);
};

/* Adds one that fits and is not there yet; returns how many there are then, at most `most`. */
int listing_add(const struct listing_rules *rules, const struct kernel_problem *problem, const struct variant *variant,
                struct variant *out, int count, int most);
/* Those that differ from `base` in one value: by a step, or twice or half of it. Returns how many. */
int listing_neighbours(const struct listing_rules *rules, const struct kernel_problem *problem,
                       const struct variant *base, struct variant *out, int most);
