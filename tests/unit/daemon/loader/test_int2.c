/* INT2, and codes of 4 bits, as files have them: codes and scales that are stored so, what the shape of the scales
 * stands for, and the K that codes cannot have. Loads of numbers for a device that makes INT2 of them: which they are,
 * and that they are the file's. */
#include "daemon/loader/load.h"
#include "daemon/memfd.h"
#include "proto/number.h"
#include "tests/support/worker/loading.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

static void test_stored_int2(void **state) {
  enum { N = 3, COLUMNS = 35 }; /* K = 140: two groups */
  uint8_t codes[N * COLUMNS];
  uint16_t scales[N * 2];
  for (int i = 0; i < N * COLUMNS; i++)
    codes[i] = (uint8_t)(i * 7);
  for (int i = 0; i < N * 2; i++)
    scales[i] = number_to_f16((float)(i - 2)); /* a scale of INT2 may be negative */
  struct loading_file builder = {0};
  loading_add(&builder, "m.int2", "U8", 2, N, COLUMNS, codes, sizeof codes);
  loading_add(&builder, "m.int2_scale", "F16", 2, N, 2, scales, sizeof scales);
  loading_add(&builder, "row", "F16", 1, N, 0, scales, N * 2);
  int fd = loading_finish(&builder);
  struct message_weight_load request = loading_request(GEMM_FORMAT_INT2, GEMM_SCALE_NONE);
  strcpy(request.tensor, "m.int2");
  struct loaded loaded = loading_run(fd, &request, 2);
  assert_int_equal(loaded.done.k, 140);
  assert_int_equal(loaded.done.scale, GEMM_SCALE_GROUP);
  assert_memory_equal(loaded.bytes + loaded.layout.scales_offset, scales, sizeof scales);
  for (int i = 0; i < N; i++) {
    assert_memory_equal(loading_row(&loaded, i), codes + i * COLUMNS, COLUMNS);
    for (uint64_t j = COLUMNS; j < loaded.layout.row_bytes; j++)
      assert_int_equal(loading_row(&loaded, i)[j], 0x55);
  }
  loading_free(&loaded);
  strcpy(request.scale_tensor, "row");
  loaded = loading_run(fd, &request, 2);
  assert_int_equal(loaded.done.scale, GEMM_SCALE_ROW);
  loading_free(&loaded);
  close(fd);
}

/* With one group in a row [N] may stand for two modes: groups, unless a row's are asked for. */
static void test_one_group_a_row(void **state) {
  enum { N = 5, COLUMNS = 32 }; /* K = 128 */
  static const enum gemm_scale asked[] = {GEMM_SCALE_NONE, GEMM_SCALE_GROUP, GEMM_SCALE_ROW};
  static const enum gemm_scale found[] = {GEMM_SCALE_GROUP, GEMM_SCALE_GROUP, GEMM_SCALE_ROW};
  uint8_t codes[N * COLUMNS];
  uint16_t scales[N];
  for (int i = 0; i < N * COLUMNS; i++)
    codes[i] = (uint8_t)(i * 5);
  for (int i = 0; i < N; i++)
    scales[i] = number_to_f16(0.25f * (float)(i + 1));
  struct loading_file builder = {0};
  loading_add(&builder, "w", "U8", 2, N, COLUMNS, codes, sizeof codes);
  loading_add(&builder, "w_scale", "F16", 1, N, 0, scales, sizeof scales);
  int fd = loading_finish(&builder);
  for (int i = 0; i < 3; i++) {
    struct message_weight_load request = loading_request(GEMM_FORMAT_INT2, asked[i]);
    struct loaded loaded = loading_run(fd, &request, 1);
    assert_int_equal(loaded.done.k, 128);
    assert_int_equal(loaded.done.scale, found[i]);
    assert_memory_equal(loaded.bytes + loaded.layout.scales_offset, scales, sizeof scales);
    for (int row = 0; row < N; row++)
      assert_memory_equal(loading_row(&loaded, row), codes + row * COLUMNS, COLUMNS);
    loading_free(&loaded);
  }
  close(fd);
}

