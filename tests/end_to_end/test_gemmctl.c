/* The tools as a shell uses them: exit codes, sentences, JSON, and numbers against an independent computation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define N 24
#define K 40
#define M 5

static char folder[64];  /* temporary: the socket, the checkpoint, inputs and outputs */
static char tools[4096]; /* where the programs are */
static pid_t daemon_process;

/* ---- running a tool */

struct outcome {
  int code;                      /* of exit; -1: a signal */
  char out[1 << 20], err[65536]; /* a histogram has a line for each call at worst */
};

static const char *path(const char *name) {
  static char paths[8][128];
  static int next;
  char *text = paths[next++ % 8];
  snprintf(text, sizeof paths[0], "%s/%s", folder, name);
  return text;
}

static size_t read_file(const char *name, void *out, size_t room) {
  FILE *file = fopen(path(name), "rb");
  assert_non_null(file);
  size_t bytes = fread(out, 1, room, file);
  fclose(file);
  return bytes;
}

static void write_file(const char *name, const void *data, size_t bytes) {
  FILE *file = fopen(path(name), "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(data, 1, bytes, file), bytes);
  assert_int_equal(fclose(file), 0);
}

/* Runs a command line of the shell's, in which $T stands for the programs' folder and $D for the temporary one. */
static const struct outcome *run(const char *line) {
  static struct outcome outcome;
  char command[8192];
  snprintf(command, sizeof command, "T='%s'; D='%s'; cd \"$D\"; { %s\n} >out 2>err", tools, folder, line);
  int status = system(command);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  outcome.out[read_file("out", outcome.out, sizeof outcome.out - 1)] = '\0';
  outcome.err[read_file("err", outcome.err, sizeof outcome.err - 1)] = '\0';
  return &outcome;
}

static const struct outcome *expect(const char *line, int code) {
  const struct outcome *outcome = run(line);
  if (outcome->code != code)
    fail_msg("%s: exit %d in place of %d\n%s%s", line, outcome->code, code, outcome->out, outcome->err);
  return outcome;
}

/* The sentence on stderr has each of these parts, of which the last is followed by NULL. */
static void expect_error(const char *line, int code, const char *const *parts) {
  const struct outcome *outcome = expect(line, code);
  for (; *parts != NULL; parts++) {
    if (strstr(outcome->err, *parts) == NULL)
      fail_msg("%s: stderr lacks \"%s\": %s", line, *parts, outcome->err);
  }
}

#define EXPECT_ERROR(line, code, ...) expect_error(line, code, (const char *const[]){__VA_ARGS__, NULL})

/* The object that a tool printed on stdout; the caller frees it. */
static json_t *expect_json(const char *line, int code) {
  const struct outcome *outcome = expect(line, code);
  json_error_t error;
  json_t *object = json_loads(outcome->out, JSON_REJECT_DUPLICATES, &error);
  if (!json_is_object(object))
    fail_msg("%s: no JSON object: %s\n%s", line, error.text, outcome->out);
  return object;
}

static json_int_t integer(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  if (!json_is_integer(value))
    fail_msg("%s is no integer", key);
  return json_integer_value(value);
}

static const char *string(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  if (!json_is_string(value))
    fail_msg("%s is no string", key);
  return json_string_value(value);
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
  static const char text[] = "{\"w\":{\"dtype\":\"F32\",\"shape\":[24,40],\"data_offsets\":[0,3840]},"
                             "\"v\":{\"dtype\":\"F32\",\"shape\":[24,40],\"data_offsets\":[3840,7680]}}";
  static unsigned char file[8 + sizeof text - 1 + 2 * N * K * 4];
  uint64_t length = sizeof text - 1;
  float values[2][N][K];
  for (int i = 0; i < 2 * N * K; i++)
    values[i / (N * K)][i / K % N][i % K] = (float)w_value(i / K % N, i % K);
  values[1][3][5] += 1;
  memcpy(file, &length, sizeof length);
  memcpy(file + 8, text, length);
  memcpy(file + 8 + length, values, sizeof values);
  write_file("model.safetensors", file, sizeof file);
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
  (void)state;
  const char *build = getenv("GEMMD_BUILD");
  assert_non_null(realpath(build != NULL ? build : "build", tools));
  snprintf(folder, sizeof folder, "/tmp/gemmctl-test-XXXXXX");
  assert_non_null(mkdtemp(folder));
  write_file("gemmd.conf", "", 0);
  write_checkpoint();
  write_rows();
  char program[4200], socket[128];
  snprintf(program, sizeof program, "%s/gemmd", tools);
  snprintf(socket, sizeof socket, "%s", path("gemmd.sock"));
  setenv("GEMMD_SOCKET", socket, 1);
  daemon_process = fork();
  assert_true(daemon_process >= 0);
  if (daemon_process == 0) {
    int log = open(path("gemmd.log"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(log, STDERR_FILENO);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* also where a test ends this program */
    const char *backend = getenv("GEMMD_TEST_BACKEND");
    execl(program, "gemmd", "--config", path("gemmd.conf"), "--socket", socket, "--backend",
          backend != NULL ? backend : "auto", (char *)NULL);
    _exit(127);
  }
  expect("for i in $(seq 300); do $T/gemmctl ping && exit 0; sleep 0.1; done; exit 1", 0);
  expect("$T/gemmctl load model.safetensors --tensor w --format int8", 0);
  return 0;
}

static int end(void **state) {
  (void)state;
  int status;
  kill(daemon_process, SIGTERM);
  assert_int_equal(waitpid(daemon_process, &status, 0), daemon_process);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  char command[128];
  snprintf(command, sizeof command, "rm -r '%s'", folder);
  assert_int_equal(system(command), 0);
  return 0;
}

/* ---- help and usage */

static const char *const command_names[] = {"status", "weights", "load", "unload", "matmul", "ping", "version"};
enum { COMMANDS = sizeof command_names / sizeof *command_names };

static void test_help_lists_every_command(void **state) {
  (void)state;
  const struct outcome *help = expect("$T/gemmctl --help", 0);
  assert_non_null(strstr(help->out, "| forget PATTERN | watch | report | WEIGHT"));
  assert_string_equal(help->err, "");
  for (int i = 0; i < COMMANDS; i++)
    assert_non_null(strstr(help->out, command_names[i]));
  assert_non_null(strstr(help->out, "Exit status:"));
}

static void test_every_command_has_an_example(void **state) {
  (void)state;
  for (int i = 0; i < COMMANDS; i++) {
    char line[64], example[64];
    snprintf(line, sizeof line, "$T/gemmctl %s --help", command_names[i]);
    snprintf(example, sizeof example, "Example:\n  gemmctl %s", command_names[i]);
    assert_non_null(strstr(expect(line, 0)->out, example));
  }
  assert_non_null(strstr(expect("$T/gemm-bench serve --help", 0)->out, "Example:\n  gemm-bench --weight"));
}

static void test_usage_errors_name_the_option_and_its_value(void **state) {
  (void)state;
  EXPECT_ERROR("$T/gemmctl", 2, "Usage: gemmctl");
  EXPECT_ERROR("$T/gemmctl frobnicate", 2, "gemmctl: unknown command frobnicate");
  EXPECT_ERROR("$T/gemmctl status --frob", 2, "gemmctl: status: ", "unknown option --frob");
  EXPECT_ERROR("$T/gemmctl status -xy", 2, "gemmctl: status: unknown option -x\n");
  EXPECT_ERROR("$T/gemmctl status -\303\244", 2, "gemmctl: status: unknown option -?\n");
  EXPECT_ERROR("$T/gemmctl --json -xy status", 2, "gemmctl: unknown option -x\n");
  EXPECT_ERROR("$T/gemmctl load", 2, "gemmctl: load: FILE is missing");
  EXPECT_ERROR("$T/gemmctl load a b", 2, "one argument too many: b");
  EXPECT_ERROR("$T/gemmctl load a --format int8", 2, "gemmctl: load: --tensor NAME is missing");
  EXPECT_ERROR("$T/gemmctl load a --tensor", 2, "--tensor needs a value");
  EXPECT_ERROR("$T/gemmctl load a --tensor w --format int9", 2,
               "--format must be int8, fp8, int2, f16, bf16 or int2a8, got int9");
  EXPECT_ERROR("$T/gemmctl load a --tensor w --format int8 --scale all", 2, "--scale must be", "got all");
  EXPECT_ERROR("$T/gemmctl load a --tensor w --format int8 --device -2", 2, "--device must be 0..63, got -2");
  EXPECT_ERROR("$T/gemmctl load a --tensor w --format int8 --placement here", 2,
               "--placement must be single, replicas or split, got here");
  EXPECT_ERROR("$T/gemmctl ping --count 0", 2, "--count must be 1..1000000, got 0");
  EXPECT_ERROR("$T/gemmctl ping --count 3x", 2, "--count must be", "got 3x");
  EXPECT_ERROR("$T/gemmctl matmul w --x x.f32 --y y --m 0", 2, "--m must be 1..16777216, got 0");
  EXPECT_ERROR("$T/gemm-bench --weight w --seconds nan", 2, "--seconds must be", "got nan");
  EXPECT_ERROR("$T/gemm-bench --weight w --seconds 1 --requests 1", 2, "--seconds and --requests exclude each other");
}

static void test_no_daemon(void **state) {
  (void)state;
  EXPECT_ERROR("$T/gemmctl --socket $D/none status", 3, "gemmctl: status: ", "/none");
  EXPECT_ERROR("$T/gemm-bench --socket $D/none --weight w", 3, "gemm-bench: serve: ", "/none");
  json_t *object = expect_json("$T/gemmctl --json --socket $D/none status", 3);
  assert_non_null(strstr(string(json_object_get(object, "error"), "text"), "/none"));
  json_decref(object);
  object = expect_json("$T/gemmctl version --json --socket $D/none", 0);
  assert_true(json_is_null(json_object_get(object, "server")));
  json_decref(object);
}

/* ---- the daemon's state */

static void test_status(void **state) {
  (void)state;
  json_t *object = expect_json("$T/gemmctl status --json", 0);
  assert_int_equal(integer(object, "pid"), daemon_process);
  assert_true(integer(object, "names") >= 1 && integer(object, "weights") >= 1);
  assert_true(integer(object, "weight_bytes") >= (json_int_t)N * K);
  assert_int_equal(integer(object, "sessions"), 1);
  const json_t *device = json_array_get(json_object_get(object, "devices"), 0);
  assert_string_equal(string(device, "state"), "ready");
  assert_true(integer(device, "memory_total") > 0);
  const struct outcome *text = expect("$T/gemmctl status", 0);
  assert_non_null(strstr(text->out, string(object, "backend")));
  assert_non_null(strstr(text->out, "iB"));
  json_decref(object);
}

static void test_ping_and_version(void **state) {
  (void)state;
  json_t *object = expect_json("$T/gemmctl --json ping --count 20", 0);
  const json_t *ns = json_object_get(object, "round_trip_ns");
  assert_int_equal(integer(object, "count"), 20);
  assert_true(integer(ns, "min") > 0);
  assert_true(integer(ns, "min") <= integer(ns, "median") && integer(ns, "median") <= integer(ns, "max"));
  json_decref(object);
  object = expect_json("$T/gemmctl version --json", 0);
  assert_non_null(strstr(string(object, "server"), string(object, "gemmctl")));
  json_decref(object);
}

/* Every line is a comment or a name, perhaps with labels, and a number; the numbers are those of status. */
static void test_metrics(void **state) {
  (void)state;
  static char text[1 << 20];
  unsigned samples = 0;
  snprintf(text, sizeof text, "%s", run("$T/gemmctl metrics")->out);
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

/* ---- weights */

static void test_weights(void **state) {
  (void)state;
  json_t *object = expect_json("$T/gemmctl weights --json w", 0);
  const json_t *list = json_object_get(object, "weights");
  assert_int_equal(json_array_size(list), 1);
  const json_t *weight = json_array_get(list, 0);
  assert_string_equal(string(weight, "name"), "w");
  assert_string_equal(string(weight, "format"), "int8");
  assert_string_equal(string(weight, "scale"), "row");
  assert_int_equal(integer(weight, "n"), N);
  assert_int_equal(integer(weight, "k"), K);
  assert_int_equal(integer(weight, "owner"), getuid());
  assert_int_equal(strlen(string(weight, "hash")), 64);
  json_decref(object);
  object = expect_json("$T/gemmctl weights --json 'none*'", 0);
  assert_int_equal(json_array_size(json_object_get(object, "weights")), 0);
  json_decref(object);
  assert_non_null(strstr(expect("$T/gemmctl weights", 0)->out, "NAME"));
}

static void test_equal_content_is_shared_and_unload_frees_the_last(void **state) {
  (void)state;
  json_t *object = expect_json("$T/gemmctl load model.safetensors --tensor v --format fp8 --name first --json", 0);
  assert_true(json_is_false(json_object_get(object, "shared")));
  assert_int_equal(integer(object, "references"), 1);
  json_int_t bytes = integer(object, "bytes");
  json_decref(object);
  object = expect_json("$T/gemmctl load model.safetensors --tensor v --format fp8 --name second --json", 0);
  assert_true(json_is_true(json_object_get(object, "shared")));
  assert_int_equal(integer(object, "references"), 2);
  json_decref(object);
  object = expect_json("$T/gemmctl unload first --json", 0);
  assert_int_equal(integer(object, "freed"), 0);
  json_decref(object);
  object = expect_json("$T/gemmctl unload second --json", 0);
  assert_int_equal(integer(object, "freed"), bytes);
  json_decref(object);
}

static void test_refusals_name_the_status(void **state) {
  (void)state;
  EXPECT_ERROR("$T/gemmctl unload none", 1, "gemmctl: unload: ", "none", "(NOT_FOUND)");
  EXPECT_ERROR("$T/gemmctl load model.safetensors --tensor none --format int8", 1, "none");
  EXPECT_ERROR("$T/gemmctl load missing --tensor w --format int8", 1, "missing");
  EXPECT_ERROR("$T/gemmctl load x.f32 --tensor w --format int8 --name other", 1, "(BAD_FILE)");
  EXPECT_ERROR("$T/gemmctl load model.safetensors --tensor v --format int8 --name w", 1, "\"w\"", "replace", "(EXISTS)",
               "--replace puts");
  EXPECT_ERROR("$T/gemmctl --socket missing status", 3, "cannot connect to missing", "(DISCONNECTED)", "GEMMD_SOCKET");
  EXPECT_ERROR("$T/gemmctl load model.safetensors --tensor v --format int8 --scale block --name b", 1, "(INVALID)");
  EXPECT_ERROR("$T/gemmctl matmul none --x x.f32 --y y", 1, "none", "(NOT_FOUND)");
  EXPECT_ERROR("$T/gemmctl matmul w --x x.f32 --x-type e4m3 --y y", 1, "x type", "(UNSUPPORTED)");
  json_t *object = expect_json("$T/gemmctl unload none --json", 1);
  assert_string_equal(string(json_object_get(object, "error"), "status"), "NOT_FOUND");
  json_decref(object);
}

static void test_replace(void **state) {
  (void)state;
  expect("$T/gemmctl load model.safetensors --tensor w --format int8 --name replaced", 0);
  json_t *object =
      expect_json("$T/gemmctl load model.safetensors --tensor v --format int8 --name replaced --replace --json", 0);
  assert_int_equal(integer(object, "references"), 1);
  json_decref(object);
  expect("$T/gemmctl unload replaced", 0);
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
  (void)state;
  json_t *object = expect_json("$T/gemmctl matmul w --x x.f32 --y y.f32 --json", 0);
  assert_int_equal(integer(object, "m"), M);
  assert_int_equal(integer(object, "n"), N);
  assert_int_equal(integer(object, "k"), K);
  assert_true(integer(object, "device_ns") > 0);
  json_decref(object);
  check_product("y.f32", M, 0);
}

static void test_matmul_through_pipes(void **state) {
  (void)state;
  EXPECT_ERROR("head -c 320 x.f32 | $T/gemmctl matmul w --x - --y - | cat >y.pipe", 0, "2 x 24");
  check_product("y.pipe", 2, 0);
  expect("cat x.f32 | $T/gemmctl matmul w --x - --y y.three --m 3", 0);
  check_product("y.three", 3, 0);
  expect("mkfifo in result; timeout 60 $T/gemmctl matmul w --x in --y result >/dev/null & "
         "exec 3>in 4<result; cat x.f32 >&3; exec 3>&-; cat <&4 >y.fifo; wait; cmp y.fifo y.f32",
         0);
}

static void test_matmul_with_bias(void **state) {
  (void)state;
  float bias[N];
  for (int i = 0; i < N; i++)
    bias[i] = (float)i * 4;
  write_file("bias", bias, sizeof bias);
  expect("$T/gemmctl matmul w --x x.f32 --y y.bias --bias bias", 0);
  check_product("y.bias", M, 4);
  EXPECT_ERROR("head -c 90 bias >short; $T/gemmctl matmul w --x x.f32 --y y.no --bias short", 2, "--bias", "96 bytes");
  EXPECT_ERROR("$T/gemmctl matmul w --x x.f32 --y bias --bias bias", 2, "--y: bias is bias itself");
}

static void test_matmul_of_codes(void **state) {
  (void)state;
  int32_t sums[M][N];
  expect("$T/gemmctl matmul w --x x.int8 --x-type int8 --y y.s32 --y-type s32", 0);
  assert_int_equal(read_file("y.s32", sums, sizeof sums), sizeof sums);
  for (int i = 0; i < M * N; i++)
    assert_int_equal(sums[i / N][i % N], (int32_t)product_value(i / N, i % N));
  /* Without scales they are all 1; with them a row is scaled. */
  expect("$T/gemmctl matmul w --x x.int8 --x-type int8 --y y.ones", 0);
  check_product("y.ones", M, 0);
  float scales[M] = {1, 2, 0.5f, 4, 8}, y[M][N];
  write_file("scales", scales, sizeof scales);
  expect("$T/gemmctl matmul w --x x.int8 --x-type int8 --x-scale scales --y y.scaled", 0);
  assert_int_equal(read_file("y.scaled", y, sizeof y), sizeof y);
  for (int i = 0; i < M * N; i++)
    assert_float_equal(y[i / N][i % N], product_value(i / N, i % N) * (double)scales[i / N], 0);
  EXPECT_ERROR("$T/gemmctl matmul w --x x.int8 --x-type int8 --x-scale scales --y scales", 2, "is x-scale itself");
  assert_int_equal(read_file("scales", y, sizeof y), sizeof scales);
}

static void test_matmul_refuses_what_does_not_fit(void **state) {
  (void)state;
  write_file("y.kept", "kept", 4);
  EXPECT_ERROR("head -c 161 x.f32 >ragged; $T/gemmctl matmul w --x ragged --y y.kept", 2, "161 bytes", "K = 40 x f32");
  EXPECT_ERROR(": >empty; $T/gemmctl matmul w --x empty --y y.kept", 2, "0 bytes");
  EXPECT_ERROR("$T/gemmctl matmul w --x x.f32 --m 4 --y y.kept", 2, "--m is 4", "5 rows");
  EXPECT_ERROR("$T/gemmctl matmul w --x x.f32 --x-scale x.f32 --y y.kept", 2, "--x-scale");
  EXPECT_ERROR("$T/gemmctl matmul w --x - --x-type int8 --x-scale - --y y.kept", 2,
               "--x and --x-scale are both standard input");
  EXPECT_ERROR("$T/gemmctl matmul w --x missing --y y.kept", 1, "--x", "missing");
  EXPECT_ERROR("cp x.f32 x.kept; ln -s x.kept x.link; $T/gemmctl matmul w --x x.kept --y x.link", 2,
               "--y: x.link is x");
  expect("cmp x.f32 x.kept", 0);
  EXPECT_ERROR("$T/gemmctl matmul w --x x.f32 --x-type s32 --y y.kept", 1, "(UNSUPPORTED)");
  EXPECT_ERROR("head -c 100 x.f32 | $T/gemmctl matmul w --x - --y y.kept", 2, "row 0");
  EXPECT_ERROR("head -c 320 x.f32 | $T/gemmctl matmul w --x - --m 3 --y y.other", 2, "--m is 3", "2 rows");
  EXPECT_ERROR("$T/gemmctl matmul w --x /dev/zero --y y.other", 2, "/dev/zero is no file or pipe", "--m");
  expect("$T/gemmctl matmul w --x /dev/zero --m 2 --y y.zero", 0);
  expect("cmp -n 192 y.zero /dev/zero", 0);
  char kept[8];
  assert_int_equal(read_file("y.kept", kept, sizeof kept), 4);
}

/* The one object on stdout, and the same in words on stderr. */
static void expect_refusal(const char *line, const char *status, const char *part) {
  json_t *object = expect_json(line, 1);
  const json_t *error = json_object_get(object, "error");
  assert_int_equal(json_object_size(object), 1);
  assert_string_equal(string(error, "status"), status);
  const char *text = string(error, "text");
  if (strstr(text, part) == NULL)
    fail_msg("%s: the text lacks \"%s\": %s", line, part, text);
  char sentence[512];
  snprintf(sentence, sizeof sentence, ": %s (%s)\n", text, status);
  EXPECT_ERROR(line, 1, sentence);
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
  (void)state;
  expect_refusal("$T/gemmctl matmul w --x missing --y y.no --json", "SYSTEM", "--x: cannot open missing: No such file");
  expect_refusal("$T/gemmctl matmul w --x x.f32 --y none/y --json", "SYSTEM", "--y: cannot open none/y");
  expect_refusal("$T/gemmctl matmul w --x x.f32 --y /dev/full --json", "SYSTEM", "--y: cannot write");
  expect_refusal("$T/gemmctl tune 'none*' --pin --block-m 32 --json", "NOT_FOUND", "no weight's name matches none*");
  if (has_http_library())
    expect_refusal("$T/gemmctl metrics --listen none/socket --json", "SYSTEM", "cannot listen on none/socket");
  expect_refusal("mkdir -p lib; : >lib/libmicrohttpd.so.12; LD_LIBRARY_PATH=lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} "
                 "$T/gemmctl metrics --listen none/socket --json",
                 "UNSUPPORTED", "--listen needs libmicrohttpd");
  /* What is said beside a refusal is no object. */
  expect_refusal("$T/gemmctl load model.safetensors --tensor v --name w --format int8 --json", "EXISTS", "w");
  /* Where stdout is y's, the object goes where the report would. */
  expect("$T/gemmctl matmul w --x missing --y - --json 2>&1 >y.empty | grep '\"status\": \"SYSTEM\"'", 0);
  char none[8];
  assert_int_equal(read_file("y.empty", none, sizeof none), 0);
  /* A command line that is wrong is told in words alone. */
  assert_string_equal(expect("head -c 161 x.f32 >ragged; $T/gemmctl matmul w --x ragged --y y.no --json", 2)->out, "");
  EXPECT_ERROR("$T/gemmctl matmul w --x missing --y y.no", 1, "cannot open missing");
  assert_string_equal(expect("$T/gemmctl matmul w --x missing --y y.no", 1)->out, "");
}

static void test_a_full_disk_is_an_error(void **state) {
  (void)state;
  EXPECT_ERROR("$T/gemmctl matmul w --x x.f32 --y /dev/full", 1, "--y");
  EXPECT_ERROR("$T/gemmctl status >/dev/full", 1, "stdout");
}

/* What is printed must not go where a closed descriptor's number went. */
static void test_closed_descriptors(void **state) {
  (void)state;
  EXPECT_ERROR("$T/gemmctl status >&-", 1, "cannot write to stdout: Bad file descriptor");
  EXPECT_ERROR("$T/gemmctl metrics >&-", 1, "cannot write to stdout: Bad file descriptor");
  EXPECT_ERROR("timeout 60 $T/gemmctl matmul w --x - --m 1 --y y <&-", 1, "--x: cannot read: Bad file descriptor");
  expect("timeout 60 $T/gemmctl load none --tensor w --format int8 2>&-", 1);
  json_t *object = expect_json("$T/gemmctl status --json <&- 2>&-", 0);
  json_decref(object);
  expect("$T/gemmctl metrics | grep '^gemmd_cut_off_total 0$'", 0);
}

/* ---- gemm-bench */

static void check_quantiles(const json_t *object, const char *key) {
  const json_t *times = json_object_get(object, key);
  double p50 = json_real_value(json_object_get(times, "p50")), p99 = json_real_value(json_object_get(times, "p99"));
  double p999 = json_real_value(json_object_get(times, "p999"));
  assert_true(p50 > 0 && p50 <= p99 && p99 <= p999);
}

static void test_bench_counts_what_it_was_asked_for(void **state) {
  (void)state;
  json_t *object =
      expect_json("$T/gemm-bench --weight w --m 3 --clients 3 --in-flight 2 --requests 200 --warmup 0 --json", 0);
  assert_string_equal(string(object, "weight"), "w");
  assert_string_equal(string(object, "format"), "int8");
  assert_int_equal(integer(object, "n"), N);
  assert_int_equal(integer(object, "k"), K);
  assert_int_equal(integer(object, "m"), 3);
  assert_int_equal(integer(object, "clients"), 3);
  assert_int_equal(integer(object, "requests"), 200);
  assert_int_equal(integer(object, "failures"), 0);
  assert_true(json_real_value(json_object_get(object, "rows_per_s")) > 0);
  check_quantiles(object, "latency_us");
  check_quantiles(object, "overhead_us");
  json_decref(object);
}

static void test_bench_asks_at_a_rate_for_a_mix(void **state) {
  (void)state;
  json_t *object = expect_json("$T/gemm-bench --weight w,w --m 1:3,4:1 --clients 2 --in-flight 4 --rate 20000 "
                               "--requests 300 --warmup 0 --histogram --json",
                               0);
  assert_int_equal(json_array_size(json_object_get(object, "weights")), 2);
  assert_string_equal(string(object, "m"), "1:3,4:1");
  assert_int_equal(integer(object, "requests"), 300);
  check_quantiles(object, "latency_us");
  check_quantiles(object, "socket_us");
  json_int_t calls = 0;
  size_t i;
  json_t *bucket;
  json_array_foreach(json_object_get(json_object_get(object, "latency_us"), "buckets"), i, bucket) {
    calls += json_integer_value(json_array_get(bucket, 1));
  }
  assert_int_equal(calls, 300);
  json_decref(object);
  EXPECT_ERROR("$T/gemm-bench --weight w --m 1:0", 2, "--m must be 1..1048576", "got 1:0");
  EXPECT_ERROR("$T/gemm-bench --weight ,w", 2, "--weight takes 1..16 names");
  EXPECT_ERROR("$T/gemm-bench --weight w --rate 5 --pause 5", 2, "--rate and --pause exclude each other");
}

static void test_bench_fails_where_products_fail(void **state) {
  (void)state;
  json_t *object = expect_json("$T/gemm-bench --weight w --x-type e4m3 --requests 4 --warmup 0 --json", 1);
  assert_true(integer(object, "failures") > 0);
  json_decref(object);
  EXPECT_ERROR("$T/gemm-bench --weight none", 1, "none", "(NOT_FOUND)");
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
      cmocka_unit_test(test_bench_counts_what_it_was_asked_for),
      cmocka_unit_test(test_bench_asks_at_a_rate_for_a_mix),
      cmocka_unit_test(test_bench_fails_where_products_fail),
  };
  return cmocka_run_group_tests(tests, begin, end);
}
