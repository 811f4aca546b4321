/* Shapes and kernels as texts, and what is kept of them: also what is damaged, foreign or hostile. */
#include "daemon/worker/tune/record/tune_db.h"

#include "tests/support/system/folder.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static const struct variant_family small = {
    .name = "small",
    .count = 2,
    .parameters = {{"block", "of rows", 16, 512, 16, 128}, {"stages", "under way", 1, 8, 1, 4}}};
static const struct variant_family *const families[] = {&variant_plain, &small, NULL};

static const struct variant_problem problem = {
    .weight = {.n = 4096, .k = 300, .format = GEMM_FORMAT_INT8, .scale = GEMM_SCALE_ROW},
    .m = 64,
    .x_type = GEMM_BF16,
    .y_type = GEMM_F32,
    .bias_type = GEMM_F16};
static const char shape[] = "int8-row-4096x300-bf16-f32-f16-m64";

static struct tune_db db;

static int set_up(void **state) {
  struct error error;
  assert_int_equal(folder_make(state), 0);
  assert_int_equal(tune_db_open(&db, folder, "device-1", 0, families, &error), STATUS_OK);
  return 0;
}

/* ---- texts */

static void test_buckets(void **state) {
  static const int64_t rows[][2] = {{1, 1},     {3, 4},      {17, 24},     {64, 64},          {65, 96},
                                    {512, 512}, {513, 1024}, {1025, 2048}, {1 << 24, 1 << 24}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    assert_int_equal(variant_bucket(rows[i][0]), rows[i][1]);
}

static void test_shape_text(void **state) {
  char text[VARIANT_TEXT_BYTES];
  struct variant_problem back;
  struct error error;
  assert_string_equal(variant_problem_text(&problem, text), shape);
  assert_int_equal(variant_problem_parse(shape, &back, &error), STATUS_OK);
  assert_true(variant_problem_equal(&problem, &back));
  static const char *const bad[] = {"",
                                    "int8",
                                    "int8-row-4096x300-bf16-f32-f16-m63",
                                    "int8-row-4096x300-bf16-f32-f16-m64x",
                                    "int8-row-04096x300-bf16-f32-f16-m64",
                                    "int8-row-0x300-bf16-f32-f16-m64",
                                    "int8-group-4096x300-bf16-f32-f16-m64",
                                    "int8-row-4096x300-e4m3-f32-f16-m64",
                                    "int8-row-4096x300-bf16-s32-f16-m64",
                                    "int9-row-4096x300-bf16-f32-f16-m64",
                                    "../../etc/passwd",
                                    "int8-row-99999999999x300-bf16-f32-f16-m64"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    assert_int_not_equal(variant_problem_parse(bad[i], &back, &error), STATUS_OK);
}

/* What is kept is found again, whatever format and scale mode its weight has. */
static void test_shape_text_of_all_weights(void **state) {
  char text[VARIANT_TEXT_BYTES];
  struct variant_problem back;
  struct error error;
  int count = 0;
  for (int format = 1; format < GEMM_FORMATS; format++)
    for (int scale = 0; scale < GEMM_SCALES; scale++) {
      const struct variant_problem each = {
          .weight = {.n = 4096, .k = 8192, .format = (enum gemm_format)format, .scale = (enum gemm_scale)scale},
          .m = 16,
          .x_type = format == GEMM_FORMAT_BF16 ? GEMM_BF16 : GEMM_F16,
          .y_type = GEMM_F32};
      if (gemm_weight_check(&each.weight, &error) != STATUS_OK)
        continue;
      count++;
      if (variant_problem_parse(variant_problem_text(&each, text), &back, &error) != STATUS_OK)
        fail_msg("%s: %s", text, error.text);
      assert_true(variant_problem_equal(&each, &back));
    }
  assert_true(count > 30);
}

static void test_kernel_text(void **state) {
  char text[VARIANT_TEXT_BYTES];
  struct variant variant;
  struct error error;
  assert_int_equal(variant_parse(families, " small  stages=2 ", &variant, &error), STATUS_OK);
  assert_string_equal(variant_text(&variant, text), "small block=128 stages=2");
  assert_int_equal(variant_parse(families, "any block=512", &variant, &error), STATUS_OK);
  assert_ptr_equal(variant.family, &small);
  assert_int_equal(variant_parse(families, "small block=24", &variant, &error), STATUS_INVALID);
  assert_string_equal(error.text, "block must be 16..512 in steps of 16, got 24");
}

/* ---- files */

static struct book_entry entry_made(void) {
  struct error error;
  struct book_entry entry = {
      .problem = problem, .used = true, .state = BOOK_TUNED, .serves = true, .confirmed = true, .compiled_wait = true};
  entry.own_ns = 2000;
  entry.tuned_ns = 1000;
  entry.library_ns = 1500;
  assert_int_equal(variant_parse(families, "small block=64", &entry.variant, &error), STATUS_OK);
  assert_int_equal(variant_parse(families, "small block=16", &entry.wrong[0], &error), STATUS_OK);
  entry.wrong_count = 1;
  return entry;
}

static const char *file_path(void) {
  static char path[768];
  snprintf(path, sizeof path, "%s/%s.json", db.folder, shape);
  return path;
}

static void write_file(const char *text, size_t length) {
  unlink(file_path());
  int fd = open(file_path(), O_WRONLY | O_CREAT | O_TRUNC, 0640);
  assert_true(fd >= 0);
  assert_int_equal(write(fd, text, length), length);
  close(fd);
}

static void test_comes_back(void **state) {
  struct error error;
  struct book_entry entry = entry_made(), back = {.problem = problem, .used = true};
  struct variant_problem listed;
  assert_false(tune_db_load(&db, &back));
  assert_int_equal(tune_db_save(&db, &entry, &error), STATUS_OK);
  assert_true(tune_db_load(&db, &back));
  assert_int_equal(back.state, BOOK_KEPT);
  assert_false(back.serves);
  assert_true(variant_equal(&back.variant, &entry.variant));
  assert_true(back.confirmed);
  assert_true(back.compiled_wait && !back.library_waits);
  assert_int_equal(back.own_ns, 2000);
  assert_true(book_is_wrong(&back, &entry.wrong[0]));
  assert_int_equal(tune_db_list(&db, &listed, 1), 1);
  assert_true(variant_problem_equal(&listed, &problem));
  tune_db_remove(&db, &problem);
  assert_false(tune_db_load(&db, &back));
}

/* Another driver, library or build looks elsewhere; what was there stays. */
static void test_another_identity(void **state) {
  struct error error;
  struct tune_db other;
  struct book_entry entry = entry_made(), back = {.problem = problem, .used = true};
  assert_int_equal(tune_db_save(&db, &entry, &error), STATUS_OK);
  assert_int_equal(tune_db_open(&other, folder, "device-2", 0, families, &error), STATUS_OK);
  assert_false(tune_db_load(&other, &back));
  assert_true(tune_db_load(&db, &back));
}

/* Cut at every byte, and with every byte turned: a miss, or the entry as it was but for what no check can see. */
static void test_damaged_files_are_misses(void **state) {
  struct error error;
  char text[4096];
  struct book_entry entry = entry_made();
  assert_int_equal(tune_db_save(&db, &entry, &error), STATUS_OK);
  int fd = open(file_path(), O_RDONLY);
  ssize_t length = read(fd, text, sizeof text);
  close(fd);
  assert_true(length > 0);
  for (ssize_t cut = 0; cut < length - 1; cut++) {
    struct book_entry back = {.problem = problem, .used = true};
    write_file(text, (size_t)cut);
    assert_false(tune_db_load(&db, &back));
    assert_int_equal(back.state, BOOK_SEEN);
  }
  for (ssize_t place = 0; place < length; place++) {
    struct book_entry back = {.problem = problem, .used = true};
    text[place] = (char)(text[place] ^ 0x15);
    write_file(text, (size_t)length);
    if (tune_db_load(&db, &back))
      assert_true(variant_problem_equal(&back.problem, &problem) && !back.serves);
    text[place] = (char)(text[place] ^ 0x15);
  }
}

static void test_hostile_files_are_misses(void **state) {
  static const char *const texts[] = {
      "",
      "null",
      "[]",
      "{\"version\":1}",
      "{\"version\":2,\"shape\":\"int8-row-4096x300-bf16-f32-f16-m64\",\"kernel\":null,\"own_ns\":1,\"tuned_ns\":1,"
      "\"library_ns\":1,\"confirmed\":true,\"wrong\":[]}",
      "{\"version\":1,\"shape\":\"int8-row-4096x300-bf16-f32-f16-m1\",\"kernel\":null,\"own_ns\":1,\"tuned_ns\":1,"
      "\"library_ns\":1,\"confirmed\":true,\"wrong\":[]}",
      "{\"version\":1,\"shape\":\"int8-row-4096x300-bf16-f32-f16-m64\",\"kernel\":\"small block=7\",\"own_ns\":1,"
      "\"tuned_ns\":1,\"library_ns\":1,\"confirmed\":true,\"wrong\":[]}",
      "{\"version\":1,\"shape\":\"int8-row-4096x300-bf16-f32-f16-m64\",\"kernel\":\"evil\",\"own_ns\":1,"
      "\"tuned_ns\":1,\"library_ns\":1,\"confirmed\":true,\"wrong\":[]}",
      "{\"version\":1,\"shape\":\"int8-row-4096x300-bf16-f32-f16-m64\",\"kernel\":null,\"own_ns\":-1,\"tuned_ns\":1,"
      "\"library_ns\":1,\"confirmed\":true,\"wrong\":[]}",
  };
  struct book_entry back = {.problem = problem, .used = true};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    write_file(texts[i], strlen(texts[i]));
    assert_false(tune_db_load(&db, &back));
  }
  char *large = calloc(1, 1 << 20);
  assert_non_null(large);
  memset(large, ' ', 1 << 20);
  write_file(large, 1 << 20);
  free(large);
  assert_false(tune_db_load(&db, &back));
  unlink(file_path());
  assert_int_equal(symlink("/etc/hostname", file_path()), 0);
  assert_false(tune_db_load(&db, &back));
  unlink(file_path());
  assert_int_equal(mkfifo(file_path(), 0600), 0); /* would wait for a writer */
  assert_false(tune_db_load(&db, &back));
  unlink(file_path());
  assert_int_equal(mkdir(file_path(), 0700), 0);
  assert_false(tune_db_load(&db, &back));
}

static void problem_at(int64_t n, struct variant_problem *out, char path[768]) {
  char name[VARIANT_TEXT_BYTES];
  *out = problem;
  out->weight.n = n;
  snprintf(path, 768, "%s/%s.json", db.folder, variant_problem_text(out, name));
}

/* Where ever new shapes come, what was kept longest ago makes room; what is kept again takes none. */
static void test_so_many_and_no_more(void **state) {
  struct book_entry entry = entry_made();
  struct error error;
  char path[768];
  for (int64_t n = 1; n <= TUNE_DB_FILES; n++) {
    const struct timespec times[2] = {{.tv_sec = 1000 + n}, {.tv_sec = n == 7 ? 1 : 1000 + n}};
    problem_at(n, &entry.problem, path);
    int fd = open(path, O_WRONLY | O_CREAT, 0640);
    assert_true(fd >= 0);
    assert_int_equal(futimens(fd, times), 0);
    close(fd);
  }
  assert_int_equal(tune_db_save(&db, &entry, &error), STATUS_OK);
  assert_int_equal(tune_db_list(&db, NULL, 0), TUNE_DB_FILES);
  problem_at(7, &entry.problem, path);
  assert_int_equal(access(path, F_OK), 0);
  problem_at(TUNE_DB_FILES + 1, &entry.problem, path);
  assert_int_equal(tune_db_save(&db, &entry, &error), STATUS_OK);
  assert_int_equal(access(path, F_OK), 0);
  assert_int_equal(tune_db_list(&db, NULL, 0), TUNE_DB_FILES);
  problem_at(7, &entry.problem, path);
  assert_int_not_equal(access(path, F_OK), 0);
}

static void test_the_note_of_a_death(void **state) {
  struct book_entry entry = entry_made();
  struct variant_problem died;
  struct variant cause;
  assert_false(tune_db_died(&db, &died, &cause));
  tune_db_trying(&db, &problem, &entry.variant);
  tune_db_trying(&db, &problem, NULL);
  assert_false(tune_db_died(&db, &died, &cause));
  tune_db_trying(&db, &problem, &entry.variant);
  assert_true(tune_db_died(&db, &died, &cause));
  assert_true(variant_problem_equal(&died, &problem) && variant_equal(&cause, &entry.variant));
  assert_false(tune_db_died(&db, &died, &cause));
}

/* Alike, they keep what they find in one folder. */
static void test_the_notes_of_two_devices(void **state) {
  struct error error;
  struct tune_db second;
  struct book_entry entry = entry_made();
  struct variant_problem died;
  struct variant cause;
  assert_int_equal(tune_db_open(&second, folder, "device-1", 1, families, &error), STATUS_OK);
  tune_db_trying(&db, &problem, &entry.variant);
  tune_db_trying(&second, &problem, &entry.variant);
  tune_db_trying(&second, &problem, NULL);
  assert_false(tune_db_died(&second, &died, &cause));
  assert_true(tune_db_died(&db, &died, &cause));
}

static void test_nowhere_to_keep(void **state) {
  struct error error;
  struct tune_db nowhere;
  struct book_entry entry = entry_made();
  assert_int_equal(tune_db_open(&nowhere, "/proc/nothing", "device", 0, families, &error), STATUS_SYSTEM);
  assert_int_equal(tune_db_save(&nowhere, &entry, &error), STATUS_OK);
  assert_false(tune_db_load(&nowhere, &entry));
}

#define DB_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, folder_remove)

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_buckets),
      cmocka_unit_test(test_shape_text),
      cmocka_unit_test(test_shape_text_of_all_weights),
      cmocka_unit_test(test_kernel_text),
      DB_TEST(test_comes_back),
      DB_TEST(test_another_identity),
      DB_TEST(test_damaged_files_are_misses),
      DB_TEST(test_hostile_files_are_misses),
      DB_TEST(test_so_many_and_no_more),
      DB_TEST(test_the_note_of_a_death),
      DB_TEST(test_the_notes_of_two_devices),
      DB_TEST(test_nowhere_to_keep),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