/* Four codes a byte: K is a multiple of 4 where they are stored, and any where they are made of numbers. */
static void test_any_k_from_numbers(void **state) {
  enum { N = 3 };
  static const int64_t ks[] = {1, 3, 127, 129, 130, 131};
  for (int i = 0; i < 6; i++) {
    float *values = loading_values(N * ks[i]);
    int fd = loading_f32(values, N, ks[i]);
    struct message_weight_load request = loading_request(GEMM_FORMAT_INT2, GEMM_SCALE_GROUP);
    struct loaded loaded = loading_run(fd, &request, 1);
    assert_int_equal(loaded.done.k, ks[i]);
    for (int64_t row = 0; row < N; row++)
      for (int64_t at = ks[i]; at < (int64_t)loaded.layout.row_bytes * 4; at++) /* what fills the row up is 0 */
        assert_int_equal(loading_row(&loaded, row)[at / 4] >> at % 4 * 2 & 3, 1);
    loading_free(&loaded);
    close(fd);
    free(values);
  }
}

struct made {
  struct message_load_done done;
  uint8_t *bytes;
};

static bool count(void *user, uint64_t done, uint64_t total) {
  uint64_t *most = user;
  assert_true(done <= total);
  *most = total;
  return true;
}

static struct made make(int fd, struct message_weight_load *request, uint64_t *total) {
  struct made made;
  struct error error;
  int memfd = -1;
  request->raw = true;
  if (load_run(request, &fd, 1, 3, count, total, &made.done, &memfd, &error) != STATUS_OK)
    fail_msg("%s", error.text);
  assert_int_equal(memfd_check(memfd, made.done.bytes, true, &error), STATUS_OK);
  made.bytes = memfd_map(memfd, made.done.bytes, false, &error);
  assert_non_null(made.bytes);
  close(memfd);
  return made;
}

static void release(struct made *made) {
  munmap(made->bytes, made->done.bytes);
}

/* Bands of several rows, the last one short. */
static void test_numbers_are_those_of_the_file(void **state) {
  enum { N = 1001, K = 1300 };
  float *values = loading_values(N * K);
  int fd = loading_f32(values, N, K);
  for (int ternary = 0; ternary < 2; ternary++) {
    struct message_weight_load request = loading_request(ternary ? GEMM_FORMAT_INT2A8 : GEMM_FORMAT_INT2, 0);
    uint64_t total = 0;
    request.method = ternary ? GEMM_METHOD_TERNARY : GEMM_METHOD_DEFAULT;
    struct made made = make(fd, &request, &total);
    assert_int_equal(made.done.numbers, GEMM_F32);
    assert_int_equal(made.done.ternary, ternary);
    assert_int_equal(made.done.n, N);
    assert_int_equal(made.done.k, K);
    assert_int_equal(made.done.scale, GEMM_SCALE_GROUP);
    assert_int_equal(made.done.bytes, N * K * sizeof(float));
    assert_int_equal(total, 2 * made.done.bytes); /* what is read and what is hashed */
    assert_memory_equal(made.bytes, values, made.done.bytes);
    release(&made);
  }
  close(fd);
  free(values);
}

/* Columns of one rank, of two tensors, the rows of one behind those of the other. */
static void test_parts_of_fused_tensors(void **state) {
  enum { N = 6, MORE = 3, K = 512, PART = K / 2 };
  float *values = loading_values((N + MORE) * K);
  struct loading_file builder = {0};
  uint64_t total = 0;
  loading_add(&builder, "w", "F32", 2, N, K, values, N * K * sizeof *values);
  loading_add(&builder, "v", "F32", 2, MORE, K, values + N * K, MORE * K * sizeof *values);
  int fd = loading_finish(&builder);
  struct message_weight_load request = loading_request(GEMM_FORMAT_INT2, GEMM_SCALE_GROUP);
  strcpy(request.more[request.more_count++].tensor, "v");
  request.parts = 2;
  request.part = 1;
  request.columns = true;
  struct made made = make(fd, &request, &total);
  assert_int_equal(made.done.numbers, GEMM_F32);
  assert_int_equal(made.done.n, N + MORE);
  assert_int_equal(made.done.k, PART);
  for (size_t row = 0; row < N + MORE; row++)
    assert_memory_equal(made.bytes + row * PART * sizeof(float), values + row * K + PART, PART * sizeof(float));
  release(&made);
  close(fd);
  free(values);
}

