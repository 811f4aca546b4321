/* weights, unload: what gemmd holds. */
#include "ctl.h"

#include "../tool/print.h"
#include "../tool/words.h"

#include <stdlib.h>
#include <string.h>

enum { BORROWERS_MOST = 16 };

/* ---- weights */

static bool append_json(void *user, const gemmd_weight_info *info) {
  json_array_append_new(user, ctl_weight_json(info));
  return true;
}

static bool append_row(void *user, const gemmd_weight_info *info) {
  struct print_table *table = user;
  char bytes[PRINT_UNIT_BYTES], hash[65];
  ctl_hash_text(info, hash);
  print_cell(table, "%s", info->name);
  print_cell(table, "%s", word_text(words_format, (int)info->format));
  print_cell(table, "%s", word_text(words_scale, info->scale));
  print_cell(table, "%u", info->experts);
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
  static const char *const heads[] = {"NAME",  "FORMAT",  "SCALE",   "EXPERTS", "N",    "K",   "BYTES",
                                      "NAMES", "BORROWS", "DEVICES", "OWNER",   "MODE", "HASH"};
  struct print_table table;
  print_table_begin(&table, "lllrrrrrrrrll");
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

/* ---- weights --tree: a line for each part of a name up to a dot that several weights share */

struct tree {
  gemmd_weight_info *infos; /* owned; by name */
  size_t count, room;
};

static bool append_info(void *user, const gemmd_weight_info *info) {
  struct tree *tree = user;
  if (tree->count == tree->room) {
    size_t more = tree->room == 0 ? 64 : 2 * tree->room;
    gemmd_weight_info *grown = realloc(tree->infos, more * sizeof *grown);
    if (grown == NULL)
      return false;
    tree->infos = grown;
    tree->room = more;
  }
  tree->infos[tree->count++] = *info;
  return true;
}

static uint64_t bytes_of(const gemmd_weight_info *infos, size_t count) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < count; i++)
    bytes += infos[i].bytes;
  return bytes;
}

/* How many of the names begin with the first `length` bytes of the first one. */
static size_t run_of(const gemmd_weight_info *infos, size_t count, size_t length) {
  size_t run = 1;
  while (run < count && strncmp(infos[run].name, infos[0].name, length) == 0)
    run++;
  return run;
}

/* Names that share their first `begin` bytes. */
static void print_level(FILE *out, const gemmd_weight_info *infos, size_t count, size_t begin, int depth) {
  char bytes[PRINT_UNIT_BYTES];
  for (size_t i = 0; i < count;) {
    const char *name = infos[i].name, *dot = strchr(name + begin, '.');
    size_t end = dot != NULL ? (size_t)(dot - name) + 1 : strlen(name), run = run_of(infos + i, count - i, end);
    /* parts that all of them share stand in one line */
    while (run > 1 && dot != NULL && (dot = strchr(name + end, '.')) != NULL &&
           run_of(infos + i, run, (size_t)(dot - name) + 1) == run)
      end = (size_t)(dot - name) + 1;
    if (run > 1 && end < strlen(name)) {
      fprintf(out, "%*s%.*s  %zu weights, %s\n", 2 * depth, "", (int)(end - begin), name + begin, run,
              print_bytes(bytes_of(infos + i, run), bytes));
      print_level(out, infos + i, run, end, depth + 1);
    } else {
      run = 1;
      fprintf(out, "%*s%s  ", 2 * depth, "", name + begin);
      if (infos[i].experts > 0)
        fprintf(out, "%u experts of ", infos[i].experts);
      fprintf(out, "%lld x %lld %s, %s\n", (long long)infos[i].n, (long long)infos[i].k,
              word_text(words_format, (int)infos[i].format), print_bytes(infos[i].bytes, bytes));
    }
    i += run;
  }
}

