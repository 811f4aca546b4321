/* status, device, drain, version: about the daemon itself. */
#include "ctl.h"

#include "../tool/print.h"
#include "../tool/words.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* ---- status */

/* What is told of one device beside its numbers. */
struct condition {
  gemmd_device_health trouble;
  gemmd_device_rest rest;
  uint32_t formats; /* bits 1 << enum gemmd_format */
};

static json_t *rest_json(const gemmd_device_info *device, const gemmd_device_rest *rest) {
  return json_pack("{s:I, s:I, s:I, s:I, s:o, s:I, s:I}", "memory_own", (json_int_t)device->memory_own, "naps",
                   (json_int_t)rest->naps, "untuned", (json_int_t)rest->untuned, "quiet_ms", (json_int_t)rest->quiet_ms,
                   "quiet", print_json_text(rest->quiet), "verified", (json_int_t)rest->verified, "damaged",
                   (json_int_t)rest->damaged);
}

static json_t *device_json(uint32_t number, const gemmd_device_info *device, const gemmd_device_health *trouble) {
  return json_pack(
      "{s:I, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "device",
      (json_int_t)number, "name", print_json_text(device->name), "state", print_json_text(device->state), "pid",
      (json_int_t)device->pid, "restarts", (json_int_t)device->restarts, "memory_total",
      (json_int_t)device->memory_total, "memory_slabs", (json_int_t)device->memory_slabs, "memory_used",
      (json_int_t)device->memory_used, "memory_lent", (json_int_t)device->memory_lent, "memory_copies",
      (json_int_t)device->memory_copies, "memory_working", (json_int_t)device->memory_working, "requests",
      (json_int_t)device->requests, "rows", (json_int_t)device->rows, "failures", (json_int_t)device->failures,
      "device_ns", (json_int_t)device->device_ns, "products", (json_int_t)device->products, "down_ms",
      (json_int_t)trouble->down_ms, "retry_ms", (json_int_t)trouble->retry_ms, "why", print_json_text(trouble->why));
}

static json_t *formats_json(uint32_t formats) {
  json_t *names = json_array();
  for (const struct word *word = words_format; word->text != NULL; word++)
    if (formats >> word->number & 1)
      json_array_append_new(names, json_string(word->text));
  return names;
}

static uint32_t device_count(const gemmd_daemon_info *info) {
  uint32_t room = sizeof info->device / sizeof *info->device;
  return info->devices < room ? info->devices : room;
}

static void status_json(const gemmd_daemon_info *info, const struct condition *conditions, FILE *out) {
  json_t *devices = json_array();
  for (uint32_t i = 0; i < device_count(info); i++) {
    json_t *device = device_json(i, &info->device[i], &conditions[i].trouble);
    json_object_update_new(device, rest_json(&info->device[i], &conditions[i].rest));
    json_object_set_new(device, "formats", formats_json(conditions[i].formats));
    json_array_append_new(devices, device);
  }
  print_json(out, json_pack("{s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "server",
                            print_json_text(info->server), "backend", print_json_text(info->backend), "backend_reason",
                            print_json_text(info->backend_reason), "pid", (json_int_t)info->pid, "uptime_ms",
                            (json_int_t)info->uptime_ms, "sessions", (json_int_t)info->sessions, "names",
                            (json_int_t)info->names, "weights", (json_int_t)info->weights, "weight_bytes",
                            (json_int_t)info->weight_bytes, "arena_bytes", (json_int_t)info->arena_bytes, "devices",
                            devices));
}

/* A line for each device that does not serve. */
static void troubles_text(const gemmd_daemon_info *info, const struct condition *conditions, FILE *out) {
  char down[PRINT_UNIT_BYTES], next[PRINT_UNIT_BYTES];
  for (uint32_t i = 0; i < device_count(info); i++) {
    const gemmd_device_health *trouble = &conditions[i].trouble;
    if (trouble->down_ms == 0)
      continue;
    fprintf(out, "device %u has not served for %s%s%s", i, print_duration(trouble->down_ms * 1000000, down),
            trouble->why[0] != '\0' ? ": " : "", trouble->why);
    if (trouble->retry_ms > 0)
      fprintf(out, "; it is tried again in %s, or by gemmctl device retry",
              print_duration(trouble->retry_ms * 1000000, next));
    fputc('\n', out);
  }
}

