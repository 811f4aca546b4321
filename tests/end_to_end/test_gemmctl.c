/* gemmctl as a shell uses it: exit codes, sentences, JSON, and numbers against an independent computation. */
#include "tests/support/daemon/daemon.h"
#include "tests/support/daemon/shell.h"
#include "tests/support/reference/checkpoint.h"

#include <dlfcn.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define N 24
#define K 40
#define M 5

static struct daemon gemmd; /* its folder has the checkpoint, inputs and outputs, too */

/* ---- files */

static size_t read_file(const char *name, void *out, size_t room) {
  FILE *file = fopen(daemon_path(&gemmd, name), "rb");
  assert_non_null(file);
  size_t bytes = fread(out, 1, room, file);
  fclose(file);
  return bytes;
}

static void write_file(const char *name, const void *data, size_t bytes) {
  FILE *file = fopen(daemon_path(&gemmd, name), "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(data, 1, bytes, file), bytes);
  assert_int_equal(fclose(file), 0);
}

/* ---- weights and rows whose INT8 codes are the numbers themselves: integers, 127 in every row, so a scale of 1 */

static int w_value(int row, int column) {
  return column == row % K ? 127 : (row * 31 + column * 17) % 201 - 100;
}

static int x_value(int row, int column) {
  return column == (row * 7) % K ? -127 : (row * 13 + column * 29) % 181 - 90;
}

static double product_value(int row, int column) {
  double sum = 0;
  for (int i = 0; i < K; i++)
    sum += (double)x_value(row, i) * w_value(column, i);
  return sum;
}

/* Two tensors: "w", and "v", which is w with one number changed. */
static void write_checkpoint(void) {
  static struct checkpoint checkpoint;
  float values[N][K];
  for (int i = 0; i < N * K; i++)
    values[i / K][i % K] = (float)w_value(i / K, i % K);
  checkpoint_add(&checkpoint, "w", "F32", N, K, values, sizeof values);
  values[3][5] += 1;
  checkpoint_add(&checkpoint, "v", "F32", N, K, values, sizeof values);
  checkpoint_write(&checkpoint, daemon_path(&gemmd, "model.safetensors"));
}

static void write_rows(void) {
  float rows[M][K];
  int8_t codes[M][K];
  for (int i = 0; i < M * K; i++) {
    codes[i / K][i % K] = (int8_t)x_value(i / K, i % K);
    rows[i / K][i % K] = (float)x_value(i / K, i % K);
  }
  write_file("x.f32", rows, sizeof rows);
  write_file("x.int8", codes, sizeof codes);
}

/* ---- the daemon */

static int begin(void **state) {
  daemon_make(&gemmd, "");
  shell_begin(&gemmd);
  write_checkpoint();
  write_rows();
  daemon_start(&gemmd);
  shell_expect("$T/gemmctl load model.safetensors --tensor w --format int8", 0);
  return 0;
}

static int end(void **state) {
  daemon_end(&gemmd);
  return 0;
}

/* ---- help and usage */

static const char *const command_names[] = {"status", "weights", "load", "unload", "matmul", "ping", "version"};
enum { COMMANDS = sizeof command_names / sizeof *command_names };

static void test_help_lists_every_command(void **state) {
  const struct shell_outcome *help = shell_expect("$T/gemmctl --help", 0);
  assert_non_null(strstr(help->out, "| forget PATTERN | watch | report | trials | WEIGHT"));
  assert_string_equal(help->err, "");
  for (int i = 0; i < COMMANDS; i++)
    assert_non_null(strstr(help->out, command_names[i]));
  assert_non_null(strstr(help->out, "Exit status:"));
}

static void test_every_command_has_an_example(void **state) {
  for (int i = 0; i < COMMANDS; i++) {
    char line[64], example[64];
    snprintf(line, sizeof line, "$T/gemmctl %s --help", command_names[i]);
    snprintf(example, sizeof example, "Example:\n  gemmctl %s", command_names[i]);
    assert_non_null(strstr(shell_expect(line, 0)->out, example));
  }
}

static void test_usage_errors_name_the_option_and_its_value(void **state) {
  SHELL_EXPECT_ERROR("$T/gemmctl", 2, "Usage: gemmctl");
  SHELL_EXPECT_ERROR("$T/gemmctl frobnicate", 2, "gemmctl: unknown command frobnicate");
  SHELL_EXPECT_ERROR("$T/gemmctl status --frob", 2, "gemmctl: status: ", "unknown option --frob");
  SHELL_EXPECT_ERROR("$T/gemmctl status -xy", 2, "gemmctl: status: unknown option -x\n");
  SHELL_EXPECT_ERROR("$T/gemmctl status -\303\244", 2, "gemmctl: status: unknown option -?\n");
  SHELL_EXPECT_ERROR("$T/gemmctl --json -xy status", 2, "gemmctl: unknown option -x\n");
  SHELL_EXPECT_ERROR("$T/gemmctl load", 2, "gemmctl: load: FOLDER|FILE... is missing");
  SHELL_EXPECT_ERROR("$T/gemmctl load a b --tensor w --format int8", 2, "one argument too many: b");
  SHELL_EXPECT_ERROR("$T/gemmctl load a --tensor w", 2, "gemmctl: load: --format FORMAT is missing");
  SHELL_EXPECT_ERROR("$T/gemmctl load a", 2, "--format FORMAT, --rule or --rules is missing");
  SHELL_EXPECT_ERROR("$T/gemmctl load a --format int8 --name b", 2, "--name goes with --tensor");
  SHELL_EXPECT_ERROR("$T/gemmctl load a --rule '*=int9'", 2, "a rule is PATTERN=FORMAT", "got *=int9");
  SHELL_EXPECT_ERROR("$T/gemmctl load a --rule int8", 2, "a rule is PATTERN=FORMAT", "got int8");
  SHELL_EXPECT_ERROR("$T/gemmctl load a --rule ''", 2, "a rule is PATTERN=FORMAT");
  SHELL_EXPECT_ERROR("$T/gemmctl load a --format f16 --rules /", 2, "cannot read /: Is a directory");
  SHELL_EXPECT_ERROR("$T/gemmctl device retry ''", 2, "a device is a number of 0..63");
  SHELL_EXPECT_ERROR("$T/gemmctl load a --format int8 --rank 1", 2, "--rank R and --of N go together");
  SHELL_EXPECT_ERROR("$T/gemmctl load a --format int8 --rank 2 --of 2", 2, "with R below N");
  SHELL_EXPECT_ERROR("$T/gemmctl load a --tensor", 2, "--tensor needs a value");
  SHELL_EXPECT_ERROR("$T/gemmctl load a --tensor w --format int9", 2, "--format must be int8, fp8, int2, f16, ",
                     ", got int9");
  SHELL_EXPECT_ERROR("$T/gemmctl load a --tensor w --format int8 --scale all", 2, "--scale must be", "got all");
  SHELL_EXPECT_ERROR("$T/gemmctl load a --tensor w --format int8 --device -2", 2, "--device must be 0..63, got -2");
  SHELL_EXPECT_ERROR("$T/gemmctl load a --tensor w --format int8 --placement here", 2,
                     "--placement must be single, replicas or split, got here");
  SHELL_EXPECT_ERROR("$T/gemmctl ping --count 0", 2, "--count must be 1..1000000, got 0");
  SHELL_EXPECT_ERROR("$T/gemmctl ping --count 3x", 2, "--count must be", "got 3x");
  SHELL_EXPECT_ERROR("$T/gemmctl matmul w --x x.f32 --y y --m 0", 2, "--m must be 1..16777216, got 0");
}

static void test_no_daemon(void **state) {
  SHELL_EXPECT_ERROR("$T/gemmctl --socket $D/none status", 3, "gemmctl: status: ", "/none");
  json_t *object = shell_expect_json("$T/gemmctl --json --socket $D/none status", 3);
  assert_non_null(strstr(shell_string(json_object_get(object, "error"), "text"), "/none"));
  json_decref(object);
  object = shell_expect_json("$T/gemmctl version --json --socket $D/none", 0);
  assert_true(json_is_null(json_object_get(object, "server")));
  json_decref(object);
}

/* ---- the daemon's state */

static void test_status(void **state) {
  json_t *object = shell_expect_json("$T/gemmctl status --json", 0);
  assert_int_equal(shell_integer(object, "pid"), gemmd.pid);
  assert_true(shell_integer(object, "names") >= 1 && shell_integer(object, "weights") >= 1);
  assert_true(shell_integer(object, "weight_bytes") >= (json_int_t)N * K);
  assert_int_equal(shell_integer(object, "sessions"), 1);
  const json_t *device = json_array_get(json_object_get(object, "devices"), 0);
  assert_string_equal(shell_string(device, "state"), "ready");
  assert_true(shell_integer(device, "memory_total") > 0);
  const json_t *formats = json_object_get(device, "formats");
  assert_true(json_array_size(formats) >= 6);
  assert_string_equal(json_string_value(json_array_get(formats, 0)), "int8");
  const struct shell_outcome *text = shell_expect("$T/gemmctl status", 0);
  assert_non_null(strstr(text->out, shell_string(object, "backend")));
  assert_non_null(strstr(text->out, "iB"));
  json_decref(object);
}

static void test_ping_and_version(void **state) {
  json_t *object = shell_expect_json("$T/gemmctl --json ping --count 20", 0);
  const json_t *ns = json_object_get(object, "round_trip_ns");
  assert_int_equal(shell_integer(object, "count"), 20);
  assert_true(shell_integer(ns, "min") > 0);
  assert_true(shell_integer(ns, "min") <= shell_integer(ns, "median") &&
              shell_integer(ns, "median") <= shell_integer(ns, "max"));
  json_decref(object);
  object = shell_expect_json("$T/gemmctl version --json", 0);
  assert_non_null(strstr(shell_string(object, "server"), shell_string(object, "gemmctl")));
  json_decref(object);
}

/* Every line is a comment or a name, perhaps with labels, and a number; the numbers are those of status. */
static void test_metrics(void **state) {
  static char text[1 << 20];
  unsigned samples = 0;
  snprintf(text, sizeof text, "%s", shell_expect("$T/gemmctl metrics", 0)->out);
  assert_non_null(strstr(text, "\n# TYPE gemmd_device_rows_total counter\n"));
  assert_non_null(strstr(text, "\ngemmd_device_ready{device=\"0\",name=\""));
  assert_non_null(strstr(text, "\ngemmd_names 1\n"));
  for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
    if (*line == '#')
      continue;
    char *end, *number = strrchr(line, ' ');
    assert_memory_equal(line, "gemmd_", 6);
    assert_non_null(number);
    assert_true(strtod(number + 1, &end) >= 0 && *end == '\0' && end > number + 1);
    samples++;
  }
  assert_true(samples >= 8 + 12); /* of the daemon, and of its device */
}

