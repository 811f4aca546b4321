/* quantize: a file of codes from one of real numbers, without gemmd; a folder with a model goes to quantize_model. */
#include "../ctl.h"

#include "../../../proto/weights/gptq.h"
#include "../../../proto/weights/matrix.h"
#include "../../../proto/weights/quantize.h"
#include "../../../proto/weights/quantize4.h"
#include "../../tool/print.h"
#include "../output.h"
#include "checkpoint.h"
#include "quantize_model.h"

#include <errno.h>
#include <float.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { GPTQ = 1, ROUND = 2, GRAM_ROWS = 512 };

static const struct word words_quantize_method[] = {{"gptq", GPTQ}, {"round", ROUND}, {0}};

struct job {
  const struct tool_call *call;
  struct checkpoint weights, calibration, evaluation;
  bool calibrated, evaluated; /* which of them are open */
  int method;
  struct gptq_grid grid;
  double damping;
  unsigned threads;
  const struct safetensors_tensor **tensors; /* of `weights`, those to do */
  size_t count;
  FILE *out;
  struct error error;
};

/* One weight, and what became of it. */
struct layer {
  const struct safetensors_tensor *tensor;
  size_t n, k, rows; /* rows: of activations that the errors were measured with; 0: none */
  float *w;
  double *calibration, *evaluation; /* x^T x; the second may be the first */
  struct gptq_weight weight;        /* of w, and what it becomes */
  double rounded, chosen;           /* errors of the output */
};

static enum status no_memory(struct job *job, const struct layer *layer) {
  return error_set(&job->error, STATUS_NOMEM, "no memory for tensor '%s', %zu x %zu",
                   safetensors_show(layer->tensor->name).text, layer->n, layer->k);
}

/* ---- activations */

/* Rows that the layer saw: a tensor of the weight's name. NULL after having said what is wrong with it. */
static const struct safetensors_tensor *rows_find(struct job *job, const struct checkpoint *from,
                                                  const struct layer *layer) {
  const struct safetensors_tensor *rows = safetensors_find(&from->file, layer->tensor->name);
  if (rows != NULL && checkpoint_is_real(rows) && rows->shape[1] == layer->k)
    return rows;
  (void)error_set(&job->error, STATUS_BAD_FILE, "%s: rows of activations [.., %zu] are needed for tensor '%s'",
                  from->path, layer->k, safetensors_show(layer->tensor->name).text);
  return NULL;
}

/* *out = x^T x, to be freed. */
static enum status gram(struct job *job, const struct checkpoint *from, struct layer *layer, double **out) {
  size_t k = layer->k;
  const struct safetensors_tensor *rows = rows_find(job, from, layer);
  if (rows == NULL)
    return job->error.status;
  layer->rows = rows->shape[0];
  float *values = malloc(GRAM_ROWS * k * sizeof *values);
  double *x = malloc(GRAM_ROWS * k * sizeof *x);
  *out = calloc(k * k, sizeof **out);
  enum status status = values != NULL && x != NULL && *out != NULL ? STATUS_OK : no_memory(job, layer);
  for (size_t begin = 0; begin < layer->rows && status == STATUS_OK; begin += GRAM_ROWS) {
    size_t count = layer->rows - begin < GRAM_ROWS ? layer->rows - begin : GRAM_ROWS;
    status = checkpoint_rows(from, rows, begin, count, FLT_MAX, values, &job->error);
    for (size_t i = 0; i < count * k && status == STATUS_OK; i++)
      x[i] = (double)values[i];
    if (status == STATUS_OK)
      matrix_add_gram(*out, k, x, count, job->threads);
  }
  free(values);
  free(x);
  return status;
}

static enum status read_activations(struct job *job, struct layer *layer) {
  enum status status = STATUS_OK;
  if (job->calibrated)
    status = gram(job, &job->calibration, layer, &layer->calibration);
  if (status == STATUS_OK && job->evaluated)
    status = gram(job, &job->evaluation, layer, &layer->evaluation);
  return status;
}