static void expect_made_here(enum gemm_format format, enum gemm_scale scale, int64_t n, int64_t k) {
  float *values = loading_values(n * k);
  int fd = loading_f32(values, n, k);
  struct message_weight_load request = loading_request(format, scale);
  uint64_t total = 0;
  struct made made = make(fd, &request, &total);
  assert_int_equal(made.done.numbers, 0);
  request.raw = false;
  struct loaded loaded = loading_run(fd, &request, 1);
  assert_int_equal(made.done.bytes, loaded.done.bytes);
  assert_memory_equal(made.done.hash, loaded.done.hash, 32);
  assert_memory_equal(made.bytes, loaded.bytes, loaded.done.bytes);
  loading_free(&loaded);
  release(&made);
  close(fd);
  free(values);
}

static void test_the_rest_is_made_here(void **state) {
  expect_made_here(GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 5, 40);
  expect_made_here(GEMM_FORMAT_FP8, GEMM_SCALE_BLOCK, 5, 40);
  expect_made_here(GEMM_FORMAT_INT2, GEMM_SCALE_ROW, 5, 40);
  expect_made_here(GEMM_FORMAT_INT2, GEMM_SCALE_GROUP, 1, (8 << 20) / 4 + 128); /* longer than a device takes */
}

/* ---- 4 bits */

enum { FOUR_N = 3, FOUR_K = 76 }; /* of 32: three groups, the last is shorter */

/* A file of U16 codes with scales and, where `zero` is not negative, zero points, of which the last is that. */
static int four_file(const char *scale_dtype, const void *scales, size_t scale_bytes, int zero, int zero_count) {
  uint16_t codes[FOUR_N * FOUR_K / 4];
  uint8_t zeros[64];
  for (int i = 0; i < FOUR_N * FOUR_K / 4; i++)
    codes[i] = (uint16_t)(i * 2657);
  for (int i = 0; i < zero_count; i++)
    zeros[i] = (uint8_t)(i + 1 < zero_count ? i : zero);
  struct loading_file builder = {0};
  loading_add(&builder, "w", "U16", 2, FOUR_N, FOUR_K / 4, codes, sizeof codes);
  loading_add(&builder, "w_scale", scale_dtype, 2, FOUR_N, 3, scales, scale_bytes);
  if (zero >= 0)
    loading_add(&builder, "w_zero", "U8", 1, zero_count, 0, zeros, (size_t)zero_count);
  return loading_finish(&builder);
}

/* The same with zero points of f16. */
static int four_real_file(const uint16_t zeros[9]) {
  uint16_t codes[FOUR_N * FOUR_K / 4], scales[9] = {0};
  for (int i = 0; i < FOUR_N * FOUR_K / 4; i++)
    codes[i] = (uint16_t)(i * 2657);
  struct loading_file builder = {0};
  loading_add(&builder, "w", "U16", 2, FOUR_N, FOUR_K / 4, codes, sizeof codes);
  loading_add(&builder, "w_scale", "BF16", 2, FOUR_N, 3, scales, sizeof scales);
  loading_add(&builder, "w_zero", "F16", 2, FOUR_N, 3, zeros, 9 * sizeof *zeros);
  return loading_finish(&builder);
}

static void expect_four(int fd, enum gemm_format format, enum gemm_scale scale, const void *scales, size_t bytes) {
  struct message_weight_load request = loading_request(format, GEMM_SCALE_NONE);
  struct loaded loaded = loading_run(fd, &request, 2);
  assert_int_equal(loaded.done.k, FOUR_K);
  assert_int_equal(loaded.done.scale, scale);
  assert_int_equal(loaded.layout.scales_bytes, bytes);
  assert_memory_equal(loaded.bytes + loaded.layout.scales_offset, scales, bytes);
  for (int row = 0; row < FOUR_N; row++)
    for (int i = 0; i < (int)loaded.layout.row_bytes / 2; i++) {
      uint16_t codes, fill = format == GEMM_FORMAT_MXFP4 ? 0 : 0x8888;
      memcpy(&codes, loading_row(&loaded, row) + 2 * i, sizeof codes);
      assert_int_equal(codes, i < FOUR_K / 4 ? (uint16_t)((row * FOUR_K / 4 + i) * 2657) : fill);
    }
  for (uint64_t i = 0; i < loaded.layout.zeros_bytes; i++)
    assert_int_equal(loaded.bytes[loaded.layout.zeros_offset + i], i + 1 < loaded.layout.zeros_bytes ? i : 15);
  loading_free(&loaded);
  close(fd);
}

