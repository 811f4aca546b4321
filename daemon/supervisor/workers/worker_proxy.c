#include "worker_proxy.h"

#include "../../../proto/shm/published.h"
#include "../../log.h"

#include <stdio.h>
#include <string.h>

enum { STILL_THERE_MS = 50 /* for a spare one that is being ended when the next try is due */ };

void worker_init(struct worker *worker, uint32_t device, uv_loop_t *loop, const char *program,
                 const struct config *config, const struct worker_hooks *hooks, void *owner) {
  *worker = (struct worker){.device = device,
                            .loop = loop,
                            .program = program,
                            .config = config,
                            .hooks = hooks,
                            .owner = owner,
                            .exit_status = -1,
                            .suspect = true};
  requests_init(&worker->requests);
  TAILQ_INIT(&worker->parked);
}

struct totals worker_totals(const struct worker *worker) {
  struct totals totals = worker->past;
  totals_add(&totals, &worker->stats);
  return totals;
}

bool worker_settled(const struct worker *worker) {
  return worker_usable(worker) || worker->failed || worker->stuck;
}

bool worker_usable(const struct worker *worker) {
  return worker->state == WORKER_READY || worker->state == WORKER_ASLEEP;
}

const char *worker_state_name(const struct worker *worker) {
  return worker->state == WORKER_READY ? "ready"
         : worker->nap == NAP_ASLEEP   ? "asleep"
         : worker->failed              ? "failed"
                                       : "starting";
}

/* ---- requests */

/* To one that sleeps, or is on its way there or back. True: the request waits until it serves. */
static bool parks(struct worker *worker, enum command command, const void *body, size_t fd_count, worker_done done,
                  void *user, enum status *status, struct error *error) {
  enum parked_way way = parked_way(command);
  bool waits = way == PARKED_WAITS && fd_count == 0;
  if (waits)
    *status = parked_add(&worker->parked, command, body, done, user, error);
  if (way != PARKED_NEEDS_NONE)
    worker_wake(worker, false);
  return waits;
}

enum status worker_ask(struct worker *worker, enum command command, const void *body, const int *fds, size_t fd_count,
                       worker_done done, void *user, struct error *error) {
  bool takes = worker->state == WORKER_RECOVERING || worker->state == WORKER_READY;
  /* Who looks at its list, again and again perhaps, does not want it for anything. */
  if (worker->state != WORKER_RECOVERING && !request_is_background(command) && command != COMMAND_tune_list &&
      parked_way(command) != PARKED_NEEDS_NONE) {
    worker->asked_ms = uv_now(worker->loop);
    worker->errand = false;
  }
  enum status status = STATUS_OK;
  if (!takes && worker->nap != NAP_NONE && !worker->stopping &&
      parks(worker, command, body, fd_count, done, user, &status, error))
    return status;
  if (!takes && (worker->state != WORKER_DYING || request_needs_no_end(command)))
    return error_set(error, STATUS_DEVICE_LOST, "device %u has no worker at the moment%s", worker->device,
                     worker->nap == NAP_ASLEEP ? ": it sleeps until it is asked for something" : "");
  /* To a worker that is dying nothing is sent, but the answer DEVICE_LOST comes only once it is reaped. */
  return requests_send(&worker->requests, command, takes ? &worker->process->channel : NULL, body, fds, fd_count, done,
                       user, error);
}

static void send_parked(struct worker *worker) {
  struct parked_request *request;
  while ((request = parked_take(&worker->parked)) != NULL) {
    struct worker_answer answer = {.fd = -1};
    answer.status =
        worker_ask(worker, request->command, request->body, NULL, 0, request->done, request->user, &answer.error);
    if (answer.status != STATUS_OK)
      request->done(request->user, &answer);
    parked_free(request);
  }
}

/* ---- does it still answer, and get on?

 * Its control thread answers worker_stats at once, whatever the device does, and says since when its engine has done
 * nothing although there is something to do. */

static void check_progress(struct worker *worker) {
  uint64_t most_s = (uint64_t)worker->config->device_timeout_s, stuck_s = worker->stats.stuck_ns / 1000000000u;
  char why[96];
  if (most_s == 0 || stuck_s < most_s || worker->state == WORKER_DYING)
    return;
  snprintf(why, sizeof why, "its device has got nowhere for %llu s", (unsigned long long)stuck_s);
  worker_kill(worker, why);
}

