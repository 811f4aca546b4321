#include "fleet.h"

#include "../../log.h"
#include "../context.h"
#include "../net/notify.h"

#include <stdio.h>
#include <string.h>

static void started(struct worker *worker, const struct message_worker_ready *ready);
static void broken(struct worker *worker, const struct message_session_broken *message);
static void found(struct worker *worker, const struct message_tuning_found *message);
static void stuck(struct worker *worker);
static void lost(struct worker *worker);
static void ended(struct worker *worker);
static void asleep(struct worker *worker);

static const struct worker_hooks hooks = {.started = started,
                                          .session_broken = broken,
                                          .tuning_found = found,
                                          .stuck = stuck,
                                          .lost = lost,
                                          .ended = ended,
                                          .asleep = asleep};

static enum status start_one(struct supervisor *supervisor, struct error *error) {
  struct fleet *fleet = supervisor->fleet;
  struct worker *worker = &fleet->workers[fleet->count];
  worker_init(worker, fleet->count, &supervisor->loop, supervisor->children, &fleet->config, &hooks, supervisor);
  enum status status = worker_start(worker, error);
  if (status == STATUS_OK)
    fleet->count++;
  return status;
}

enum status fleet_start(struct supervisor *supervisor, struct error *error) {
  supervisor->fleet->config = *supervisor->config;
  return start_one(supervisor, error);
}

/* The cpu backend is one device, unless the configuration asks for more: each worker is one then. */
static uint32_t devices_wanted(const struct config *config, const struct message_worker_ready *ready) {
  uint32_t asked = (uint32_t)config->devices, there = ready->devices < 1 ? 1 : ready->devices;
  if (asked != 0 && (asked < there || strcmp(ready->backend, "cpu") == 0))
    return asked;
  return there < LIMIT_DEVICES ? there : LIMIT_DEVICES;
}

static void start_others(struct supervisor *supervisor, const struct message_worker_ready *ready) {
  struct fleet *fleet = supervisor->fleet;
  struct error error;
  fleet->known = true;
  log_info("backend %s: %s", ready->backend, ready->reason);
  snprintf(fleet->config.backend, sizeof fleet->config.backend, "%s", ready->backend);
  snprintf(fleet->reason, sizeof fleet->reason, "%s", ready->reason);
  uint32_t wanted = devices_wanted(supervisor->config, ready);
  while (fleet->count < wanted) {
    if (start_one(supervisor, &error) != STATUS_OK) {
      log_error("worker %u: %s", fleet->count, error.text);
      return;
    }
  }
}

void fleet_ignore_doorbells(struct fleet *fleet, uint32_t device) {
  doorbells_close(fleet->doorbells[device]);
  fleet->doorbells[device] = NULL;
}

static void started(struct worker *worker, const struct message_worker_ready *ready) {
  struct supervisor *supervisor = worker->owner;
  fleet_ignore_doorbells(supervisor->fleet, worker->device);
  log_info("worker %u: process %u has %s, %llu MiB", worker->device, worker->pid, ready->device_name,
           (unsigned long long)(ready->memory_total >> 20));
  if (!supervisor->fleet->known) {
    start_others(supervisor, ready);
    supervisor->hooks->devices_known(supervisor);
  }
  supervisor->hooks->worker_started(supervisor, worker);
}

static void broken(struct worker *worker, const struct message_session_broken *message) {
  struct supervisor *supervisor = worker->owner;
  supervisor->hooks->session_broken(supervisor, message);
}

static void found(struct worker *worker, const struct message_tuning_found *message) {
  struct supervisor *supervisor = worker->owner;
  supervisor->hooks->tuning_found(supervisor, worker->device, message);
}

static void stuck(struct worker *worker) {
  struct supervisor *supervisor = worker->owner;
  if (supervisor->fleet->known && !supervisor->stopping)
    fleet_changed(supervisor);
}

static void lost(struct worker *worker) {
  struct supervisor *supervisor = worker->owner;
  supervisor->hooks->worker_lost(supervisor, worker);
}

static void ended(struct worker *worker) {
  struct supervisor *supervisor = worker->owner;
  if (supervisor->stopping)
    return;
  if (worker->device == 0 && !worker->ever_ready) {
    log_error("no backend could be started");
    supervisor->hooks->stop(supervisor, 1);
    return;
  }
  supervisor->hooks->worker_failed(supervisor, worker);
  fleet_changed(supervisor);
}

static void asleep(struct worker *worker) {
  struct supervisor *supervisor = worker->owner;
  log_info("worker %u: asleep; the weights stay, and what is asked for starts it", worker->device);
  supervisor->hooks->worker_asleep(supervisor, worker);
  supervisor->hooks->devices_changed(supervisor);
}

void fleet_changed(struct supervisor *supervisor) {
  struct fleet *fleet = supervisor->fleet;
  supervisor->hooks->devices_changed(supervisor);
  for (uint32_t i = 0; i < fleet->count; i++)
    if (!worker_settled(&fleet->workers[i]))
      return;
  if (fleet->ready)
    return;
  fleet->ready = true;
  char state[128];
  snprintf(state, sizeof state, "READY=1\nSTATUS=Serving %u device%s, backend %.15s", fleet->count,
           plural(fleet->count), fleet->config.backend);
  notify_send(state);
  log_info("ready: %u device%s", fleet->count, plural(fleet->count));
  supervisor->hooks->fleet_ready(supervisor);
}

void fleet_stop(struct supervisor *supervisor) {
  for (uint32_t i = 0; i < supervisor->fleet->count; i++) {
    fleet_ignore_doorbells(supervisor->fleet, i);
    worker_stop(&supervisor->fleet->workers[i]);
  }
}
