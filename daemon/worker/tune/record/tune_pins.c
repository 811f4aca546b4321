#include "tune_pins.h"

#include <stdlib.h>

const struct variant *tune_pin_take(struct tune_pin **pins, const struct variant *variant) {
  struct tune_pin *pin = *pins;
  while (pin != NULL && !variant_equal(&pin->variant, variant))
    pin = pin->next;
  if (pin == NULL) {
    pin = calloc(1, sizeof *pin);
    if (pin == NULL)
      return NULL;
    pin->variant = *variant;
    pin->next = *pins;
    *pins = pin;
  }
  pin->weights++;
  return &pin->variant;
}

bool tune_pin_last(const struct tune_pin *pins, const struct variant *variant) {
  while (pins != NULL && &pins->variant != variant)
    pins = pins->next;
  return pins != NULL && pins->weights == 1;
}

void tune_pin_drop(struct tune_pin **pins, const struct variant *variant) {
  struct tune_pin **place = pins;
  while (*place != NULL && &(*place)->variant != variant)
    place = &(*place)->next;
  struct tune_pin *pin = *place;
  if (pin == NULL || --pin->weights > 0)
    return;
  *place = pin->next;
  free(pin);
}

void tune_pins_close(struct tune_pin **pins) {
  while (*pins != NULL) {
    struct tune_pin *next = (*pins)->next;
    free(*pins);
    *pins = next;
  }
}
