/* tune: what the tuner knows and does, and doing it by hand. */
#include "../ctl.h"
#include "bench.h"
#include "files.h"
#include "options.h"
#include "report.h"
#include "shapes.h"
#include "trials.h"
#include "watch.h"

#include "../../tool/print.h"
#include "../../tool/words.h"
#include "../output.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- list, show */

static const char *time_text(uint64_t ns, char out[PRINT_UNIT_BYTES]) {
  return ns == 0 ? "-" : print_duration(ns, out);
}

static void list_one(struct print_table *table, const gemmd_tune_shape *shape) {
  char own[PRINT_UNIT_BYTES], tuned[PRINT_UNIT_BYTES];
  print_cell(table, "%s", shape->shape);
  print_cell(table, "%s%s%s", shape->state,
             shape->confirmed || strcmp(shape->state, "kept") != 0 ? "" : ", unconfirmed",
             shape->tuning ? ", now" : "");
  print_cell(table, "%llu", (unsigned long long)shape->calls);
  print_cell(table, "%s", time_text(shape->own_ns, own));
  print_cell(table, "%s", time_text(shape->tuned_ns, tuned));
  if (shape->own_ns > 0 && shape->tuned_ns > 0)
    print_cell(table, "%.2f", (double)shape->own_ns / (double)shape->tuned_ns);
  else
    print_cell(table, "-");
  print_cell(table, "%s", shape->why[0] != '\0' ? shape->why : shape->kernel);
}

static void list_text(const struct tune_shapes *shapes, const char *pattern, FILE *out) {
  static const char *const heads[] = {"SHAPE", "STATE", "CALLS", "OWN", "TUNED", "GAIN", "KERNEL"};
  struct print_table table;
  print_table_begin(&table, "llrrrrl");
  for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
    print_cell(&table, "%s", heads[i]);
  for (size_t i = 0; i < shapes->count; i++)
    if (tune_matches(pattern, shapes->list[i].shape))
      list_one(&table, &shapes->list[i]);
  print_table_end(&table, out);
}

static json_t *list_json(const struct tune_shapes *shapes, const char *pattern) {
  json_t *list = json_array();
  for (size_t i = 0; i < shapes->count; i++)
    if (tune_matches(pattern, shapes->list[i].shape))
      json_array_append_new(list, tune_shape_json(&shapes->list[i]));
  return json_pack("{s:o}", "shapes", list);
}

enum { PATTERN_BYTES = 256 };

/* Of the shapes of the weight that has this name; where none has, `text` itself. */
static const char *shapes_of(gemmd_session *session, const char *text, char out[PATTERN_BYTES]) {
  gemmd_weight_info info;
  if (text == NULL || gemmd_weight_stat(session, text, &info) != GEMMD_OK)
    return text;
  snprintf(out, PATTERN_BYTES, "%s-%s-%lldx%lld-*", word_text(words_format, (int)info.format),
           word_text(words_scale, info.scale), (long long)info.n, (long long)info.k);
  return out;
}

/* Those that match; `given` NULL: all. */
static enum tool_exit list(struct tool_call *call, gemmd_session *session, uint32_t device, const char *given) {
  char of_weight[PATTERN_BYTES];
  const char *pattern = shapes_of(session, given, of_weight);
  struct tune_shapes shapes;
  enum tool_exit code = tune_shapes(call, session, device, &shapes);
  if (code == TOOL_OK && call->json)
    print_json(call->out, list_json(&shapes, pattern));
  else if (code == TOOL_OK)
    list_text(&shapes, pattern, call->out);
  free(shapes.list);
  return code;
}

/* ---- forget, pin */

static enum tool_exit forget(struct tool_call *call, gemmd_session *session, uint32_t device, const char *pattern) {
  char of_weight[PATTERN_BYTES];
  uint32_t count;
  int status = gemmd_tune_forget(session, device, shapes_of(session, pattern, of_weight), &count);
  if (status != GEMMD_OK)
    return tool_refused(call, session, status);
  if (call->json)
    print_json(call->out, json_pack("{s:I}", "forgotten", (json_int_t)count));
  else
    fprintf(call->out, "forgot %u shapes\n", count);
  return TOOL_OK;
}

