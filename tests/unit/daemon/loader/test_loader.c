/* Loads from real descriptors: what comes out in canonical form. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <blake2.h>
#include <cmocka.h>
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/loader/convert.h"
#include "daemon/loader/load.h"
#include "proto/number.h"
#include "proto/weights/quantize.h"
#include "tests/support/worker/loading.h"

static uint16_t half_of(const uint8_t *bytes, int64_t index) {
  uint16_t value;
  memcpy(&value, bytes + 2 * index, 2);
  return value;
}

static void expect_zeros(const uint8_t *from, const uint8_t *to) {
  for (; from < to; from++)
    assert_int_equal(*from, 0);
}

/* ---- quantized while loading */

static float absmax_of(const float *values, int64_t k, int64_t row, int64_t rows, int64_t column, int64_t columns) {
  float most = 0.0f;
  for (int64_t i = row; i < row + rows; i++)
    for (int64_t j = column; j < column + columns; j++)
      most = fmaxf(most, fabsf(values[i * k + j]));
  return most;
}

/* Bytes of an INT8 or FP8 weight against the rule written out, for any block size of scales. */
static void expect_absmax(enum gemm_format format, enum gemm_scale scale, int64_t n, int64_t k) {
  float *values = loading_values(n * k);
  for (int64_t j = 0; j < k; j++)
    values[(n / 2) * k + j] = 0.0f;
  int fd = loading_f32(values, n, k);
  struct message_weight_load request = loading_request(format, scale);
  struct loaded loaded = loading_run(fd, &request, 2);
  int64_t rows = scale == GEMM_SCALE_ONE ? n : scale == GEMM_SCALE_BLOCK ? 128 : 1;
  int64_t columns = scale == GEMM_SCALE_BLOCK ? 128 : k, index = 0;
  for (int64_t i = 0; i < n; i += rows)
    for (int64_t j = 0; j < k; j += columns, index++) {
      int64_t height = n - i < rows ? n - i : rows, width = k - j < columns ? k - j : columns;
      float absmax = absmax_of(values, k, i, height, j, width);
      float expected = format == GEMM_FORMAT_INT8 ? number_scale_int8(absmax) : number_scale_e4m3(absmax);
      assert_true(loading_scale(&loaded, index) == expected);
      for (int64_t a = i; a < i + height; a++)
        for (int64_t b = j; b < j + width; b++) {
          float value = values[a * k + b];
          uint8_t code = format == GEMM_FORMAT_INT8 ? (uint8_t)number_quantize_int8(value, expected)
                                                    : number_quantize_e4m3(value, expected);
          assert_int_equal(loading_row(&loaded, a)[b], code);
        }
    }
  assert_int_equal(index, loaded.layout.scale_count);
  for (int64_t i = 0; i < n; i++)
    expect_zeros(loading_row(&loaded, i) + k, loading_row(&loaded, i + 1));
  expect_zeros(loaded.bytes + loaded.layout.codes_bytes, loaded.bytes + loaded.layout.scales_offset);
  assert_int_equal(loaded.done.scale, scale);
  loading_free(&loaded);
  close(fd);
  free(values);
}

static void test_int8(void **state) {
  expect_absmax(GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 1, 1);
  expect_absmax(GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 5, 19);
  expect_absmax(GEMM_FORMAT_INT8, GEMM_SCALE_ONE, 7, 33);
}

static void test_fp8(void **state) {
  expect_absmax(GEMM_FORMAT_FP8, GEMM_SCALE_ROW, 5, 19);
  expect_absmax(GEMM_FORMAT_FP8, GEMM_SCALE_ONE, 7, 32);
  expect_absmax(GEMM_FORMAT_FP8, GEMM_SCALE_BLOCK, 1, 1);
  expect_absmax(GEMM_FORMAT_FP8, GEMM_SCALE_BLOCK, 130, 300);
}

