#include "trials.h"
#include "kernel_text.h"

#include "../../tool/print.h"
#include "../output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES = 64, SHOWN = 20, REASONS = 20 };

/* ---- fetching */

static bool add(void *user, const gemmd_tune_trial *trial) {
  struct tune_trials *trials = user;
  if (trials->count == trials->room) {
    size_t room = trials->room == 0 ? 256 : trials->room * 2;
    gemmd_tune_trial *larger = realloc(trials->list, room * sizeof *larger);
    if (larger == NULL) {
      trials->room = 0;
      return false;
    }
    trials->list = larger;
    trials->room = room;
  }
  trials->list[trials->count++] = *trial;
  return true;
}

enum tool_exit tune_trials_fetch(const struct tool_call *call, gemmd_session *session, struct tune_trials *out) {
  out->list = NULL;
  out->count = out->room = 0;
  int status = gemmd_tune_trials(session, &out->search, add, out);
  if (status != GEMMD_OK)
    return tool_refused(call, session, status);
  if (out->count > 0 && out->room == 0)
    return tool_cannot(call, GEMMD_NOMEM, "out of memory for the table of a search");
  return TOOL_OK;
}

/* Of what memory and arithmetic deliver at most; 0: not known. */
static double roof_share(const struct tune_trials *trials, const gemmd_tune_trial *trial) {
  return trial->ns > 0 ? (double)trials->search.roof_ns / (double)trial->ns : 0;
}

/* ---- CSV */

struct names {
  char list[NAMES][KERNEL_WORD_BYTES];
  size_t count;
};

static void add_name(struct names *names, const char *name) {
  for (size_t i = 0; i < names->count; i++)
    if (strcmp(names->list[i], name) == 0)
      return;
  if (names->count < NAMES)
    strcpy(names->list[names->count++], name);
}

/* A field with what CSV sets apart in quotes; the text is the daemon's. */
static void write_field(FILE *out, const char *text) {
  fputc('"', out);
  for (; *text != '\0'; text++) {
    if (*text == '"')
      fputc('"', out);
    fputc(*text == '\n' || *text == '\r' ? ' ' : *text, out);
  }
  fputc('"', out);
}

static void write_line(const struct tune_trials *trials, const gemmd_tune_trial *trial, const struct names *names,
                       FILE *out) {
  char family[KERNEL_WORD_BYTES];
  kernel_family(trial->kernel, family);
  write_field(out, family);
  for (size_t i = 0; i < names->count; i++) {
    const long none = -0x7fffffffL;
    long value = kernel_value(trial->kernel, names->list[i], none);
    if (value == none)
      fputc(',', out);
    else
      fprintf(out, ",%ld", value);
  }
  fprintf(out, ",%s,", trial->state);
  if (trial->ns > 0)
    fprintf(out, "%llu,%.4f,%u,", (unsigned long long)trial->ns, trial->spread, trial->samples);
  else
    fprintf(out, ",,,");
  if (roof_share(trials, trial) > 0)
    fprintf(out, "%.4g", roof_share(trials, trial));
  fprintf(out, ",%llu,", (unsigned long long)trial->workspace);
  if (trial->error >= 0)
    fprintf(out, "%.3g", trial->error);
  fprintf(out, ",");
  if (trial->filling > 0)
    fprintf(out, "%u", trial->filling);
  fprintf(out, ",%d,%d,%d,%d,%d,", trial->own, trial->incumbent, trial->winner, trial->library_first, trial->hand);
  write_field(out, trial->why);
  fputc('\n', out);
}

void tune_trials_csv(const struct tune_trials *trials, FILE *out) {
  struct names names = {.count = 0};
  struct kernel_parameter parameter;
  for (size_t i = 0; i < trials->count; i++)
    for (const char *at = trials->list[i].kernel; kernel_next(&at, &parameter);)
      add_name(&names, parameter.name);
  fprintf(out, "family");
  for (size_t i = 0; i < names.count; i++)
    fprintf(out, ",%s", names.list[i]);
  fprintf(out,
          ",state,median_ns,spread,samples,of_roof,workspace_bytes,error,wave_filling_split_k,own,incumbent,winner,"
          "library_first,hand,why\n");
  for (size_t i = 0; i < trials->count; i++)
    write_line(trials, &trials->list[i], &names, out);
}

/* ---- JSON */

