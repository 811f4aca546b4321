/* gemm-demo: the client of `make demo`. It takes matrices and rows from a safetensors file, gets products of them from
 * gemmd through shared memory, and checks each against float64. */
#include "../../client/tool/command.h"
#include "../../client/tool/print.h"
#include "check.h"
#include "generate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ARENA_BYTES ((size_t)256 << 20)

static const enum gemmd_format formats[] = {GEMMD_FORMAT_INT8, GEMMD_FORMAT_FP8, GEMMD_FORMAT_INT2};
enum { FORMATS = sizeof formats / sizeof *formats };

/* ---- list, generate */

static enum tool_exit list(struct tool_call *call) {
  struct checkpoint checkpoint;
  if (!checkpoint_open(&checkpoint, call->arguments[0]))
    return TOOL_REFUSED;
  const struct tensor *chosen[SUBJECTS_MAX];
  size_t count = subject_choose(&checkpoint, chosen);
  json_t *names = json_array();
  for (size_t i = 0; i < count; i++) {
    if (call->json)
      json_array_append_new(names, print_json_text(chosen[i]->name));
    else
      fprintf(call->out, "%s\n", chosen[i]->name);
  }
  if (call->json)
    print_json(call->out, json_pack("{s:O}", "tensors", names));
  json_decref(names);
  checkpoint_close(&checkpoint);
  return count > 0 ? TOOL_OK : tool_cannot(call, GEMMD_NOT_FOUND, "%s has no matrix that fits", call->arguments[0]);
}

static enum tool_exit generate(struct tool_call *call) {
  if (!generate_checkpoint(call->arguments[0]))
    return TOOL_REFUSED;
  if (call->json)
    print_json(call->out, json_pack("{s:o}", "file", print_json_text(call->arguments[0])));
  return TOOL_OK;
}

/* ---- check */

struct results {
  struct print_table table;
  json_t *rows; /* NULL where the table is wanted */
  int passed, failed;
};

static void add_text(struct results *results, const struct subject *subject, const char *format, double part,
                     const struct check *check) {
  struct print_table *table = &results->table;
  print_cell(table, "%s", subject->tensor->name);
  print_cell(table, "%lld x %lld", (long long)subject->n, (long long)subject->k);
  print_cell(table, "%s", format);
  print_cell(table, "%llu", (unsigned long long)check->bytes);
  print_cell(table, "%.1f %%", part * 100);
  print_cell(table, "%.1e", check->dequantized);
  print_cell(table, "%.4f", check->original);
  print_cell(table, "%.0f", check->microseconds);
  print_cell(table, "%s%s", check->passed ? "ok" : "FAILED: ", check->why);
}

/* JSON has no NaN. */
static json_t *number_json(double value) {
  return isfinite(value) ? json_real(value) : json_null();
}

static void add_result(struct results *results, const struct subject *subject, enum gemmd_format format,
                       const struct check *check) {
  const char *word = word_text(words_format, (int)format);
  double part = (double)check->bytes / (double)(subject->n * subject->k * 4);
  if (results->rows == NULL)
    add_text(results, subject, word, part, check);
  else
    json_array_append_new(results->rows,
                          json_pack("{s:o, s:I, s:I, s:I, s:s, s:s, s:I, s:f, s:o, s:o, s:f, s:b, s:s}", "weight",
                                    print_json_text(subject->tensor->name), "m", (json_int_t)subject->m, "n",
                                    (json_int_t)subject->n, "k", (json_int_t)subject->k, "format", word, "x",
                                    subject->source, "bytes", (json_int_t)check->bytes, "bytes_of_f32", part,
                                    "error_dequantized", number_json(check->dequantized), "error_original",
                                    number_json(check->original), "us", check->microseconds, "passed",
                                    (int)check->passed, "why", check->why));
  if (check->passed)
    results->passed++;
  else
    results->failed++;
}