static enum tool_exit pin(struct tool_call *call, gemmd_session *session, const char *pattern, const char *kernel) {
  uint32_t weights;
  int status = gemmd_tune_pin(session, pattern, kernel, &weights);
  if (status != GEMMD_OK)
    return tool_refused(call, session, status);
  if (weights == 0)
    return tool_cannot(call, GEMMD_NOT_FOUND, "no weight's name matches %s", pattern);
  if (call->json)
    print_json(call->out,
               json_pack("{s:s, s:s?, s:I}", "pattern", pattern, "kernel", kernel, "weights", (json_int_t)weights));
  else if (kernel == NULL)
    fprintf(call->out, "%u weight%s free to choose again\n", weights, print_plural(weights));
  else
    fprintf(call->out,
            "set for %u weight%s, once it has been checked. To keep it, in gemmd.conf:\n  tune_pins = %s=%s\n", weights,
            print_plural(weights), pattern, kernel);
  return TOOL_OK;
}

/* ---- a weight, now */

static json_t *report_json(const gemmd_tune_report *report, const struct tune_trials *trials) {
  json_t *results = json_array();
  for (uint32_t i = 0; i < report->count; i++) {
    const gemmd_tune_result *result = &report->results[i];
    json_array_append_new(results,
                          json_pack("{s:o, s:I, s:f, s:I, s:b, s:b}", "kernel", print_json_text(result->kernel), "ns",
                                    (json_int_t)result->ns, "spread", result->spread, "samples",
                                    (json_int_t)result->samples, "own", result->own, "hand", result->hand));
  }
  return json_pack("{s:I, s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "search",
                   (json_int_t)trials->search.number, "trials", tune_trials_json(trials), "shape",
                   print_json_text(report->shape), "kernel", print_json_text(report->kernel), "checked",
                   (json_int_t)report->checked, "wrong", (json_int_t)report->wrong, "timed", (json_int_t)report->timed,
                   "spent_ns", (json_int_t)report->spent_ns, "library_first_ns", (json_int_t)report->library_first_ns,
                   "library_ns", (json_int_t)report->library_ns, "roof_ns", (json_int_t)report->roof_ns, "why",
                   print_json_text(report->why), "results", results);
}

static void report_text(const gemmd_tune_report *report, FILE *out) {
  char time[PRINT_UNIT_BYTES];
  struct print_table table;
  fprintf(out, "%s: %u kernels compared with the plain one, %u known to be wrong, %u timed, %s of work\n\n",
          report->shape, report->checked, report->wrong, report->timed, print_duration(report->spent_ns, time));
  print_table_begin(&table, "rrrl");
  print_cell(&table, "TIME");
  print_cell(&table, "SPREAD");
  print_cell(&table, "SAMPLES");
  print_cell(&table, "KERNEL");
  for (uint32_t i = 0; i < report->count; i++) {
    const gemmd_tune_result *result = &report->results[i];
    bool serves = strcmp(result->kernel, report->kernel) == 0;
    print_cell(&table, "%s", time_text(result->ns, time));
    print_cell(&table, "%.1f %%", result->spread * 100);
    print_cell(&table, "%u", result->samples);
    print_cell(&table, "%s%s%s%s", result->kernel, result->own ? "  (the backend's own choice)" : "",
               result->hand ? "  (by hand)" : "", serves ? "  <- serves" : "");
  }
  print_table_end(&table, out);
  if (report->why[0] != '\0')
    fprintf(out, "\nWhat was set by hand cannot serve: %s\n", report->why);
  if (report->library_ns > 0) {
    fprintf(out, "\nThe library's first choice takes %s", print_duration(report->library_first_ns, time));
    fprintf(out, ", its fastest %s\n", print_duration(report->library_ns, time));
  }
}

/* What came of it, and to `csv` (NULL: none) all that was tried. */
static enum tool_exit tell(struct tool_call *call, gemmd_session *session, const gemmd_tune_report *report,
                           struct tune_trials *trials, FILE *csv) {
  bool table = trials->search.number != 0; /* older daemons keep none */
  if (csv != NULL && !table)
    return tool_cannot(call, GEMMD_UNSUPPORTED, "this daemon keeps no table of what a search tried");
  enum tool_exit code = table && (csv != NULL || call->json) ? tune_trials_fetch(call, session, trials) : TOOL_OK;
  if (code == TOOL_OK && csv != NULL)
    tune_trials_csv(trials, csv);
  if (code == TOOL_OK && call->json)
    print_json(call->out, report_json(report, trials));
  else if (code == TOOL_OK)
    report_text(report, call->out);
  return code;
}

