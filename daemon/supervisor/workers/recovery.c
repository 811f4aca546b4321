#include "recovery.h"

#include "../../log.h"
#include "../context.h"
#include "../session/serving.h"
#include "../session/session.h"
#include "../weights/lend.h"
#include "../weights/loading/placer.h"
#include "../weights/pins.h"
#include "../weights/store.h"
#include "fleet.h"

#include <stdio.h>
#include <stdlib.h>

static void finish(struct supervisor *supervisor, struct worker *worker) {
  if (worker->verified > 0)
    log_info("worker %u: the checksums of %u weight%s, %llu MiB, agree with what was loaded", worker->device,
             worker->verified, plural(worker->verified), (unsigned long long)(worker->verified_bytes >> 20));
  worker_serves(worker);
  struct session *session;
  for (session = TAILQ_FIRST(&supervisor->sessions->list); session != NULL; session = TAILQ_NEXT(session, link))
    if (session_served(session))
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

/* ---- weights that the worker cannot serve: damaged by whatever ended the one before, or refused, as of a layout that
 * its program does not know */

struct attaching {
  struct worker *worker;
  uint32_t weight;
  uint64_t verified_bytes; /* 0: it is attached as it is */
};

/* Whoever takes this worker's place would refuse it, too. */
static bool is_refused(const struct worker_answer *answer) {
  return answer->status == STATUS_UNSUPPORTED || answer->status == STATUS_INVALID;
}

static void on_attached(void *user, struct worker_answer *answer) {
  struct attaching *attaching = user;
  struct worker *worker = attaching->worker;
  struct supervisor *supervisor = worker->owner;
  struct catalog_weight *weight = catalog_find_id(&supervisor->catalog, attaching->weight);
  bool damaged = answer->status == STATUS_OK && answer->body->weight_placed.damaged;
  if (damaged && weight != NULL)
    lend_withdraw(supervisor, weight, "was damaged on its device");
  if (answer->status == STATUS_OK && !damaged && attaching->verified_bytes > 0) {
    worker->verified++;
    worker->verified_bytes += attaching->verified_bytes;
  }
  if (is_refused(answer)) {
    char what[ERROR_TEXT_BYTES + 48];
    snprintf(what, sizeof what, "is refused by worker %u (%s)", worker->device, answer->error.text);
    if (weight != NULL)
      lend_withdraw(supervisor, weight, what);
    answer->status = STATUS_OK;
  }
  on_answer(worker, answer);
  free(attaching);
}

static void ask_attach(struct worker *worker, const struct message_weight_place *body) {
  struct error error;
  struct attaching *attaching = malloc(sizeof *attaching);
  if (attaching == NULL) {
    worker_kill(worker, "there is no memory to look after it");
    return;
  }
  *attaching =
      (struct attaching){.worker = worker, .weight = body->weight, .verified_bytes = body->verify ? body->bytes : 0};
  worker->recovering++;
  if (worker_ask(worker, COMMAND_weight_attach, body, NULL, 0, on_attached, attaching, &error) == STATUS_OK)
    return;
  free(attaching);
  worker_kill(worker, error.text);
}

/* ---- what a worker is told */

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
      body.verify = worker->suspect;
      ask_attach(worker, &body);
      pins_apply_part(worker->owner, weight, worker);
    }
  }
}

/* Something of a session. */
struct giving {
  struct worker *worker;
  uint32_t session;
};

static struct giving *make_giving(struct worker *worker, const struct session *session) {
  struct giving *giving = malloc(sizeof *giving);
  if (giving == NULL) {
    worker_kill(worker, "there is no memory to look after it");
    return NULL;
  }
  *giving = (struct giving){.worker = worker, .session = session->id};
  return giving;
}

/* What a client gave must not keep a worker from serving: what cannot be opened again ends its session. */
static void on_mapped(void *user, struct worker_answer *answer) {
  struct giving *giving = user;
  struct supervisor *supervisor = giving->worker->owner;
  struct session *session = session_find(supervisor, giving->session);
  if (answer->status != STATUS_OK && answer->status != STATUS_DEVICE_LOST) {
    log_warning("session %u: its own memory or event cannot be opened again: %s", giving->session, answer->error.text);
    if (session != NULL)
      session_end(session, "its own memory or event cannot be opened again");
    answer->status = STATUS_OK;
  }
  on_answer(giving->worker, answer);
  free(giving);
}