/* More than one band and, with block scales, more than one tile of columns. */
static void test_many_bands(void **state) {
  expect_absmax(GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 700, 1001);
  expect_absmax(GEMM_FORMAT_FP8, GEMM_SCALE_ONE, 700, 1001);
  expect_absmax(GEMM_FORMAT_FP8, GEMM_SCALE_BLOCK, 257, 4500);
}

static void expect_int2(enum gemm_scale scale, enum gemm_method method, int64_t n, int64_t k) {
  float *values = loading_values(n * k);
  int fd = loading_f32(values, n, k);
  struct message_weight_load request = loading_request(GEMM_FORMAT_INT2, scale);
  request.method = method;
  struct loaded loaded = loading_run(fd, &request, 2);
  int64_t group = scale == GEMM_SCALE_ROW ? k : 128, index = 0;
  uint32_t *scratch = malloc((size_t)k * 2 * sizeof *scratch);
  uint8_t *codes = malloc((size_t)k);
  assert_true(scratch && codes);
  for (int64_t i = 0; i < n; i++) {
    for (int64_t j = 0; j < k; j += group, index++) {
      size_t count = (size_t)(k - j < group ? k - j : group);
      const float *from = values + i * k + j;
      uint16_t expected = method == GEMM_METHOD_TERNARY ? quantize_ternary(from, count, codes + j)
                                                        : quantize_least_squares(from, count, scratch, codes + j);
      assert_int_equal(half_of(loaded.bytes + loaded.layout.scales_offset, index), expected);
    }
    for (uint64_t j = 0; j < 4 * loaded.layout.row_bytes; j++) {
      int code = loading_row(&loaded, i)[j / 4] >> (2 * (j % 4)) & 3;
      assert_int_equal(code, j < (uint64_t)k ? codes[j] : 1);
    }
  }
  assert_int_equal(index, loaded.layout.scale_count);
  assert_int_equal(loaded.layout.row_bytes % 32, 0);
  loading_free(&loaded);
  close(fd);
  free(values);
  free(scratch);
  free(codes);
}

static void test_int2(void **state) {
  expect_int2(GEMM_SCALE_GROUP, GEMM_METHOD_DEFAULT, 1, 1);
  expect_int2(GEMM_SCALE_GROUP, GEMM_METHOD_LEAST_SQUARES, 9, 300);
  expect_int2(GEMM_SCALE_GROUP, GEMM_METHOD_TERNARY, 9, 130);
  expect_int2(GEMM_SCALE_ROW, GEMM_METHOD_LEAST_SQUARES, 4, 257);
  expect_int2(GEMM_SCALE_ROW, GEMM_METHOD_TERNARY, 3, 128);
}

static void test_halves(void **state) {
  const float values[] = {1.0f, -2.5f, 1e-8f, 65504.0f, 0.1f, 3.0f};
  int fd = loading_f32(values, 2, 3);
  for (enum gemm_format format = GEMM_FORMAT_F16; format <= GEMM_FORMAT_BF16; format++) {
    struct message_weight_load request = loading_request(format, GEMM_SCALE_NONE);
    struct loaded loaded = loading_run(fd, &request, 1);
    for (int i = 0; i < 6; i++) {
      uint16_t expected = format == GEMM_FORMAT_F16 ? number_to_f16(values[i]) : number_to_bf16(values[i]);
      assert_int_equal(half_of(loading_row(&loaded, i / 3), i % 3), expected);
    }
    expect_zeros(loading_row(&loaded, 0) + 6, loading_row(&loaded, 1));
    expect_zeros(loading_row(&loaded, 1) + 6, loaded.bytes + loaded.done.bytes);
    assert_int_equal(loaded.done.scale, GEMM_SCALE_NONE);
    loading_free(&loaded);
  }
  close(fd);
}

