#include "info.h"
#include "../session/control.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

/* Public numbers are those of the wire. */
#define STATUS(number, name, retryable, text)                                                                          \
  _Static_assert(GEMMD_##name == -(number) && STATUS_##name == (number), "gemmclient.h: status " #name);
#include "../../proto/status.def"

#define SAME(public_name, wire_name) _Static_assert((int)public_name == (int)wire_name, "gemmclient.h: " #public_name)
SAME(GEMMD_TYPE_NONE, GEMM_TYPE_NONE);
SAME(GEMMD_F32, GEMM_F32);
SAME(GEMMD_F16, GEMM_F16);
SAME(GEMMD_BF16, GEMM_BF16);
SAME(GEMMD_INT8, GEMM_INT8);
SAME(GEMMD_E4M3, GEMM_E4M3);
SAME(GEMMD_S32, GEMM_S32);
#define FORMAT(number, name, word, ...) SAME(GEMMD_FORMAT_##name, GEMM_FORMAT_##name);
#include "../../proto/formats.def"
#define GEMMD_SCALE_NONE GEMMD_SCALE_DEFAULT
#define SCALE(number, name, word, ...) SAME(GEMMD_SCALE_##name, GEMM_SCALE_##name);
#include "../../proto/formats.def"
SAME(GEMMD_METHOD_DEFAULT, GEMM_METHOD_DEFAULT);
SAME(GEMMD_METHOD_ABSMAX, GEMM_METHOD_ABSMAX);
SAME(GEMMD_METHOD_LEAST_SQUARES, GEMM_METHOD_LEAST_SQUARES);
SAME(GEMMD_METHOD_TERNARY, GEMM_METHOD_TERNARY);
SAME(GEMMD_MODE_DEFAULT, MODE_DEFAULT);
SAME(GEMMD_MODE_PRIVATE, MODE_PRIVATE);
SAME(GEMMD_MODE_ALL, MODE_ALL);
SAME(GEMMD_PLACEMENT_SINGLE, PLACEMENT_SINGLE);
SAME(GEMMD_PLACEMENT_REPLICAS, PLACEMENT_REPLICAS);
SAME(GEMMD_PLACEMENT_SPLIT, PLACEMENT_SPLIT);

const char *gemmd_version(void) {
  return GEMMD_RELEASE;
}

const char *gemmd_status_name(int status) {
  return status > 0 || status < -UINT8_MAX ? "UNKNOWN" : status_name((enum status) - status);
}

bool gemmd_status_retryable(int status) {
  return status <= 0 && status >= -UINT8_MAX && status_retryable((enum status) - status);
}

void info_convert(const struct message_weight_info *from, gemmd_weight_info *to) {
  *to = (gemmd_weight_info){.n = from->n,
                            .k = from->k,
                            .format = (enum gemmd_format)from->format,
                            .scale = (int)from->scale,
                            .bytes = from->bytes,
                            .mode = (enum gemmd_mode)from->mode,
                            .references = from->references,
                            .owner = from->owner,
                            .devices = from->parts_count,
                            .shared = from->shared,
                            .borrows = from->borrows,
                            .input = from->input,
                            .experts = from->experts};
  COPY_TEXT(to->name, from->name);
  COPY_TEXT(to->hash, from->hash);
}

static void device_convert(const struct message_device_status *from, gemmd_device_info *to) {
  *to = (gemmd_device_info){.pid = from->pid,
                            .restarts = from->restarts,
                            .memory_total = from->memory_total,
                            .memory_slabs = from->memory_slabs,
                            .memory_used = from->memory_used,
                            .memory_copies = from->memory_copies,
                            .memory_working = from->memory_working,
                            .memory_lent = from->memory_lent,
                            .requests = from->requests,
                            .rows = from->rows,
                            .failures = from->failures,
                            .device_ns = from->device_ns,
                            .products = from->products,
                            .memory_own = from->memory_own};
  COPY_TEXT(to->name, from->name);
  COPY_TEXT(to->state, from->state);
}

int gemmd_ping(gemmd_session *session, uint64_t *ns) {
  int64_t begin = clock_now();
  struct message_ping request = {.payload = (uint64_t)begin}, reply = {.payload = 0};
  struct call call = {.command = COMMAND_ping, .request = &request, .reply = &reply, .fd = -1};
  enum status status = control_call(session, &call);
  if (status == STATUS_OK && reply.payload != request.payload)
    status = session_end(session, STATUS_PROTOCOL, "a ping came back with another payload");
  if (status == STATUS_OK && ns != NULL)
    *ns = (uint64_t)(clock_now() - begin);
  return session_result(status);
}

int gemmd_drain(gemmd_session *session) {
  struct message_empty request = {.reserved = 0}, reply;
  struct call call = {.command = COMMAND_drain, .request = &request, .reply = &reply, .fd = -1, .once = true};
  return session_result(control_call(session, &call));
}

int gemmd_daemon_status(gemmd_session *session, gemmd_daemon_info *out) {
  struct message_empty request = {.reserved = 0};
  struct message_status_reply reply = {0};
  struct call call = {.command = COMMAND_status, .request = &request, .reply = &reply, .fd = -1};
  enum status status = control_call(session, &call);
  if (status != STATUS_OK)
    return session_result(status);
  *out = (gemmd_daemon_info){.pid = reply.pid,
                             .sessions = reply.sessions,
                             .names = reply.names,
                             .weights = reply.weights,
                             .devices = reply.devices_count,
                             .uptime_ms = reply.uptime_ms,
                             .weight_bytes = reply.weight_bytes,
                             .arena_bytes = reply.arena_bytes};
  COPY_TEXT(out->server, reply.server);
  COPY_TEXT(out->backend, reply.backend);
  COPY_TEXT(out->backend_reason, reply.backend_reason);
  for (uint32_t i = 0; i < reply.devices_count; i++)
    device_convert(&reply.devices[i], &out->device[i]);
  return GEMMD_OK;
}

static void health_convert(const struct message_device_status *from, gemmd_device_health *to) {
  *to = (gemmd_device_health){.down_ms = from->down_ms, .retry_ms = from->retry_ms, .longest_ns = from->longest_ns};
  COPY_TEXT(to->state, from->state);
  COPY_TEXT(to->why, from->why);
}

static void rest_convert(const struct message_device_status *from, gemmd_device_rest *to) {
  *to = (gemmd_device_rest){.naps = from->naps,
                            .untuned = from->untuned,
                            .quiet_ms = from->quiet_ms,
                            .verified = from->verified,
                            .damaged = from->damaged};
  COPY_TEXT(to->quiet, from->quiet);
}

int gemmd_device_condition(gemmd_session *session, uint32_t device, gemmd_device_health *health,
                           gemmd_device_rest *rest, uint32_t *formats) {
  struct message_empty request = {.reserved = 0};
  struct message_status_reply reply = {0};
  struct call call = {.command = COMMAND_status, .request = &request, .reply = &reply, .fd = -1};
  enum status status = control_call(session, &call);
  if (status == STATUS_OK && device >= reply.devices_count)
    status = error_field(&session->error, STATUS_INVALID, FIELD_DEVICE, device, 0, (int64_t)reply.devices_count - 1);
  if (status != STATUS_OK)
    return session_result(status);
  const struct message_device_status *from = &reply.devices[device];
  if (health != NULL)
    health_convert(from, health);
  if (rest != NULL)
    rest_convert(from, rest);
  if (formats != NULL)
    *formats = from->formats;
  return GEMMD_OK;
}

int gemmd_device_state(gemmd_session *session, uint32_t device, gemmd_device_health *out) {
  return gemmd_device_condition(session, device, out, NULL, NULL);
}

int gemmd_device_resting(gemmd_session *session, uint32_t device, gemmd_device_rest *out) {
  return gemmd_device_condition(session, device, NULL, out, NULL);
}

int gemmd_device_formats(gemmd_session *session, uint32_t device, uint32_t *formats) {
  return gemmd_device_condition(session, device, NULL, NULL, formats);
}

int gemmd_device_retry(gemmd_session *session, int device, uint32_t *tried) {
  struct message_device_retry request = {.device = device};
  struct message_device_retry_reply reply = {.tried = 0};
  struct call call = {.command = COMMAND_device_retry, .request = &request, .reply = &reply, .fd = -1};
  enum status status = control_call(session, &call);
  if (status == STATUS_OK && tried != NULL)
    *tried = reply.tried;
  return session_result(status);
}

/* All of a text whose size the daemon has told; a daemon that lies is found out here. */
static enum status read_text(gemmd_session *session, int fd, uint64_t bytes, char **out) {
  enum { TEXT_MOST = 16 << 20 };
  if (bytes > TEXT_MOST)
    return session_end(session, STATUS_PROTOCOL, "metrics of %llu bytes", (unsigned long long)bytes);
  char *text = malloc((size_t)bytes + 1);
  if (text == NULL)
    return error_set(&session->error, STATUS_NOMEM, "no memory for metrics of %llu bytes", (unsigned long long)bytes);
  for (size_t at = 0; at < bytes;) {
    ssize_t got = pread(fd, text + at, (size_t)bytes - at, (off_t)at);
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0) {
      free(text);
      return session_end(session, STATUS_PROTOCOL, "metrics of %llu bytes end after %zu", (unsigned long long)bytes,
                         at);
    }
    at += (size_t)got;
  }
  text[bytes] = '\0';
  *out = text;
  return STATUS_OK;
}

int gemmd_metrics(gemmd_session *session, char **text) {
  struct message_empty request = {.reserved = 0};
  struct message_metrics_reply reply = {.bytes = 0};
  int fd;
  struct call call = {.command = COMMAND_metrics,
                      .request = &request,
                      .reply = &reply,
                      .fd = -1,
                      .reply_fds = &fd,
                      .reply_fd_count = 1};
  enum status status = control_call(session, &call);
  if (status != STATUS_OK)
    return session_result(status);
  status = read_text(session, fd, reply.bytes, text);
  close(fd);
  return session_result(status);
}
