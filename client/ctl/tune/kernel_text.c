#include "kernel_text.h"

#include <stdio.h>
#include <string.h>

void kernel_family(const char *kernel, char out[KERNEL_WORD_BYTES]) {
  snprintf(out, KERNEL_WORD_BYTES, "%.*s", (int)strcspn(kernel, " "), kernel);
}

bool kernel_next(const char **at, struct kernel_parameter *out) {
  const char *space = strchr(*at, ' ');
  if (space == NULL || sscanf(space + 1, "%47[^= ]=%ld", out->name, &out->value) != 2)
    return false;
  *at = space + 1;
  return true;
}

long kernel_value(const char *kernel, const char *name, long absent) {
  struct kernel_parameter parameter;
  for (const char *at = kernel; kernel_next(&at, &parameter);)
    if (strcmp(parameter.name, name) == 0)
      return parameter.value;
  return absent;
}