static void on_stats(void *user, struct worker_answer *answer) {
  struct worker *worker = user;
  if (answer->status != STATUS_OK)
    return; /* it is gone by now */
  worker->stats = answer->body->worker_stats;
  watch_answered(&worker->watch);
  check_progress(worker);
}

static bool read_more(void *owner) {
  struct worker *worker = owner;
  channel_drain(&worker->process->channel);
  return worker->state != WORKER_DYING;
}

static void ask_stats(void *owner) {
  struct worker *worker = owner;
  const struct message_empty body = {.reserved = 0};
  struct error error;
  if (worker_ask(worker, COMMAND_worker_stats, &body, NULL, 0, on_stats, worker, &error) != STATUS_OK)
    worker_kill(worker, error.text);
}

static void kill_silent(void *owner, const char *why) {
  worker_kill(owner, why);
}

static void take_ready(struct worker *worker, const struct message_worker_ready *ready) {
  worker->ready = *ready;
  worker->state = WORKER_RECOVERING;
  worker->nap = NAP_NONE;
  worker->ever_ready = true;
  watch_serving(&worker->watch);
  worker->hooks->started(worker, &worker->ready);
}

static enum status take_event(struct worker *worker, uint32_t code, struct message_body body, struct error *error) {
  struct message_session_broken broken;
  struct message_worker_ready ready;
  struct message_tuning_found found;
  enum status status;
  switch (code) {
  case EVENT_worker_ready:
    if (worker->state != WORKER_STARTING)
      return error_set(error, STATUS_PROTOCOL, "worker_ready came twice");
    status = message_decode_body(body, &message_worker_ready_type, &ready, error);
    if (status == STATUS_OK)
      take_ready(worker, &ready);
    return status;
  case EVENT_tuning_found:
    status = message_decode_body(body, &message_tuning_found_type, &found, error);
    if (status == STATUS_OK && found.kind > PUBLISHED_COMPILED)
      status = error_set(error, STATUS_PROTOCOL, "a kernel of kind %u was found", found.kind);
    if (status == STATUS_OK)
      worker->hooks->tuning_found(worker, &found);
    return status;
  case EVENT_session_broken:
    status = message_decode_body(body, &message_session_broken_type, &broken, error);
    if (status == STATUS_OK)
      worker->hooks->session_broken(worker, &broken);
    return status;
  default:
    return error_set(error, STATUS_PROTOCOL, "event %u is unknown", code);
  }
}

/* All that the next one has to say before it serves. */
static enum status take_word_of_next(struct worker *worker, const struct message_head *head, struct message_body body,
                                     struct error *error) {
  if (head->kind != MESSAGE_EVENT || head->code != EVENT_worker_ready || worker->next_ready)
    return error_set(error, STATUS_PROTOCOL, "message %u of kind %d before it serves", head->code, (int)head->kind);
  enum status status = message_decode_body(body, &message_worker_ready_type, &worker->next_says, error);
  worker->next_ready = status == STATUS_OK;
  if (worker->next_ready && worker->state == WORKER_READY)
    log_info("worker %u: process %u stands by", worker->device, worker->next->pid);
  return status;
}

static void on_packet(struct worker_process *process, struct packet *packet) {
  struct worker *worker = process->owner;
  struct message_head head;
  struct message_body body;
  struct error error;
  enum status status = message_decode_head(packet->bytes, packet->length, &head, &body, &error);
  if (process == worker->next) {
    if (status == STATUS_OK)
      status = take_word_of_next(worker, &head, body, &error);
    if (status != STATUS_OK) {
      log_error("worker %u: process %u, the next one, is killed: %s", worker->device, process->pid, error.text);
      worker_process_close(process, true);
    }
    return;
  }
  if (status == STATUS_OK && head.kind == MESSAGE_REPLY)
    status = requests_answer(&worker->requests, &head, body, packet, &error);
  else if (status == STATUS_OK && head.kind == MESSAGE_EVENT)
    status = take_event(worker, head.code, body, &error);
  else if (status == STATUS_OK)
    status = error_set(&error, STATUS_PROTOCOL, "a worker sent a request");
  if (status != STATUS_OK)
    worker_kill(worker, error.text);
}

