/* matmul: one product from and to files, some rows at a time, so that it works on pipes and files of any size. */
#include "ctl.h"

#include "../tool/print.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROWS_BYTES ((size_t)16 << 20) /* of x and y together that are in shared memory at a time */
#define ROWS_MOST ((int64_t)1 << 24)

struct matmul {
  struct tool_call *call;
  gemmd_session *session;
  gemmd_weight *weight;
  const gemmd_weight_info *info;
  FILE *x, *y, *scale; /* scale: NULL where x is not quantized, or where all are 1 */
  gemmd_product product;
  size_t x_row, y_row, scale_row; /* bytes */
  int64_t rows;                   /* at a time */
  int64_t m_asked;                /* -1: until the end of x */
  int64_t m_done;
  uint64_t device_ns;
};

static bool is_standard(const char *path) {
  return strcmp(path, "-") == 0;
}

static enum tool_exit open_input(const struct matmul *matmul, const char *option, const char *path, FILE **out) {
  *out = is_standard(path) ? stdin : fopen(path, "rb");
  if (*out == NULL)
    return tool_cannot(matmul->call, GEMMD_SYSTEM, "--%s: cannot open %s: %s", option, path, strerror(errno));
  return TOOL_OK;
}

static void close_input(FILE *file) {
  if (file != NULL && file != stdin)
    fclose(file);
}

/* Standard input can be read once. */
static enum tool_exit check_inputs(const struct tool_call *call) {
  static const char *const options[] = {"x", "x-scale", "bias"};
  const char *before = NULL;
  for (int i = 0; i < 3; i++) {
    const char *path = tool_value(call, options[i]);
    if (path == NULL || !is_standard(path))
      continue;
    if (before != NULL)
      return tool_fail(call, TOOL_USAGE, "--%s and --%s are both standard input", before, options[i]);
    before = options[i];
  }
  return TOOL_OK;
}

static enum tool_exit parse_options(struct matmul *matmul) {
  struct tool_call *call = matmul->call;
  int x_type, y_type, bias_type;
  if (check_inputs(call) != TOOL_OK)
    return TOOL_USAGE;
  if (!tool_word(call, "x-type", words_type, GEMMD_F32, &x_type) ||
      !tool_word(call, "y-type", words_type, GEMMD_F32, &y_type) ||
      !tool_word(call, "bias-type", words_type, GEMMD_F32, &bias_type) ||
      !tool_integer(call, "m", 1, ROWS_MOST, -1, &matmul->m_asked))
    return TOOL_USAGE;
  matmul->product = (gemmd_product){.x_type = (enum gemmd_type)x_type, .y_type = (enum gemmd_type)y_type};
  if (tool_value(call, "bias") != NULL)
    matmul->product.bias_type = (enum gemmd_type)bias_type;
  if (is_standard(tool_value(call, "y")))
    call->out = stderr;
  return TOOL_OK;
}

/* ---- memory */

static enum tool_exit no_room(const struct matmul *matmul, const char *what, size_t bytes) {
  return tool_cannot(matmul->call, GEMMD_NOMEM, "no room for %zu bytes of %s in the session's shared memory", bytes,
                     what);
}

static enum tool_exit read_bias(struct matmul *matmul, const char *path) {
  size_t bytes = (size_t)matmul->info->n * type_bytes(matmul->product.bias_type);
  FILE *file;
  enum tool_exit code = open_input(matmul, "bias", path, &file);
  if (code != TOOL_OK)
    return code;
  void *bias = gemmd_alloc(matmul->session, bytes);
  matmul->product.bias = bias;
  if (bias == NULL)
    code = no_room(matmul, "bias", bytes);
  else if (fread(bias, 1, bytes, file) != bytes || getc(file) != EOF)
    code = tool_fail(matmul->call, TOOL_USAGE, "--bias: %s must hold N = %lld x %s = %zu bytes, and does not", path,
                     (long long)matmul->info->n, word_text(words_type, (int)matmul->product.bias_type), bytes);
  close_input(file);
  return code;
}

static bool takes_scale(const struct matmul *matmul) {
  enum gemmd_type type = matmul->product.x_type;
  return (type == GEMMD_INT8 || type == GEMMD_E4M3) && matmul->product.y_type != GEMMD_S32;
}

