#include "pins.h"

#include "../../log.h"
#include "../context.h"
#include "../workers/fleet.h"

#include <ctype.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum status pins_set(struct pins *pins, const char *pattern, const char *kernel, struct error *error) {
  uint32_t at = 0;
  while (at < pins->count && strcmp(pins->list[at].pattern, pattern) != 0)
    at++;
  if (at < pins->count) {
    memmove(&pins->list[at], &pins->list[at + 1], (pins->count - at - 1) * sizeof *pins->list);
    pins->count--;
  }
  if (kernel[0] == '\0')
    return STATUS_OK;
  if (pins->count == PINS_MOST)
    return error_set(error, STATUS_TOO_LARGE, "at most %d kernels can be set by hand", PINS_MOST);
  struct pin *pin = &pins->list[pins->count++];
  snprintf(pin->pattern, sizeof pin->pattern, "%s", pattern);
  snprintf(pin->kernel, sizeof pin->kernel, "%s", kernel);
  return STATUS_OK;
}

static char *trim(char *text) {
  while (isspace((unsigned char)*text))
    text++;
  for (size_t length = strlen(text); length > 0 && isspace((unsigned char)text[length - 1]); length--)
    text[length - 1] = '\0';
  return text;
}

enum status pins_read(struct pins *pins, const char *text, struct error *error) {
  char *copy = strdup(text), *place = NULL;
  enum status status = copy != NULL ? STATUS_OK : error_set(error, STATUS_NOMEM, "no memory for tune_pins");
  pins->count = 0;
  for (char *one = copy != NULL ? strtok_r(copy, ";", &place) : NULL; one != NULL && status == STATUS_OK;
       one = strtok_r(NULL, ";", &place)) {
    char *equals = strchr(one, '=');
    if (equals == NULL || equals == one) {
      status = error_set(error, STATUS_INVALID, "tune_pins: PATTERN=KERNEL is expected, got \"%.100s\"", trim(one));
      break;
    }
    *equals = '\0';
    status = pins_set(pins, trim(one), trim(equals + 1), error);
  }
  free(copy);
  return status;
}

const char *pins_find(const struct pins *pins, const struct catalog *catalog, const struct catalog_weight *weight) {
  const char *kernel = "";
  for (uint32_t i = 0; i < pins->count; i++)
    for (size_t n = 0; n < catalog->name_count; n++)
      if (catalog->names[n].weight == weight && fnmatch(pins->list[i].pattern, catalog->names[n].text, 0) == 0)
        kernel = pins->list[i].kernel;
  return kernel;
}

static void on_answer(void *user, struct worker_answer *answer) {
  if (answer->status != STATUS_OK && answer->status != STATUS_DEVICE_LOST && answer->status != STATUS_NOT_FOUND)
    log_warning("a kernel set by hand is not used: %s", answer->error.text);
}

void pins_apply_part(struct supervisor *supervisor, const struct catalog_weight *weight, struct worker *worker) {
  struct message_weight_pin body = {.weight = weight->id};
  struct error error;
  snprintf(body.kernel, sizeof body.kernel, "%s", pins_find(supervisor->pins, &supervisor->catalog, weight));
  if (body.kernel[0] != '\0' &&
      worker_ask(worker, COMMAND_weight_pin, &body, NULL, 0, on_answer, NULL, &error) != STATUS_OK)
    log_debug("the successor will hear of the kernel set by hand: %s", error.text);
}

void pins_apply(struct supervisor *supervisor, const struct catalog_weight *weight) {
  for (uint32_t i = 0; i < weight->part_count; i++)
    pins_apply_part(supervisor, weight, &supervisor->fleet->workers[weight->parts[i].device]);
}
