/* The tuner of the real daemon, asked by clients and by gemmctl: products stay right while kernels change under them,
 * what was found is kept, listed, exported and imported, and kernels set by hand are used or refused with the reason.
 */
#include "client/gemmclient.h"
#include "tests/support/daemon/daemon.h"
#include "tests/support/daemon/product.h"
#include "tests/support/daemon/status.h"
#include "tests/support/reference/checkpoint.h"
#include "tests/support/system/folder.h"
#include "tests/support/system/nap.h"

#include <jansson.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { N = 192, K = 320, CLIENTS = 2, PRODUCTS = 400 };

static struct daemon gemmd;
static struct oracle_weight weight;
static const char *tools;

/* What the same promises are asked with on each backend. */
static const struct words {
  const char *kernel;            /* that can run */
  const char *refused, *why;     /* one that cannot on this machine, and the reason */
  const char *nearest;           /* what is offered in its place begins so */
  const char *foreign;           /* a family of another backend */
  const char *nobody;            /* a parameter that no family has, with its value */
  const char *pinned, *pin_line; /* options that set a kernel by hand, and what gemmd.conf would say */
} cpu_words = {"cpu threads=1 block_m=4",
               "cpu threads=99",
               "threads must be 0..2",
               "nearest that can: cpu threads=2",
               "cuda",
               "num_warps=4",
               "--block-m 32",
               "tune_pins = mlp/*=any block_m=32"},
  cuda_words = {"hopper columns=8 rows=32",
                "hopper columns=128 groups=2 rows=128 ahead=6",
                "there is no such kernel",
                "nearest that can: hopper columns=",
                "cpu",
                "threads=1",
                "--kernel 'hopper rows=32'",
                "tune_pins = mlp/*=hopper rows=32"};
static const struct words *words = &cpu_words;

static void load(void) {
  gemmd_session *session = daemon_join(&gemmd, NULL);
  gemmd_load request = {.name = "mlp/up", .tensor = "w", .format = GEMMD_FORMAT_INT8, .device = -1};
  if (gemmd_weight_load_file(session, daemon_path(&gemmd, "model.safetensors"), &request, NULL) != GEMMD_OK)
    fail_msg("%s", gemmd_error(session));
  gemmd_disconnect(session);
}

static int start(void **state) {
  char options[160];
  words = daemon_on_cuda() ? &cuda_words : &cpu_words;
  tools = getenv("GEMMD_BUILD") != NULL ? getenv("GEMMD_BUILD") : "build";
  daemon_make(&gemmd, "tune = eager\ncpu_threads = 2\ntune_compile_ms = 0\n");
  snprintf(options, sizeof options, "%s", daemon_path(&gemmd, "state"));
  setenv("STATE_DIRECTORY", options, 1);
  oracle_weight_make(&weight, &(struct gemm_weight){N, K, GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 0, 0}, 1);
  checkpoint_write_one(daemon_path(&gemmd, "model.safetensors"), "w", &weight);
  daemon_start(&gemmd);
  load();
  return 0;
}

static int stop(void **state) {
  daemon_stop(&gemmd);
  assert_true(folder_drop(daemon_path(&gemmd, "state")));
  daemon_remove(&gemmd);
  oracle_weight_free(&weight);
  return 0;
}

/* ---- gemmctl: its output, and its exit status */

static char output[65536];

