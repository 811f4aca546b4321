#include "recovery.h"

#include "context.h"
#include "serving.h"

#include <stdio.h>

static void finish(struct supervisor *supervisor, struct worker *worker) {
  worker_serves(worker);
  struct session *session;
  for (session = TAILQ_FIRST(&supervisor->sessions.list); session != NULL; session = TAILQ_NEXT(session, link))
    if (serving_wanted(session))
      arena_worker_ready(&session->arena, worker->device);
  fleet_changed(supervisor);
}

static void on_answer(void *user, struct worker_answer *answer) {
  struct worker *worker = user;
  if (answer->status == STATUS_DEVICE_LOST)
    return; /* it died again; its successor starts afresh */
  if (answer->status != STATUS_OK) {
    char why[ERROR_TEXT_BYTES + 32];
    snprintf(why, sizeof why, "it cannot take over: %s", answer->error.text);
    worker_kill(worker, why);
    return;
  }
  if (--worker->recovering == 0 && worker->state == WORKER_RECOVERING)
    finish(worker->owner, worker);
}

static void ask(struct worker *worker, enum command command, const void *body, const int *fds, size_t fd_count) {
  struct error error;
  worker->recovering++;
  if (worker_ask(worker, command, body, fds, fd_count, on_answer, worker, &error) != STATUS_OK)
    worker_kill(worker, error.text);
}

static void give_slabs(const struct catalog *catalog, struct worker *worker) {
  for (size_t i = 0; i < catalog->slab_count; i++) {
    const struct catalog_slab *slab = catalog->slabs[i];
    if (slab->device != worker->device)
      continue;
    struct message_slab_import body = {.slab = slab->id, .bytes = slab->bytes};
    ask(worker, COMMAND_slab_import, &body, &slab->fd, 1);
  }
}

static void give_weights(const struct catalog *catalog, struct worker *worker) {
  for (size_t i = 0; i < catalog->weight_count; i++) {
    const struct catalog_weight *weight = catalog->weights[i];
    for (uint32_t p = 0; p < weight->part_count; p++) {
      if (weight->parts[p].device != worker->device)
        continue;
      struct message_weight_place body = placer_place(weight, &weight->parts[p]);
      ask(worker, COMMAND_weight_attach, &body, NULL, 0);
      pins_apply_part(worker->owner, weight, worker);
    }
  }
}

static void give_session(struct session *session, struct worker *worker) {
  struct message_session_add body = serving_message(session, worker->device);
  int fds[SERVING_FDS];
  serving_descriptors(session, worker->device, fds);
  ask(worker, COMMAND_session_add, &body, fds, SERVING_FDS);
  for (size_t i = 0; i < session->opened.count; i++) {
    uint32_t handle = opened_at(&session->opened, i);
    if (handle == 0 || session->opened.slots[i].device != worker->device)
      continue;
    struct message_session_weight weight = {
        .session = session->id, .handle = handle, .weight = session->opened.slots[i].weight->id};
    ask(worker, COMMAND_session_weight_add, &weight, NULL, 0);
  }
}

void recovery_begin(struct supervisor *supervisor, struct worker *worker) {
  worker->recovering = 1; /* this function's own, so that no answer finishes before all has been asked */
  give_slabs(&supervisor->catalog, worker);
  give_weights(&supervisor->catalog, worker);
  struct session *session;
  for (session = TAILQ_FIRST(&supervisor->sessions.list); session != NULL; session = TAILQ_NEXT(session, link))
    if (serving_wanted(session))
      give_session(session, worker);
  if (--worker->recovering == 0 && worker->state == WORKER_RECOVERING)
    finish(supervisor, worker);
}

void recovery_worker_lost(struct supervisor *supervisor, struct worker *worker) {
  struct session *session;
  for (session = TAILQ_FIRST(&supervisor->sessions.list); session != NULL; session = TAILQ_NEXT(session, link))
    if (session->arena.rings != NULL)
      arena_worker_lost(&session->arena, worker->device);
  placer_worker_lost(supervisor, worker->device);
}

void recovery_worker_failed(struct supervisor *supervisor, struct worker *worker) {
  struct session *session;
  for (session = TAILQ_FIRST(&supervisor->sessions.list); session != NULL; session = TAILQ_NEXT(session, link))
    if (session->arena.rings != NULL)
      arena_worker_failed(&session->arena, worker->device);
  placer_devices_changed(supervisor);
}
