/* The table of all that a search tried, from the real daemon by gemmctl and by C: as CSV, JSON, text and a picture; and
 * microbench, whose winner, or the manual parameters where it fails, are set for weights. What is asked for wrongly is
 * refused with a sentence. */
#include "client/gemmclient.h"
#include "tests/support/daemon/daemon.h"
#include "tests/support/daemon/status.h"
#include "tests/support/reference/checkpoint.h"
#include "tests/support/system/folder.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { N = 128, K = 256, COLUMNS = 64 };

static struct daemon gemmd;
static struct oracle_weight weight;
static const char *tools;
static bool on_cuda;
static char state_dir[] = "/tmp/gemmd-trials-XXXXXX";
static char output[1 << 20];

static int start(void **state) {
  tools = getenv("GEMMD_BUILD") != NULL ? getenv("GEMMD_BUILD") : "build";
  on_cuda = daemon_on_cuda();
  daemon_make(&gemmd, "tune = off\ncpu_threads = 2\ntune_bytes = 1048576\ntune_compile_ms = 0\n");
  /* what the manual parameters ask for on a GPU is compiled, and kept there */
  assert_non_null(mkdtemp(state_dir));
  assert_int_equal(setenv("STATE_DIRECTORY", state_dir, 1), 0);
  oracle_weight_make(&weight, &(struct gemm_weight){N, K, GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 0, 0}, 1);
  checkpoint_write_one(daemon_path(&gemmd, "model.safetensors"), "w", &weight);
  daemon_start(&gemmd);
  gemmd_session *session = daemon_join(&gemmd, NULL);
  gemmd_load request = {.name = "mlp/up", .tensor = "w", .format = GEMMD_FORMAT_INT8, .device = -1};
  assert_int_equal(gemmd_weight_load_file(session, daemon_path(&gemmd, "model.safetensors"), &request, NULL), GEMMD_OK);
  gemmd_disconnect(session);
  return 0;
}

static int stop(void **state) {
  daemon_stop(&gemmd);
  daemon_remove(&gemmd);
  oracle_weight_free(&weight);
  assert_true(folder_drop(state_dir));
  return 0;
}

/* gemmctl tune with these arguments, in which %s is `path`: its exit status; what it wrote is in `output`. */
static void expect(const char *arguments, const char *path, int code, const char *part) {
  char command[1024];
  const char *hole = strstr(arguments, "%s");
  snprintf(command, sizeof command, "%s/gemmctl tune --socket %s %.*s%s%s 2>&1", tools, gemmd.socket,
           (int)(hole != NULL ? (size_t)(hole - arguments) : strlen(arguments)), arguments, hole != NULL ? path : "",
           hole != NULL ? hole + 2 : "");
  FILE *pipe = popen(command, "r");
  assert_non_null(pipe);
  output[fread(output, 1, sizeof output - 1, pipe)] = '\0';
  int status = pclose(pipe), got = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (got != code || strstr(output, part) == NULL)
    fail_msg("%s: exit %d in place of %d, \"%s\" is looked for in:\n%s", command, got, code, part, output);
}

/* ---- the table */

static void test_none_yet(void **state) {
  expect("trials", "", 1, "no search that was asked for has ended on this device");
  expect("report", "", 1, "no search that was asked for");
  expect("trials --device 7", "", 1, "device must be");
}

/* Fields of one line; those in quotes have none that CSV sets apart here. */
static size_t split(char *line, char *fields[COLUMNS]) {
  size_t count = 0;
  line[strcspn(line, "\n")] = '\0';
  for (char *at = line; at != NULL && count < COLUMNS;)
    fields[count++] = strsep(&at, ",");
  return count;
}

static size_t column_of(char *const heads[COLUMNS], size_t count, const char *name) {
  for (size_t i = 0; i < count; i++)
    if (strcmp(heads[i], name) == 0)
      return i;
  fail_msg("there is no column %s", name);
  return 0;
}

static void test_csv(void **state) {
  static char head[4096], line[4096];
  char *heads[COLUMNS], *fields[COLUMNS], path[256];
  size_t lines = 0, own = 0, winner = 0, incumbent = 0, hand = 0;
  double before = 0;
  snprintf(path, sizeof path, "%s", daemon_path(&gemmd, "table.csv"));
  expect(on_cuda ? "mlp/up --m 8 --exhaustive --kernel plain --csv %s"
                 : "mlp/up --m 8 --exhaustive --kernel 'cpu threads=1 block_m=8' --csv %s",
         path, 0, "candidates are in ");
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  assert_non_null(fgets(head, sizeof head, file));
  size_t count = split(head, heads);
  size_t state_at = column_of(heads, count, "state"), ns = column_of(heads, count, "median_ns");
  while (fgets(line, sizeof line, file) != NULL) {
    assert_int_equal(split(line, fields), count);
    lines++;
    assert_true(on_cuda || strcmp(fields[0], "\"cpu\"") == 0);
    if (strcmp(fields[state_at], "timed") == 0) {
      assert_true(atof(fields[ns]) >= before); /* fastest first */
      before = atof(fields[ns]);
      assert_true(before > 0 && atoi(fields[column_of(heads, count, "samples")]) > 0);
      assert_true(atof(fields[column_of(heads, count, "error")]) < 1e-3);
      assert_true(atof(fields[column_of(heads, count, "of_roof")]) > 0);
    }
    own += strcmp(fields[column_of(heads, count, "own")], "1") == 0;
    winner += strcmp(fields[column_of(heads, count, "winner")], "1") == 0;
    incumbent += strcmp(fields[column_of(heads, count, "incumbent")], "1") == 0;
    hand += strcmp(fields[column_of(heads, count, "hand")], "1") == 0;
  }
  fclose(file);
  assert_true(lines > 40);
  assert_int_equal(own, 1);
  assert_int_equal(winner, 1);
  assert_int_equal(incumbent, 1);
  assert_int_equal(hand, 1);
  assert_true(column_of(heads, count, on_cuda ? "split_k" : "threads") > 0);
}