/* A line for each device that direct clients use, or where something waits for quiet. */
static void rest_text(const gemmd_daemon_info *info, const struct condition *conditions, FILE *out) {
  char time[PRINT_UNIT_BYTES];
  for (uint32_t i = 0; i < device_count(info); i++) {
    const gemmd_device_rest *rest = &conditions[i].rest;
    if (rest->quiet[0] != '\0')
      fprintf(out, "device %u, of direct clients: %s; not seen in use for %s; %u shape%s to tune\n", i, rest->quiet,
              print_duration(rest->quiet_ms * 1000000, time), rest->untuned, print_plural(rest->untuned));
    if (rest->damaged > 0)
      fprintf(out, "device %u: %llu lent weight%s found damaged and withdrawn\n", i, (unsigned long long)rest->damaged,
              print_plural(rest->damaged));
  }
}

static void status_text(const gemmd_daemon_info *info, const struct condition *conditions, FILE *out) {
  char bytes[PRINT_UNIT_BYTES], more[PRINT_UNIT_BYTES], time[PRINT_UNIT_BYTES];
  struct print_table table;
  print_table_begin(&table, "ll");
  print_cell(&table, "server");
  print_cell(&table, "%s, process %u, up %s", info->server, info->pid, print_duration(info->uptime_ms * 1000000, time));
  print_cell(&table, "backend");
  print_cell(&table, "%s: %s", info->backend, info->backend_reason);
  print_cell(&table, "sessions");
  print_cell(&table, "%u, with %s of shared memory", info->sessions, print_bytes(info->arena_bytes, bytes));
  print_cell(&table, "weights");
  print_cell(&table, "%u under %u name%s, %s", info->weights, info->names, print_plural(info->names),
             print_bytes(info->weight_bytes, bytes));
  print_table_end(&table, out);

  fputc('\n', out);
  static const char *const heads[] = {"DEVICE", "NAME",     "STATE",   "WEIGHTS", "TAKEN", "LENT",
                                      "COPIES", "WORKING",  "OWN",     "MEMORY",  "ROWS",  "PRODUCTS",
                                      "BUSY",   "FAILURES", "PROCESS", "RESTARTS"};
  print_table_begin(&table, "rllrrrrrrrrrrrrr");
  for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
    print_cell(&table, "%s", heads[i]);
  for (uint32_t i = 0; i < device_count(info); i++) {
    const gemmd_device_info *device = &info->device[i];
    print_cell(&table, "%u", i);
    print_cell(&table, "%s", device->name);
    print_cell(&table, "%s", device->state);
    print_cell(&table, "%s", print_bytes(device->memory_used, bytes));
    print_cell(&table, "%s", print_bytes(device->memory_slabs, more));
    print_cell(&table, "%s", print_bytes(device->memory_lent, more));
    print_cell(&table, "%s", print_bytes(device->memory_copies, more));
    print_cell(&table, "%s", print_bytes(device->memory_working, more));
    print_cell(&table, "%s", print_bytes(device->memory_own, more));
    print_cell(&table, "%s", print_bytes(device->memory_total, more));
    print_cell(&table, "%llu", (unsigned long long)device->rows);
    print_cell(&table, "%llu", (unsigned long long)device->products);
    print_cell(&table, "%s", print_duration(device->device_ns, time));
    print_cell(&table, "%llu", (unsigned long long)device->failures);
    print_cell(&table, "%u", device->pid);
    print_cell(&table, "%u", device->restarts);
  }
  print_table_end(&table, out);
  troubles_text(info, conditions, out);
  rest_text(info, conditions, out);
}

static int ask_conditions(gemmd_session *session, const gemmd_daemon_info *info, struct condition *conditions) {
  int status = GEMMD_OK;
  for (uint32_t i = 0; status == GEMMD_OK && i < device_count(info); i++) {
    struct condition *to = &conditions[i];
    status = gemmd_device_condition(session, i, &to->trouble, &to->rest, &to->formats);
  }
  return status;
}

static enum tool_exit show_status(struct tool_call *call, gemmd_session *session) {
  gemmd_daemon_info info;
  struct condition conditions[sizeof info.device / sizeof *info.device];
  int status = gemmd_daemon_status(session, &info);
  if (status == GEMMD_OK)
    status = ask_conditions(session, &info, conditions);
  if (status != GEMMD_OK)
    return tool_refused(call, session, status);
  (call->json ? status_json : status_text)(&info, conditions, call->out);
  return TOOL_OK;
}

static enum tool_exit run_status(struct tool_call *call) {
  return ctl_in_session(call, show_status);
}

