#include "untuned.h"

#include <stdlib.h>
#include <string.h>

struct untuned_shape {
  struct message_weight_seen seen;
  bool told;
};

void untuned_free(struct untuned *untuned) {
  free(untuned->list);
  *untuned = (struct untuned){.list = NULL};
}

static bool same(const struct message_weight_seen *a, const struct message_weight_seen *b) {
  return a->weight == b->weight && a->m == b->m && a->x_type == b->x_type && a->y_type == b->y_type &&
         a->bias_type == b->bias_type;
}

static struct untuned_shape *place_for(struct untuned *untuned, const struct message_weight_seen *seen) {
  for (uint32_t i = 0; i < untuned->count; i++)
    if (same(&untuned->list[i].seen, seen))
      return &untuned->list[i];
  if (untuned->count == UNTUNED_MOST) {
    memmove(&untuned->list[0], &untuned->list[1], (UNTUNED_MOST - 1) * sizeof *untuned->list);
    untuned->count--;
  }
  struct untuned_shape *shape = &untuned->list[untuned->count++];
  *shape = (struct untuned_shape){.told = false};
  return shape;
}

void untuned_add(struct untuned *untuned, const struct message_weight_seen *seen) {
  if (untuned->list == NULL)
    untuned->list = calloc(UNTUNED_MOST, sizeof *untuned->list);
  if (untuned->list == NULL)
    return;
  struct untuned_shape *shape = place_for(untuned, seen);
  bool known = same(&shape->seen, seen), news = !known || seen->kernel[0] != '\0';
  if (!news)
    return;
  shape->seen = *seen;
  shape->told = false;
}

const struct message_weight_seen *untuned_tell(struct untuned *untuned) {
  for (uint32_t i = 0; i < untuned->count; i++) {
    if (!untuned->list[i].told) {
      untuned->list[i].told = true;
      return &untuned->list[i].seen;
    }
  }
  return NULL;
}

void untuned_again(struct untuned *untuned) {
  for (uint32_t i = 0; i < untuned->count; i++)
    untuned->list[i].told = false;
}

void untuned_done(struct untuned *untuned) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < untuned->count; i++)
    if (!untuned->list[i].told)
      untuned->list[kept++] = untuned->list[i];
  untuned->count = kept;
}
