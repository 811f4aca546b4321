#include "idle.h"

#include "../../log.h"
#include "../context.h"
#include "../session/publishing.h"
#include "../workers/fleet.h"
#include "device_load.h"
#include "own_memory.h"
#include "quiet.h"
#include "usage.h"
#include "verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  LOOK_MS = 100,            /* while somebody computes directly: a pause may be short */
  SELDOM_MS = 1000,         /* else */
  STATS_MS = 500,           /* between two questions for a worker's counters */
  ERRAND_MS = 60000,        /* between two starts of a sleeping worker for work in the background */
  ERRAND_IN_USE_MS = 10000, /* that it stays for that while its device is used */
};

struct idle_device {
  struct idle *idle;
  struct quiet quiet;
  uint64_t allowed_ns; /* until when nobody minds, as of the last look; UINT64_MAX: nobody is there to mind */
  uint32_t told_pid;   /* the process that was told, */
  uint64_t told_ns;    /* and what */
  uint32_t seen_asked; /* answers to weight_seen that are due */
  bool stats_asked;    /* an answer to worker_stats is due */
  uint64_t stats_ms;   /* when that was asked for last */
  uint32_t stats_pid;  /* the process that answered last */
  bool seen_since;     /* it was told of shapes since that question */
  bool tuned;          /* it had nothing to tune then */
  uint64_t requests;   /* completed, as of the last answer */
  uint64_t busy_ms;    /* when these last changed */
  uint64_t errand_ms;  /* when it was last started for work in the background; 0: never */
  uint64_t in_use_ms;  /* since when its device is in use, during such work; 0: it is not */
  struct verify verify;
};

struct idle {
  struct supervisor *supervisor;
  const struct idle_hooks *hooks;
  struct device_load *load; /* owned; NULL: there is no NVML, or no need for it */
  bool asked_for_load;
  uv_timer_t timer;
  struct idle_device devices[LIMIT_DEVICES];
};

static struct worker *worker_of(const struct idle_device *device) {
  struct fleet *fleet = device->idle->supervisor->fleet;
  return &fleet->workers[device - device->idle->devices];
}

/* ---- how quiet it is */

static bool on_gpu(const struct supervisor *supervisor) {
  return strcmp(supervisor->fleet->config.backend, "cuda") == 0;
}

static uint64_t look_around(struct idle_device *device, const struct usage *usage, uint64_t now_ns) {
  struct idle *idle = device->idle;
  struct worker *worker = worker_of(device);
  struct quiet_sight sight = {.now_ns = now_ns,
                              .quiet_ns = (uint64_t)idle->supervisor->config->device_quiet_ms * 1000000u,
                              .pause_until_ns = usage->pause_until_ns,
                              .products = usage->products,
                              .hidden = on_gpu(idle->supervisor)};
  if (idle->load != NULL) {
    struct device_reading reading = device_load_read(idle->load, worker->device);
    sight.measured = reading.measured && now_ns - reading.at_ns < QUIET_SETTLE_NS;
    sight.busy = reading.busy;
  }
  return quiet_look(&device->quiet, &sight);
}

/* ---- what the worker is told */

static void on_told(void *user, struct worker_answer *answer) {
  (void)answer; /* a worker that died is followed by one that hears of it again */
}

static void tell_quiet(struct idle_device *device) {
  struct worker *worker = worker_of(device);
  struct message_worker_quiet body = {.until_ns = device->allowed_ns};
  struct error error;
  if (device->told_pid == worker->pid && device->told_ns == device->allowed_ns)
    return;
  if (worker_ask(worker, COMMAND_worker_quiet, &body, NULL, 0, on_told, NULL, &error) != STATUS_OK)
    return;
  device->told_pid = worker->pid;
  device->told_ns = device->allowed_ns;
}

static void on_seen(void *user, struct worker_answer *answer) {
  struct idle_device *device = user;
  (void)answer; /* a shape that cannot be is the client's own affair */
  device->seen_asked--;
}