static enum tool_exit take_memory(struct matmul *matmul) {
  gemmd_product *product = &matmul->product;
  const gemmd_weight_info *info = matmul->info;
  matmul->x_row = (size_t)info->k * type_bytes(product->x_type);
  matmul->y_row = (size_t)info->n * type_bytes(product->y_type);
  if (takes_scale(matmul))
    matmul->scale_row = sizeof(float) * (info->scale == GEMMD_SCALE_BLOCK ? ((size_t)info->k + 127) / 128 : 1);
  size_t fit = ROWS_BYTES / (matmul->x_row + matmul->y_row);
  matmul->rows = fit > 0 ? (int64_t)fit : 1;
  if (matmul->m_asked >= 0 && matmul->m_asked < matmul->rows)
    matmul->rows = matmul->m_asked;
  size_t rows = (size_t)matmul->rows;
  product->x = gemmd_alloc(matmul->session, rows * matmul->x_row);
  product->y = gemmd_alloc(matmul->session, rows * matmul->y_row);
  if (product->x == NULL || product->y == NULL)
    return no_room(matmul, "x and y", rows * (matmul->x_row + matmul->y_row));
  if (matmul->scale_row == 0)
    return TOOL_OK;
  float *scale = gemmd_alloc(matmul->session, rows * matmul->scale_row);
  if (scale == NULL)
    return no_room(matmul, "x scales", rows * matmul->scale_row);
  for (size_t i = 0; i < rows * matmul->scale_row / sizeof *scale; i++)
    scale[i] = 1;
  product->x_scale = scale;
  return TOOL_OK;
}

/* ---- rows */

/* How long a regular file is, is known before anything is computed; a device may never end. */
static enum tool_exit check_size(const struct matmul *matmul) {
  struct stat stat;
  if (fstat(fileno(matmul->x), &stat) != 0)
    return tool_cannot(matmul->call, GEMMD_SYSTEM, "--x: cannot look at %s: %s", tool_value(matmul->call, "x"),
                       strerror(errno));
  if (!S_ISREG(stat.st_mode) && !S_ISFIFO(stat.st_mode) && !S_ISSOCK(stat.st_mode) && matmul->m_asked < 0)
    return tool_fail(matmul->call, TOOL_USAGE, "--x: %s is no file or pipe, so --m must say how many rows to read",
                     tool_value(matmul->call, "x"));
  if (!S_ISREG(stat.st_mode))
    return TOOL_OK;
  const char *type = word_text(words_type, (int)matmul->product.x_type);
  uint64_t bytes = (uint64_t)stat.st_size, row = matmul->x_row;
  if (bytes == 0 || bytes % row != 0)
    return tool_fail(matmul->call, TOOL_USAGE, "--x: %s holds %llu bytes, no multiple of a row of K = %lld x %s",
                     tool_value(matmul->call, "x"), (unsigned long long)bytes, (long long)matmul->info->k, type);
  if (matmul->m_asked >= 0 && bytes / row != (uint64_t)matmul->m_asked)
    return tool_fail(matmul->call, TOOL_USAGE, "--m is %lld, but %s holds %llu rows of K = %lld x %s",
                     (long long)matmul->m_asked, tool_value(matmul->call, "x"), (unsigned long long)(bytes / row),
                     (long long)matmul->info->k, type);
  return TOOL_OK;
}

/* Reads the next rows of x and their scales; *rows is 0 at the end. */
static enum tool_exit read_rows(struct matmul *matmul, int64_t *rows) {
  int64_t most = matmul->rows;
  if (matmul->m_asked >= 0 && matmul->m_asked - matmul->m_done < most)
    most = matmul->m_asked - matmul->m_done;
  size_t got = fread((void *)matmul->product.x, 1, (size_t)most * matmul->x_row, matmul->x);
  if (ferror(matmul->x))
    return tool_cannot(matmul->call, GEMMD_SYSTEM, "--x: cannot read: %s", strerror(errno));
  if (got % matmul->x_row != 0)
    return tool_fail(matmul->call, TOOL_USAGE, "--x: ends inside row %lld of K = %lld x %s",
                     (long long)(matmul->m_done + (int64_t)(got / matmul->x_row)), (long long)matmul->info->k,
                     word_text(words_type, (int)matmul->product.x_type));
  *rows = (int64_t)(got / matmul->x_row);
  if (matmul->m_asked >= 0 && *rows < most)
    return tool_fail(matmul->call, TOOL_USAGE, "--m is %lld, but x ends after %lld rows", (long long)matmul->m_asked,
                     (long long)(matmul->m_done + *rows));
  size_t scales = (size_t)*rows * matmul->scale_row;
  if (matmul->scale != NULL && fread((void *)matmul->product.x_scale, 1, scales, matmul->scale) != scales)
    return tool_fail(matmul->call, TOOL_USAGE, "--x-scale: %s ends before row %lld of x",
                     tool_value(matmul->call, "x-scale"), (long long)(matmul->m_done + *rows));
  return TOOL_OK;
}