/* Every user may read them. */
static void test_metrics_name_no_weights(void **state) {
  shell_expect("$T/gemmctl load model.safetensors --tensor v --format fp8 --name unsaid.name", 0);
  const char *text = shell_expect("$T/gemmctl metrics", 0)->out;
  assert_non_null(strstr(text, "\ngemmd_names 2\n"));
  assert_null(strstr(text, "unsaid"));
  assert_null(strstr(text, "uid="));
  assert_null(strstr(text, "user="));
  shell_expect("$T/gemmctl unload unsaid.name", 0);
}

/* ---- weights */

static void test_weights(void **state) {
  json_t *object = shell_expect_json("$T/gemmctl weights --json w", 0);
  const json_t *list = json_object_get(object, "weights");
  assert_int_equal(json_array_size(list), 1);
  const json_t *weight = json_array_get(list, 0);
  assert_string_equal(shell_string(weight, "name"), "w");
  assert_string_equal(shell_string(weight, "format"), "int8");
  assert_string_equal(shell_string(weight, "scale"), "row");
  assert_int_equal(shell_integer(weight, "n"), N);
  assert_int_equal(shell_integer(weight, "k"), K);
  assert_int_equal(shell_integer(weight, "owner"), getuid());
  assert_int_equal(strlen(shell_string(weight, "hash")), 64);
  json_decref(object);
  object = shell_expect_json("$T/gemmctl weights --json 'none*'", 0);
  assert_int_equal(json_array_size(json_object_get(object, "weights")), 0);
  json_decref(object);
  assert_non_null(strstr(shell_expect("$T/gemmctl weights", 0)->out, "NAME"));
}