static void test_json_and_text(void **state) {
  char path[256];
  expect("mlp/up --m 8 --json", "", 0, "\"trials\"");
  json_t *object = json_loads(output, JSON_REJECT_DUPLICATES, NULL);
  assert_non_null(object);
  json_int_t search = json_integer_value(json_object_get(object, "search"));
  size_t count = json_array_size(json_object_get(object, "trials"));
  assert_true(search > 0);
  assert_true(count >= (size_t)json_integer_value(json_object_get(object, "timed")) && count > 2);
  json_decref(object);
  expect("trials --json", "", 0, "of_roof");
  object = json_loads(output, JSON_REJECT_DUPLICATES, NULL);
  assert_int_equal(json_integer_value(json_object_get(object, "search")), search);
  assert_int_equal(json_array_size(json_object_get(object, "trials")), count);
  json_decref(object);
  expect("trials", "", 0, "(the backend's own choice)");
  expect("report", "", 0, on_cuda ? "time over the fastest" : "time over threads");
  assert_non_null(strstr(output, "1.00#"));
  snprintf(path, sizeof path, "%s", daemon_path(&gemmd, "report.html"));
  expect("report --html %s", path, 0, "in ");
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  output[fread(output, 1, sizeof output - 1, file)] = '\0';
  fclose(file);
  assert_non_null(strstr(output, "all that the last search tried"));
  assert_non_null(strstr(output, "<rect"));
  assert_non_null(strstr(output, on_cuda ? ": time over " : ": time over threads"));
}

static void test_places_that_cannot_be_written(void **state) {
  expect("mlp/up --exhaustive --csv /nowhere/table.csv", "", 1, "cannot write /nowhere/table.csv: No such file");
  expect("mlp/up --csv /dev/full", "", 1, "cannot write /dev/full");
  expect("trials --csv /nowhere/table.csv", "", 1, "cannot write /nowhere/table.csv");
}

struct seen {
  uint64_t last_ns;
  uint32_t count, filling, stop_at;
};

static bool see(void *user, const gemmd_tune_trial *trial) {
  struct seen *seen = user;
  if (trial->ns > 0) {
    assert_true(trial->ns >= seen->last_ns);
    seen->last_ns = trial->ns;
  }
  seen->filling += trial->filling > 0;
  return ++seen->count != seen->stop_at;
}

/* More than a page of it, by the number of the search, which is gone with the next. */
static void test_pages(void **state) {
  gemmd_session *session = daemon_join(&gemmd, NULL);
  const gemmd_tune_request request = {
      .weight = "mlp/up", .m = 4, .x_type = GEMMD_F16, .y_type = GEMMD_F16, .exhaustive = true};
  gemmd_tune_search search = {.warmup = 1, .iterations = 3}, first;
  gemmd_tune_report report;
  struct seen seen = {.stop_at = 0};
  assert_int_equal(gemmd_tune_measured(session, &request, &search, &report), GEMMD_OK);
  assert_int_equal(gemmd_tune_trials(session, &search, see, &seen), GEMMD_OK);
  assert_true(seen.count > 33);
  assert_int_equal(seen.count, search.total);
  assert_true(on_cuda ? seen.filling > 0 : seen.filling == 0);
  assert_string_equal(search.shape, report.shape);
  seen = (struct seen){.stop_at = 2};
  assert_int_equal(gemmd_tune_trials(session, &search, see, &seen), GEMMD_OK);
  assert_int_equal(seen.count, 2);
  first = search;
  search.warmup = 101;
  assert_int_equal(gemmd_tune_measured(session, &request, &search, &report), GEMMD_INVALID);
  assert_non_null(strstr(gemmd_error(session), "warmup must be 0..100, got 101"));
  assert_int_equal(gemmd_tune(session, &request, &report), GEMMD_OK);
  assert_int_equal(gemmd_tune_trials(session, &first, see, &seen), GEMMD_NOT_FOUND);
  assert_non_null(strstr(gemmd_error(session), "is gone: the last one is search"));
  gemmd_disconnect(session);
}

/* ---- microbench */

#define SMALL "--microbench --bench-m 64 --bench-n 128 --bench-k 192 "