json_t *tune_trials_json(const struct tune_trials *trials) {
  json_t *list = json_array();
  for (size_t i = 0; i < trials->count; i++) {
    const gemmd_tune_trial *trial = &trials->list[i];
    json_t *object = json_pack("{s:o, s:o, s:o, s:I, s:f, s:I, s:f, s:I, s:I, s:b, s:b, s:b, s:b, s:b}", "kernel",
                               print_json_text(trial->kernel), "state", print_json_text(trial->state), "why",
                               print_json_text(trial->why), "ns", (json_int_t)trial->ns, "spread", trial->spread,
                               "samples", (json_int_t)trial->samples, "of_roof", roof_share(trials, trial), "workspace",
                               (json_int_t)trial->workspace, "filling", (json_int_t)trial->filling, "own", trial->own,
                               "incumbent", trial->incumbent, "winner", trial->winner, "library_first",
                               trial->library_first, "hand", trial->hand);
    json_object_set_new(object, "error", trial->error >= 0 ? json_real(trial->error) : json_null());
    json_array_append_new(list, object);
  }
  return list;
}

/* ---- text */

static void marks(const gemmd_tune_trial *trial, struct print_table *table) {
  print_cell(table, "%s%s%s%s%s%s", trial->kernel, trial->winner ? "  <- wins" : "",
             trial->incumbent ? "  (served before)" : "", trial->own ? "  (the backend's own choice)" : "",
             trial->library_first ? "  (the library's first choice)" : "", trial->hand ? "  (by hand)" : "");
}

static void write_timed(const struct tune_trials *trials, size_t most, FILE *out) {
  static const char *const heads[] = {"TIME", "SPREAD", "OF ROOF", "ERROR", "WORKSPACE", "KERNEL"};
  char time[PRINT_UNIT_BYTES], bytes[PRINT_UNIT_BYTES];
  struct print_table table;
  size_t shown = 0;
  print_table_begin(&table, "rrrrrl");
  for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
    print_cell(&table, "%s", heads[i]);
  for (size_t i = 0; i < trials->count; i++) {
    const gemmd_tune_trial *trial = &trials->list[i];
    bool told_apart = trial->own || trial->incumbent || trial->winner || trial->library_first || trial->hand;
    if (trial->ns == 0 || strcmp(trial->state, "timed") != 0 || (shown >= most && !told_apart))
      continue;
    shown++;
    print_cell(&table, "%s", print_duration(trial->ns, time));
    print_cell(&table, "%.1f %%", trial->spread * 100);
    if (trials->search.roof_ns > 0)
      print_cell(&table, "%.0f %%", 100 * roof_share(trials, trial));
    else
      print_cell(&table, "-");
    if (trial->error >= 0)
      print_cell(&table, "%.2g", trial->error);
    else
      print_cell(&table, "-");
    print_cell(&table, "%s", print_bytes(trial->workspace, bytes));
    marks(trial, &table);
  }
  print_table_end(&table, out);
}

/* The fastest `most`, how many others there are, and every one that has no time for a reason. */
static void tune_trials_text(const struct tune_trials *trials, size_t most, FILE *out) {
  static const char *const states[] = {"timed", "untried", "refused", "failed", "wrong"};
  size_t counts[5] = {0}, reasons = 0;
  for (size_t i = 0; i < trials->count; i++)
    for (size_t s = 0; s < 5; s++)
      counts[s] += strcmp(trials->list[i].state, states[s]) == 0;
  fprintf(out, "%s, search %llu: %zu candidates", trials->search.shape, (unsigned long long)trials->search.number,
          trials->count);
  for (size_t s = 0; s < 5; s++)
    if (counts[s] > 0)
      fprintf(out, ", %zu %s", counts[s], states[s]);
  fprintf(out, "\n\n");
  write_timed(trials, most, out);
  for (size_t i = 0; i < trials->count && reasons < REASONS; i++) {
    const gemmd_tune_trial *trial = &trials->list[i];
    if (trial->why[0] != '\0')
      fprintf(out, "%s%s: %s: %s\n", reasons++ == 0 ? "\n" : "", trial->state, trial->kernel, trial->why);
  }
}

enum tool_exit tune_trials_show(struct tool_call *call, gemmd_session *session, uint32_t device) {
  struct tune_trials trials = {.search = {.device = device}};
  const char *path = tool_value(call, "csv");
  struct output output;
  enum tool_exit code = tune_trials_fetch(call, session, &trials);
  if (code == TOOL_OK && path != NULL) {
    bool written = output_open(&output, path);
    if (written) {
      tune_trials_csv(&trials, output.file);
      written = output_close(&output, true);
    }
    if (!written)
      code = tool_cannot(call, GEMMD_SYSTEM, "cannot write %s: %s", path, strerror(errno));
  }
  if (code == TOOL_OK && call->json)
    print_json(call->out, json_pack("{s:I, s:o, s:I, s:o}", "search", (json_int_t)trials.search.number, "shape",
                                    print_json_text(trials.search.shape), "roof_ns", (json_int_t)trials.search.roof_ns,
                                    "trials", tune_trials_json(&trials)));
  else if (code == TOOL_OK && path != NULL)
    fprintf(call->out, "%zu candidates in %s\n", trials.count, path);
  else if (code == TOOL_OK)
    tune_trials_text(&trials, SHOWN, call->out);
  free(trials.list);
  return code;
}
