#include "load_model.h"

#include "../ctl.h"
#include "load_bar.h"

#include "../../tool/print.h"
#include "../../tool/words.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { LIST_MOST = 128, RULES_MOST = 1024 };

/* What the command line says, as the library wants it. */
struct wanted {
  gemmd_model model;
  const char *patterns[LIST_MOST], *excludes[LIST_MOST], *fuses[LIST_MOST], *columns[LIST_MOST], *given[LIST_MOST];
  gemmd_model_rule rules[RULES_MOST];
  char *texts[RULES_MOST]; /* owned; of the rules */
  unsigned text_count;
  char *lines; /* owned; of the file of rules */
  /* of the call */
  struct tool_call *call;
  struct load_bar bar;
  json_t *names, *failures;
};

/* ---- rules: PATTERN=FORMAT[,SCALE or METHOD]... */

static bool take_word(gemmd_model_rule *rule, const char *word) {
  int number;
  if (strcmp(word, "stored") == 0)
    return true;
  if (word_number(words_format, word, &number))
    rule->format = (enum gemmd_format)number;
  else if (word_number(words_scale, word, &number))
    rule->scale = (enum gemmd_scale)number;
  else if (word_number(words_method, word, &number))
    rule->method = (enum gemmd_method)number;
  else
    return false;
  return true;
}

static bool add_rule(struct wanted *wanted, const char *line) {
  char *text = strdup(line), *equals = text != NULL ? strrchr(text, '=') : NULL;
  if (text == NULL || wanted->text_count == RULES_MOST) {
    free(text);
    (void)tool_fail(wanted->call, TOOL_USAGE, "more than %d rules", RULES_MOST);
    return false;
  }
  wanted->texts[wanted->text_count++] = text;
  gemmd_model_rule *rule = &wanted->rules[wanted->model.rule_count++];
  *rule = (gemmd_model_rule){.pattern = text};
  bool good = equals != NULL && equals > text && equals[1] != '\0';
  char *rest = good ? equals + 1 : text + strlen(text); /* which has no words */
  if (good)
    *equals = '\0';
  for (char *word = strtok_r(rest, ",", &rest); good && word != NULL; word = strtok_r(NULL, ",", &rest))
    good = take_word(rule, word);
  if (!good)
    (void)tool_fail(wanted->call, TOOL_USAGE,
                    "a rule is PATTERN=FORMAT, with a scale mode or a method behind commas, got %s", line);
  return good;
}

/* One rule a line; # begins a comment. */
static bool read_rules(struct wanted *wanted, const char *path) {
  FILE *file = fopen(path, "re");
  size_t room = 0;
  bool good = file != NULL;
  if (!good)
    (void)tool_cannot(wanted->call, errno == ENOENT ? GEMMD_NOT_FOUND : GEMMD_SYSTEM, "cannot open %s: %s", path,
                      strerror(errno));
  while (good && getline(&wanted->lines, &room, file) >= 0) {
    char *line = wanted->lines + strspn(wanted->lines, " \t");
    line[strcspn(line, "#\r\n")] = '\0';
    size_t length = strlen(line);
    while (length > 0 && (line[length - 1] == ' ' || line[length - 1] == '\t'))
      line[--length] = '\0';
    good = length == 0 || add_rule(wanted, line);
  }
  if (good && ferror(file)) {
    (void)tool_cannot(wanted->call, GEMMD_SYSTEM, "cannot read %s: %s", path, strerror(errno));
    good = false;
  }
  if (file != NULL)
    fclose(file);
  return good;
}

static bool take_rules(struct wanted *wanted) {
  struct tool_call *call = wanted->call;
  const char *path = tool_value(call, "rules"), *format = tool_value(call, "format");
  unsigned count = tool_values(call, "rule", wanted->given, LIST_MOST);
  for (unsigned i = 0; i < count; i++)
    if (!add_rule(wanted, wanted->given[i]))
      return false;
  if (path != NULL && !read_rules(wanted, path))
    return false;
  if (format == NULL && wanted->model.rule_count == 0) {
    (void)tool_fail(call, TOOL_USAGE, "--format FORMAT, --rule or --rules is missing");
    return false;
  }
  if (format == NULL)
    return true;
  gemmd_model_rule *rule = &wanted->rules[wanted->model.rule_count++];
  int scale, method, number = 0;
  *rule = (gemmd_model_rule){.pattern = "*"};
  if ((strcmp(format, "stored") != 0 && !tool_word(call, "format", words_format, 0, &number)) ||
      !tool_word(call, "scale", words_scale, 0, &scale) || !tool_word(call, "method", words_method, 0, &method))
    return false;
  rule->format = (enum gemmd_format)number;
  rule->scale = (enum gemmd_scale)scale;
  rule->method = (enum gemmd_method)method;
  return true;
}

/* ---- the other options */

static bool take_numbers(struct wanted *wanted) {
  struct tool_call *call = wanted->call;
  int mode, placement;
  int64_t device, devices, rank, ranks;
  if (!tool_word(call, "mode", words_mode, 0, &mode) ||
      !tool_word(call, "placement", words_placement, GEMMD_PLACEMENT_SINGLE, &placement) ||
      !tool_integer(call, "device", 0, 63, -1, &device) || !tool_integer(call, "devices", 1, 64, 0, &devices) ||
      !tool_integer(call, "of", 1, 4096, 0, &ranks) || !tool_integer(call, "rank", 0, 4095, -1, &rank))
    return false;
  if ((ranks > 0) != (rank >= 0) || rank >= (ranks > 0 ? ranks : 1)) {
    (void)tool_fail(call, TOOL_USAGE, "--rank R and --of N go together, with R below N");
    return false;
  }
  wanted->model.mode = (enum gemmd_mode)mode;
  wanted->model.trust_size_and_time = tool_value(call, "trust-size-and-time") != NULL;
  wanted->model.placement = (enum gemmd_placement)placement;
  wanted->model.device = (int)device;
  wanted->model.devices = (unsigned)devices;
  wanted->model.rank = rank > 0 ? (unsigned)rank : 0;
  wanted->model.ranks = (unsigned)ranks;
  return true;
}

