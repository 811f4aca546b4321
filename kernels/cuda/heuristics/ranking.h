/* The cheapest few of many, as a cost model has it. Pure. */
#pragma once

#include <stddef.h>

/* Puts a copy of the item into its place among `count` of `item_bytes` each, cheapest first, behind those that cost the
 * same; where there are `most` already the last one falls off. costs[i] is what items[i] costs. Returns how many there
 * are then. */
int ranking_insert(void *items, double *costs, size_t item_bytes, int count, int most, const void *item, double cost);