/* `before`: a command that runs it; "": nothing. */
static int gemmctl_by(const char *before, const char *arguments) {
  char command[1024];
  snprintf(command, sizeof command, "%s %s/gemmctl tune --socket %s %s 2>&1", before, tools, gemmd.socket, arguments);
  FILE *pipe = popen(command, "r");
  assert_non_null(pipe);
  output[fread(output, 1, sizeof output - 1, pipe)] = '\0';
  int status = pclose(pipe);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int gemmctl(const char *arguments) {
  return gemmctl_by("", arguments);
}

/* `arguments` with `word` in the place of %s. */
static const char *with(const char *arguments, const char *word) {
  static char text[512];
  const char *hole = strstr(arguments, "%s");
  assert_non_null(hole);
  snprintf(text, sizeof text, "%.*s%s%s", (int)(hole - arguments), arguments, word, hole + 2);
  return text;
}

static void expect(const char *arguments, int code, const char *part) {
  int got = gemmctl(arguments);
  if (got != code || strstr(output, part) == NULL)
    fail_msg("gemmctl tune %s: exit %d in place of %d, \"%s\" is looked for in:\n%s", arguments, got, code, part,
             output);
}

static json_t *expect_json(const char *arguments) {
  if (gemmctl(arguments) != 0)
    fail_msg("gemmctl tune %s: %s", arguments, output);
  json_t *object = json_loads(output, JSON_REJECT_DUPLICATES, NULL);
  assert_non_null(object);
  return object;
}

/* ---- tests */

static int client_run(int index, void *user) {
  static const int rows[] = {1, 2, 5, 16, 33, 64};
  gemmd_session *session = daemon_join(&gemmd, NULL);
  gemmd_weight *opened = NULL;
  int wrong = gemmd_weight_open(session, "mlp/up", &opened) != GEMMD_OK;
  for (int i = 0; i < PRODUCTS && !wrong; i++) {
    struct product_request request = {.weight = &weight,
                                      .m = rows[(i + index) % 6],
                                      .x_type = GEMM_F32,
                                      .y_type = i % 2 == 0 ? GEMM_F32 : GEMM_F16,
                                      .seed = (uint64_t)i + 1};
    wrong = !product_run(session, opened, &request);
  }
  gemmd_disconnect(session);
  return wrong;
}

/* Every product is compared with float64, before, while and after kernels are tried and changed. */
static void test_products_stay_right(void **state) {
  clients_run(CLIENTS, client_run, NULL);
}

static void test_what_was_served_is_listed_and_tuned(void **state) {
  json_t *list;
  size_t tuned = 0;
  /* The tuner works when nothing else is to be done, as now. */
  for (time_t end = time(NULL) + 60; tuned < 12 && time(NULL) < end;) {
    json_t *object = expect_json("list --json");
    tuned = 0;
    size_t at;
    json_t *shape;
    list = json_object_get(object, "shapes");
    json_array_foreach(list, at, shape) tuned +=
        strcmp(json_string_value(json_object_get(shape, "state")), "tuned") == 0;
    assert_null(strstr(output, "mlp")); /* names of weights are nobody's to see here */
    json_decref(object);
  }
  (void)gemmctl("list");
  assert_null(strstr(output, "mlp"));
  if (tuned < 12) /* six numbers of rows and more from batches, two types of y */
    fail_msg("%zu are tuned of\n%s", tuned, output);
  expect("show m64", 0, "int8-row-192x320-f32-f32-none-m64");
  assert_null(strstr(output, "m16"));
}

static void test_asked_for_now(void **state) {
  json_t *object = expect_json(with("mlp/up --m 4 --x-type bf16 --y-type bf16 --kernel '%s' --json", words->kernel));
  assert_string_equal(json_string_value(json_object_get(object, "shape")), "int8-row-192x320-bf16-bf16-none-m4");
  assert_true(json_array_size(json_object_get(object, "results")) >= 2);
  assert_true(json_integer_value(json_object_get(object, "checked")) >= 1);
  assert_int_equal(json_integer_value(json_object_get(object, "wrong")), 0);
  json_decref(object);
  expect("mlp/up --m 4 --exhaustive", 0, "the backend's own choice");
  expect("none", 1, "NOT_FOUND");
  expect("mlp/up --x-type e4m3", 1, "UNSUPPORTED");
  expect("mlp/up --m 0", 2, "--m");
}

/* A shape with a kernel set by hand is there twice by the same name; watch, which looks twice a second until it is
 * ended, tells what changes. */
static void expect_each_told_once(void) {
  (void)gemmctl_by("timeout 2", "watch");
  int pinned = 0;
  for (char *line = output; *line != '\0'; line += strcspn(line, "\n") + 1) {
    size_t length = strcspn(line, "\n") + 1;
    if (strncmp(line, "pinned", 6) != 0)
      continue;
    pinned++;
    for (const char *other = line + length; *other != '\0'; other += strcspn(other, "\n") + 1)
      if (strncmp(line, other, length) == 0)
        fail_msg("told twice: %.*s", (int)length, line);
  }
  assert_true(pinned > 0);
}

static void test_by_hand(void **state) {
  expect(with("mlp/up --kernel '%s'", words->refused), 1, words->why);
  expect(with("mlp/up --kernel '%s'", words->refused), 1, words->nearest);
  expect(with("mlp/up --kernel %s", words->foreign), 1, "no kernels of family");
  expect("mlp/up --block-m 17", 2, "--block-m must be 16..512 in steps of 16, got 17");
  expect("mlp/up --num-stages 9", 2, "--num-stages");
  expect(with("mlp/up --kernel 'any %s'", words->nobody), 1, "no family of this backend's kernels has all of:");
  expect("'mlp/*' --pin", 2, "--pin needs");
  expect(with("'mlp/*' --kernel '%s' --pin", words->refused), 1, words->why);
  expect(with("'mlp/*' %s --pin", words->pinned), 0, words->pin_line);
  test_products_stay_right(state);
  expect("list", 0, "pinned");
  assert_null(strstr(output, "mlp"));
  expect_each_told_once();
  expect(with("'mlp/*' %s --pin --unpin", words->pinned), 2, "--pin and --unpin exclude each other");
  expect("'mlp/*' --unpin", 0, "1 weight free");
  expect("'nobody/*' --unpin", 1, "no weight's name matches nobody/*");
  expect("'nobody/*' --kernel 'evil x=1' --pin", 1, "no kernels of family evil");
  expect("'mlp/*' --kernel 'evil x=1' --pin", 1, "no kernels of family evil");
}

static void expect_written(const char *command, const char *path) {
  char line[512];
  snprintf(line, sizeof line, "%s %s --json", command, path);
  expect(line, 0, "");
  json_t *object = json_loads(output, 0, NULL);
  assert_non_null(object);
  assert_string_equal(json_string_value(json_object_get(object, "file")), path);
  assert_true(json_integer_value(json_object_get(object, "written")) > 0);
  json_decref(object);
}

static void test_export_forget_import(void **state) {
  char command[512];
  gemmd_session *session = daemon_join(&gemmd, NULL);
  assert_int_equal(gemmd_tune_import(session, 0, "int8-row-192x320-bf16-f32-none-m512", words->kernel), GEMMD_OK);
  assert_int_equal(gemmd_tune_import(session, 0, "int8-row-192x320-bf16-f32-none-m511", words->kernel), GEMMD_INVALID);
  assert_int_equal(gemmd_tune_import(session, 0, "int8-row-192x320-bf16-f32-none-m512", "evil"), GEMMD_NOT_FOUND);
  gemmd_disconnect(session);
  expect("show bf16-f32-none-m512", 0, "kept, unconfirmed");
  snprintf(command, sizeof command, "export %s", daemon_path(&gemmd, "export.json"));
  expect(command, 0, "tunings of ");
  expect_written("export", daemon_path(&gemmd, "export.json"));
  expect("show mlp/up", 0, "int8-row-192x320-bf16-f32-none-m512");
  expect("forget '*-m64'", 0, "forgot 2 shapes");
  snprintf(command, sizeof command, "import %s", daemon_path(&gemmd, "export.json"));
  expect(command, 0, " 0 refused");
  expect("import /dev/null", 2, "/dev/null");
  expect("export /dev/full", 1, "cannot write /dev/full");
  static const char *const alone[] = {"show", "forget", "export", "import"};
  for (size_t i = 0; i < sizeof alone / sizeof *alone; i++)
    expect(alone[i], 2, "is missing behind");
}

static size_t read_text(const char *path, char *out, size_t room) {
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  size_t bytes = fread(out, 1, room - 1, file);
  out[bytes] = '\0';
  fclose(file);
  return bytes;
}

/* `word` and a path make the command that writes it. */
static void expect_to_outlive_a_full_disk(const char *word, const char *path) {
  static char before[65536], after[65536];
  char command[512];
  snprintf(command, sizeof command, "%s %s", word, path);
  expect(command, 0, "");
  assert_true(read_text(path, before, sizeof before) > 0);
  assert_int_equal(gemmctl_by("ulimit -f 0; trap '' XFSZ; exec", command), 1);
  if (strstr(output, "cannot write ") == NULL || strstr(output, "File too large (SYSTEM)") == NULL)
    fail_msg("%s", output);
  assert_int_equal(read_text(path, after, sizeof after), strlen(before));
  assert_string_equal(after, before);
  snprintf(command, sizeof command, "test -z \"$(ls -d %s?* 2>/dev/null)\"", path);
  assert_int_equal(system(command), 0);
}

static void test_older_files_outlive_a_full_disk(void **state) {
#ifdef __SANITIZE_THREAD__
  skip(); /* ThreadSanitizer itself writes files */
#endif
  char command[512], path[256];
  snprintf(path, sizeof path, "%s", daemon_path(&gemmd, "report.html"));
  expect_to_outlive_a_full_disk("report --html", path);
  assert_int_equal(unlink(path), 0);
  snprintf(path, sizeof path, "%s", daemon_path(&gemmd, "export.json"));
  expect_to_outlive_a_full_disk("export", path);
  /* A new one takes its place with the rights of new files, also behind a link. */
  snprintf(command, sizeof command, "echo old >%s && ln -s export.json %s", path, daemon_path(&gemmd, "link.json"));
  assert_int_equal(system(command), 0);
  expect(with("export %s", daemon_path(&gemmd, "link.json")), 0, "tunings of ");
  json_t *written = json_load_file(path, 0, NULL);
  assert_int_equal(json_integer_value(json_object_get(written, "version")), 1);
  assert_true(json_array_size(json_object_get(written, "tunings")) > 0);
  json_decref(written);
  struct stat stat;
  mode_t mask = umask(0);
  umask(mask);
  assert_int_equal(lstat(path, &stat), 0);
  assert_int_equal(stat.st_mode & 0777, 0666 & ~mask);
  assert_int_equal(lstat(daemon_path(&gemmd, "link.json"), &stat), 0);
  assert_true(S_ISLNK(stat.st_mode));
}

static void test_kept_over_a_restart(void **state) {
  daemon_stop(&gemmd);
  daemon_start(&gemmd);
  expect("show f32-f32-none-m1", 0, "kept");
  load();
  test_products_stay_right(state);
}

static void test_report(void **state) {
  char command[512];
  expect_written("report --html", daemon_path(&gemmd, "report.html"));
  snprintf(command, sizeof command, "report --html %s", daemon_path(&gemmd, "report.html"));
  expect(command, 0, "shapes in");
  FILE *file = fopen(daemon_path(&gemmd, "report.html"), "r");
  assert_non_null(file);
  output[fread(output, 1, sizeof output - 1, file)] = '\0';
  fclose(file);
  assert_non_null(strstr(output, "<svg"));
  assert_non_null(strstr(output, "int8-row-192x320-f32-f32-none"));
  assert_null(strstr(output, "src="));
  assert_null(strstr(output, "http"));
}

static void test_forget_by_name(void **state) {
  expect("forget mlp", 0, "forgot 0 shapes");
  expect("forget mlp/up", 0, "forgot ");
  assert_null(strstr(output, "forgot 0"));
}

static void test_microbench(void **state) {
  expect("--microbench --bench-m 64 --bench-n 128 --bench-k 192 --bench-include-scalar", 0, "tune_pins = PATTERN=");
  assert_non_null(strstr(output, "scale one"));
  assert_non_null(strstr(output, "OF ROOF"));
  expect(with("--microbench --bench-m 64 --bench-n 128 --bench-k 192 --kernel '%s'", words->kernel), 0, "(by hand)");
  expect("--microbench --device 7", 1, "device must be");
  expect("list --device 7", 1, "device must be");
  assert_null(strstr(output, "SHAPE"));
  expect("mlp/up --microbench", 2, "takes no argument \"mlp/up\"");
  expect("--microbench --bench-m 65", 2, "--bench-m must be 64..16384 in steps of 64, got 65");
  expect(with("--microbench --bench-m 64 --bench-n 64 --bench-k 64 --kernel 'any %s'", words->nobody), 1,
         "what was set by hand is left to use");
}

static void test_a_microbench_that_is_ended_leaves_no_weight(void **state) {
  char command[1024];
  snprintf(command, sizeof command,
           "export GEMMD_SOCKET=%s; tool=%s/gemmctl; $tool tune --microbench --bench-m 4096 --bench-n 2048 2>/dev/null "
           "& bench=$!; "
           "until $tool weights | grep -q microbench; do kill -0 $bench || exit 1; done; "
           "kill -TERM $bench; wait $bench; [ $? -eq 143 ] && ! $tool weights | grep -q microbench",
           gemmd.socket, tools);
  assert_int_equal(system(command), 0);
}

static void kill_worker(int signal) {
  gemmd_daemon_info info;
  gemmd_session *session = daemon_join(&gemmd, NULL);
  assert_int_equal(gemmd_daemon_status(session, &info), GEMMD_OK);
  uint32_t restarts = info.device[0].restarts;
  assert_int_equal(kill((pid_t)info.device[0].pid, signal), 0);
  do {
    nap_shortly();
    assert_int_equal(gemmd_daemon_status(session, &info), GEMMD_OK);
  } while (info.device[0].restarts == restarts || strcmp(info.device[0].state, "ready") != 0);
  gemmd_disconnect(session);
}

/* With nowhere to note what it tries, a successor would try again what its predecessor died of; not where somebody else
 * killed that. */
static void test_without_a_state_a_successor_does_not_try(void **state) {
  static const char off[] = "nothing is tuned from here on";
  daemon_stop(&gemmd);
  unsetenv("STATE_DIRECTORY");
  daemon_start(&gemmd);
  load();
  kill_worker(SIGKILL);
  assert_int_equal(daemon_log_count(&gemmd, off), 0);
  test_products_stay_right(state);
  expect("mlp/up --m 1", 0, "the backend's own choice");
  kill_worker(SIGABRT); /* none of which a sanitizer makes a report */
  assert_int_equal(daemon_log_count(&gemmd, off), 1);
  test_products_stay_right(state);
  expect("show f32-f32-none-m1", 0, "seen");
  kill_worker(SIGKILL); /* nobody knows any better what the one before it died of */
  assert_int_equal(daemon_log_count(&gemmd, off), 2);
}

/* What was taken counts, and so does that the rest was not. */
static void test_an_import_that_loses_gemmd_fails(void **state) {
  enum { ENTRIES = 200000 }; /* it takes seconds to refuse them all */
  char path[256], command[1024];
  snprintf(path, sizeof path, "%s", daemon_path(&gemmd, "many.json"));
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fprintf(file, "{\"version\": 1, \"tunings\": [");
  for (int i = 0; i < ENTRIES; i++)
    fprintf(file, "%s{\"shape\": \"none\", \"kernel\": \"none\"}", i > 0 ? ", " : "");
  fprintf(file, "]}");
  assert_int_equal(fclose(file), 0);
  snprintf(command, sizeof command, "%s/gemmctl tune --socket %s import %s 2>&1 >%s", tools, gemmd.socket, path,
           daemon_path(&gemmd, "taken"));
  FILE *errors = popen(command, "r");
  assert_non_null(errors);
  assert_non_null(fgets(output, sizeof output, errors)); /* it has begun */
  assert_non_null(strstr(output, "not taken: none: "));
  daemon_kill(&gemmd);
  while (fgets(output, sizeof output, errors) != NULL)
    continue;
  assert_int_equal(WEXITSTATUS(pclose(errors)), 3);
  if (strstr(output, "0 of 200000 tunings taken: ") == NULL || strstr(output, "(DISCONNECTED)") == NULL)
    fail_msg("%s", output);
  assert_int_equal(read_text(daemon_path(&gemmd, "taken"), output, sizeof output), 0);
  daemon_start(&gemmd);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_products_stay_right),
      cmocka_unit_test(test_what_was_served_is_listed_and_tuned),
      cmocka_unit_test(test_asked_for_now),
      cmocka_unit_test(test_by_hand),
      cmocka_unit_test(test_export_forget_import),
      cmocka_unit_test(test_older_files_outlive_a_full_disk),
      cmocka_unit_test(test_kept_over_a_restart),
      cmocka_unit_test(test_report),
      cmocka_unit_test(test_forget_by_name),
      cmocka_unit_test(test_microbench),
      cmocka_unit_test(test_a_microbench_that_is_ended_leaves_no_weight),
      cmocka_unit_test(test_without_a_state_a_successor_does_not_try),
      cmocka_unit_test(test_an_import_that_loses_gemmd_fails),
  };
  return cmocka_run_group_tests(tests, start, stop);
}