static void test_the_winner_is_set(void **state) {
  expect(SMALL "--pin 'mlp/*'", "", 0, "is set for 1 weight, once it has been checked");
  assert_non_null(strstr(output, "(manual, by default)"));
  assert_non_null(strstr(output, "OVER MANUAL"));
  expect("'mlp/*' --unpin", "", 0, "1 weight free");
  expect(on_cuda ? SMALL "--bench-warmup 3 --bench-iterations 17 --kernel plain --json"
                 : SMALL "--bench-warmup 3 --bench-iterations 17 --kernel 'cpu threads=1 block_m=16' --json",
         "", 0, "over_library");
  json_t *object = json_loads(output, JSON_REJECT_DUPLICATES, NULL);
  json_t *product = json_object_get(json_array_get(json_object_get(object, "results"), 0), "product"), *each;
  size_t at;
  assert_true(json_array_size(product) >= 1 && json_array_size(product) <= 4);
  double over = 0;
  json_array_foreach(product, at, each) {
    assert_true(json_integer_value(json_object_get(each, "samples")) >= 17);
    if (json_is_true(json_object_get(each, "hand")))
      over = json_real_value(json_object_get(each, "over_manual"));
  }
  assert_true(over == 1);
  json_decref(object);
}

static void test_manual_where_the_search_fails(void **state) {
  static const char large[] = "--microbench --bench-m 4096 --bench-n 64 --bench-k 256 --block-m 32 ";
  char line[256];
  snprintf(line, sizeof line, "%s", large); /* x takes 2 MiB, tune_bytes allows one */
  expect(line, "", 1, "what was set by hand is left to use: any block_m=32");
  snprintf(line, sizeof line, "%s--pin 'mlp/*' --on-failure manual", large);
  expect(line, "", 0, "any block_m=32 is set for 1 weight");
  assert_non_null(strstr(output, "tune_bytes allows 1"));
  expect("'mlp/*' --unpin", "", 0, "1 weight free");
  snprintf(line, sizeof line, "%s--pin 'mlp/*'", large);
  expect(line, "", 1, "is left to use");
}

/* Who is no admin has a weight made for a microbench within what a user may have on the device, and none beyond. */
static void test_a_user_over_the_cap(void **state) {
  static const char as_user[] = "GEMMD_SOCKET=%s setpriv --reuid=54331 --regid=54331 --clear-groups %s/gemmctl tune "
                                "--microbench --bench-m 64 --bench-n %d --bench-k 256 2>&1";
  static const struct {
    int n, code;
    const char *part;
  } cases[] = {{64, 0, "tune_pins = PATTERN="},
               {4096, 4, "may have 65536 bytes of device memory"},
               {64, 0, "tune_pins = PATTERN="}};
  struct daemon capped;
  char command[1024];
  if (geteuid() != 0) /* to be another user takes root */
    skip();
  daemon_make(&capped, "tune = off\ncpu_threads = 2\nsocket_mode = 0666\nuser_device_bytes_max = 65536\n");
  assert_int_equal(chmod(capped.folder, 0711), 0);
  daemon_start(&capped);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    snprintf(command, sizeof command, as_user, capped.socket, tools, cases[i].n);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    output[fread(output, 1, sizeof output - 1, pipe)] = '\0';
    int status = pclose(pipe);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != cases[i].code || strstr(output, cases[i].part) == NULL)
      fail_msg("%s: \"%s\" is looked for in:\n%s", command, cases[i].part, output);
  }
  daemon_stop(&capped);
  daemon_remove(&capped);
}

static void test_refused(void **state) {
  expect("--microbench --bench-n 16384 --bench-k 16777216", "", 1, "are free on this machine (NOMEM)");
  expect("--microbench --bench-k 16777280", "", 2, "--bench-k must be 64..16777216");
  expect("--microbench --bench-k 100", "", 2, "--bench-k must be 64..16777216 in steps of 64, got 100");
  expect("--microbench --bench-m 64 --bench-n 64 --bench-k 131072", "", 1, "K must be 1..131071, got 131072");
  expect(SMALL "--pin", "", 2, "--pin needs one PATTERN");
  expect(SMALL "--on-failure manual", "", 2, "sets the manual parameters for the weights of --pin PATTERN");
  expect(SMALL "--on-failure pray --pin x", "", 2, "--on-failure");
  expect(SMALL "--pin 'nobody/*'", "", 1, "no weight's name matches nobody/*");
  expect(SMALL "mlp/up", "", 2, "takes no argument \"mlp/up\" without --pin");
  expect("--bench-iterations 101 mlp/up", "", 2, "--bench-iterations");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_none_yet),
      cmocka_unit_test(test_csv),
      cmocka_unit_test(test_json_and_text),
      cmocka_unit_test(test_places_that_cannot_be_written),
      cmocka_unit_test(test_pages),
      cmocka_unit_test(test_the_winner_is_set),
      cmocka_unit_test(test_manual_where_the_search_fails),
      cmocka_unit_test(test_refused),
      cmocka_unit_test(test_a_user_over_the_cap),
  };
  return cmocka_run_group_tests(tests, start, stop);
}
