/* ping: whether gemmd answers; with --deep, whether it computes. */
#include "../../proto/clock.h"
#include "ctl.h"

#include "../tool/print.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- a canary: a weight of small whole numbers that is loaded, multiplied with and dropped. Each of its rows holds a
 * 127, and so does each of x, so that nothing is rounded on the way and the answer is known to the bit. */

enum { CANARY_M = 3, CANARY_N = 48, CANARY_K = 160 };

static int number(int row, int column) {
  return column == row % CANARY_K ? 127 : (row * 31 + column * 17) % 255 - 127;
}

/* The last row is this canary's alone: equal content would be shared, wherever it lies. */
static int weight_number(uint64_t salt, int row, int column) {
  return row == CANARY_N - 1 && column < CANARY_N - 1 ? (int)(salt >> column & 1) : number(row, column);
}

/* A safetensors file in memory; -1. */
static int canary_file(uint64_t salt) {
  static float values[CANARY_N][CANARY_K];
  char text[96];
  int length = snprintf(text, sizeof text, "{\"w\":{\"dtype\":\"F32\",\"shape\":[%d,%d],\"data_offsets\":[0,%zu]}}",
                        CANARY_N, CANARY_K, sizeof values);
  uint64_t header = (uint64_t)length;
  for (int n = 0; n < CANARY_N; n++)
    for (int k = 0; k < CANARY_K; k++)
      values[n][k] = (float)weight_number(salt, n, k);
  int fd = memfd_create("canary", MFD_CLOEXEC);
  if (fd >= 0 && write(fd, &header, sizeof header) == (ssize_t)sizeof header && write(fd, text, header) == length &&
      write(fd, values, sizeof values) == (ssize_t)sizeof values)
    return fd;
  if (fd >= 0)
    close(fd);
  return -1;
}

static bool canary_right(uint64_t salt, const float *y) {
  for (int m = 0; m < CANARY_M; m++) {
    for (int n = 0; n < CANARY_N; n++) {
      int64_t sum = 0;
      for (int k = 0; k < CANARY_K; k++)
        sum += (int64_t)number(m + CANARY_N, k) * weight_number(salt, n, k);
      if (y[m * CANARY_N + n] != (float)sum)
        return false;
    }
  }
  return true;
}

/* Drops the name as soon as it can, so that whoever is killed while a device hangs leaves nothing. */
static int canary_product(gemmd_session *session, const char *name, uint64_t salt, bool *right) {
  gemmd_weight *weight = NULL;
  float *x = gemmd_alloc(session, CANARY_M * CANARY_K * sizeof *x);
  float *y = gemmd_alloc(session, CANARY_M * CANARY_N * sizeof *y);
  int status = x == NULL || y == NULL ? GEMMD_NOMEM : gemmd_weight_open(session, name, &weight);
  int unloaded = gemmd_weight_unload(session, name, NULL);
  if (status == GEMMD_OK)
    status = unloaded;
  for (int i = 0; status == GEMMD_OK && i < CANARY_M * CANARY_K; i++)
    x[i] = (float)number(i / CANARY_K + CANARY_N, i % CANARY_K);
  if (status == GEMMD_OK) {
    gemmd_product product = {.m = CANARY_M, .x = x, .x_type = GEMMD_F32, .y = y, .y_type = GEMMD_F32};
    memset(y, 0xff, CANARY_M * CANARY_N * sizeof *y);
    status = gemmd_matmul(weight, &product);
  }
  *right = status == GEMMD_OK && canary_right(salt, y);
  gemmd_weight_close(weight);
  gemmd_free(session, x);
  gemmd_free(session, y);
  return status;
}

/* On one device. *ns: how long all of it took. */
static enum tool_exit canary(struct tool_call *call, gemmd_session *session, uint32_t device, uint64_t *ns) {
  char name[64];
  uint64_t salt = 0;
  enum tool_exit code = tool_random(call, &salt);
  if (code != TOOL_OK)
    return code;
  snprintf(name, sizeof name, "gemmctl.canary.%016llx", (unsigned long long)salt);
  gemmd_load load = {
      .name = name, .tensor = "w", .format = GEMMD_FORMAT_INT8, .device = (int)device, .mode = GEMMD_MODE_PRIVATE};
  bool right = false;
  uint64_t begin = clock_ns();
  int file = canary_file(salt);
  if (file < 0)
    return tool_cannot(call, GEMMD_NOMEM, "no memory for the canary's file");
  int status = gemmd_weight_load(session, file, &load, NULL);
  close(file);
  if (status != GEMMD_OK)
    return tool_refused(call, session, status);
  status = canary_product(session, name, salt, &right);
  *ns = clock_ns() - begin;
  code = status == GEMMD_OK ? TOOL_OK : tool_refused(call, session, status);
  if (code == TOOL_OK && !right)
    code = tool_cannot(call, GEMMD_INTERNAL, "device %u computes wrong results", device);
  return code;
}