/* A file once there is something to write: a call that cannot work leaves an older file alone. */
static enum tool_exit open_y(struct matmul *matmul) {
  const char *path = tool_value(matmul->call, "y");
  if (matmul->y == NULL)
    matmul->y = is_standard(path) ? stdout : fopen(path, "wb");
  if (matmul->y == NULL)
    return tool_cannot(matmul->call, GEMMD_SYSTEM, "--y: cannot open %s: %s", path, strerror(errno));
  return TOOL_OK;
}

static enum tool_exit multiply_rows(struct matmul *matmul, int64_t rows) {
  uint64_t ticket;
  gemmd_result result;
  matmul->product.m = (uint32_t)rows;
  int status = gemmd_submit(matmul->weight, &matmul->product, &ticket);
  if (status == GEMMD_OK)
    status = gemmd_wait(matmul->session, ticket, -1, &result);
  if (status != GEMMD_OK)
    return tool_refused(matmul->call, matmul->session, status);
  matmul->device_ns += result.device_ns;
  matmul->m_done += rows;
  size_t bytes = (size_t)rows * matmul->y_row;
  enum tool_exit code = open_y(matmul);
  if (code != TOOL_OK)
    return code;
  if (fwrite(matmul->product.y, 1, bytes, matmul->y) != bytes)
    return tool_cannot(matmul->call, GEMMD_SYSTEM, "--y: cannot write: %s", strerror(errno));
  return TOOL_OK;
}

static enum tool_exit multiply(struct matmul *matmul) {
  for (;;) {
    int64_t rows = 0;
    enum tool_exit code = read_rows(matmul, &rows);
    if (code == TOOL_OK && rows == 0 && matmul->m_done == 0)
      code = tool_fail(matmul->call, TOOL_USAGE, "--x: holds no row");
    if (code != TOOL_OK || rows == 0)
      return code;
    code = multiply_rows(matmul, rows);
    if (code != TOOL_OK)
      return code;
  }
}

/* Opening one that is read for y would empty it. NULL: it is none of them. */
static const char *read_as(const struct matmul *matmul, const char *path) {
  static const char *const inputs[] = {"x", "x-scale", "bias"};
  struct stat input, y;
  if (stat(path, &y) != 0 || !S_ISREG(y.st_mode))
    return NULL;
  for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) {
    const char *name = tool_value(matmul->call, inputs[i]);
    if (name != NULL && (is_standard(name) ? fstat(STDIN_FILENO, &input) : stat(name, &input)) == 0 &&
        input.st_dev == y.st_dev && input.st_ino == y.st_ino)
      return inputs[i];
  }
  return NULL;
}

static enum tool_exit multiply_to_file(struct matmul *matmul) {
  const char *path = tool_value(matmul->call, "y");
  const char *input = is_standard(path) ? NULL : read_as(matmul, path);
  if (input != NULL)
    return tool_fail(matmul->call, TOOL_USAGE, "--y: %s is %s itself, which it would overwrite", path, input);
  /* Who reads y from a pipe may wait for it to be opened before any x is there. */
  struct stat stat_of;
  bool waits = !is_standard(path) && stat(path, &stat_of) == 0 && !S_ISREG(stat_of.st_mode);
  enum tool_exit code = waits ? open_y(matmul) : TOOL_OK;
  if (code == TOOL_OK)
    code = multiply(matmul);
  if (matmul->y == NULL)
    return code;
  int failed = matmul->y == stdout ? fflush(stdout) : fclose(matmul->y);
  if (failed != 0 && code == TOOL_OK)
    code = tool_cannot(matmul->call, GEMMD_SYSTEM, "--y: cannot write %s: %s", path, strerror(errno));
  return code;
}