/* ---- life and death */

static const struct worker_process_events events;
static const struct watch_hooks watched;

/* Ahead of time: while it opens its device, the one before serves, or dies. */
static void start_next(struct worker *worker) {
  struct error error;
  if (worker->next != NULL || worker->stopping || worker->nap != NAP_NONE)
    return;
  if (worker_process_start(worker->loop, worker->program, worker->device, true, worker->config, &events, worker,
                           &worker->next, &error) == STATUS_OK)
    worker->next_ready = false;
  else
    log_error("worker %u: %s", worker->device, error.text);
}

static void begin(struct worker *worker, struct worker_process *process) {
  worker->process = process;
  worker->pid = process->pid;
  worker->open = 1;
  worker->blamed = false;
  worker->state = WORKER_STARTING;
  worker->open += watch_start(&worker->watch, worker->loop, worker->config, &watched, worker);
}

static void blame(struct worker *worker, const char *why) {
  if (!worker->blamed)
    snprintf(worker->why, sizeof worker->why, "%s", why);
  worker->blamed = true;
}

static bool spare_wanted(const struct worker *worker) {
  return worker->config->worker_spare != 0 &&
         restarts_at_once(&worker->policy, worker->config->worker_restarts_max, uv_now(worker->loop));
}

static uint64_t next_pause_ms(struct worker *worker) {
  uint64_t mixed = (uv_hrtime() ^ (uint64_t)worker->device << 32) * 0x9e3779b97f4a7c15u;
  return restarts_pause_ms(&worker->policy, worker->config->worker_restarts_max,
                           (uint64_t)worker->config->worker_pause_s * 1000, uv_now(worker->loop),
                           (uint32_t)(mixed >> 32));
}

static void replace_after(struct worker *worker, uint64_t pause_ms);

static void replace(struct worker *worker) {
  worker->restarts++;
  log_warning("worker %u: restart %u", worker->device, worker->restarts);
  start_next(worker);
  if (worker->next == NULL) {
    replace_after(worker, next_pause_ms(worker));
    return;
  }
  begin(worker, worker->next);
  worker->next = NULL;
  if (worker->next_ready)
    take_ready(worker, &worker->next_says);
  worker->next_ready = false;
}

static void on_retry_closed(uv_handle_t *handle) {
  struct worker *worker = handle->data;
  worker->waits = false;
  if (!worker->stopping)
    replace(worker);
}

static void on_retry(uv_timer_t *timer) {
  struct worker *worker = timer->data;
  if (worker->next != NULL)
    uv_timer_start(timer, on_retry, STILL_THERE_MS, 0);
  else
    uv_close((uv_handle_t *)timer, on_retry_closed);
}

/* Sessions and loads do not wait for it: it is tried again, but nobody knows whether that helps. */
static void replace_after(struct worker *worker, uint64_t pause_ms) {
  log_error("worker %u: its device has failed (%s); restart %u follows in %.1f s, or by gemmctl device retry",
            worker->device, worker->why, worker->restarts + 1, (double)pause_ms / 1e3);
  worker->state = WORKER_FAILED;
  worker->failed = worker->waits = true;
  worker->retry_ms = uv_now(worker->loop) + pause_ms;
  if (worker->next != NULL)
    worker_process_close(worker->next, false);
  uv_timer_init(worker->loop, &worker->retry);
  worker->retry.data = worker;
  uv_timer_start(&worker->retry, on_retry, pause_ms, 0);
  worker->hooks->ended(worker);
}

bool worker_retry(struct worker *worker) {
  restarts_forget(&worker->policy);
  if (!worker->waits || uv_is_closing((const uv_handle_t *)&worker->retry))
    return false;
  uv_timer_start(&worker->retry, on_retry, 0, 0);
  return true;
}

static void stopped(struct worker *worker) {
  worker->state = WORKER_STOPPED;
  if (worker->next == NULL)
    worker->hooks->ended(worker);
}