static void test_equal_content_is_shared_and_unload_frees_the_last(void **state) {
  json_t *object =
      shell_expect_json("$T/gemmctl load model.safetensors --tensor v --format fp8 --name first --json", 0);
  assert_true(json_is_false(json_object_get(object, "shared")));
  assert_int_equal(shell_integer(object, "references"), 1);
  json_int_t bytes = shell_integer(object, "bytes");
  json_decref(object);
  object = shell_expect_json("$T/gemmctl load model.safetensors --tensor v --format fp8 --name second --json", 0);
  assert_true(json_is_true(json_object_get(object, "shared")));
  assert_int_equal(shell_integer(object, "references"), 2);
  json_decref(object);
  object = shell_expect_json("$T/gemmctl unload first --json", 0);
  assert_int_equal(shell_integer(object, "freed"), 0);
  json_decref(object);
  object = shell_expect_json("$T/gemmctl unload second --json", 0);
  assert_int_equal(shell_integer(object, "freed"), bytes);
  json_decref(object);
}

static void test_refusals_name_the_status(void **state) {
  SHELL_EXPECT_ERROR("$T/gemmctl unload none", 1, "gemmctl: unload: ", "none", "(NOT_FOUND)");
  SHELL_EXPECT_ERROR("$T/gemmctl load model.safetensors --tensor none --format int8", 1, "none");
  SHELL_EXPECT_ERROR("$T/gemmctl load missing --tensor w --format int8", 1, "missing");
  SHELL_EXPECT_ERROR("$T/gemmctl load x.f32 --tensor w --format int8 --name other", 1, "(BAD_FILE)");
  SHELL_EXPECT_ERROR("$T/gemmctl load model.safetensors --tensor v --format int8 --name w", 1, "\"w\"", "replace",
                     "(EXISTS)", "--replace puts");
  SHELL_EXPECT_ERROR("$T/gemmctl --socket missing status", 3, "cannot connect to missing", "(DISCONNECTED)",
                     "GEMMD_SOCKET");
  SHELL_EXPECT_ERROR("$T/gemmctl load model.safetensors --tensor v --format int8 --scale block --name b", 1,
                     "(INVALID)");
  SHELL_EXPECT_ERROR("$T/gemmctl matmul none --x x.f32 --y y", 1, "none", "(NOT_FOUND)");
  SHELL_EXPECT_ERROR("$T/gemmctl matmul w --x x.f32 --x-type e4m3 --y y", 1, "x type", "(UNSUPPORTED)");
  json_t *object = shell_expect_json("$T/gemmctl unload none --json", 1);
  assert_string_equal(shell_string(json_object_get(object, "error"), "status"), "NOT_FOUND");
  json_decref(object);
}

