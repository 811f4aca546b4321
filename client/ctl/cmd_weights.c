/* weights, load, unload: what gemmd holds. */
#include "ctl.h"

#include "../tool/print.h"
#include "../tool/words.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BORROWERS_MOST = 16 };

static void hash_text(const gemmd_weight_info *info, char out[65]) {
  for (size_t i = 0; i < sizeof info->hash; i++)
    snprintf(out + 2 * i, 3, "%02x", info->hash[i]);
}

json_t *ctl_weight_json(const gemmd_weight_info *info) {
  char hash[65];
  hash_text(info, hash);
  return json_pack("{s:o, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:s, s:I, s:s, s:I}", "name", print_json_text(info->name),
                   "format", word_text(words_format, (int)info->format), "scale", word_text(words_scale, info->scale),
                   "n", (json_int_t)info->n, "k", (json_int_t)info->k, "bytes", (json_int_t)info->bytes, "references",
                   (json_int_t)info->references, "owner", (json_int_t)info->owner, "mode",
                   word_text(words_mode, (int)info->mode), "devices", (json_int_t)info->devices, "hash", hash,
                   "borrows", (json_int_t)info->borrows);
}

/* ---- weights */

static bool append_json(void *user, const gemmd_weight_info *info) {
  json_array_append_new(user, ctl_weight_json(info));
  return true;
}

static bool append_row(void *user, const gemmd_weight_info *info) {
  struct print_table *table = user;
  char bytes[PRINT_UNIT_BYTES], hash[65];
  hash_text(info, hash);
  print_cell(table, "%s", info->name);
  print_cell(table, "%s", word_text(words_format, (int)info->format));
  print_cell(table, "%s", word_text(words_scale, info->scale));
  print_cell(table, "%lld", (long long)info->n);
  print_cell(table, "%lld", (long long)info->k);
  print_cell(table, "%s", print_bytes(info->bytes, bytes));
  print_cell(table, "%u", info->references);
  print_cell(table, "%u", info->borrows);
  print_cell(table, "%u", info->devices);
  print_cell(table, "%u", info->owner);
  print_cell(table, "%s", word_text(words_mode, (int)info->mode));
  print_cell(table, "%.12s", hash);
  return true;
}

/* Of a pattern that is a name. */
static void list_borrowers(const struct tool_call *call, gemmd_session *session, const char *name) {
  gemmd_borrower list[BORROWERS_MOST];
  unsigned count;
  if (gemmd_weight_borrowers(session, name, list, BORROWERS_MOST, &count, NULL) != GEMMD_OK)
    return;
  for (unsigned i = 0; i < count; i++)
    fprintf(call->out, "borrowed by process %u of user %u\n", list[i].pid, list[i].user);
}

static int list_text(const struct tool_call *call, gemmd_session *session, const char *pattern) {
  static const char *const heads[] = {"NAME",  "FORMAT",  "SCALE",   "N",     "K",    "BYTES",
                                      "NAMES", "BORROWS", "DEVICES", "OWNER", "MODE", "HASH"};
  struct print_table table;
  print_table_begin(&table, "lllrrrrrrrll");
  for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
    print_cell(&table, "%s", heads[i]);
  int status = gemmd_weight_list(session, pattern, append_row, &table);
  print_table_end(&table, call->out);
  if (status == GEMMD_OK && pattern != NULL)
    list_borrowers(call, session, pattern);
  return status;
}

/* To each weight of the list that is borrowed: by whom. One that has gone since has nobody. */
static void add_borrowers(gemmd_session *session, json_t *weights) {
  size_t index;
  json_t *weight;
  json_array_foreach(weights, index, weight) {
    gemmd_borrower list[BORROWERS_MOST];
    unsigned count = 0;
    json_t *borrowers = json_array();
    if (json_integer_value(json_object_get(weight, "borrows")) > 0)
      (void)gemmd_weight_borrowers(session, json_string_value(json_object_get(weight, "name")), list, BORROWERS_MOST,
                                   &count, NULL);
    for (unsigned i = 0; i < count; i++)
      json_array_append_new(borrowers,
                            json_pack("{s:I, s:I}", "pid", (json_int_t)list[i].pid, "user", (json_int_t)list[i].user));
    json_object_set_new(weight, "borrowers", borrowers);
  }
}

static int list_json(const struct tool_call *call, gemmd_session *session, const char *pattern) {
  json_t *list = json_array();
  int status = gemmd_weight_list(session, pattern, append_json, list);
  if (status == GEMMD_OK) {
    add_borrowers(session, list);
    print_json(call->out, json_pack("{s:o}", "weights", list));
  } else {
    json_decref(list);
  }
  return status;
}

enum tool_exit ctl_weights(struct tool_call *call) {
  gemmd_session *session;
  enum tool_exit code = ctl_connect(call, &session);
  if (code != TOOL_OK)
    return code;
  const char *pattern = call->count > 0 ? call->arguments[0] : NULL;
  int status = call->json ? list_json(call, session, pattern) : list_text(call, session, pattern);
  if (status != GEMMD_OK)
    code = tool_refused(call, session, status);
  gemmd_disconnect(session);
  return code;
}

/* ---- load */

/* The bar on stderr: from the second second on, where stderr is a terminal. */
struct progress {
  struct timespec start, drawn;
  bool terminal, visible;
};

