#include "list.h"

#include <stdlib.h>
#include <string.h>

enum { LEAST = 16 };

enum status list_grow(void *list, size_t count, size_t *capacity, size_t size, const char *what, struct error *error) {
  size_t more = *capacity == 0 ? LEAST : *capacity * 2;
  void *items;
  if (count < *capacity)
    return STATUS_OK;
  memcpy(&items, list, sizeof items);
  items = realloc(items, more * size);
  if (items == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for %s", what);
  memcpy(list, &items, sizeof items);
  *capacity = more;
  return STATUS_OK;
}