static void test_replace(void **state) {
  shell_expect("$T/gemmctl load model.safetensors --tensor w --format int8 --name replaced", 0);
  json_t *object = shell_expect_json(
      "$T/gemmctl load model.safetensors --tensor v --format int8 --name replaced --replace --json", 0);
  assert_int_equal(shell_integer(object, "references"), 1);
  json_decref(object);
  shell_expect("$T/gemmctl unload replaced", 0);
}

/* ---- products */

/* The file holds `m` rows of the product, shifted by `bias` times the column. */
static void check_product(const char *name, int m, double bias) {
  static float y[M + 1][N];
  assert_int_equal(read_file(name, y, sizeof y), (size_t)m * N * sizeof(float));
  for (int row = 0; row < m; row++) {
    for (int column = 0; column < N; column++)
      assert_float_equal(y[row][column], product_value(row, column) + bias * column, 0);
  }
}

static void test_matmul_from_files(void **state) {
  json_t *object = shell_expect_json("$T/gemmctl matmul w --x x.f32 --y y.f32 --json", 0);
  assert_int_equal(shell_integer(object, "m"), M);
  assert_int_equal(shell_integer(object, "n"), N);
  assert_int_equal(shell_integer(object, "k"), K);
  assert_true(shell_integer(object, "device_ns") > 0);
  json_decref(object);
  check_product("y.f32", M, 0);
}