/* ---- one weight */

static enum status measure(struct job *job, const struct layer *layer, double *out) {
  const double *h = layer->evaluation != NULL ? layer->evaluation : layer->calibration;
  if (h == NULL)
    return STATUS_OK;
  return gptq_error(h, &job->grid, &layer->weight, job->threads, out, &job->error);
}

static enum status quantize(struct job *job, struct layer *layer) {
  struct gptq gptq = {0};
  enum status status = gptq_round(&job->grid, &layer->weight, job->threads, &job->error);
  if (status == STATUS_OK)
    status = measure(job, layer, &layer->rounded);
  if (status != STATUS_OK || job->method == ROUND)
    return status;
  status = gptq_prepare(&gptq, layer->calibration, layer->k, job->damping, job->threads, &job->error);
  if (status == STATUS_OK)
    status = gptq_quantize(&gptq, &job->grid, &layer->weight, job->threads, &job->error);
  gptq_free(&gptq);
  return status == STATUS_OK ? measure(job, layer, &layer->chosen) : status;
}

/* Scales as they are stored. */
static bool write_scales(const struct job *job, const struct layer *layer) {
  size_t count = layer->n * gptq_scales(&job->grid, layer->k);
  bool good = true;
  if (job->grid.int8)
    return fwrite(layer->weight.scales, sizeof *layer->weight.scales, count, job->out) == count;
  for (size_t i = 0; i < count && good; i++) {
    uint16_t bits;
    good = quantize_f16(&layer->weight.scales[i], 1, &bits) == 1 && fwrite(&bits, sizeof bits, 1, job->out) == 1;
  }
  return good;
}

/* Rows of codes of 2 or 4 bits, of k / 4 elements of a byte or two. */
static bool write_packed(const struct job *job, const struct layer *layer, uint8_t *codes, uint8_t *packed) {
  bool four = job->grid.int4;
  size_t bytes = four ? layer->k / 2 : layer->k / 4;
  for (size_t row = 0; row < layer->n; row++) {
    for (size_t i = 0; i < layer->k; i++)
      codes[i] = (uint8_t)(layer->weight.codes[row * layer->k + i] + (four ? 8 : 1));
    if (four)
      quantize_pack4(codes, layer->k, 0x88, packed, bytes);
    else
      quantize_pack(codes, layer->k, packed, bytes);
    if (fwrite(packed, 1, bytes, job->out) != bytes)
      return false;
  }
  return true;
}

static enum status write_layer(struct job *job, const struct layer *layer) {
  uint8_t *codes = malloc(layer->k + layer->k / 2);
  if (codes == NULL)
    return no_memory(job, layer);
  bool good = write_scales(job, layer);
  if (good && job->grid.int8)
    good = fwrite(layer->weight.codes, layer->k, layer->n, job->out) == layer->n;
  else if (good)
    good = write_packed(job, layer, codes, codes + layer->k);
  free(codes);
  return good ? STATUS_OK : error_set(&job->error, STATUS_SYSTEM, "writing the codes: %s", strerror(errno));
}

static void layer_free(struct layer *layer) {
  free(layer->w);
  free(layer->weight.codes);
  free(layer->weight.scales);
  free(layer->calibration);
  free(layer->evaluation);
  layer->w = NULL;
  layer->weight = (struct gptq_weight){0};
  layer->calibration = layer->evaluation = NULL;
}