static int list_tree(const struct tool_call *call, gemmd_session *session, const char *pattern) {
  struct tree tree = {.count = 0};
  int status = gemmd_weight_list(session, pattern, append_info, &tree);
  for (size_t i = 0; i < tree.count; i++) /* names may hold what a terminal would act on */
    for (char *at = tree.infos[i].name; *at != '\0'; at++)
      *at = *at < ' ' || *at > '~' ? '?' : *at;
  print_level(call->out, tree.infos, tree.count, 0, 0);
  free(tree.infos);
  return status;
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

static enum tool_exit list_weights(struct tool_call *call, gemmd_session *session) {
  const char *pattern = call->count > 0 ? call->arguments[0] : NULL;
  int status = call->json                         ? list_json(call, session, pattern)
               : tool_value(call, "tree") != NULL ? list_tree(call, session, pattern)
                                                  : list_text(call, session, pattern);
  return status == GEMMD_OK ? TOOL_OK : tool_refused(call, session, status);
}

static enum tool_exit run_weights(struct tool_call *call) {
  return ctl_in_session(call, list_weights);
}

static const struct tool_option weights_options[] = {
    {"tree", NULL, "by the parts of their names, with sums", false},
    {0},
};

const struct tool_command ctl_weights = {
    .name = "weights",
    .arguments = "[PATTERN]",
    .most = 1,
    .summary = "The weights, by name; PATTERN as in file names: 'layer.*'.",
    .options = weights_options,
    .example = "gemmctl weights 'encoder.layer.0.*'",
    .keys = "  weights: a list of " CTL_WEIGHT_KEYS ",\n  borrowers: a list of {pid, user} of these",
    .run = run_weights,
};

/* ---- unload */

static enum tool_exit unload_one(struct tool_call *call, gemmd_session *session, const char *name) {
  uint64_t freed = 0;
  char bytes[PRINT_UNIT_BYTES];
  int status = gemmd_weight_unload(session, name, &freed);
  if (status != GEMMD_OK)
    return tool_refused(call, session, status);
  if (call->json)
    print_json(call->out, json_pack("{s:o, s:I}", "name", print_json_text(name), "freed", (json_int_t)freed));
  else if (freed == 0)
    fprintf(call->out, "%s: the name is gone; the content is still in use\n", name);
  else
    fprintf(call->out, "%s: %s freed\n", name, print_bytes(freed, bytes));
  return TOOL_OK;
}

/* Of a pattern, all that match; what another has unloaded meanwhile is gone as well. */
static enum tool_exit unload_all(struct tool_call *call, gemmd_session *session, const char *pattern) {
  struct tree tree = {.count = 0};
  uint64_t freed = 0, total = 0;
  size_t gone = 0;
  char bytes[PRINT_UNIT_BYTES];
  int status = gemmd_weight_list(session, pattern, append_info, &tree);
  for (size_t i = 0; status == GEMMD_OK && i < tree.count; i++) {
    status = gemmd_weight_unload(session, tree.infos[i].name, &freed);
    total += status == GEMMD_OK ? freed : 0;
    gone += status == GEMMD_OK;
    status = status == GEMMD_NOT_FOUND ? GEMMD_OK : status;
  }
  free(tree.infos);
  if (status != GEMMD_OK)
    return tool_refused(call, session, status);
  if (gone == 0)
    return tool_cannot(call, GEMMD_NOT_FOUND, "no weight matches \"%s\"", pattern);
  if (call->json)
    print_json(call->out, json_pack("{s:o, s:I, s:I}", "pattern", print_json_text(pattern), "names", (json_int_t)gone,
                                    "freed", (json_int_t)total));
  else
    fprintf(call->out, "%zu name%s gone, %s freed\n", gone, print_plural(gone), print_bytes(total, bytes));
  return TOOL_OK;
}

static enum tool_exit unload(struct tool_call *call, gemmd_session *session) {
  gemmd_weight_info info;
  const char *name = call->arguments[0];
  /* A name may hold what looks like a pattern. */
  bool pattern = strpbrk(name, "*?[") != NULL && gemmd_weight_stat(session, name, &info) != GEMMD_OK;
  return pattern ? unload_all(call, session, name) : unload_one(call, session, name);
}

static enum tool_exit run_unload(struct tool_call *call) {
  return ctl_in_session(call, unload);
}

const struct tool_command ctl_unload = {
    .name = "unload",
    .arguments = "NAME|PATTERN",
    .least = 1,
    .most = 1,
    .summary = "Drops a name, or all that match; the last one of a content frees the memory.",
    .example = "gemmctl unload 'llama.*'",
    .keys = "  name, freed: bytes that went back to the device; of a pattern: pattern, names: how many, freed",
    .run = run_unload,
};