static void test_matmul_through_pipes(void **state) {
  SHELL_EXPECT_ERROR("head -c 320 x.f32 | $T/gemmctl matmul w --x - --y - | cat >y.pipe", 0, "2 x 24");
  check_product("y.pipe", 2, 0);
  shell_expect("cat x.f32 | $T/gemmctl matmul w --x - --y y.three --m 3", 0);
  check_product("y.three", 3, 0);
  shell_expect("mkfifo in result; timeout 60 $T/gemmctl matmul w --x in --y result >/dev/null & "
               "exec 3>in 4<result; cat x.f32 >&3; exec 3>&-; cat <&4 >y.fifo; wait; cmp y.fifo y.f32",
               0);
}

static void test_matmul_with_bias(void **state) {
  float bias[N];
  for (int i = 0; i < N; i++)
    bias[i] = (float)i * 4;
  write_file("bias", bias, sizeof bias);
  shell_expect("$T/gemmctl matmul w --x x.f32 --y y.bias --bias bias", 0);
  check_product("y.bias", M, 4);
  SHELL_EXPECT_ERROR("head -c 90 bias >short; $T/gemmctl matmul w --x x.f32 --y y.no --bias short", 2, "--bias",
                     "96 bytes");
  SHELL_EXPECT_ERROR("$T/gemmctl matmul w --x x.f32 --y bias --bias bias", 2, "--y: bias is bias itself");
}

static void test_matmul_of_codes(void **state) {
  int32_t sums[M][N];
  shell_expect("$T/gemmctl matmul w --x x.int8 --x-type int8 --y y.s32 --y-type s32", 0);
  assert_int_equal(read_file("y.s32", sums, sizeof sums), sizeof sums);
  for (int i = 0; i < M * N; i++)
    assert_int_equal(sums[i / N][i % N], (int32_t)product_value(i / N, i % N));
  /* Without scales they are all 1; with them a row is scaled. */
  shell_expect("$T/gemmctl matmul w --x x.int8 --x-type int8 --y y.ones", 0);
  check_product("y.ones", M, 0);
  float scales[M] = {1, 2, 0.5f, 4, 8}, y[M][N];
  write_file("scales", scales, sizeof scales);
  shell_expect("$T/gemmctl matmul w --x x.int8 --x-type int8 --x-scale scales --y y.scaled", 0);
  assert_int_equal(read_file("y.scaled", y, sizeof y), sizeof y);
  for (int i = 0; i < M * N; i++)
    assert_float_equal(y[i / N][i % N], product_value(i / N, i % N) * (double)scales[i / N], 0);
  SHELL_EXPECT_ERROR("$T/gemmctl matmul w --x x.int8 --x-type int8 --x-scale scales --y scales", 2,
                     "is x-scale itself");
  assert_int_equal(read_file("scales", y, sizeof y), sizeof scales);
}