static void tell_shapes(struct idle_device *device) {
  struct worker *worker = worker_of(device);
  struct untuned *untuned = &device->idle->supervisor->publishing->untuned[worker->device];
  const struct message_weight_seen *seen;
  struct error error;
  while ((seen = untuned_tell(untuned)) != NULL) {
    device->seen_since = true;
    if (worker_ask(worker, COMMAND_weight_seen, seen, NULL, 0, on_seen, device, &error) == STATUS_OK)
      device->seen_asked++;
  }
}

/* ---- what it says */

static void on_stats(void *user, struct worker_answer *answer) {
  struct idle_device *device = user;
  struct worker *worker = worker_of(device);
  device->stats_asked = false;
  if (answer->status != STATUS_OK)
    return;
  const struct message_worker_stats *stats = &answer->body->worker_stats;
  worker->stats = *stats;
  if (device->stats_pid != worker->pid || device->requests != stats->requests || stats->waiting > 0) {
    device->busy_ms = uv_now(worker->loop);
    worker->errand &= device->stats_pid != worker->pid && stats->requests == 0 && stats->waiting == 0;
  }
  device->stats_pid = worker->pid;
  device->requests = stats->requests;
  device->tuned = !stats->tuning && !device->seen_since && device->seen_asked == 0;
  if (device->tuned)
    untuned_done(&device->idle->supervisor->publishing->untuned[worker->device]);
}

static void ask_stats(struct idle_device *device, uint64_t now_ms) {
  const struct message_empty body = {.reserved = 0};
  struct worker *worker = worker_of(device);
  struct error error;
  if (device->stats_asked || now_ms - device->stats_ms < STATS_MS || device->seen_asked > 0)
    return;
  if (worker_ask(worker, COMMAND_worker_stats, &body, NULL, 0, on_stats, device, &error) != STATUS_OK)
    return;
  device->stats_asked = true;
  device->seen_since = false;
  device->stats_ms = now_ms;
}

/* ---- sleep */

static bool has_errand(const struct idle_device *device, uint64_t now_ms) {
  const struct supervisor *supervisor = device->idle->supervisor;
  const struct worker *worker = worker_of(device);
  bool shapes =
      supervisor->publishing->untuned[worker->device].count > 0 && strcmp(supervisor->config->tune, "off") != 0;
  return shapes || verify_due(&device->verify, supervisor, worker->device, now_ms);
}

/* The process that serves has answered lately, and had nothing to do. */
static bool is_done(const struct idle_device *device, uint64_t now_ms) {
  return device->stats_pid == worker_of(device)->pid && device->tuned && !has_errand(device, now_ms);
}

/* An errand that is done, or that its device has no time for, ends at once; else it is a matter of time. */
static bool is_over(struct idle_device *device, const struct usage *usage, uint64_t now_ms) {
  const struct worker *worker = worker_of(device);
  uint64_t idle_ms = (uint64_t)device->idle->supervisor->config->worker_idle_s * 1000;
  uint64_t since_ms = worker->asked_ms > device->busy_ms ? worker->asked_ms : device->busy_ms;
  bool allowed = device->allowed_ns > 0 || device->quiet.why == QUIET_LOOKING;
  if (idle_ms == 0 || usage->served || device->stats_pid != worker->pid || device->verify.asked)
    return false;
  if (device->in_use_ms == 0 || allowed)
    device->in_use_ms = allowed ? 0 : now_ms;
  if (worker->errand)
    return is_done(device, now_ms) || (device->in_use_ms != 0 && now_ms - device->in_use_ms > ERRAND_IN_USE_MS);
  uint64_t quiet_ms = now_ms - since_ms;
  return quiet_ms >= idle_ms && (!allowed || is_done(device, now_ms) || quiet_ms >= 2 * idle_ms);
}

static void wake_for_errand(struct idle_device *device, uint64_t now_ms) {
  bool waits = device->errand_ms != 0 && now_ms - device->errand_ms < ERRAND_MS;
  if (device->allowed_ns == 0 || !has_errand(device, now_ms) || (waits && device->quiet.why != QUIET_PAUSED))
    return;
  device->errand_ms = now_ms;
  log_info("worker %u: started for work in the background: its device is not in use", worker_of(device)->device);
  worker_wake(worker_of(device), true);
}

/* ---- looks */