/* The same numbers as F16, BF16 and F32 give the same weight. */
static void test_source_types(void **state) {
  const float values[] = {1.0f, -0.5f, 0.25f, 2.0f, -8.0f, 0.0f, 1.5f, 96.0f};
  uint16_t f16[8], bf16[8];
  uint8_t hash[32];
  for (int i = 0; i < 8; i++) {
    f16[i] = number_to_f16(values[i]);
    bf16[i] = number_to_bf16(values[i]);
  }
  struct loading_file builder = {0};
  loading_add(&builder, "a", "F16", 2, 2, 4, f16, sizeof f16);
  loading_add(&builder, "b", "BF16", 2, 2, 4, bf16, sizeof bf16);
  loading_add(&builder, "c", "F32", 2, 2, 4, values, sizeof values);
  int fd = loading_finish(&builder);
  for (uint32_t format = GEMM_FORMAT_INT8; format < GEMM_FORMATS; format++)
    for (int i = 0; i < 3; i++) {
      struct message_weight_load request = loading_request((enum gemm_format)format, GEMM_SCALE_NONE);
      request.tensor[0] = (char)('a' + i);
      struct loaded loaded = loading_run(fd, &request, 2);
      if (i > 0)
        assert_memory_equal(hash, loaded.done.hash, 32);
      memcpy(hash, loaded.done.hash, 32);
      loading_free(&loaded);
    }
  close(fd);
}

/* ---- stored as they are */

static void test_stored_scale_names_and_types(void **state) {
  static const char *const names[] = {"m.weight_scale", "m.weight_scale_inv", "m.weight.scale",
                                      "m.scale",        "m.scales",           "m.scale_weight"};
  const int8_t codes[] = {1, -2, 3, -128, 127, 0};
  const float scales[] = {0.5f, 0.25f};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    struct loading_file builder = {0};
    uint16_t halves[2];
    for (int j = 0; j < 2; j++)
      halves[j] = i % 3 == 1 ? number_to_f16(scales[j]) : number_to_bf16(scales[j]);
    loading_add(&builder, "m.weight", "I8", 2, 2, 3, codes, sizeof codes);
    if (i % 3 == 0)
      loading_add(&builder, names[i], "F32", 2, 2, 1, scales, sizeof scales);
    else
      loading_add(&builder, names[i], i % 3 == 1 ? "F16" : "BF16", 1, 2, 0, halves, sizeof halves);
    int fd = loading_finish(&builder);
    struct message_weight_load request = loading_request(GEMM_FORMAT_INT8, GEMM_SCALE_NONE);
    strcpy(request.tensor, "m.weight");
    struct loaded loaded = loading_run(fd, &request, 2);
    assert_int_equal(loaded.done.scale, GEMM_SCALE_ROW);
    assert_memory_equal(loading_row(&loaded, 0), codes, 3);
    assert_memory_equal(loading_row(&loaded, 1), codes + 3, 3);
    expect_zeros(loading_row(&loaded, 0) + 3, loading_row(&loaded, 1));
    assert_true(loading_scale(&loaded, 0) == 0.5f);
    assert_true(loading_scale(&loaded, 1) == 0.25f);
    loading_free(&loaded);
    close(fd);
  }
}

/* A file with an FP8 tensor w of n x k and a scale tensor s. */
static int fp8_file(int64_t n, int64_t k, int rank, int64_t rows, int64_t columns) {
  uint8_t *codes = malloc((size_t)(n * k));
  int64_t count = (rank > 0 ? rows : 1) * (rank > 1 ? columns : 1);
  float *scales = loading_values(count);
  assert_non_null(codes);
  for (int64_t i = 0; i < n * k; i++)
    codes[i] = (uint8_t)(i % 0x7f);
  for (int64_t i = 0; i < count; i++)
    scales[i] = (float)(i + 1);
  struct loading_file builder = {0};
  loading_add(&builder, "s", "F32", rank, rows, columns, scales, (size_t)count * 4);
  loading_add(&builder, "w", "F8_E4M3", 2, n, k, codes, (size_t)(n * k));
  free(codes);
  free(scales);
  return loading_finish(&builder);
}