const struct tool_command ctl_status = {
    .name = "status",
    .arguments = "",
    .summary = "The state of the daemon and its devices.",
    .example = "gemmctl status",
    .keys =
        "  server, backend, backend_reason, pid, uptime_ms, sessions, names, weights, weight_bytes, arena_bytes,\n"
        "  devices: a list of {device, name, state, pid, restarts, memory_total, memory_slabs, memory_used,\n"
        "  memory_lent: of the slabs, mapped by clients that compute themselves,\n"
        "  memory_copies: weights in an order that a library wants, memory_working: what products under way need,\n"
        "  memory_own: of gemmd's process there beside all that, naps: how often that was closed for having nothing to "
        "do,\n"
        "  quiet: whether direct clients leave it alone, quiet_ms: since when, untuned: shapes of theirs to be tuned,\n"
        "  verified: comparisons of lent weights, damaged: how many of these were,\n"
        "  down_ms: for how long it has not served, retry_ms: until it is tried again, why: its last worker ended,\n"
        "  formats: of weights that it takes, requests, rows, failures, device_ns,\n"
        "  products: computed, each for one request or several}",
    .run = run_status,
};

/* ---- device retry */

static enum tool_exit run_device(struct tool_call *call) {
  enum { DEVICES_MOST = 64 };
  long device = -1;
  char *rest = "";
  if (strcmp(call->arguments[0], "retry") != 0)
    return tool_fail(call, TOOL_USAGE, "retry is what can be done with a device, not %s", call->arguments[0]);
  if (call->count == 2)
    device = strtol(call->arguments[1], &rest, 10);
  if (*rest != '\0' || device >= DEVICES_MOST || (call->count == 2 && (device < 0 || rest == call->arguments[1])))
    return tool_fail(call, TOOL_USAGE, "a device is a number of 0..%d, not '%s'", DEVICES_MOST - 1, call->arguments[1]);
  gemmd_session *session;
  enum tool_exit code = ctl_connect(call, &session);
  if (code != TOOL_OK)
    return code;
  uint32_t tried = 0;
  int status = gemmd_device_retry(session, (int)device, &tried);
  if (status != GEMMD_OK)
    code = tool_refused(call, session, status);
  else if (call->json)
    print_json(call->out, json_pack("{s:I}", "tried", (json_int_t)tried));
  else
    fprintf(call->out, "%u device%s started again\n", tried, tried == 1 ? " is" : "s are");
  gemmd_disconnect(session);
  return code;
}

const struct tool_command ctl_device = {
    .name = "device",
    .arguments = "retry [N]",
    .least = 1,
    .most = 2,
    .summary = "Starts the worker of device N, which has failed, now; without N those of all failed ones. For admins.",
    .example = "gemmctl device retry 0",
    .keys = "  tried: how many devices had failed and waited for that",
    .run = run_device,
};

/* ---- drain */

static enum tool_exit drain(struct tool_call *call, gemmd_session *session) {
  int status = gemmd_drain(session);
  if (status != GEMMD_OK)
    return tool_refused(call, session, status);
  while (status == GEMMD_OK)
    status = gemmd_dispatch(session, -1);
  if (call->json)
    print_json(call->out, json_pack("{s:b}", "drained", true));
  else
    fprintf(call->out, "gemmd has ended\n");
  return TOOL_OK;
}

static enum tool_exit run_drain(struct tool_call *call) {
  return ctl_in_session(call, drain);
}

const struct tool_command ctl_drain = {
    .name = "drain",
    .arguments = "",
    .summary = "Ends gemmd when its last session ends; until then it takes no new ones. Waits for the end. For admins.",
    .example = "gemmctl drain",
    .keys = "  drained: true",
    .run = run_drain,
};

/* ---- version */

static enum tool_exit run_version(struct tool_call *call) {
  gemmd_session *session = NULL;
  gemmd_options options = {.arena_bytes = CTL_ARENA_BYTES, .entries = 1, .reconnect_ms = UINT_MAX, .name = "gemmctl"};
  gemmd_daemon_info info;
  /* That gemmd does not answer is an answer here, not an error. */
  bool answers =
      gemmd_connect(&session, call->socket, &options) == GEMMD_OK && gemmd_daemon_status(session, &info) == GEMMD_OK;
  if (call->json)
    print_json(call->out, json_pack("{s:s, s:s, s:o}", "gemmctl", GEMMD_RELEASE, "library", gemmd_version(), "server",
                                    answers ? print_json_text(info.server) : json_null()));
  else
    fprintf(call->out, "gemmctl %s\nlibgemmclient %s\n%s\n", GEMMD_RELEASE, gemmd_version(),
            answers ? info.server : "gemmd does not answer");
  gemmd_disconnect(session);
  return TOOL_OK;
}

const struct tool_command ctl_version = {
    .name = "version",
    .arguments = "",
    .summary = "The versions of gemmctl, of the library, and of gemmd where it answers.",
    .example = "gemmctl version",
    .keys = "  gemmctl, library, server: null where gemmd does not answer",
    .run = run_version,
};
