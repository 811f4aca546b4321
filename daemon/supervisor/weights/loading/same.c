#include "same.h"

#include "../../context.h"
#include "../../workers/fleet.h"
#include "../placement.h"

#include <string.h>

struct catalog_wish same_wish(const struct load *load) {
  return (struct catalog_wish){.name = load->request.name,
                               .replace = load->request.replace,
                               .mode = (enum message_mode)load->request.mode,
                               .user = load->user};
}

/* No part of it that a product needs lies on a device that is out of order: one copy will do, and every range must. */
static bool serves(struct supervisor *supervisor, const struct catalog_weight *weight) {
  bool copies = weight->placement == PLACEMENT_REPLICAS;
  for (uint32_t i = 0; i < weight->part_count; i++)
    if (worker_usable(&supervisor->fleet->workers[weight->parts[i].device]) == copies)
      return copies;
  return !copies;
}

/* Whether it lies as the load wants it. */
static bool fits(struct supervisor *supervisor, const struct load *load, const struct catalog_weight *weight) {
  uint32_t usable = 0;
  for (uint32_t i = 0; i < supervisor->fleet->count; i++)
    usable += worker_usable(&supervisor->fleet->workers[i]);
  struct catalog_wish wish = same_wish(load);
  struct catalog_class of = catalog_class_wished(&supervisor->catalog, &wish);
  return placement_fits(&load->request, weight, usable) && serves(supervisor, weight) &&
         catalog_may_share(&supervisor->catalog, weight, of);
}

struct catalog_weight *same_find(struct supervisor *supervisor, const struct load *load) {
  struct catalog_weight *same = NULL;
  if (load->found != NULL)
    return fits(supervisor, load, load->found) && !load->found->withdrawn ? load->found : NULL;
  do
    same = catalog_find_hash(&supervisor->catalog, load->hash, same);
  while (same != NULL && !fits(supervisor, load, same));
  return same;
}

bool same_find_stamp(struct supervisor *supervisor, struct load *load, enum catalog_mark mark) {
  struct catalog_weight *found = NULL;
  do
    found = catalog_find_stamp(&supervisor->catalog, mark, &load->stamps[mark], found);
  while (found != NULL && (found->withdrawn || !fits(supervisor, load, found)));
  if (found == NULL)
    return false;
  found->handles++;
  load->found = found;
  memcpy(load->hash, found->hash, sizeof load->hash);
  load->hash_kind = found->hash_kind;
  return true;
}