static void test_stored_four_bits(void **state) {
  uint16_t f16[9], bf16[9];
  uint8_t powers[9];
  for (int i = 0; i < 9; i++) {
    f16[i] = number_to_f16(0.25f * (float)(i - 2));
    bf16[i] = number_to_bf16(1e-20f * (float)i);
    powers[i] = (uint8_t)(i * 31);
  }
  expect_four(four_file("F16", f16, sizeof f16, -1, 0), GEMM_FORMAT_INT4, GEMM_SCALE_GROUP32, f16, sizeof f16);
  expect_four(four_file("BF16", bf16, sizeof bf16, -1, 0), GEMM_FORMAT_INT4A8, GEMM_SCALE_GROUP32_BF16, bf16,
              sizeof bf16);
  expect_four(four_file("F16", f16, sizeof f16, 15, 9), GEMM_FORMAT_INT4, GEMM_SCALE_GROUP32_ZEROS, f16, sizeof f16);
  expect_four(four_file("F8_E8M0", powers, sizeof powers, -1, 0), GEMM_FORMAT_MXFP4, GEMM_SCALE_GROUP32, powers,
              sizeof powers);
}

/* Any finite number is one. */
static void test_real_zero_points(void **state) {
  uint16_t zeros[9] = {0x0001, 0x8000, 0x4877, 0xc500, 0x7bff, 0xfbff, 0x4b80, 0, 0x3c00};
  static const uint16_t bad[] = {0x7c00, 0xfc00, 0x7e01};
  struct message_weight_load request = loading_request(GEMM_FORMAT_INT4, GEMM_SCALE_NONE);
  int fd = four_real_file(zeros);
  struct loaded loaded = loading_run(fd, &request, 2);
  assert_int_equal(loaded.done.scale, GEMM_SCALE_GROUP32_BF16_ZEROS_F16);
  assert_int_equal(loaded.layout.zeros_bytes, sizeof zeros);
  assert_memory_equal(loaded.bytes + loaded.layout.zeros_offset, zeros, sizeof zeros);
  loading_free(&loaded);
  close(fd);
  for (int i = 0; i < 3; i++) {
    zeros[7] = bad[i];
    fd = four_real_file(zeros);
    request = loading_request(GEMM_FORMAT_INT4A8, GEMM_SCALE_NONE);
    loading_refuse(fd, &request, STATUS_BAD_FILE, "zero point 7 is ");
    close(fd);
  }
}

static void refuse_four(int fd, enum gemm_format format, enum status status, const char *reason) {
  struct message_weight_load request = loading_request(format, GEMM_SCALE_NONE);
  loading_refuse(fd, &request, status, reason);
  close(fd);
}

static void test_bad_four_bits(void **state) {
  uint16_t f16[9] = {0}, infinite[9] = {[4] = 0x7c00}, nan[9] = {[8] = 0x7e01};
  uint8_t powers[9] = {[7] = 255};
  float f32[9] = {0};
  refuse_four(four_file("F16", infinite, sizeof infinite, -1, 0), GEMM_FORMAT_INT4, STATUS_BAD_FILE,
              "'w_scale': element 4 is inf");
  refuse_four(four_file("F16", nan, sizeof nan, 3, 9), GEMM_FORMAT_INT4A8, STATUS_BAD_FILE, "'w_scale': element 8");
  refuse_four(four_file("F8_E8M0", powers, sizeof powers, -1, 0), GEMM_FORMAT_MXFP4, STATUS_BAD_FILE,
              "'w_scale': element 7");
  refuse_four(four_file("F16", f16, sizeof f16, 16, 9), GEMM_FORMAT_INT4, STATUS_BAD_FILE,
              "zero point 8 is 16, codes reach 15");
  refuse_four(four_file("F16", f16, sizeof f16, 3, 8), GEMM_FORMAT_INT4, STATUS_BAD_FILE,
              "'w_zero' is not a U8 or an F16");
  refuse_four(four_file("F32", f32, sizeof f32, -1, 0), GEMM_FORMAT_INT4, STATUS_UNSUPPORTED, "F16 or BF16 is needed");
  refuse_four(four_file("F16", f16, sizeof f16, -1, 0), GEMM_FORMAT_MXFP4, STATUS_UNSUPPORTED, "loads as int4");
  refuse_four(four_file("F16", f16, sizeof f16, -1, 0), GEMM_FORMAT_INT2, STATUS_UNSUPPORTED, "loads as int4");
  struct loading_file builder = {0};
  uint16_t codes[FOUR_N * 19] = {0};
  loading_add(&builder, "w", "U16", 2, FOUR_N, 19, codes, sizeof codes);
  loading_add(&builder, "w_scale", "F16", 2, FOUR_N, 4, (uint16_t[12]){0}, 24);
  refuse_four(loading_finish(&builder), GEMM_FORMAT_INT4, STATUS_UNSUPPORTED, "of shape [3, 4] is no known scale");
}

