/* Kernels set by hand for weights by their names, from the configuration and from tune_pin; given to workers whenever
 * a weight or a worker is new. The last one that matches counts. */
#pragma once

#include "../../../proto/limits.h"
#include "../../../proto/status.h"
#include "catalog.h"

struct supervisor;
struct worker;

enum { PINS_MOST = 64 };

struct pin {
  char pattern[LIMIT_NAME_BYTES], kernel[LIMIT_NAME_BYTES];
};

struct pins {
  struct pin list[PINS_MOST];
  uint32_t count;
};

/* Of the option tune_pins: "PATTERN=KERNEL; PATTERN=KERNEL". INVALID naming what is wrong. */
MUST_CHECK enum status pins_read(struct pins *pins, const char *text, struct error *error);
/* Puts a pin last, in the place of one with the same pattern; an empty kernel takes that away. TOO_LARGE. */
MUST_CHECK enum status pins_set(struct pins *pins, const char *pattern, const char *kernel, struct error *error);
/* The kernel of a content by its names; "" for none. */
const char *pins_find(const struct pins *pins, const struct catalog *catalog, const struct catalog_weight *weight);

/* Tells the workers that hold the weight, or one of them. What they refuse is logged. */
void pins_apply(struct supervisor *supervisor, const struct catalog_weight *weight);
void pins_apply_part(struct supervisor *supervisor, const struct catalog_weight *weight, struct worker *worker);