static void ask_tensor(struct worker *worker, const struct session *session, size_t slot) {
  struct error error;
  struct giving *giving = make_giving(worker, session);
  if (giving == NULL)
    return;
  worker->recovering++;
  if (serving_give_tensor(session, slot, worker, on_mapped, giving, &error) == STATUS_OK)
    return;
  free(giving);
  worker_kill(worker, error.text);
}

/* There is no weight for it where that was refused, and the session has ended then. */
static void on_handle(void *user, struct worker_answer *answer) {
  struct giving *giving = user;
  if (answer->status == STATUS_NOT_FOUND && session_find(giving->worker->owner, giving->session) == NULL)
    answer->status = STATUS_OK;
  on_answer(giving->worker, answer);
  free(giving);
}

static void ask_handle(struct worker *worker, const struct session *session, uint32_t handle, uint32_t weight) {
  struct message_session_weight body = {.session = session->id, .handle = handle, .weight = weight};
  struct error error;
  struct giving *giving = make_giving(worker, session);
  if (giving == NULL)
    return;
  worker->recovering++;
  if (worker_ask(worker, COMMAND_session_weight_add, &body, NULL, 0, on_handle, giving, &error) == STATUS_OK)
    return;
  free(giving);
  worker_kill(worker, error.text);
}

static void give_session(struct session *session, struct worker *worker) {
  struct message_session_add body = serving_message(session, worker->device);
  int fds[SERVING_FDS];
  serving_descriptors(session, worker->device, fds);
  ask(worker, COMMAND_session_add, &body, fds, SERVING_FDS);
  for (size_t i = 0; i < session->opened.count; i++) {
    uint32_t handle = opened_at(&session->opened, i);
    const struct opened_slot *slot = &session->opened.slots[i];
    if (handle != 0 && slot->device == worker->device && !slot->closing)
      ask_handle(worker, session, handle, slot->weight->id);
  }
  for (size_t i = 0; i < LIMIT_SESSION_TENSORS; i++)
    if (session->tensors.slots[i].open && session->tensors.slots[i].device == worker->device)
      ask_tensor(worker, session, i);
}

static void tell_of_predecessor(struct worker *worker) {
  struct message_worker_follow body = {.outside = !worker->suspect, .faults = worker->faults};
  if (worker->restarts > 0)
    ask(worker, COMMAND_worker_follow, &body, NULL, 0);
}

void recovery_begin(struct supervisor *supervisor, struct worker *worker) {
  worker->verified = 0;
  worker->verified_bytes = 0;
  worker->recovering = 1; /* this function's own, so that no answer finishes before all has been asked */
  tell_of_predecessor(worker);
  give_slabs(&supervisor->catalog, worker);
  give_weights(&supervisor->catalog, worker);
  struct session *session;
  for (session = TAILQ_FIRST(&supervisor->sessions->list); session != NULL; session = TAILQ_NEXT(session, link))
    if (session_served(session))
      give_session(session, worker);
  if (--worker->recovering == 0 && worker->state == WORKER_RECOVERING)
    finish(supervisor, worker);
}

void recovery_worker_lost(struct supervisor *supervisor, struct worker *worker) {
  struct session *session;
  for (session = TAILQ_FIRST(&supervisor->sessions->list); session != NULL; session = TAILQ_NEXT(session, link))
    if (session->arena.rings != NULL)
      arena_worker_lost(&session->arena, worker->device);
  placer_worker_lost(supervisor, worker->device);
}

void recovery_worker_failed(struct supervisor *supervisor, struct worker *worker) {
  struct session *session;
  for (session = TAILQ_FIRST(&supervisor->sessions->list); session != NULL; session = TAILQ_NEXT(session, link))
    if (session->arena.rings != NULL)
      arena_worker_failed(&session->arena, worker->device);
  placer_devices_changed(supervisor);
}
