#include "reclaim.h"

#include "../../log.h"
#include "../context.h"
#include "../net/closing.h"
#include "../workers/fleet.h"
#include "store.h"

#include <stdlib.h>

/* ---- slabs */

static void on_slab_freed(void *user, struct worker_answer *answer) {
  int fd = (int)(intptr_t)user;
  if (answer->status != STATUS_OK && answer->status != STATUS_DEVICE_LOST)
    log_warning("a slab cannot be freed: %s", answer->error.text);
  closing_memory(fd);
}

void reclaim_slab(struct supervisor *supervisor, uint32_t id) {
  const struct catalog_slab *slab = catalog_slab_find(&supervisor->catalog, id);
  if (slab == NULL || slab->extents.count > 0)
    return;
  int fd = slab->fd;
  uint32_t device = slab->device;
  catalog_slab_remove(&supervisor->catalog, id);
  store_remove_slab(id);
  struct message_slab_free body = {.slab = id};
  struct error error;
  if (worker_ask(&supervisor->fleet->workers[device], COMMAND_slab_free, &body, NULL, 0, on_slab_freed,
                 (void *)(intptr_t)fd, &error) != STATUS_OK)
    closing_memory(fd);
}

void reclaim_extent(struct supervisor *supervisor, uint32_t slab, uint64_t offset) {
  if (catalog_give(&supervisor->catalog, slab, offset))
    reclaim_slab(supervisor, slab);
}

/* ---- weights */

struct leaving {
  struct supervisor *supervisor;
  uint32_t waiting;
  void (*done)(void *user);
  void *user;
};

struct leaving_part {
  struct leaving *leaving;
  uint32_t slab;
  uint64_t offset;
};

static void count_down(struct leaving *leaving) {
  if (--leaving->waiting > 0)
    return;
  if (leaving->done != NULL)
    leaving->done(leaving->user);
  free(leaving);
}

static void on_detached(void *user, struct worker_answer *answer) {
  struct leaving_part *part = user;
  struct leaving *leaving = part->leaving;
  if (answer->status == STATUS_OK || answer->status == STATUS_DEVICE_LOST || answer->status == STATUS_NOT_FOUND)
    reclaim_extent(leaving->supervisor, part->slab, part->offset);
  else /* the worker may still read it: the range is lost until it dies */
    log_error("a weight cannot be taken off its device: %s", answer->error.text);
  free(part);
  count_down(leaving);
}

static void detach(struct leaving *leaving, uint32_t weight, const struct catalog_part *place) {
  struct supervisor *supervisor = leaving->supervisor;
  struct leaving_part *part = malloc(sizeof *part);
  if (part == NULL) {
    log_error("no memory to give a weight's memory back");
    return;
  }
  *part = (struct leaving_part){.leaving = leaving, .slab = place->slab, .offset = place->offset};
  struct message_weight_id body = {.weight = weight};
  struct error error;
  enum status status = worker_ask(&supervisor->fleet->workers[place->device], COMMAND_weight_detach, &body, NULL, 0,
                                  on_detached, part, &error);
  if (status == STATUS_OK) {
    leaving->waiting++;
    return;
  }
  free(part);
  if (status == STATUS_DEVICE_LOST)
    reclaim_extent(supervisor, place->slab, place->offset);
  else
    log_error("a weight cannot be taken off its device: %s", error.text);
}

void reclaim_parts(struct supervisor *supervisor, const struct catalog_weight *weight, void (*done)(void *user),
                   void *user) {
  struct leaving *leaving = malloc(sizeof *leaving);
  if (leaving == NULL) {
    log_error("no memory to give a weight's memory back");
    if (done != NULL)
      done(user);
    return;
  }
  *leaving = (struct leaving){.supervisor = supervisor, .waiting = 1, .done = done, .user = user};
  for (uint32_t i = 0; i < weight->part_count; i++)
    detach(leaving, weight->id, &weight->parts[i]);
  count_down(leaving);
}

void reclaim_weight(struct supervisor *supervisor, struct catalog_weight *weight, void (*done)(void *user),
                    void *user) {
  struct catalog_weight copy = *weight;
  catalog_remove(&supervisor->catalog, weight);
  reclaim_parts(supervisor, &copy, done, user);
}

void reclaim_handle(struct supervisor *supervisor, struct catalog_weight *weight) {
  weight->handles--;
  if (catalog_unused(weight))
    reclaim_weight(supervisor, weight, NULL, NULL);
}