static void look_at_worker(struct idle_device *device, const struct usage *usage, uint64_t now_ms, uint64_t now_ns) {
  struct supervisor *supervisor = device->idle->supervisor;
  struct worker *worker = worker_of(device);
  if (device->stats_pid != worker->pid && device->told_pid != worker->pid)
    untuned_again(&supervisor->publishing->untuned[worker->device]);
  tell_quiet(device);
  tell_shapes(device);
  ask_stats(device, now_ms);
  if (device->allowed_ns > now_ns)
    verify_go_on(&device->verify, supervisor, worker, now_ms);
  if (is_over(device, usage, now_ms))
    (void)worker_sleep(worker);
}

static void look_at(struct idle_device *device, uint64_t now_ms, uint64_t now_ns) {
  struct idle *idle = device->idle;
  struct worker *worker = worker_of(device);
  struct usage usage = usage_of(idle->supervisor, worker->device, now_ns);
  if (idle->load != NULL)
    device_load_watch(idle->load, worker->device, worker->ready.device_uuid, worker->pid);
  device->allowed_ns = usage.direct ? look_around(device, &usage, now_ns) : UINT64_MAX;
  if (worker->state == WORKER_READY)
    look_at_worker(device, &usage, now_ms, now_ns);
  else if (worker->state == WORKER_ASLEEP)
    wake_for_errand(device, now_ms);
}

static void on_timer(uv_timer_t *timer) {
  struct idle *idle = timer->data;
  struct supervisor *supervisor = idle->supervisor;
  uint64_t now_ms = uv_now(&supervisor->loop), now_ns = uv_hrtime();
  if (!idle->asked_for_load && supervisor->fleet->known) {
    idle->asked_for_load = true;
    if (on_gpu(supervisor))
      idle->load = device_load_open();
    if (on_gpu(supervisor) && idle->load == NULL)
      log_info("NVML is not there: what uses a device beside gemmd is known by its own word alone");
  }
  for (uint32_t i = 0; i < supervisor->fleet->count; i++)
    look_at(&idle->devices[i], now_ms, now_ns);
  uint64_t period_ms = supervisor->publishing->rings > 0 ? LOOK_MS : SELDOM_MS;
  if (uv_timer_get_repeat(timer) != period_ms)
    uv_timer_start(timer, on_timer, period_ms, period_ms);
}

void idle_describe(const struct idle *idle, uint32_t device, struct message_device_status *out) {
  if (idle == NULL)
    return;
  const struct idle_device *of = &idle->devices[device];
  const struct worker *worker = worker_of(of);
  struct device_reading reading = {.measured = false};
  if (idle->load != NULL)
    reading = device_load_read(idle->load, device);
  out->memory_own = own_memory(worker, on_gpu(idle->supervisor), &reading, out->memory_slabs);
  out->naps = worker->naps;
  out->untuned = idle->supervisor->publishing->untuned[device].count;
  out->verified = of->verify.verified;
  out->damaged = of->verify.damaged_count;
  if (of->allowed_ns == UINT64_MAX)
    return;
  snprintf(out->quiet, sizeof out->quiet, "%s", quiet_text(of->quiet.why));
  out->quiet_ms = (uv_hrtime() - of->quiet.since_ns) / 1000000;
}

struct idle *idle_start(struct supervisor *supervisor, const struct idle_hooks *hooks) {
  struct idle *idle = calloc(1, sizeof *idle);
  if (idle == NULL) {
    log_error("no memory to look after idle devices");
    return NULL;
  }
  idle->supervisor = supervisor;
  idle->hooks = hooks;
  for (uint32_t i = 0; i < LIMIT_DEVICES; i++) {
    idle->devices[i].idle = idle;
    verify_init(&idle->devices[i].verify, supervisor, hooks->damaged);
  }
  uv_timer_init(&supervisor->loop, &idle->timer);
  idle->timer.data = idle;
  uv_timer_start(&idle->timer, on_timer, LOOK_MS, LOOK_MS);
  return idle;
}

void idle_stop(struct idle *idle) {
  if (idle != NULL)
    uv_close((uv_handle_t *)&idle->timer, NULL);
}

void idle_free(struct idle *idle) {
  if (idle == NULL)
    return;
  device_load_close(idle->load);
  free(idle);
}
