#include "worker_proxy.h"

#include "../log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
  STOP_MS = 5000, /* that a worker has to end by itself */
  RESTART_WINDOW_MS = 60000,
  WATCH_TICKS = 2,    /* within worker_timeout_s */
  EXIT_NO_BACKEND = 3 /* see worker.h */
};

struct worker_request {
  TAILQ_ENTRY(worker_request) link;
  uint32_t id;
  const struct command_info *command;
  worker_done done;
  void *user;
};

void worker_init(struct worker *worker, uint32_t device, uv_loop_t *loop, const char *program,
                 const struct config *config, const struct worker_hooks *hooks, void *owner) {
  *worker = (struct worker){.device = device,
                            .loop = loop,
                            .program = program,
                            .config = config,
                            .hooks = hooks,
                            .owner = owner,
                            .exit_status = -1};
  TAILQ_INIT(&worker->requests);
}

struct totals worker_totals(const struct worker *worker) {
  struct totals totals = worker->past;
  totals_add(&totals, &worker->stats);
  return totals;
}

const char *worker_state_name(const struct worker *worker) {
  switch (worker->state) {
  case WORKER_READY:
    return "ready";
  case WORKER_FAILED:
    return "failed";
  default:
    return "starting";
  }
}

/* ---- requests */

enum status worker_ask(struct worker *worker, enum command command, const void *body, const int *fds, size_t fd_count,
                       worker_done done, void *user, struct error *error) {
  bool takes = worker->state == WORKER_RECOVERING || worker->state == WORKER_READY;
  if (!takes && worker->state != WORKER_DYING)
    return error_set(error, STATUS_DEVICE_LOST, "device %u has no worker at the moment", worker->device);
  struct worker_request *request = malloc(sizeof *request);
  if (request == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for a request to a worker");
  const struct command_info *info = command_find(command);
  *request = (struct worker_request){.id = ++worker->last_id, .command = info, .done = done, .user = user};
  struct message_head head = {.kind = MESSAGE_REQUEST, .id = request->id, .code = command};
  enum status status = STATUS_OK;
  if (takes)
    status = channel_send(&worker->channel, &head, info->request, body, fds, fd_count, error);
  if (status != STATUS_OK && status != STATUS_DISCONNECTED) {
    free(request);
    return status;
  }
  /* To a worker that is dying nothing is sent, but the answer DEVICE_LOST comes only once it is reaped. */
  TAILQ_INSERT_TAIL(&worker->requests, request, link);
  return STATUS_OK;
}

static void fail_requests(struct worker *worker) {
  struct worker_request_list requests = TAILQ_HEAD_INITIALIZER(requests);
  TAILQ_CONCAT(&requests, &worker->requests, link); /* new ones may come in from the callbacks */
  while (!TAILQ_EMPTY(&requests)) {
    struct worker_request *request = TAILQ_FIRST(&requests);
    TAILQ_REMOVE(&requests, request, link);
    struct worker_answer answer = {.fd = -1};
    answer.status = error_set(&answer.error, STATUS_DEVICE_LOST, "the worker of device %u died", worker->device);
    request->done(request->user, &answer);
    free(request);
  }
}

static struct worker_request *take_request(struct worker *worker, uint32_t id) {
  struct worker_request *request;
  for (request = TAILQ_FIRST(&worker->requests); request != NULL; request = TAILQ_NEXT(request, link)) {
    if (request->id == id) {
      TAILQ_REMOVE(&worker->requests, request, link);
      return request;
    }
  }
  return NULL;
}

static enum status take_reply(struct worker *worker, const struct message_head *head, struct message_body body,
                              struct packet *packet, struct error *error) {
  struct worker_request *request = take_request(worker, head->id);
  if (request == NULL)
    return error_set(error, STATUS_PROTOCOL, "a reply to nothing (id %u)", head->id);
  union worker_reply_body decoded;
  struct worker_answer answer = {.status = STATUS_OK, .body = &decoded, .fd = -1};
  enum status status = STATUS_OK;
  if (head->code != STATUS_OK) {
    message_decode_failure(head->code, body, &answer.error);
    answer.status = answer.error.status;
  } else if ((status = message_decode_body(body, request->command->reply, &decoded, error)) != STATUS_OK) {
    answer.error = *error;
    answer.status = answer.error.status;
  }
  answer.fd = packet_take_fd(packet, 0);
  request->done(request->user, &answer);
  if (answer.fd >= 0)
    close(answer.fd);
  free(request);
  return status;
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
  worker->silent = 0;
  check_progress(worker);
}

static void on_watch_timer(uv_timer_t *timer) {
  struct worker *worker = timer->data;
  const struct message_empty body = {.reserved = 0};
  struct error error;
  /* This process may have been held up itself, with the answer waiting to be read. */
  channel_drain(&worker->channel);
  if (worker->state == WORKER_DYING)
    return;
  if (worker->silent == WATCH_TICKS) {
    (void)error_set(&error, STATUS_TIMEOUT, "it has not answered for %lld s",
                    (long long)worker->config->worker_timeout_s);
    worker_kill(worker, error.text);
  } else if (worker->silent++ == 0 &&
             worker_ask(worker, COMMAND_worker_stats, &body, NULL, 0, on_stats, worker, &error) != STATUS_OK) {
    worker_kill(worker, error.text);
  }
}

static void watch(struct worker *worker) {
  uint64_t tick_ms = (uint64_t)worker->config->worker_timeout_s * 1000 / WATCH_TICKS;
  if (tick_ms == 0)
    return;
  worker->watched = true;
  worker->silent = 0;
  uv_timer_init(worker->loop, &worker->watch_timer);
  worker->watch_timer.data = worker;
  worker->open++;
  uv_timer_start(&worker->watch_timer, on_watch_timer, tick_ms, tick_ms);
}

static enum status take_event(struct worker *worker, uint32_t code, struct message_body body, struct error *error) {
  struct message_session_broken broken;
  enum status status;
  switch (code) {
  case EVENT_worker_ready:
    if (worker->state != WORKER_STARTING)
      return error_set(error, STATUS_PROTOCOL, "worker_ready came twice");
    status = message_decode_body(body, &message_worker_ready_type, &worker->ready, error);
    if (status != STATUS_OK)
      return status;
    worker->state = WORKER_RECOVERING;
    worker->ever_ready = true;
    watch(worker);
    worker->hooks->started(worker, &worker->ready);
    return STATUS_OK;
  case EVENT_session_broken:
    status = message_decode_body(body, &message_session_broken_type, &broken, error);
    if (status == STATUS_OK)
      worker->hooks->session_broken(worker, &broken);
    return status;
  default:
    return error_set(error, STATUS_PROTOCOL, "event %u is unknown", code);
  }
}

static void on_packet(struct channel *channel, struct packet *packet) {
  struct worker *worker = channel->owner;
  struct message_head head;
  struct message_body body;
  struct error error;
  enum status status = message_decode_head(packet->bytes, packet->length, &head, &body, &error);
  if (status == STATUS_OK && head.kind == MESSAGE_REPLY)
    status = take_reply(worker, &head, body, packet, &error);
  else if (status == STATUS_OK && head.kind == MESSAGE_EVENT)
    status = take_event(worker, head.code, body, &error);
  else if (status == STATUS_OK)
    status = error_set(&error, STATUS_PROTOCOL, "a worker sent a request");
  if (status != STATUS_OK)
    worker_kill(worker, error.text);
}

/* ---- life and death */

static bool restart_allowed(struct worker *worker) {
  uint64_t now = uv_now(worker->loop);
  if (worker->recent_restarts == 0 || now - worker->recent_since_ms > RESTART_WINDOW_MS) {
    worker->recent_since_ms = now;
    worker->recent_restarts = 0;
  }
  return worker->recent_restarts < worker->config->worker_restarts_max;
}

static void give_up(struct worker *worker) {
  log_error("worker %u: given up after %u restarts within a minute", worker->device, worker->recent_restarts);
  worker->state = WORKER_FAILED;
  worker->hooks->ended(worker);
}

static void start_successor(struct worker *worker) {
  struct error error;
  if (!restart_allowed(worker)) {
    give_up(worker);
    return;
  }
  worker->recent_restarts++;
  worker->restarts++;
  log_warning("worker %u: restart %u", worker->device, worker->restarts);
  if (worker_start(worker, &error) != STATUS_OK) {
    log_error("worker %u: %s", worker->device, error.text);
    give_up(worker);
  }
}

/* Process, socket and timers are closed: nothing of the old worker is left, not even a copy to the device that could
 * still land in memory that is used again. */
static void reaped(struct worker *worker) {
  worker->pid = 0;
  totals_add(&worker->past, &worker->stats);
  memset(&worker->stats, 0, sizeof worker->stats);
  worker->recovering = 0;
  worker->state = worker->stopping ? WORKER_STOPPED : WORKER_STARTING;
  worker->hooks->lost(worker);
  fail_requests(worker);
  if (worker->stopping) {
    worker->state = WORKER_STOPPED;
    worker->hooks->ended(worker);
  } else if (!worker->ever_ready && worker->exit_status == EXIT_NO_BACKEND) {
    worker->state = WORKER_FAILED;
    worker->hooks->ended(worker);
  } else {
    start_successor(worker);
  }
}

static void closed_one(struct worker *worker) {
  if (--worker->open == 0)
    reaped(worker);
}

static void on_channel_closed(struct channel *channel) {
  closed_one(channel->owner);
}

static void on_handle_closed(uv_handle_t *handle) {
  closed_one(handle->data);
}

static void let_die(struct worker *worker) {
  if (worker->state != WORKER_DYING) {
    worker->lost_ms = uv_now(worker->loop);
    worker->state = WORKER_DYING;
  }
  if (worker->watched) {
    worker->watched = false;
    uv_close((uv_handle_t *)&worker->watch_timer, on_handle_closed);
  }
  channel_close(&worker->channel);
}

static void on_kill_timer(uv_timer_t *timer) {
  struct worker *worker = timer->data;
  log_warning("worker %u: does not end by itself; killed", worker->device);
  child_kill(worker->child);
}

/* Gives the process time to end by itself. */
static void kill_later(struct worker *worker) {
  if (worker->kill_pending)
    return;
  worker->kill_pending = true;
  uv_timer_init(worker->loop, &worker->kill_timer);
  worker->kill_timer.data = worker;
  worker->open++;
  uv_timer_start(&worker->kill_timer, on_kill_timer, STOP_MS, 0);
}

static void on_channel_end(struct channel *channel, const struct error *cause) {
  struct worker *worker = channel->owner;
  bool starting = worker->state == WORKER_STARTING;
  log_debug("worker %u: %s", worker->device, cause->text);
  let_die(worker);
  if (starting)
    kill_later(worker); /* its exit status says why it could not start */
  else
    child_kill(worker->child);
}

static void on_exit_of_child(void *user, int64_t exit_status, int signal) {
  struct worker *worker = user;
  worker->child = NULL;
  worker->exit_status = signal == 0 ? (int)exit_status : -1;
  worker->exit_signal = signal;
  if (!worker->stopping) {
    if (signal != 0)
      log_error("worker %u: process %u was ended by signal %d (%s)", worker->device, worker->pid, signal,
                strsignal(signal));
    else
      log_error("worker %u: process %u ended with status %d", worker->device, worker->pid, worker->exit_status);
  }
  let_die(worker);
  if (worker->kill_pending) {
    worker->kill_pending = false;
    uv_close((uv_handle_t *)&worker->kill_timer, on_handle_closed);
  }
  closed_one(worker);
}

/* The options of the next process. Who died may have died of a kernel on trial; where nothing is kept, the successor
 * cannot know which, and would die of it again. */
static struct config successor_config(const struct worker *worker) {
  struct config config = *worker->config;
  if (worker->restarts > 0 && config.state_dir[0] == '\0' && getenv("STATE_DIRECTORY") == NULL &&
      strcmp(config.tune, "off") != 0) {
    log_info("worker %u: tune is off from here on, because no state_dir tells what the last one died of",
             worker->device);
    snprintf(config.tune, sizeof config.tune, "off");
  }
  return config;
}

enum status worker_start(struct worker *worker, struct error *error) {
  static const struct channel_events events = {.packet = on_packet, .end = on_channel_end, .closed = on_channel_closed};
  char device[16];
  snprintf(device, sizeof device, "%u", worker->device);
  const char *const mode[] = {"--worker", device, NULL};
  struct config config = successor_config(worker);
  int socket;
  enum status status = child_start(worker->loop, worker->program, mode, &config, on_exit_of_child, worker,
                                   &worker->child, &socket, error);
  if (status != STATUS_OK)
    return status;
  worker->pid = (uint32_t)child_pid(worker->child);
  worker->open = 1;
  worker->state = WORKER_STARTING;
  status = channel_open(&worker->channel, worker->loop, socket, 0, &events, worker, error);
  if (status != STATUS_OK) {
    /* The exit is awaited all the same; the channel counts as closed. */
    worker->channel.closing = true;
    worker->channel.ended = true;
    child_kill(worker->child);
    log_error("worker %u: %s", worker->device, error->text);
    return STATUS_OK;
  }
  worker->open = 2;
  return STATUS_OK;
}

void worker_serves(struct worker *worker) {
  worker->state = WORKER_READY;
  if (worker->lost_ms == 0)
    return;
  log_info("worker %u: serves again, as process %u; serving paused for %llu ms", worker->device, worker->pid,
           (unsigned long long)(uv_now(worker->loop) - worker->lost_ms));
  worker->lost_ms = 0;
}

void worker_kill(struct worker *worker, const char *why) {
  if (worker->state == WORKER_DYING || worker->open == 0)
    return;
  log_error("worker %u: killed: %s", worker->device, why);
  let_die(worker);
  child_kill(worker->child);
}

void worker_stop(struct worker *worker) {
  if (worker->stopping)
    return;
  worker->stopping = true;
  if (worker->child == NULL)
    return; /* what else is open closes by itself */
  let_die(worker);
  kill_later(worker);
}