static enum tool_exit run(struct tool_call *call, gemmd_session *session, const char *weight, const char *kernel) {
  const char *path = tool_value(call, "csv");
  struct tune_trials trials = {.count = 0};
  struct output output = {.file = NULL};
  gemmd_tune_request request;
  gemmd_tune_report report;
  if (!tune_request(call, &request) || !tune_effort(call, &trials.search))
    return TOOL_USAGE;
  request.weight = weight;
  request.kernel = kernel;
  /* A place that cannot be written to is found before the search, which takes long. */
  if (path != NULL && !output_open(&output, path))
    return tool_cannot(call, GEMMD_SYSTEM, "cannot write %s: %s", path, strerror(errno));
  int status = gemmd_tune_measured(session, &request, &trials.search, &report);
  enum tool_exit code =
      status == GEMMD_OK ? tell(call, session, &report, &trials, output.file) : tool_refused(call, session, status);
  if (path != NULL && !output_close(&output, code == TOOL_OK) && code == TOOL_OK)
    code = tool_cannot(call, GEMMD_SYSTEM, "cannot write %s: %s", path, strerror(errno));
  if (code == TOOL_OK && path != NULL && !call->json)
    fprintf(call->out, "\nAll %zu candidates are in %s\n", trials.count, path);
  free(trials.list);
  return code;
}

/* ---- which of these */

static enum tool_exit with_argument(struct tool_call *call, gemmd_session *session, uint32_t device, const char *word,
                                    const char *argument) {
  if (strcmp(word, "show") == 0)
    return list(call, session, device, argument);
  if (strcmp(word, "forget") == 0)
    return forget(call, session, device, argument);
  if (strcmp(word, "export") == 0)
    return tune_export(call, session, device, argument);
  if (strcmp(word, "import") == 0)
    return tune_import(call, session, device, argument);
  return tool_fail(call, TOOL_USAGE, "\"%s\" takes no argument \"%s\"", word, argument);
}

/* What a word that needs an argument lacks; NULL: it is none. */
static const char *missing_behind(const char *word) {
  static const char *const needs[][2] = {
      {"show", "PATTERN"}, {"forget", "PATTERN"}, {"export", "FILE"}, {"import", "FILE"}};
  for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
    if (strcmp(word, needs[i][0]) == 0)
      return needs[i][1];
  return NULL;
}

static enum tool_exit dispatch(struct tool_call *call, gemmd_session *session, uint32_t device) {
  char kernel[TUNE_KERNEL_BYTES];
  bool given;
  if (!tune_kernel(call, kernel, &given))
    return TOOL_USAGE;
  if (tool_value(call, "pin") != NULL && tool_value(call, "unpin") != NULL)
    return tool_fail(call, TOOL_USAGE, "--pin and --unpin exclude each other");
  if (tool_value(call, "microbench") != NULL)
    return tune_microbench(call, session, device, given ? kernel : NULL);
  if (call->count == 0)
    return tool_fail(call, TOOL_USAGE,
                     "list, show, export, import, forget, watch, report, trials, a weight, or --microbench");
  const char *word = call->arguments[0];
  if (call->count > 1)
    return with_argument(call, session, device, word, call->arguments[1]);
  if (missing_behind(word) != NULL)
    return tool_fail(call, TOOL_USAGE, "%s is missing behind \"%s\"", missing_behind(word), word);
  if (strcmp(word, "list") == 0)
    return list(call, session, device, NULL);
  if (strcmp(word, "watch") == 0)
    return tune_watch(call, session, device);
  if (strcmp(word, "report") == 0)
    return tune_report(call, session, device);
  if (strcmp(word, "trials") == 0)
    return tune_trials_show(call, session, device);
  if (tool_value(call, "unpin") != NULL)
    return pin(call, session, word, NULL);
  if (tool_value(call, "pin") != NULL && !given)
    return tool_fail(call, TOOL_USAGE, "--pin needs --kernel or parameters to pin");
  if (tool_value(call, "pin") != NULL)
    return pin(call, session, word, kernel);
  return run(call, session, word, given ? kernel : NULL);
}

