#include "sleep.h"

#include "../../log.h"
#include "../context.h"
#include "../session/session.h"
#include "fleet.h"

static void wake(struct worker *worker) {
  struct supervisor *supervisor = worker->owner;
  fleet_ignore_doorbells(supervisor->fleet, worker->device);
  worker_wake(worker, false);
}

/* One that was rung long ago tells of nothing. */
static void on_doorbell(void *user) {
  struct worker *worker = user;
  struct supervisor *supervisor = worker->owner;
  const struct session *session;
  bool submitted = false;
  for (session = TAILQ_FIRST(&supervisor->sessions->list); session != NULL; session = TAILQ_NEXT(session, link))
    submitted |= session_served(session) && arena_worker_asleep(&session->arena, worker->device);
  if (submitted)
    wake(worker);
}

/* What is submitted there from now on is heard. False: something has been, or it cannot be heard. */
static bool listens(struct supervisor *supervisor, const struct arena *arena, uint32_t device) {
  struct doorbells **doorbells = &supervisor->fleet->doorbells[device];
  struct error error;
  enum status status = STATUS_OK;
  if (*doorbells == NULL)
    status = doorbells_open(&supervisor->loop, on_doorbell, &supervisor->fleet->workers[device], doorbells, &error);
  if (status == STATUS_OK)
    status = doorbells_add(*doorbells, arena->doorbells[device], &error);
  if (status == STATUS_OK)
    return !arena_worker_asleep(arena, device);
  log_warning("worker %u: it does not sleep: %s", device, error.text);
  return false;
}

void sleep_listen(struct supervisor *supervisor, const struct arena *arena, uint32_t device) {
  struct worker *worker = &supervisor->fleet->workers[device];
  if (worker->state == WORKER_ASLEEP && !listens(supervisor, arena, device))
    wake(worker);
}

void sleep_begun(struct supervisor *supervisor, struct worker *worker) {
  const struct session *session;
  for (session = TAILQ_FIRST(&supervisor->sessions->list); session != NULL; session = TAILQ_NEXT(session, link))
    if (session_served(session))
      sleep_listen(supervisor, &session->arena, worker->device);
}