static void report(const struct matmul *matmul) {
  const gemmd_weight_info *info = matmul->info;
  const char *x_type = word_text(words_type, (int)matmul->product.x_type);
  const char *y_type = word_text(words_type, (int)matmul->product.y_type);
  const char *format = word_text(words_format, (int)info->format);
  FILE *out = matmul->call->out;
  char time[PRINT_UNIT_BYTES];
  if (matmul->call->json)
    print_json(out,
               json_pack("{s:o, s:s, s:I, s:I, s:I, s:s, s:s, s:I}", "weight", print_json_text(info->name), "format",
                         format, "m", (json_int_t)matmul->m_done, "n", (json_int_t)info->n, "k", (json_int_t)info->k,
                         "x_type", x_type, "y_type", y_type, "device_ns", (json_int_t)matmul->device_ns));
  else
    fprintf(out, "y %lld x %lld %s = x %lld x %lld %s * %s^T (%s); the product itself took %s\n",
            (long long)matmul->m_done, (long long)info->n, y_type, (long long)matmul->m_done, (long long)info->k,
            x_type, info->name, format, print_duration(matmul->device_ns, time));
}

/* ---- the command */

static enum tool_exit run(struct matmul *matmul) {
  struct tool_call *call = matmul->call;
  int status = gemmd_weight_open(matmul->session, call->arguments[0], &matmul->weight);
  if (status != GEMMD_OK)
    return tool_refused(call, matmul->session, status);
  matmul->info = gemmd_weight_get_info(matmul->weight);
  const char *bias = tool_value(call, "bias"), *scale = tool_value(call, "x-scale");
  enum tool_exit code = take_memory(matmul);
  if (code == TOOL_OK && scale != NULL && matmul->scale_row == 0)
    code = tool_fail(call, TOOL_USAGE, "--x-scale is for an x of type int8 or e4m3 and a y other than s32");
  if (code == TOOL_OK)
    code = check_size(matmul);
  if (code == TOOL_OK && bias != NULL)
    code = read_bias(matmul, bias);
  if (code == TOOL_OK && scale != NULL)
    code = open_input(matmul, "x-scale", scale, &matmul->scale);
  if (code == TOOL_OK)
    code = multiply_to_file(matmul);
  if (code == TOOL_OK)
    report(matmul);
  return code;
}

static enum tool_exit run_matmul(struct tool_call *call) {
  struct matmul matmul = {.call = call};
  enum tool_exit code = parse_options(&matmul);
  if (code == TOOL_OK)
    code = open_input(&matmul, "x", tool_value(call, "x"), &matmul.x);
  if (code == TOOL_OK) {
    const gemmd_options options = {.name = "gemmctl"};
    code = tool_connect(call, &options, &matmul.session);
  }
  if (code == TOOL_OK)
    code = run(&matmul);
  gemmd_disconnect(matmul.session);
  close_input(matmul.x);
  close_input(matmul.scale);
  return code;
}

static const struct tool_option matmul_options[] = {
    {"x", "FILE", "rows of x, raw and row-major; - is stdin", true},
    {"y", "FILE", "where y goes, raw and row-major; - is stdout", true},
    {"m", "M", "rows of x; else as many as the file holds", false},
    {"x-type", "TYPE", "f32, f16, bf16, int8 or e4m3; f32 if not given", false},
    {"y-type", "TYPE", "f32, f16, bf16 or s32; f32 if not given", false},
    {"x-scale", "FILE", "f32 scales of an int8 or e4m3 x: one a row, with block scales one a 1x128; else all 1", false},
    {"bias", "FILE", "N raw numbers, added to every row of y", false},
    {"bias-type", "TYPE", "f32, f16 or bf16; f32 if not given", false},
    {0},
};

const struct tool_command ctl_matmul = {
    .name = "matmul",
    .arguments = "NAME",
    .least = 1,
    .most = 1,
    .summary = "Computes y = x * W^T from and to files; the report goes to stderr where y is stdout.",
    .options = matmul_options,
    .example = "gemmctl matmul out --x rows.f32 --y result.f32",
    .keys = "  weight, format, m, n, k, x_type, y_type, device_ns: the backend's own time, all rows",
    .run = run_matmul,
};