static void deep_report(const struct tool_call *call, const uint64_t *ns, uint32_t count) {
  char text[PRINT_UNIT_BYTES];
  json_t *list = json_array();
  for (uint32_t i = 0; i < count; i++) {
    json_array_append_new(list, json_pack("{s:I, s:I}", "device", (json_int_t)i, "ns", (json_int_t)ns[i]));
    if (!call->json)
      fprintf(call->out, "device %u computes: a weight loaded, multiplied with and dropped in %s\n", i,
              print_duration(ns[i], text));
  }
  if (call->json)
    print_json(call->out, json_pack("{s:o}", "devices", list));
  else
    json_decref(list);
}

static enum tool_exit ping_deep(struct tool_call *call, gemmd_session *session) {
  static gemmd_daemon_info info;
  uint64_t ns[sizeof info.device / sizeof *info.device];
  int status = gemmd_daemon_status(session, &info);
  if (status != GEMMD_OK)
    return tool_refused(call, session, status);
  enum tool_exit code = TOOL_OK;
  for (uint32_t i = 0; i < info.devices && code == TOOL_OK; i++)
    code = canary(call, session, i, &ns[i]);
  if (code == TOOL_OK)
    deep_report(call, ns, info.devices);
  return code;
}

/* ---- the answer alone */

static int by_size(const void *left, const void *right) {
  uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
  return (a > b) - (a < b);
}

static void ping_report(const struct tool_call *call, uint64_t *ns, size_t count) {
  qsort(ns, count, sizeof *ns, by_size);
  uint64_t least = ns[0], median = ns[count / 2], most = ns[count - 1];
  if (call->json) {
    print_json(call->out, json_pack("{s:I, s:{s:I, s:I, s:I}}", "count", (json_int_t)count, "round_trip_ns", "min",
                                    (json_int_t)least, "median", (json_int_t)median, "max", (json_int_t)most));
    return;
  }
  char first[PRINT_UNIT_BYTES], second[PRINT_UNIT_BYTES], third[PRINT_UNIT_BYTES];
  if (count == 1)
    fprintf(call->out, "gemmd answers in %s\n", print_duration(median, first));
  else
    fprintf(call->out, "gemmd answers %zu times: min %s, median %s, max %s\n", count, print_duration(least, first),
            print_duration(median, second), print_duration(most, third));
}

static enum tool_exit ping_often(struct tool_call *call, gemmd_session *session, size_t count) {
  uint64_t *ns = calloc(count, sizeof *ns);
  enum tool_exit code = TOOL_OK;
  if (ns == NULL)
    return tool_cannot(call, GEMMD_NOMEM, "out of memory for %zu round trips", count);
  for (size_t i = 0; i < count && code == TOOL_OK; i++) {
    int status = gemmd_ping(session, &ns[i]);
    if (status != GEMMD_OK)
      code = tool_refused(call, session, status);
  }
  if (code == TOOL_OK)
    ping_report(call, ns, count);
  free(ns);
  return code;
}

static enum tool_exit run_ping(struct tool_call *call) {
  int64_t count;
  if (!tool_integer(call, "count", 1, 1000000, 1, &count))
    return TOOL_USAGE;
  gemmd_session *session;
  enum tool_exit code = ctl_connect(call, &session);
  if (code != TOOL_OK)
    return code;
  code = tool_value(call, "deep") != NULL ? ping_deep(call, session) : ping_often(call, session, (size_t)count);
  gemmd_disconnect(session);
  return code;
}

static const struct tool_option ping_options[] = {
    {"count", "N", "round trips; 1 if not given", false},
    {"deep", NULL, "load a small weight, multiply with it, check the result and drop it, on every device", false},
    {0},
};

const struct tool_command ctl_ping = {
    .name = "ping",
    .arguments = "",
    .summary = "Whether gemmd answers, and how fast; with --deep, whether its devices compute: for health checks.",
    .options = ping_options,
    .example = "gemmctl ping --count 100",
    .keys = "  count, round_trip_ns: {min, median, max}; with --deep: devices: a list of {device, ns}",
    .run = run_ping,
};
