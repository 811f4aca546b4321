/* Variants set by hand, each once however many weights it is set for. One thread. */
#pragma once

#include "../../../../kernels/variant.h"

struct tune_pin {
  struct tune_pin *next;
  struct variant variant;
  uint32_t weights; /* that it is set for */
};

/* The pin of a variant, for one more weight; NULL: no memory. */
const struct variant *tune_pin_take(struct tune_pin **pins, const struct variant *variant);
/* Whether one weight alone has it. */
bool tune_pin_last(const struct tune_pin *pins, const struct variant *variant);
/* For one weight less; with the last one the pin is gone. */
void tune_pin_drop(struct tune_pin **pins, const struct variant *variant);
void tune_pins_close(struct tune_pin **pins);