static double seconds_between(const struct timespec *from, const struct timespec *to) {
  return (double)(to->tv_sec - from->tv_sec) + (double)(to->tv_nsec - from->tv_nsec) / 1e9;
}

static void progress_draw(void *user, uint64_t done, uint64_t total) {
  struct progress *progress = user;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (!progress->terminal || seconds_between(&progress->start, &now) < 1 ||
      (progress->visible && seconds_between(&progress->drawn, &now) < 0.1))
    return;
  static const char bar[] = "########################################";
  double part = total > 0 && done < total ? (double)done / (double)total : 1;
  char have[PRINT_UNIT_BYTES], all[PRINT_UNIT_BYTES];
  fprintf(stderr, "\r[%-40.*s] %3.0f %%  %s of %s\x1b[K", (int)(part * 40), bar, part * 100, print_bytes(done, have),
          print_bytes(total, all));
  progress->visible = true;
  progress->drawn = now;
}

static void progress_clear(const struct progress *progress) {
  if (progress->visible)
    fprintf(stderr, "\r\x1b[K");
}

static bool load_options(const struct tool_call *call, gemmd_load *load) {
  int format, scale, method, mode, placement;
  int64_t device, devices;
  if (!tool_word(call, "format", words_format, 0, &format) || !tool_word(call, "scale", words_scale, 0, &scale) ||
      !tool_word(call, "method", words_method, 0, &method) || !tool_word(call, "mode", words_mode, 0, &mode) ||
      !tool_word(call, "placement", words_placement, GEMMD_PLACEMENT_SINGLE, &placement) ||
      !tool_integer(call, "device", 0, 63, -1, &device) || !tool_integer(call, "devices", 1, 64, 0, &devices))
    return false;
  const char *tensor = tool_value(call, "tensor"), *name = tool_value(call, "name");
  *load = (gemmd_load){.name = name != NULL ? name : tensor,
                       .tensor = tensor,
                       .scale_tensor = tool_value(call, "scale-tensor"),
                       .format = (enum gemmd_format)format,
                       .scale = (enum gemmd_scale)scale,
                       .method = (enum gemmd_method)method,
                       .replace = tool_value(call, "replace") != NULL,
                       .placement = (enum gemmd_placement)placement,
                       .device = (int)device,
                       .devices = (unsigned)devices,
                       .mode = (enum gemmd_mode)mode,
                       .progress = progress_draw};
  return true;
}

static void load_report(const struct tool_call *call, const gemmd_weight_info *info) {
  if (call->json) {
    json_t *object = ctl_weight_json(info);
    json_object_set_new(object, "shared", json_boolean(info->shared));
    print_json(call->out, object);
    return;
  }
  char bytes[PRINT_UNIT_BYTES];
  const char *format = word_text(words_format, (int)info->format);
  print_bytes(info->bytes, bytes);
  if (info->shared)
    fprintf(call->out, "%s: %lld x %lld as %s; equal content was there already, %s shared by %u name%s\n", info->name,
            (long long)info->n, (long long)info->k, format, bytes, info->references, print_plural(info->references));
  else if (info->devices > 1)
    fprintf(call->out, "%s: %lld x %lld as %s, %s on %u devices\n", info->name, (long long)info->n, (long long)info->k,
            format, bytes, info->devices);
  else
    fprintf(call->out, "%s: %lld x %lld as %s, %s\n", info->name, (long long)info->n, (long long)info->k, format,
            bytes);
}

enum tool_exit ctl_load(struct tool_call *call) {
  gemmd_load load;
  if (!load_options(call, &load))
    return TOOL_USAGE;
  gemmd_session *session;
  enum tool_exit code = ctl_connect(call, &session);
  if (code != TOOL_OK)
    return code;
  struct progress progress = {.terminal = isatty(STDERR_FILENO) == 1};
  clock_gettime(CLOCK_MONOTONIC, &progress.start);
  load.user = &progress;
  gemmd_weight_info info;
  int status = gemmd_weight_load_file(session, call->arguments[0], &load, &info);
  progress_clear(&progress);
  if (status != GEMMD_OK)
    code = tool_refused(call, session, status);
  else
    load_report(call, &info);
  if (status == GEMMD_EXISTS)
    tool_fail(call, code, "--replace puts the new content in its place, --name gives it another name");
  gemmd_disconnect(session);
  return code;
}

/* ---- unload */

enum tool_exit ctl_unload(struct tool_call *call) {
  gemmd_session *session;
  enum tool_exit code = ctl_connect(call, &session);
  if (code != TOOL_OK)
    return code;
  const char *name = call->arguments[0];
  uint64_t freed = 0;
  char bytes[PRINT_UNIT_BYTES];
  int status = gemmd_weight_unload(session, name, &freed);
  if (status != GEMMD_OK)
    code = tool_refused(call, session, status);
  else if (call->json)
    print_json(call->out, json_pack("{s:o, s:I}", "name", print_json_text(name), "freed", (json_int_t)freed));
  else if (freed == 0)
    fprintf(call->out, "%s: the name is gone; the content is still in use\n", name);
  else
    fprintf(call->out, "%s: %s freed\n", name, print_bytes(freed, bytes));
  gemmd_disconnect(session);
  return code;
}
