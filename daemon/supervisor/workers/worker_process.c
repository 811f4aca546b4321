#include "worker_process.h"

#include "../../log.h"

#include <stdio.h>
#include <stdlib.h>

enum { STOP_MS = 5000 /* that a process has to end by itself */ };

static void closed_one(struct worker_process *process) {
  if (--process->open > 0)
    return;
  process->events->ended(process);
  free(process);
}

/* ---- the socket */

static void on_packet(struct channel *channel, struct packet *packet) {
  struct worker_process *process = channel->owner;
  process->events->packet(process, packet);
}

static void on_channel_end(struct channel *channel, const struct error *cause) {
  struct worker_process *process = channel->owner;
  process->events->end(process, cause);
}

static void on_channel_closed(struct channel *channel) {
  closed_one(channel->owner);
}

/* ---- the process */

static void on_timer_closed(uv_handle_t *handle) {
  closed_one(handle->data);
}

static void on_kill_timer(uv_timer_t *timer) {
  struct worker_process *process = timer->data;
  log_warning("worker %u: process %u does not end by itself; killed", process->device, process->pid);
  child_kill(process->child);
}

static void kill_later(struct worker_process *process) {
  if (process->kill_pending || process->child == NULL)
    return;
  process->kill_pending = true;
  uv_timer_init(process->loop, &process->kill_timer);
  process->kill_timer.data = process;
  process->open++;
  uv_timer_start(&process->kill_timer, on_kill_timer, STOP_MS, 0);
}

static void on_exit_of_child(void *user, int64_t exit_status, int signal) {
  struct worker_process *process = user;
  process->child = NULL;
  process->exit_status = signal == 0 ? (int)exit_status : -1;
  process->exit_signal = signal;
  channel_close(&process->channel);
  if (process->kill_pending) {
    process->kill_pending = false;
    uv_close((uv_handle_t *)&process->kill_timer, on_timer_closed);
  }
  closed_one(process);
}

/* ---- start and close */

static enum status start(struct worker_process *process, const char *program, bool standby, const struct config *config,
                         struct error *error) {
  static const struct channel_events events = {.packet = on_packet, .end = on_channel_end, .closed = on_channel_closed};
  char device[16];
  int socket;
  snprintf(device, sizeof device, "%u", process->device);
  const char *const mode[] = {"--worker", device, standby ? "--standby" : NULL, NULL};
  enum status status =
      child_start(process->loop, program, mode, config, on_exit_of_child, process, &process->child, &socket, error);
  if (status != STATUS_OK)
    return status;
  process->pid = (uint32_t)child_pid(process->child);
  process->open = 1;
  if (channel_open(&process->channel, process->loop, socket, 0, &events, process, error) == STATUS_OK) {
    process->open = 2;
    return STATUS_OK;
  }
  /* Its exit is awaited all the same; the channel counts as closed. */
  process->channel.closing = true;
  process->channel.ended = true;
  log_error("worker %u: %s", process->device, error->text);
  child_kill(process->child);
  return STATUS_OK;
}

enum status worker_process_start(uv_loop_t *loop, const char *program, uint32_t device, bool standby,
                                 const struct config *config, const struct worker_process_events *events, void *owner,
                                 struct worker_process **out, struct error *error) {
  struct worker_process *process = calloc(1, sizeof *process);
  if (process == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for a process");
  process->loop = loop;
  process->events = events;
  process->owner = owner;
  process->device = device;
  process->exit_status = -1;
  enum status status = start(process, program, standby, config, error);
  if (status == STATUS_OK)
    *out = process;
  else
    free(process);
  return status;
}

void worker_process_close(struct worker_process *process, bool now) {
  channel_close(&process->channel);
  if (now)
    child_kill(process->child);
  else
    kill_later(process);
}