static enum tool_exit run_tune(struct tool_call *call) {
  gemmd_session *session;
  int64_t device;
  if (!tool_integer(call, "device", 0, 63, 0, &device))
    return TOOL_USAGE;
  enum tool_exit code = ctl_connect(call, &session);
  if (code != TOOL_OK)
    return code;
  code = dispatch(call, session, (uint32_t)device);
  gemmd_disconnect(session);
  return code;
}

static const struct tool_option tune_options[] = {
    {"device", "N", "number of the device; 0 if not given", false},
    {"m", "M", "rows of x; 1 if not given", false},
    {"x-type", "TYPE", "f32, f16, bf16, int8 or e4m3; f16 if not given", false},
    {"y-type", "TYPE", "f32, f16, bf16 or s32; f16 if not given", false},
    {"bias-type", "TYPE", "f32, f16 or bf16; no bias if not given", false},
    {"exhaustive", NULL, "measure the whole product of parameters, not the best guesses", false},
    {"kernel", "TEXT", "a kernel by hand: family and parameters, as `tune list` shows them", false},
    {"block-m", "N", "16..512, step 16; 128. These describe a kernel by hand, too", false},
    {"block-n", "N", "16..512, step 16; 128", false},
    {"block-k", "N", "16..512, step 16; 64", false},
    {"group-size-m", "N", "1..64; 8", false},
    {"num-warps", "N", "1..16; 4", false},
    {"num-stages", "N", "1..8; 4", false},
    {"split-k", "N", "1..128; 1", false},
    {"split-k-mode", "MODE", "serial, parallel or parallel-y; serial", false},
    {"pin", NULL, "set the kernel by hand, or what --microbench finds, for the weights that match", false},
    {"unpin", NULL, "take it off", false},
    {"html", "FILE", "with report: where to write it; else what the last search tried is drawn as text", false},
    {"csv", "FILE", "with WEIGHT or trials: every candidate with its parameters and what came of it", false},
    {"microbench", NULL, "time a linear of any size, with random data; the next ones say which", false},
    {"format", "FORMAT",
#define FORMAT(number, name, word, ...) word ", "
#include "../../../proto/formats.def"
     "int8 if none is given", false},
    {"bench-m", "N", "64..16384, step 64; 2048", false},
    {"bench-k", "N", "64..16777216, step 64; 2048", false},
    {"bench-n", "N", "64..16384, step 64; 4096", false},
    {"bench-warmup", "N", "products of each candidate that are not timed, 1..20; 2", false},
    {"bench-iterations", "N", "samples of each candidate at least, 2..100; 6", false},
    {"on-failure", "WHAT", "with --microbench --pin: manual sets the manual parameters then; nothing", false},
    {"bench-include-scalar", NULL, "weights with one scale as well as with one a row", false},
    {0},
};

const struct tool_command ctl_tune = {
    .name = "tune",
    .arguments = "list | show PATTERN | export FILE | import FILE | forget PATTERN | watch | report | trials | WEIGHT",
    .most = 2,
    .summary = "Which kernels compute what: looks at it, finds the fastest, or sets one by hand.\n"
               "A WEIGHT's fastest kernel is looked for now; with --pin or --unpin, WEIGHT is a pattern.",
    .options = tune_options,
    .example = "gemmctl tune mlp.up --m 16 --kernel 'cpu threads=2 block_m=16'",
    .keys =
        "  list, show: shapes: a list of {shape, kernel, state, why, serves, confirmed, tuning, calls, device_ns,\n"
        "  own_ns, tuned_ns, library_ns, roof_ns}; watch: one of these a change; WEIGHT: shape, kernel, checked,\n"
        "  wrong, timed, spent_ns, library_first_ns, library_ns, roof_ns, why, results: a list of {kernel, ns,\n"
        "  spread, samples, own, hand}; --microbench: results: a list of {scale, m, n, k, linear_ns, roof_ns, why,\n"
        "  product: a list of {kernel, ns, spread, hand}}; forget: forgotten; export, report: file, written: how\n"
        "  many; import: taken, refused; --pin: pattern, kernel, weights",
    .run = run_tune,
};