static enum status do_layer(struct job *job, struct layer *layer) {
  size_t n = layer->n = layer->tensor->shape[0], k = layer->k = layer->tensor->shape[1];
  if (!job->grid.int8 && k % 4 != 0)
    return error_set(&job->error, STATUS_UNSUPPORTED, "tensor '%s' has %zu columns; codes are stored by fours",
                     safetensors_show(layer->tensor->name).text, k);
  layer->w = malloc(n * k * sizeof *layer->w);
  layer->weight = (struct gptq_weight){.w = layer->w, .n = n, .k = k};
  layer->weight.codes = malloc(n * k);
  layer->weight.scales = malloc(n * gptq_scales(&job->grid, k) * sizeof *layer->weight.scales);
  bool ready = layer->w != NULL && layer->weight.codes != NULL && layer->weight.scales != NULL;
  enum status status = ready ? STATUS_OK : no_memory(job, layer);
  if (status == STATUS_OK)
    status = checkpoint_rows(&job->weights, layer->tensor, 0, n, job->grid.int8 ? FLT_MAX : QUANTIZE_INT2_MOST,
                             layer->w, &job->error);
  if (status == STATUS_OK)
    status = read_activations(job, layer);
  if (status == STATUS_OK)
    status = quantize(job, layer);
  if (status == STATUS_OK)
    status = write_layer(job, layer);
  layer_free(layer);
  return status;
}

/* ---- the report */

static void report_text(const struct job *job, const struct layer *layers) {
  static const char *const heads[] = {"TENSOR", "N", "K", "ROWS", "ROUNDED", "GPTQ"};
  size_t columns = job->method == GPTQ ? 6 : layers[0].rows > 0 ? 5 : 3;
  struct print_table table;
  print_table_begin(&table, columns == 6 ? "lrrrrr" : columns == 5 ? "lrrrr" : "lrr");
  for (size_t i = 0; i < columns; i++)
    print_cell(&table, "%s", heads[i]);
  for (size_t i = 0; i < job->count; i++) {
    print_cell(&table, "%s", layers[i].tensor->name);
    print_cell(&table, "%zu", layers[i].n);
    print_cell(&table, "%zu", layers[i].k);
    if (columns > 3)
      print_cell(&table, "%zu", layers[i].rows);
    if (columns > 3)
      print_cell(&table, "%.4f", layers[i].rounded);
    if (columns > 5)
      print_cell(&table, "%.4f", layers[i].chosen);
  }
  print_table_end(&table, job->call->out);
}

static void report_json(const struct job *job, const struct layer *layers) {
  json_t *list = json_array();
  for (size_t i = 0; i < job->count; i++) {
    json_t *object =
        json_pack("{s:o, s:I, s:I, s:I}", "name", print_json_text(layers[i].tensor->name), "n", (json_int_t)layers[i].n,
                  "k", (json_int_t)layers[i].k, "rows", (json_int_t)layers[i].rows);
    if (layers[i].rows > 0)
      json_object_set_new(object, "rounded", json_real(layers[i].rounded));
    if (job->method == GPTQ)
      json_object_set_new(object, "gptq", json_real(layers[i].chosen));
    json_array_append_new(list, object);
  }
  print_json(job->call->out, json_pack("{s:o}", "tensors", list));
}

/* ---- the whole */

static enum status open_files(struct job *job) {
  const char *calibration = tool_value(job->call, "calibration"), *evaluation = tool_value(job->call, "evaluate");
  enum status status = checkpoint_open(&job->weights, job->call->arguments[0], &job->error);
  if (status == STATUS_OK && calibration != NULL) {
    status = checkpoint_open(&job->calibration, calibration, &job->error);
    job->calibrated = true;
  }
  if (status == STATUS_OK && evaluation != NULL) {
    status = checkpoint_open(&job->evaluation, evaluation, &job->error);
    job->evaluated = true;
  }
  return status;
}