static void expect_mode(int64_t n, int64_t k, int rank, int64_t rows, int64_t columns, enum gemm_scale wanted,
                        enum gemm_scale expected) {
  int fd = fp8_file(n, k, rank, rows, columns);
  struct message_weight_load request = loading_request(GEMM_FORMAT_FP8, wanted);
  strcpy(request.scale_tensor, "s");
  if (expected == GEMM_SCALE_NONE) {
    loading_refuse(fd, &request, STATUS_UNSUPPORTED, "scale tensor 's'");
  } else {
    struct loaded loaded = loading_run(fd, &request, 2);
    assert_int_equal(loaded.done.scale, expected);
    for (uint64_t i = 0; i < loaded.layout.scale_count; i++)
      assert_true(loading_scale(&loaded, (int64_t)i) == (float)(i + 1));
    for (int64_t i = 0; i < n * k; i++)
      assert_int_equal(loading_row(&loaded, i / k)[i % k], i % 0x7f);
    loading_free(&loaded);
  }
  close(fd);
}

static void test_stored_scale_modes(void **state) {
  expect_mode(130, 260, 0, 0, 0, GEMM_SCALE_NONE, GEMM_SCALE_ONE);
  expect_mode(130, 260, 1, 1, 0, GEMM_SCALE_NONE, GEMM_SCALE_ONE);
  expect_mode(130, 260, 2, 1, 1, GEMM_SCALE_ONE, GEMM_SCALE_ONE);
  expect_mode(130, 260, 1, 130, 0, GEMM_SCALE_NONE, GEMM_SCALE_ROW);
  expect_mode(130, 260, 2, 130, 1, GEMM_SCALE_ROW, GEMM_SCALE_ROW);
  expect_mode(130, 260, 2, 2, 3, GEMM_SCALE_NONE, GEMM_SCALE_BLOCK);
  expect_mode(5000, 3, 1, 5000, 0, GEMM_SCALE_NONE, GEMM_SCALE_ROW); /* more scales than are read at once */
  /* One element is any mode that has one; the request decides. */
  expect_mode(100, 100, 2, 1, 1, GEMM_SCALE_BLOCK, GEMM_SCALE_BLOCK);
  expect_mode(1, 100, 1, 1, 0, GEMM_SCALE_ROW, GEMM_SCALE_ROW);
  /* What fits nothing, or not the request. */
  expect_mode(130, 260, 2, 3, 2, GEMM_SCALE_NONE, GEMM_SCALE_NONE);
  expect_mode(130, 260, 2, 1, 130, GEMM_SCALE_NONE, GEMM_SCALE_NONE);
  expect_mode(130, 260, 1, 130, 0, GEMM_SCALE_BLOCK, GEMM_SCALE_NONE);
  expect_mode(130, 260, 1, 1, 0, GEMM_SCALE_ROW, GEMM_SCALE_NONE);
  expect_mode(130, 260, 2, 2, 3, GEMM_SCALE_GROUP, GEMM_SCALE_NONE);
}

/* ---- identity */

static void test_same_result_with_any_number_of_threads(void **state) {
  enum { N = 300, K = 2000 };
  float *values = loading_values(N * K);
  int fd = loading_f32(values, N, K);
  static const struct {
    enum gemm_format format;
    enum gemm_scale scale;
  } kinds[] = {{GEMM_FORMAT_INT8, GEMM_SCALE_ROW},  {GEMM_FORMAT_INT8, GEMM_SCALE_ONE},
               {GEMM_FORMAT_FP8, GEMM_SCALE_BLOCK}, {GEMM_FORMAT_INT2, GEMM_SCALE_GROUP},
               {GEMM_FORMAT_INT2, GEMM_SCALE_ROW},  {GEMM_FORMAT_BF16, GEMM_SCALE_NONE}};
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
    struct message_weight_load request = loading_request(kinds[i].format, kinds[i].scale);
    struct loaded one = loading_run(fd, &request, 1);
    for (unsigned threads = 2; threads < 100; threads = threads * 6 - 5) {
      struct loaded many = loading_run(fd, &request, threads);
      assert_memory_equal(one.done.hash, many.done.hash, 32);
      assert_memory_equal(one.bytes, many.bytes, one.done.bytes);
      loading_free(&many);
    }
    loading_free(&one);
  }
  close(fd);
  free(values);
}

