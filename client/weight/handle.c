#include "handle.h"

#include <stdlib.h>

struct gemmd_weight *weight_find(const struct gemmd_session *session, uint32_t device, uint32_t handle) {
  struct gemmd_weight *weight;
  LIST_FOREACH (weight, &session->weights, link)
    for (uint32_t i = 0; i < weight->part_count; i++)
      if (weight->parts[i].device == device && weight->parts[i].handle == handle)
        return weight;
  return NULL;
}

void weight_forget(struct gemmd_weight *weight) {
  LIST_REMOVE(weight, link);
  free(weight);
}

uint32_t weight_next_handle(const struct gemmd_session *session, uint32_t device, uint32_t handle) {
  const struct gemmd_weight *weight;
  LIST_FOREACH (weight, &session->weights, link)
    for (uint32_t i = 0; i < weight->part_count; i++)
      if (weight->parts[i].device == device && weight->parts[i].handle == handle)
        return weight->next_handles[i];
  return 0;
}

void weight_name_error(const struct gemmd_weight *weight, struct error *error) {
  (void)error_set(error, error->status, "%s (weight \"%s\")", error->text, weight->info.name);
}