/* Without a pattern, all real matrices for which there are activations, if there are any files of those. */
static enum status choose_tensors(struct job *job) {
  const char *pattern = tool_value(job->call, "tensor");
  const struct checkpoint *rows = job->calibrated ? &job->calibration : job->evaluated ? &job->evaluation : NULL;
  job->tensors = calloc(job->weights.file.count + 1, sizeof(const struct safetensors_tensor *));
  if (job->tensors == NULL)
    return error_set(&job->error, STATUS_NOMEM, "no memory for %zu tensors", job->weights.file.count);
  for (size_t i = 0; i < job->weights.file.count; i++) {
    const struct safetensors_tensor *tensor = &job->weights.file.tensors[i];
    bool wanted = pattern != NULL ? fnmatch(pattern, tensor->name, 0) == 0
                                  : rows == NULL || safetensors_find(&rows->file, tensor->name) != NULL;
    if (wanted && checkpoint_is_real(tensor))
      job->tensors[job->count++] = tensor;
  }
  return job->count > 0
             ? STATUS_OK
             : error_set(&job->error, STATUS_NOT_FOUND, "%s: no matrix of F32, F16 or BF16 %s%s", job->weights.path,
                         pattern != NULL ? "matches "
                         : rows != NULL  ? "has activations"
                                         : "is in it",
                         pattern != NULL ? pattern : "");
}

static enum status do_layers(struct job *job, struct layer *layers) {
  bool terminal = isatty(STDERR_FILENO) == 1;
  enum status status = checkpoint_write_header(job->out, job->tensors, job->count, &job->grid, &job->error);
  for (size_t i = 0; i < job->count && status == STATUS_OK; i++) {
    layers[i].tensor = job->tensors[i];
    if (terminal)
      fprintf(stderr, "\r%zu of %zu  %s\x1b[K", i + 1, job->count, safetensors_show(job->tensors[i]->name).text);
    status = do_layer(job, &layers[i]);
  }
  if (terminal)
    fprintf(stderr, "\r\x1b[K");
  return status;
}

static enum status write_file(struct job *job, struct layer *layers, const char *path) {
  struct output output;
  if (!output_open(&output, path))
    return error_set(&job->error, STATUS_SYSTEM, "%s: %s", path, strerror(errno));
  job->out = output.file;
  enum status status = do_layers(job, layers);
  if (!output_close(&output, status == STATUS_OK) && status == STATUS_OK)
    status = error_set(&job->error, STATUS_SYSTEM, "%s: %s", path, strerror(errno));
  return status;
}

/* The model would be gone: 2-bit weights do not lead back to it. */
static bool is_read(const struct tool_call *call, const char *path) {
  const char *const inputs[] = {call->arguments[0], tool_value(call, "calibration"), tool_value(call, "evaluate")};
  struct stat input, output;
  if (stat(path, &output) != 0)
    return false;
  for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
    if (inputs[i] != NULL && stat(inputs[i], &input) == 0 && input.st_dev == output.st_dev &&
        input.st_ino == output.st_ino)
      return true;
  return false;
}

/* What is asked of codes; false after having said what is wrong with it. */
static bool parse_grid(struct job *job) {
  int format, scale;
  bool row = true;
  if (!tool_word(job->call, "format", words_format, 0, &format) ||
      !tool_word(job->call, "scale", words_scale, GEMMD_SCALE_DEFAULT, &scale))
    return false;
  if (format == GEMMD_FORMAT_INT2 || format == GEMMD_FORMAT_INT4)
    row = scale == GEMMD_SCALE_ROW;
  else if (format != GEMMD_FORMAT_INT8) {
    tool_fail(job->call, TOOL_USAGE,
              "--format must be int2, int4 or int8: gemmd quantizes to the others while it loads");
    return false;
  }
  if (scale != GEMMD_SCALE_DEFAULT && scale != GEMMD_SCALE_ROW && (row || scale != GEMMD_SCALE_GROUP)) {
    tool_fail(job->call, TOOL_USAGE, "--scale must be row%s", row ? "" : " or group");
    return false;
  }
  job->grid = (struct gptq_grid){
      .int8 = format == GEMMD_FORMAT_INT8, .int4 = format == GEMMD_FORMAT_INT4, .row = row, .search = true};
  return true;
}

