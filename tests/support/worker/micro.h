/* The CPU's inner loops one instruction set after the other, and panels of 2-bit codes to run them on. */
#pragma once

#include "kernels/cpu/micro/micro.h"

extern const struct micro_ops *micro; /* the one under test */
/* Calls `run` with the name of each instruction set that this machine has; the sum of what it returns. */
int micro_run_each(int (*run)(const char *name));

enum { MICRO_GROUP_BYTES = 34 }; /* of a group of INT2 for each column */

/* Two groups of random codes with scales that differ by column and group; code[k][column]. */
struct codes2 {
  int width;
  uint8_t panel[2 * MICRO_GROUP_BYTES * MICRO_WIDTH];
  uint8_t code[2 * MICRO_GROUP][MICRO_WIDTH];
  float scale[2][MICRO_WIDTH];
};
void codes2_fill(struct codes2 *codes, int width);