static void begin_table(struct print_table *table) {
  static const char *const heads[] = {"weight", "N x K", "format", "bytes", "of f32", "float64", "original", "us", ""};
  print_table_begin(table, "lrlrrrrrl");
  for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
    print_cell(table, "%s", heads[i]);
}

static void check_all(struct results *results, gemmd_session *session, const struct checkpoint *checkpoint) {
  const struct tensor *chosen[SUBJECTS_MAX];
  size_t count = subject_choose(checkpoint, chosen);
  for (size_t i = 0; i < count; i++) {
    struct subject subject;
    bool made = subject_make(&subject, checkpoint, chosen[i]);
    for (int j = 0; j < FORMATS; j++) {
      struct check check = {.why = "out of memory"};
      if (made)
        check_run(session, &subject, formats[j], &check);
      else
        subject =
            (struct subject){.tensor = chosen[i], .n = chosen[i]->rows, .k = chosen[i]->columns, .source = "none"};
      add_result(results, &subject, formats[j], &check);
    }
    subject_free(&subject);
  }
}

static void report(const struct tool_call *call, struct results *results) {
  if (call->json) {
    print_json(call->out, json_pack("{s:O, s:i, s:i}", "results", results->rows, "passed", results->passed, "failed",
                                    results->failed));
    return;
  }
  print_table_end(&results->table, call->out);
  fprintf(
      call->out,
      "\nEach product has %d rows of x. float64: worst row's relative error against float64 on the dequantized\n"
      "operands; original: relative error against float64 on the checkpoint's own numbers, what quantizing costs.\n\n"
      "demo: %d passed, %d failed\n",
      SUBJECT_ROWS, results->passed, results->failed);
}

static enum tool_exit check(struct tool_call *call) {
  struct checkpoint checkpoint;
  if (!checkpoint_open(&checkpoint, call->arguments[0]))
    return TOOL_REFUSED;
  const gemmd_options options = {.arena_bytes = ARENA_BYTES, .name = "gemm-demo"};
  gemmd_session *session = NULL;
  enum tool_exit code = tool_connect(call, &options, &session);
  if (code == TOOL_OK) {
    struct results results = {.rows = call->json ? json_array() : NULL};
    if (!call->json)
      begin_table(&results.table);
    check_all(&results, session, &checkpoint);
    report(call, &results);
    json_decref(results.rows);
    code = results.failed > 0 || results.passed == 0 ? TOOL_REFUSED : TOOL_OK;
  }
  gemmd_disconnect(session);
  checkpoint_close(&checkpoint);
  return code;
}

static const struct tool_command list_command = {
    .name = "list",
    .arguments = "FILE",
    .least = 1,
    .most = 1,
    .summary = "The tensors of a safetensors file that check takes.",
    .example = "gemm-demo list model.safetensors",
    .keys = "  tensors: a list of names",
    .run = list,
};

static const struct tool_command generate_command = {
    .name = "generate",
    .arguments = "FILE",
    .least = 1,
    .most = 1,
    .summary = "Writes a checkpoint of random numbers.",
    .example = "gemm-demo generate generated.safetensors",
    .keys = "  file",
    .run = generate,
};

static const struct tool_command check_command = {
    .name = "check",
    .arguments = "FILE",
    .least = 1,
    .most = 1,
    .summary = "Checks products of the listed tensors, loaded as NAME.int8, NAME.fp8 and NAME.int2.",
    .example = "gemm-demo check model.safetensors --socket /tmp/gemmd.sock",
    .keys =
        "  results: a list of {weight, m, n, k, format, x, bytes, bytes_of_f32, error_dequantized, error_original,\n"
        "  us, passed, why}, passed, failed",
    .run = check,
};

static const struct tool_command *const commands[] = {&list_command, &generate_command, &check_command, NULL};

int main(int argc, char **argv) {
  static const struct tool gemm_demo = {.name = "gemm-demo",
                                        .summary = "Gets products of a real model from gemmd and checks them.",
                                        .commands = commands};
  return tool_main(&gemm_demo, argc, argv);
}