static void test_hash_tells_contents_apart(void **state) {
  /* Equal canonical bytes, different weights: K 15 and 16 of zeros; and one value apart. */
  const float zeros[16] = {0}, one[16] = {[9] = 1.0f};
  const struct {
    const float *values;
    int64_t n, k;
    enum gemm_format format;
    enum gemm_scale scale;
  } rows[] = {{zeros, 1, 15, GEMM_FORMAT_INT8, GEMM_SCALE_ROW}, {zeros, 1, 16, GEMM_FORMAT_INT8, GEMM_SCALE_ROW},
              {zeros, 1, 16, GEMM_FORMAT_INT8, GEMM_SCALE_ONE}, {zeros, 1, 16, GEMM_FORMAT_FP8, GEMM_SCALE_ROW},
              {zeros, 1, 16, GEMM_FORMAT_F16, GEMM_SCALE_NONE}, {zeros, 1, 16, GEMM_FORMAT_BF16, GEMM_SCALE_NONE},
              {one, 1, 16, GEMM_FORMAT_BF16, GEMM_SCALE_NONE}};
  enum { COUNT = sizeof rows / sizeof rows[0] };
  uint8_t hashes[COUNT][32];
  for (int i = 0; i < COUNT; i++) {
    int fd = loading_f32(rows[i].values, rows[i].n, rows[i].k);
    struct message_weight_load request = loading_request(rows[i].format, rows[i].scale);
    struct loaded loaded = loading_run(fd, &request, 2);
    memcpy(hashes[i], loaded.done.hash, 32);
    loading_free(&loaded);
    close(fd);
    for (int j = 0; j < i; j++)
      assert_memory_not_equal(hashes[i], hashes[j], 32);
  }
}

/* ---- bands */

struct order {
  uint64_t late; /* this band of 0 and 1 fails only after the other one has */
  atomic_bool failed;
};

static enum status fail_in_order(void *context, uint64_t band, void *scratch, struct error *error) {
  struct order *order = context;
  while (band == order->late && !atomic_load(&order->failed))
    sched_yield();
  for (int i = 0; band == order->late && i < 1000; i++)
    sched_yield(); /* a chance for the other thread to report first */
  atomic_store(&order->failed, true);
  return error_set(error, STATUS_BAD_FILE, "band %llu", (unsigned long long)band);
}

static void test_first_bad_band_is_named(void **state) {
  for (uint64_t trial = 0; trial < 20; trial++) {
    struct order order = {.late = trial % 2};
    struct bands bands = {.count = 2, .scratch_bytes = 1, .threads = 2, .work = fail_in_order, .context = &order};
    struct watch watch = {0};
    struct error error = {0};
    assert_int_equal(bands_run(&bands, &watch, &error), STATUS_BAD_FILE);
    assert_string_equal(error.text, "band 0");
  }
}

/* ---- watched */

static void put(uint8_t *to, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; i++)
    to[i] = (uint8_t)(value >> (8 * i));
}

static void header_of(const struct loaded *loaded, const char *kind, uint8_t header[32]) {
  memset(header, 0, 32);
  strcpy((char *)header, kind);
  put(header + 8, loaded->done.format, 4);
  put(header + 12, loaded->done.scale, 4);
  put(header + 16, (uint64_t)loaded->done.n, 8);
  put(header + 24, (uint64_t)loaded->done.k, 8);
}