static void test_matmul_refuses_what_does_not_fit(void **state) {
  write_file("y.kept", "kept", 4);
  SHELL_EXPECT_ERROR("head -c 161 x.f32 >ragged; $T/gemmctl matmul w --x ragged --y y.kept", 2, "161 bytes",
                     "K = 40 x f32");
  SHELL_EXPECT_ERROR(": >empty; $T/gemmctl matmul w --x empty --y y.kept", 2, "0 bytes");
  SHELL_EXPECT_ERROR("$T/gemmctl matmul w --x x.f32 --m 4 --y y.kept", 2, "--m is 4", "5 rows");
  SHELL_EXPECT_ERROR("$T/gemmctl matmul w --x x.f32 --x-scale x.f32 --y y.kept", 2, "--x-scale");
  SHELL_EXPECT_ERROR("$T/gemmctl matmul w --x - --x-type int8 --x-scale - --y y.kept", 2,
                     "--x and --x-scale are both standard input");
  SHELL_EXPECT_ERROR("$T/gemmctl matmul w --x missing --y y.kept", 1, "--x", "missing");
  SHELL_EXPECT_ERROR("cp x.f32 x.kept; ln -s x.kept x.link; $T/gemmctl matmul w --x x.kept --y x.link", 2,
                     "--y: x.link is x");
  shell_expect("cmp x.f32 x.kept", 0);
  SHELL_EXPECT_ERROR("$T/gemmctl matmul w --x x.f32 --x-type s32 --y y.kept", 1, "(UNSUPPORTED)");
  SHELL_EXPECT_ERROR("head -c 100 x.f32 | $T/gemmctl matmul w --x - --y y.kept", 2, "row 0");
  SHELL_EXPECT_ERROR("head -c 320 x.f32 | $T/gemmctl matmul w --x - --m 3 --y y.other", 2, "--m is 3", "2 rows");
  SHELL_EXPECT_ERROR("$T/gemmctl matmul w --x /dev/zero --y y.other", 2, "/dev/zero is no file or pipe", "--m");
  shell_expect("$T/gemmctl matmul w --x /dev/zero --m 2 --y y.zero", 0);
  shell_expect("cmp -n 192 y.zero /dev/zero", 0);
  char kept[8];
  assert_int_equal(read_file("y.kept", kept, sizeof kept), 4);
}

/* The one object on stdout, and the same in words on stderr. */
static void expect_refusal(const char *line, const char *status, const char *part) {
  json_t *object = shell_expect_json(line, 1);
  const json_t *error = json_object_get(object, "error");
  assert_int_equal(json_object_size(object), 1);
  assert_string_equal(shell_string(error, "status"), status);
  const char *text = shell_string(error, "text");
  if (strstr(text, part) == NULL)
    fail_msg("%s: the text lacks \"%s\": %s", line, part, text);
  char sentence[512];
  snprintf(sentence, sizeof sentence, ": %s (%s)\n", text, status);
  SHELL_EXPECT_ERROR(line, 1, sentence);
  json_decref(object);
}

/* gemmctl opens it when it is asked to listen, and hosts may lack it. */
static bool has_http_library(void) {
  void *library = dlopen("libmicrohttpd.so.12", RTLD_NOW | RTLD_LOCAL);
  if (library != NULL)
    dlclose(library);
  return library != NULL;
}