static bool parse(struct job *job) {
  int64_t threads;
  long processors = sysconf(_SC_NPROCESSORS_ONLN);
  if (!parse_grid(job) || !tool_word(job->call, "method", words_quantize_method, GPTQ, &job->method) ||
      !tool_number(job->call, "damping", 1e-6, 1.0, 0.01, &job->damping) ||
      !tool_integer(job->call, "threads", 1, 256, processors > 0 && processors < 256 ? processors : 256, &threads))
    return false;
  job->threads = (unsigned)threads;
  if (job->method == GPTQ && tool_value(job->call, "calibration") == NULL) {
    tool_fail(job->call, TOOL_USAGE, "--method gptq needs --calibration, the rows that the layers see");
    return false;
  }
  if (is_read(job->call, tool_value(job->call, "output"))) {
    tool_fail(job->call, TOOL_USAGE, "--output: %s is read, and would be overwritten", tool_value(job->call, "output"));
    return false;
  }
  return true;
}

static enum tool_exit run_quantize(struct tool_call *call) {
  struct job job = {.call = call};
  struct layer *layers = NULL;
  struct stat facts;
  if (stat(call->arguments[0], &facts) == 0 && S_ISDIR(facts.st_mode))
    return quantize_model(call);
  if (!parse(&job))
    return TOOL_USAGE;
  enum status status = open_files(&job);
  if (status == STATUS_OK)
    status = choose_tensors(&job);
  if (status == STATUS_OK) {
    layers = calloc(job.count, sizeof *layers);
    status = layers != NULL ? write_file(&job, layers, tool_value(call, "output"))
                            : error_set(&job.error, STATUS_NOMEM, "no memory for %zu tensors", job.count);
  }
  if (status == STATUS_OK && call->json)
    report_json(&job, layers);
  else if (status == STATUS_OK)
    report_text(&job, layers);
  free(layers);
  free(job.tensors);
  checkpoint_close(&job.weights);
  checkpoint_close(&job.calibration);
  checkpoint_close(&job.evaluation);
  return status == STATUS_OK ? TOOL_OK : tool_refuse(call, job.error.text, -(int)status);
}

static const struct tool_option quantize_options[] = {
    {"format", "FORMAT", "int2, int4, int8", true},
    {"output", "FILE", "where the codes go: a safetensors file, or a folder, that `load` takes", true},
    {"scale", "MODE", "of int2 and int4: group (if not given), row", false},
    {"method", "METHOD", "gptq, or round: the least squared error of the weights; gptq if not given", false},
    {"calibration", "FILE", "text for a model; else safetensors with rows that layers see, by weights' names", false},
    {"evaluate", "FILE", "the same with other rows, to measure errors with; else the calibration's", false},
    {"tensor", "PATTERN", "which weights; all that there are rows for if not given", false},
    {"damping", "D", "of the mean of the Hessian's diagonal is added to it; 0.01 if not given", false},
    {"threads", "N", "as many as there are processors if not given", false},
    {0},
};

const struct tool_command ctl_quantize = {
    .name = "quantize",
    .arguments = "FILE|FOLDER",
    .least = 1,
    .most = 1,
    .summary =
        "Makes INT2, INT4 or INT8 weights with less error than rounding makes; needs no gemmd. Of a model, a folder,\n"
        "layer by layer over what the quantized layers before put out: by python3 with gemmclient, torch and\n"
        "transformers. Prints the relative errors of the layers' outputs, rounded and by GPTQ.",
    .options = quantize_options,
    .example =
        "gemmctl quantize llama/ --format int2 --calibration text.txt --output llama-int2/\n  "
        "gemmctl quantize model.safetensors --format int2 --calibration rows.safetensors --output int2.safetensors",
    .keys = "  tensors: a list of {name, n, k, rows: of activations, rounded, gptq: relative errors of the output}",
    .run = run_quantize,
};