/* Both hashes, as tree.h describes them, of a content of several leaves. */
static void test_hashes_are_what_they_are_said_to_be(void **state) {
  enum { N = 700, K = 4000, LEAF = 1 << 20 };
  float *values = loading_values(N * K);
  int fd = loading_f32(values, N, K);
  struct message_weight_load request = loading_request(GEMM_FORMAT_INT8, GEMM_SCALE_ROW);
  request.old_hash = true;
  struct loaded loaded = loading_run(fd, &request, 2);
  uint8_t header[32], expected[32], leaf_header[16] = "gemmd-2 leaf";
  blake2b_state root, leaf;
  header_of(&loaded, "gemmd-2", header);
  blake2b_init(&root, 32);
  blake2b_update(&root, header, sizeof header);
  assert_true(loaded.done.bytes > 2 * LEAF);
  for (uint64_t at = 0; at < loaded.done.bytes; at += LEAF) {
    put(leaf_header + 12, at / LEAF, 4);
    blake2b_init(&leaf, 32);
    blake2b_update(&leaf, leaf_header, sizeof leaf_header);
    blake2b_update(&leaf, loaded.bytes + at, loaded.done.bytes - at < LEAF ? loaded.done.bytes - at : LEAF);
    blake2b_final(&leaf, expected, 32);
    blake2b_update(&root, expected, 32);
  }
  blake2b_final(&root, expected, 32);
  assert_memory_equal(loaded.done.hash, expected, 32);
  header_of(&loaded, "gemmd-1", header);
  blake2b_init(&root, 32);
  blake2b_update(&root, header, sizeof header);
  blake2b_update(&root, loaded.bytes, loaded.done.bytes);
  blake2b_final(&root, expected, 32);
  assert_memory_equal(loaded.done.old_hash, expected, 32);
  loading_free(&loaded);
  close(fd);
  free(values);
}

struct seen {
  uint64_t done, total;
  int calls;
  bool stop;
};

static bool see(void *user, uint64_t done, uint64_t total) {
  struct seen *seen = user;
  assert_true(done >= seen->done && done <= total);
  assert_true(seen->calls == 0 || seen->total == total);
  *seen = (struct seen){.done = done, .total = total, .calls = seen->calls + 1, .stop = seen->stop};
  return !seen->stop;
}

static void test_progress_and_cancel(void **state) {
  float *values = loading_values(40 * 50);
  int fd = loading_f32(values, 40, 50);
  struct message_weight_load request = loading_request(GEMM_FORMAT_FP8, GEMM_SCALE_ONE);
  struct message_load_done done;
  struct error error;
  struct seen seen = {0};
  int memfd = -1;
  assert_int_equal(load_run(&request, &fd, 1, 2, see, &seen, &done, &memfd, &error), STATUS_OK);
  close(memfd);
  assert_true(seen.calls > 0);
  assert_int_equal(seen.total, 2 * 40 * 50 * 4 + done.bytes); /* two passes, then the hash */
  assert_int_equal(seen.done, seen.total);
  seen = (struct seen){.stop = true};
  memfd = -1;
  assert_int_equal(load_run(&request, &fd, 1, 2, see, &seen, &done, &memfd, &error), STATUS_CANCELLED);
  assert_int_equal(memfd, -1);
  close(fd);
  free(values);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_int8),
      cmocka_unit_test(test_fp8),
      cmocka_unit_test(test_many_bands),
      cmocka_unit_test(test_int2),
      cmocka_unit_test(test_halves),
      cmocka_unit_test(test_source_types),
      cmocka_unit_test(test_stored_scale_names_and_types),
      cmocka_unit_test(test_stored_scale_modes),
      cmocka_unit_test(test_same_result_with_any_number_of_threads),
      cmocka_unit_test(test_hash_tells_contents_apart),
      cmocka_unit_test(test_hashes_are_what_they_are_said_to_be),
      cmocka_unit_test(test_first_bad_band_is_named),
      cmocka_unit_test(test_progress_and_cancel),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
