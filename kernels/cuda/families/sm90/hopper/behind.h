/* Products behind a quantizer: what measurements of chains of quantizers and products know and the model of config.h,
 * which was fitted to products alone, does not. Pure. */
#pragma once

#include "block.h"

/* Whether `half`, of blocks of one group, may take the place of blocks of two; true where nothing is quantized. */
bool hopper_halves_behind(const struct hopper_config *half, const struct kernel_problem *problem);
/* Changes what the model picked where another took less time; leaves what is not behind a quantizer as it is. */
void hopper_adjust_behind(struct hopper_config *config, const struct kernel_problem *problem);