/* ---- sleep */

static void lie_down(struct worker *worker) {
  worker->nap = NAP_ASLEEP;
  worker->state = WORKER_ASLEEP;
  worker->lost_ms = 0;
  worker->errand = true; /* until somebody waits for it */
  worker->hooks->asleep(worker);
}

static void get_up(struct worker *worker) {
  struct worker_process *process;
  struct error error;
  worker->nap = NAP_WAKING;
  worker->wanted = false;
  if (worker_process_start(worker->loop, worker->program, worker->device, false, worker->config, &events, worker,
                           &process, &error) == STATUS_OK) {
    begin(worker, process);
    return;
  }
  log_error("worker %u: %s", worker->device, error.text);
  worker->nap = NAP_NONE;
  parked_fail(&worker->parked, worker->device);
  replace_after(worker, next_pause_ms(worker));
}

/* The process that was to go to sleep, or to wake, is reaped. True: that is all there is to do. */
static bool reaped_napping(struct worker *worker) {
  bool falling = worker->nap == NAP_FALLING;
  if (worker->stopping || worker->nap == NAP_NONE)
    return false;
  if (!falling && !worker->errand) {
    worker->nap = NAP_NONE;
    parked_fail(&worker->parked, worker->device);
    return false;
  }
  if (!falling)
    log_warning("worker %u: it could not be started for work in the background, and sleeps on", worker->device);
  bool wanted = falling && worker->wanted;
  lie_down(worker);
  if (wanted)
    worker_wake(worker, false);
  return true;
}

/* The process is reaped: nothing of it is left, not even a copy to the device that could still land in memory that is
 * used again. */
static void reaped(struct worker *worker, int exit_status) {
  worker->pid = 0;
  totals_add(&worker->past, &worker->stats);
  memset(&worker->stats, 0, sizeof worker->stats);
  worker->recovering = 0;
  worker->stuck = false;
  worker->state = worker->stopping ? WORKER_STOPPED : WORKER_STARTING;
  worker->hooks->lost(worker);
  requests_fail(&worker->requests, worker->device);
  if (worker->stopping) {
    parked_fail(&worker->parked, worker->device);
    stopped(worker);
    return;
  }
  if (reaped_napping(worker))
    return;
  uint64_t pause_ms = next_pause_ms(worker);
  /* Where there is no such device there will hardly be one at once. */
  if (pause_ms > 0 || (!worker->ever_ready && exit_status == WORKER_PROCESS_NO_BACKEND))
    replace_after(worker, pause_ms > 0 ? pause_ms : (uint64_t)worker->config->worker_pause_s * 1000);
  else
    replace(worker);
}

static void closed_one(void *owner) {
  struct worker *worker = owner;
  if (--worker->open == 0)
    reaped(worker, worker->exit_status);
}

static void never_ends(void *owner) {
  struct worker *worker = owner;
  log_error("worker %u: process %u has been killed and does not end: its device is out of order until it does",
            worker->device, worker->pid);
  worker->stuck = true;
  worker->hooks->stuck(worker);
}

static void let_die(struct worker *worker) {
  if (worker->state == WORKER_DYING)
    return;
  worker->lost_ms = uv_now(worker->loop);
  if (worker->state == WORKER_READY)
    worker->down_ms = worker->lost_ms;
  worker->state = WORKER_DYING;
  watch_end(&worker->watch);
  requests_fail_at_once(&worker->requests, worker->device);
}

static void on_end(struct worker_process *process, const struct error *cause) {
  struct worker *worker = process->owner;
  log_debug("worker %u: process %u: %s", worker->device, process->pid, cause->text);
  if (process == worker->next) {
    worker_process_close(process, false);
    return;
  }
  bool starting = worker->state == WORKER_STARTING;
  let_die(worker);
  worker_process_close(process, !starting); /* else its exit status says why it could not start */
  /* It runs no more of its program, and what it wrote is there; the kernel may take a while to give back its device. */
  if (!starting)
    start_next(worker);
}