/* Scales of 0 are good: all of such a group is. */
static void test_zero_scales(void **state) {
  uint16_t zeros[9] = {0};
  expect_four(four_file("F16", zeros, sizeof zeros, -1, 0), GEMM_FORMAT_INT4A8, GEMM_SCALE_GROUP32, zeros,
              sizeof zeros);
}

/* The value of an element of what was loaded. */
static float four_value(const struct loaded *loaded, enum gemm_format format, enum gemm_scale scale, int64_t row,
                        int64_t k) {
  const struct gemm_weight shape = {.n = loaded->done.n, .k = loaded->done.k, .format = format, .scale = scale};
  int64_t group = gemm_scale_group(&shape);
  uint64_t index = (uint64_t)row * loaded->layout.scale_columns + (uint64_t)(k / group);
  int code = loading_row(loaded, row)[k / 2] >> k % 2 * 4 & 15;
  const uint8_t *zeros = loaded->bytes + loaded->layout.zeros_offset;
  float zero = loaded->layout.zeros_bytes > 0 ? gemm_zero_get(scale, zeros, index) : 8;
  float factor = gemm_scale_get(gemm_scale_type(&shape), loaded->bytes + loaded->layout.scales_offset, index);
  return factor * (format == GEMM_FORMAT_MXFP4 ? number_from_e2m1((uint8_t)code) : (float)code - zero);
}

/* The squared error of a method; every element is within half a step of the range, or of e2m1's steps. */
static double four_error(int fd, const float *values, int64_t n, int64_t k, enum gemm_format format,
                         enum gemm_scale scale, enum gemm_method method) {
  struct message_weight_load request = loading_request(format, scale);
  request.method = method;
  struct loaded loaded = loading_run(fd, &request, 2);
  double error = 0;
  for (int64_t i = 0; i < n * k; i++) {
    double off = (double)four_value(&loaded, format, scale, i / k, i % k) - (double)values[i];
    error += off * off;
  }
  loading_free(&loaded);
  return error;
}

static void test_four_bits_from_numbers(void **state) {
  static const int64_t ks[] = {1, 31, 33, 130, 300};
  for (int i = 0; i < 5; i++) {
    enum { N = 4 };
    float *values = loading_values(N * ks[i]);
    double all = 0;
    for (int64_t j = 0; j < N * ks[i]; j++)
      all += (double)values[j] * (double)values[j];
    int fd = loading_f32(values, N, ks[i]);
    for (int mode = GEMM_SCALE_ROW; mode < GEMM_SCALES; mode++) {
      enum gemm_scale scale = (enum gemm_scale)mode;
      if (!gemm_takes_scale(GEMM_FORMAT_INT4, scale))
        continue;
      double plain = four_error(fd, values, N, ks[i], GEMM_FORMAT_INT4, scale, GEMM_METHOD_ABSMAX);
      double fitted = four_error(fd, values, N, ks[i], GEMM_FORMAT_INT4, scale, GEMM_METHOD_LEAST_SQUARES);
      assert_true(plain < 0.03 * all && fitted < 0.02 * all && fitted <= plain * 1.0001);
    }
    double plain = four_error(fd, values, N, ks[i], GEMM_FORMAT_MXFP4, GEMM_SCALE_GROUP32, GEMM_METHOD_ABSMAX);
    double fitted = four_error(fd, values, N, ks[i], GEMM_FORMAT_MXFP4, GEMM_SCALE_GROUP32, GEMM_METHOD_LEAST_SQUARES);
    assert_true(plain < 0.06 * all && fitted <= plain);
    close(fd);
    free(values);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_stored_int2),
      cmocka_unit_test(test_one_group_a_row),
      cmocka_unit_test(test_any_k_from_numbers),
      cmocka_unit_test(test_stored_four_bits),
      cmocka_unit_test(test_real_zero_points),
      cmocka_unit_test(test_bad_four_bits),
      cmocka_unit_test(test_zero_scales),
      cmocka_unit_test(test_four_bits_from_numbers),
      cmocka_unit_test(test_numbers_are_those_of_the_file),
      cmocka_unit_test(test_parts_of_fused_tensors),
      cmocka_unit_test(test_the_rest_is_made_here),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
