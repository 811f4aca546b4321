/* status, metrics: what the supervisor knows, and what the workers count; device_retry. */
#include "../../memfd.h"
#include "../context.h"
#include "../idle/idle.h"
#include "../metrics.h"
#include "../workers/fleet.h"
#include "cmd.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct gathering {
  struct session *session; /* waits */
  uint32_t id, waiting;
  void (*answer)(struct session *session, uint32_t id, const struct message_status_reply *status);
};

struct counted {
  struct gathering *gathering;
  struct worker *worker;
};

static void describe_device(struct supervisor *supervisor, const struct worker *worker,
                            struct message_device_status *out) {
  struct totals totals = worker_totals(worker);
  struct catalog_usage usage = catalog_device_usage(&supervisor->catalog, worker->device);
  *out = (struct message_device_status){.device = worker->device,
                                        .pid = worker->pid,
                                        .restarts = worker->restarts,
                                        .memory_total = worker->ready.memory_total,
                                        .memory_slabs = usage.slabs,
                                        .memory_used = usage.used,
                                        .memory_lent = usage.lent,
                                        .memory_copies = worker->stats.copies,
                                        .memory_working = worker->stats.working,
                                        .longest_ns = worker->stats.longest_ns,
                                        .requests = totals.requests,
                                        .rows = totals.rows,
                                        .failures = totals.failures,
                                        .device_ns = totals.device_ns,
                                        .products = totals.products,
                                        .formats = worker->ready.formats};
  if (!worker_usable(worker)) {
    uint64_t now = uv_now(worker->loop);
    out->down_ms = now > worker->down_ms ? now - worker->down_ms : 1;
    out->retry_ms = worker->waits && worker->retry_ms > now ? worker->retry_ms - now : 0;
  }
  snprintf(out->why, sizeof out->why, "%s", worker->why);
  snprintf(out->name, sizeof out->name, "%s", worker->ready.device_name);
  snprintf(out->state, sizeof out->state, "%s", worker_state_name(worker));
}

static struct message_status_reply describe(struct supervisor *supervisor) {
  const struct catalog *catalog = &supervisor->catalog;
  struct message_status_reply reply = {.pid = (uint32_t)getpid(),
                                       .uptime_ms = uv_now(&supervisor->loop) - supervisor->started_ms,
                                       .sessions = supervisor->sessions->count,
                                       .names = (uint32_t)catalog->name_count,
                                       .weights = (uint32_t)catalog->weight_count,
                                       .devices_count = supervisor->fleet->count};
  snprintf(reply.server, sizeof reply.server, "gemmd %s", GEMMD_RELEASE);
  snprintf(reply.backend, sizeof reply.backend, "%.15s", supervisor->fleet->config.backend);
  snprintf(reply.backend_reason, sizeof reply.backend_reason, "%s", supervisor->fleet->reason);
  for (size_t i = 0; i < catalog->weight_count; i++)
    reply.weight_bytes += catalog_weight_bytes(catalog->weights[i]);
  const struct session *each;
  for (each = TAILQ_FIRST(&supervisor->sessions->list); each != NULL; each = TAILQ_NEXT(each, link))
    reply.arena_bytes += each->arena.rings == NULL ? 0 : each->arena.bytes;
  for (uint32_t i = 0; i < supervisor->fleet->count; i++)
    describe_device(supervisor, &supervisor->fleet->workers[i], &reply.devices[i]);
  for (uint32_t i = 0; i < supervisor->fleet->count; i++)
    idle_describe(supervisor->idle, i, &reply.devices[i]);
  return reply;
}

static void answer_status(struct session *session, uint32_t id, const struct message_status_reply *status) {
  session_reply(session, id, &message_status_reply_type, status, NULL, 0);
}

static void answer_metrics(struct session *session, uint32_t id, const struct message_status_reply *status) {
  struct message_metrics_reply reply;
  struct error error;
  char *text;
  size_t bytes;
  int fd;
  enum status result = metrics_write(session->supervisor, status, &text, &bytes, &error);
  if (result == STATUS_OK) {
    result = memfd_fill("gemmd-metrics", text, bytes, &fd, &error);
    free(text);
  }
  if (result != STATUS_OK) {
    session_fail(session, id, &error);
    return;
  }
  reply.bytes = bytes;
  session_reply(session, id, &message_metrics_reply_type, &reply, &fd, 1);
  close(fd);
}

static void count_down(struct gathering *gathering) {
  if (--gathering->waiting > 0)
    return;
  struct session *session = gathering->session;
  struct message_status_reply status = describe(session->supervisor);
  gathering->answer(session, gathering->id, &status);
  free(gathering);
  session_continue(session);
}

static void on_stats(void *user, struct worker_answer *reply) {
  struct counted *counted = user;
  if (reply->status == STATUS_OK)
    counted->worker->stats = reply->body->worker_stats;
  count_down(counted->gathering);
  free(counted);
}

static void ask(struct gathering *gathering, struct worker *worker) {
  struct message_empty body = {.reserved = 0};
  struct error error;
  struct counted *counted = malloc(sizeof *counted);
  if (counted == NULL)
    return; /* the counters of this device stay as they were last heard */
  *counted = (struct counted){.gathering = gathering, .worker = worker};
  if (worker_ask(worker, COMMAND_worker_stats, &body, NULL, 0, on_stats, counted, &error) == STATUS_OK)
    gathering->waiting++;
  else
    free(counted);
}

static enum status gather(struct session *session, struct call *call,
                          void (*answer)(struct session *session, uint32_t id,
                                         const struct message_status_reply *status)) {
  struct fleet *fleet = session->supervisor->fleet;
  struct gathering *gathering = malloc(sizeof *gathering);
  if (gathering == NULL)
    return error_set(&call->error, STATUS_NOMEM, "no memory for the request");
  *gathering = (struct gathering){.session = session, .id = call->id, .waiting = 1, .answer = answer};
  session_wait(session);
  for (uint32_t i = 0; i < fleet->count; i++)
    ask(gathering, &fleet->workers[i]);
  count_down(gathering);
  return STATUS_OK;
}

enum status cmd_status(struct session *session, struct call *call) {
  return gather(session, call, answer_status);
}

enum status cmd_metrics(struct session *session, struct call *call) {
  return gather(session, call, answer_metrics);
}

enum status cmd_device_retry(struct session *session, struct call *call) {
  const struct message_device_retry *request = call->body;
  struct fleet *fleet = session->supervisor->fleet;
  struct message_device_retry_reply reply = {.tried = 0};
  if (request->device < -1 || request->device >= (int64_t)fleet->count)
    return error_field(&call->error, STATUS_INVALID, FIELD_DEVICE, request->device, -1, (int64_t)fleet->count - 1);
  for (uint32_t i = 0; i < fleet->count; i++)
    if (request->device < 0 || request->device == (int64_t)i)
      reply.tried += worker_retry(&fleet->workers[i]);
  return call_reply(session, call, &message_device_retry_reply_type, &reply);
}