static void say_exit(const struct worker_process *process, char why[WORKER_WHY_BYTES]) {
  if (process->exit_signal != 0)
    snprintf(why, WORKER_WHY_BYTES, "process %u was ended by signal %d (%s)", process->pid, process->exit_signal,
             strsignal(process->exit_signal));
  else
    snprintf(why, WORKER_WHY_BYTES, "process %u ended with status %d", process->pid, process->exit_status);
}

static void log_exit(struct worker *worker, const struct worker_process *process) {
  char why[WORKER_WHY_BYTES];
  say_exit(process, why);
  if (process == worker->process)
    blame(worker, why);
  bool closed = worker->nap == NAP_FALLING && process->exit_status == 0;
  if (worker->stopping || closed || (process == worker->next && worker->state == WORKER_FAILED))
    return;
  log_error("worker %u: %s", worker->device, why);
}

static void on_ended(struct worker_process *process) {
  struct worker *worker = process->owner;
  log_exit(worker, process);
  if (process == worker->next) {
    worker->next = NULL;
    worker->next_ready = false;
    if (worker->stopping && worker->process == NULL && worker->open == 0)
      stopped(worker);
    return;
  }
  worker->process = NULL;
  worker->exit_status = process->exit_status;
  worker->suspect |= process->exit_signal != SIGKILL && !(worker->nap == NAP_FALLING && process->exit_status == 0);
  worker->faults += worker->suspect;
  let_die(worker);
  watch_stop(&worker->watch);
  closed_one(worker);
}

static const struct worker_process_events events = {.packet = on_packet, .end = on_end, .ended = on_ended};
static const struct watch_hooks watched = {
    .read = read_more, .ask = ask_stats, .kill = kill_silent, .stuck = never_ends, .closed = closed_one};

enum status worker_start(struct worker *worker, struct error *error) {
  struct worker_process *process;
  enum status status = worker_process_start(worker->loop, worker->program, worker->device, false, worker->config,
                                            &events, worker, &process, error);
  if (status == STATUS_OK)
    begin(worker, process);
  worker->down_ms = uv_now(worker->loop);
  return status;
}

void worker_serves(struct worker *worker) {
  worker->state = WORKER_READY;
  if (worker->lost_ms != 0)
    log_info("worker %u: serves again, as process %u; serving paused for %llu ms", worker->device, worker->pid,
             (unsigned long long)(uv_now(worker->loop) - worker->lost_ms));
  worker->lost_ms = 0;
  worker->suspect = worker->failed = false;
  restarts_served(&worker->policy, uv_now(worker->loop));
  worker->asked_ms = uv_now(worker->loop);
  send_parked(worker);
  if (spare_wanted(worker))
    start_next(worker);
}

void worker_kill(struct worker *worker, const char *why) {
  if (worker->state == WORKER_DYING || worker->process == NULL)
    return;
  log_error("worker %u: killed: %s", worker->device, why);
  worker->suspect = true;
  blame(worker, why);
  let_die(worker);
  worker_process_close(worker->process, true);
}

void worker_stop(struct worker *worker) {
  if (worker->stopping)
    return;
  worker->stopping = true;
  if (worker->next != NULL)
    worker_process_close(worker->next, false);
  if (worker->waits && !uv_is_closing((const uv_handle_t *)&worker->retry))
    uv_close((uv_handle_t *)&worker->retry, on_retry_closed);
  if (worker->state == WORKER_ASLEEP) {
    parked_fail(&worker->parked, worker->device);
    stopped(worker);
  }
  if (worker->process == NULL)
    return; /* what else is open closes by itself */
  let_die(worker);
  worker_process_close(worker->process, false);
}

bool worker_sleep(struct worker *worker) {
  if (worker->state != WORKER_READY || requests_wanted(&worker->requests) || worker->stopping)
    return false;
  worker->nap = NAP_FALLING;
  worker->naps++;
  if (worker->next != NULL)
    worker_process_close(worker->next, false);
  let_die(worker);
  worker_process_close(worker->process, false);
  return true;
}

void worker_wake(struct worker *worker, bool errand) {
  if (worker->nap == NAP_NONE || worker->stopping)
    return;
  worker->errand &= errand;
  if (worker->nap == NAP_FALLING)
    worker->wanted = true;
  else if (worker->nap == NAP_ASLEEP)
    get_up(worker);
}