static bool refuse_tensor_options(const struct tool_call *call) {
  static const char *const names[] = {"name", "scale-tensor"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (tool_value(call, names[i]) != NULL) {
      (void)tool_fail(call, TOOL_USAGE, "--%s goes with --tensor", names[i]);
      return false;
    }
  return true;
}

static bool take_options(struct wanted *wanted) {
  struct tool_call *call = wanted->call;
  gemmd_model *model = &wanted->model;
  if (!refuse_tensor_options(call) || !take_rules(wanted) || !take_numbers(wanted))
    return false;
  model->paths = (const char *const *)call->arguments;
  model->path_count = (unsigned)call->count;
  model->patterns = wanted->patterns;
  model->pattern_count = tool_values(call, "pattern", wanted->patterns, LIST_MOST);
  model->excludes = wanted->excludes;
  model->exclude_count = tool_values(call, "exclude", wanted->excludes, LIST_MOST);
  model->fuses = wanted->fuses;
  model->fuse_count = tool_values(call, "fuse", wanted->fuses, LIST_MOST);
  model->columns = wanted->columns;
  model->column_count = tool_values(call, "columns", wanted->columns, LIST_MOST);
  model->rules = wanted->rules;
  model->prefix = tool_value(call, "prefix");
  model->replace = tool_value(call, "replace") != NULL;
  model->keep_going = tool_value(call, "keep-going") != NULL;
  model->join_experts = tool_value(call, "join-experts") != NULL;
  model->split_experts = tool_value(call, "split-experts") != NULL;
  return true;
}

/* ---- what is heard on the way, and at the end */

static void on_progress(void *user, const gemmd_model_progress *progress) {
  struct wanted *wanted = user;
  load_bar_draw(&wanted->bar, progress->bytes_done, progress->bytes);
}

static void on_loaded(void *user, const gemmd_weight_info *info) {
  struct wanted *wanted = user;
  json_array_append_new(wanted->names, print_json_text(info->name));
}

static void on_failed(void *user, const char *name, int status, const char *sentence) {
  struct wanted *wanted = user;
  load_bar_end(&wanted->bar);
  (void)tool_fail(wanted->call, TOOL_REFUSED, "%s: %s (%s)", name, sentence, gemmd_status_name(status));
  json_array_append_new(wanted->failures, json_pack("{s:o, s:s, s:o}", "name", print_json_text(name), "status",
                                                    gemmd_status_name(status), "error", print_json_text(sentence)));
}

static void report(struct wanted *wanted, const gemmd_model_result *result) {
  char bytes[PRINT_UNIT_BYTES];
  FILE *out = wanted->call->out;
  if (wanted->call->json) {
    print_json(out, json_pack("{s:I, s:I, s:I, s:I, s:O, s:O}", "weights", (json_int_t)result->weights, "shared",
                              (json_int_t)result->shared, "dropped", (json_int_t)result->dropped, "bytes",
                              (json_int_t)result->bytes, "names", wanted->names, "failed", wanted->failures));
    return;
  }
  fprintf(out, "%u weight%s, %s", result->weights, print_plural(result->weights), print_bytes(result->bytes, bytes));
  if (result->shared > 0)
    fprintf(out, "; of %u equal content was there already", result->shared);
  if (result->dropped > 0)
    fprintf(out, "; %u name%s of the model before went", result->dropped, print_plural(result->dropped));
  if (result->failed > 0)
    fprintf(out, "; %u could not be loaded", result->failed);
  fputc('\n', out);
}

static enum tool_exit run(struct wanted *wanted) {
  gemmd_session *session;
  gemmd_model_result result;
  enum tool_exit code = ctl_connect(wanted->call, &session);
  if (code != TOOL_OK)
    return code;
  wanted->names = json_array();
  wanted->failures = json_array();
  wanted->model.progress = on_progress;
  wanted->model.loaded = on_loaded;
  wanted->model.failed = on_failed;
  wanted->model.user = wanted;
  load_bar_begin(&wanted->bar);
  int status = gemmd_model_load(session, &wanted->model, &result);
  load_bar_end(&wanted->bar);
  if (status != GEMMD_OK)
    code = tool_refused(wanted->call, session, status);
  else
    report(wanted, &result);
  if (status == GEMMD_OK && result.failed > 0)
    code = TOOL_REFUSED;
  if (status == GEMMD_EXISTS)
    (void)tool_fail(wanted->call, code, "--replace puts the new content in its place, --prefix gives other names");
  json_decref(wanted->names);
  json_decref(wanted->failures);
  gemmd_disconnect(session);
  return code;
}

enum tool_exit load_model(struct tool_call *call) {
  struct wanted *wanted = calloc(1, sizeof *wanted);
  if (wanted == NULL)
    return tool_cannot(call, GEMMD_NOMEM, "no memory for the request");
  wanted->call = call;
  enum tool_exit code = take_options(wanted) ? run(wanted) : TOOL_USAGE;
  for (unsigned i = 0; i < wanted->text_count; i++)
    free(wanted->texts[i]);
  free(wanted->lines);
  free(wanted);
  return code;
}