/* What gemmctl finds by itself is told to programs as gemmd's refusals are. */
static void test_own_refusals_are_objects_too(void **state) {
  expect_refusal("$T/gemmctl matmul w --x missing --y y.no --json", "SYSTEM", "--x: cannot open missing: No such file");
  expect_refusal("$T/gemmctl matmul w --x x.f32 --y none/y --json", "SYSTEM", "--y: cannot open none/y");
  expect_refusal("$T/gemmctl matmul w --x x.f32 --y /dev/full --json", "SYSTEM", "--y: cannot write");
  expect_refusal("$T/gemmctl tune 'none*' --pin --block-m 32 --json", "NOT_FOUND", "no weight's name matches none*");
  if (has_http_library())
    expect_refusal("$T/gemmctl metrics --listen none/socket --json", "SYSTEM", "cannot listen on none/socket");
  expect_refusal("mkdir -p lib; : >lib/libmicrohttpd.so.12; LD_LIBRARY_PATH=lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} "
                 "$T/gemmctl metrics --listen none/socket --json",
                 "UNSUPPORTED", "--listen needs libmicrohttpd");
  shell_expect("rm -r lib", 0);
  /* What is said beside a refusal is no object. */
  expect_refusal("$T/gemmctl load model.safetensors --tensor v --name w --format int8 --json", "EXISTS", "w");
  /* Where stdout is y's, the object goes where the report would. */
  shell_expect("$T/gemmctl matmul w --x missing --y - --json 2>&1 >y.empty | grep '\"status\": \"SYSTEM\"'", 0);
  char none[8];
  assert_int_equal(read_file("y.empty", none, sizeof none), 0);
  /* A command line that is wrong is told in words alone. */
  assert_string_equal(shell_expect("head -c 161 x.f32 >ragged; $T/gemmctl matmul w --x ragged --y y.no --json", 2)->out,
                      "");
  SHELL_EXPECT_ERROR("$T/gemmctl matmul w --x missing --y y.no", 1, "cannot open missing");
  assert_string_equal(shell_expect("$T/gemmctl matmul w --x missing --y y.no", 1)->out, "");
}

static void test_a_full_disk_is_an_error(void **state) {
  SHELL_EXPECT_ERROR("$T/gemmctl matmul w --x x.f32 --y /dev/full", 1, "--y");
  SHELL_EXPECT_ERROR("$T/gemmctl status >/dev/full", 1, "stdout");
}

/* What is printed must not go where a closed descriptor's number went. */
static void test_closed_descriptors(void **state) {
  SHELL_EXPECT_ERROR("$T/gemmctl status >&-", 1, "cannot write to stdout: Bad file descriptor");
  SHELL_EXPECT_ERROR("$T/gemmctl metrics >&-", 1, "cannot write to stdout: Bad file descriptor");
  SHELL_EXPECT_ERROR("timeout 60 $T/gemmctl matmul w --x - --m 1 --y y <&-", 1,
                     "--x: cannot read: Bad file descriptor");
  shell_expect("timeout 60 $T/gemmctl load none --tensor w --format int8 2>&-", 1);
  json_t *object = shell_expect_json("$T/gemmctl status --json <&- 2>&-", 0);
  json_decref(object);
  shell_expect("$T/gemmctl metrics | grep '^gemmd_cut_off_total 0$'", 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_help_lists_every_command),
      cmocka_unit_test(test_every_command_has_an_example),
      cmocka_unit_test(test_usage_errors_name_the_option_and_its_value),
      cmocka_unit_test(test_no_daemon),
      cmocka_unit_test(test_status),
      cmocka_unit_test(test_ping_and_version),
      cmocka_unit_test(test_metrics),
      cmocka_unit_test(test_metrics_name_no_weights),
      cmocka_unit_test(test_weights),
      cmocka_unit_test(test_equal_content_is_shared_and_unload_frees_the_last),
      cmocka_unit_test(test_refusals_name_the_status),
      cmocka_unit_test(test_replace),
      cmocka_unit_test(test_matmul_from_files),
      cmocka_unit_test(test_matmul_through_pipes),
      cmocka_unit_test(test_matmul_with_bias),
      cmocka_unit_test(test_matmul_of_codes),
      cmocka_unit_test(test_matmul_refuses_what_does_not_fit),
      cmocka_unit_test(test_own_refusals_are_objects_too),
      cmocka_unit_test(test_a_full_disk_is_an_error),
      cmocka_unit_test(test_closed_descriptors),
  };
  return cmocka_run_group_tests(tests, begin, end);
}
