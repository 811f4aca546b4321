/* Loads of what cannot be loaded: each is refused with its reason. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/loader/convert.h"
#include "tests/support/worker/loading.h"

static void test_values_are_refused_by_place(void **state) {
  enum { N = 600, K = 1000 };
  float *values = loading_values(N * K);
  struct message_weight_load request = loading_request(GEMM_FORMAT_INT8, GEMM_SCALE_ROW);
  values[590 * K + 1] = NAN;
  values[301 * K + 44] = INFINITY;
  values[301 * K + 45] = NAN;
  int fd = loading_f32(values, N, K);
  for (uint32_t format = GEMM_FORMAT_INT8; format < GEMM_FORMATS; format++) {
    request.format = format;
    request.scale = GEMM_SCALE_NONE;
    loading_refuse(fd, &request, STATUS_BAD_FILE, "inf in row 301, column 44 is not finite");
  }
  request.format = GEMM_FORMAT_FP8;
  request.scale = GEMM_SCALE_ONE;
  loading_refuse(fd, &request, STATUS_BAD_FILE, "inf in row 301, column 44 is not finite");
  request.scale = GEMM_SCALE_BLOCK;
  loading_refuse(fd, &request, STATUS_BAD_FILE, "inf in row 301, column 44 is not finite");
  close(fd);
  values[590 * K + 1] = values[301 * K + 44] = values[301 * K + 45] = 1.0f;
  values[3 * K + 2] = -70000.0f;
  fd = loading_f32(values, N, K);
  request = loading_request(GEMM_FORMAT_F16, GEMM_SCALE_NONE);
  loading_refuse(fd, &request, STATUS_BAD_FILE, "-70000 in row 3, column 2 is beyond f16");
  request = loading_request(GEMM_FORMAT_INT2, GEMM_SCALE_NONE);
  loading_refuse(fd, &request, STATUS_BAD_FILE, "-70000 in row 3, column 2 is beyond");
  close(fd);
  free(values);
}

static void refuse_stored(const char *dtype, uint8_t code, float first_scale, enum gemm_format format,
                          enum status status, const char *reason) {
  uint8_t codes[8] = {0};
  codes[6] = code;
  float scales[] = {1.0f, first_scale};
  struct loading_file builder = {0};
  loading_add(&builder, "w", dtype, 2, 2, 4, codes, sizeof codes);
  loading_add(&builder, "w_scale", "F32", 1, 2, 0, scales, sizeof scales);
  int fd = loading_finish(&builder);
  struct message_weight_load request = loading_request(format, GEMM_SCALE_NONE);
  loading_refuse(fd, &request, status, reason);
  close(fd);
}

static void test_stored_values_are_refused(void **state) {
  const enum gemm_format fp8 = GEMM_FORMAT_FP8, int8 = GEMM_FORMAT_INT8;
  refuse_stored("F8_E4M3", 0x7f, 1.0f, fp8, STATUS_BAD_FILE, "row 1, column 2");
  refuse_stored("F8_E4M3", 0xff, 1.0f, fp8, STATUS_BAD_FILE, "row 1, column 2");
  refuse_stored("F8_E4M3", 0x7e, -1.0f, fp8, STATUS_BAD_FILE, "'w_scale': element 1 is -1");
  refuse_stored("I8", 0, NAN, int8, STATUS_BAD_FILE, "'w_scale': element 1");
  refuse_stored("I8", 0, INFINITY, int8, STATUS_BAD_FILE, "'w_scale': element 1 is inf");
  refuse_stored("I8", 0, 1.0f, fp8, STATUS_UNSUPPORTED, "loads as int8, not as fp8");
  refuse_stored("F8_E4M3", 0, 1.0f, GEMM_FORMAT_F16, STATUS_UNSUPPORTED, "loads as fp8, not as f16");
  refuse_stored("U8", 0, 1.0f, GEMM_FORMAT_INT2, STATUS_UNSUPPORTED, "F16 is needed");
  refuse_stored("F8_E5M2", 0, 1.0f, fp8, STATUS_UNSUPPORTED, "F8_E5M2");
  refuse_stored("BOOL", 0, 1.0f, int8, STATUS_UNSUPPORTED, "BOOL");
}

/* The shape is said as the file has it. */
static void test_scales_of_a_wrong_shape(void **state) {
  const uint8_t codes[8] = {0};
  const float scales[] = {1, 1, 1, 1, 1, 1};
  for (int rank = 1; rank <= 2; rank++) {
    struct loading_file builder = {0};
    loading_add(&builder, "w", "I8", 2, 2, 4, codes, sizeof codes);
    loading_add(&builder, "w_scale", "F32", rank, rank == 1 ? 6 : 3, 2, scales, sizeof scales);
    int fd = loading_finish(&builder);
    struct message_weight_load request = loading_request(GEMM_FORMAT_INT8, GEMM_SCALE_NONE);
    loading_refuse(fd, &request, STATUS_UNSUPPORTED, rank == 1 ? "of shape [6] is no" : "of shape [3, 2] is no");
    close(fd);
  }
}

static void test_requests_are_refused(void **state) {
  const float values[] = {1, 2, 3, 4};
  const int8_t codes[] = {1, 2, 3, 4};
  struct loading_file builder = {0};
  loading_add(&builder, "w", "F32", 2, 2, 2, values, sizeof values);
  loading_add(&builder, "flat", "F32", 1, 4, 0, values, sizeof values);
  loading_add(&builder, "empty", "F32", 2, 0, 4, values, 0);
  loading_add(&builder, "bare", "I8", 2, 2, 2, codes, sizeof codes);
  loading_add(&builder, "q", "I8", 2, 2, 2, codes, sizeof codes);
  loading_add(&builder, "q_scale", "F32", 0, 0, 0, values, 4);
  loading_add(&builder, "q_zero_point", "I8", 1, 2, 0, codes, 2);
  int fd = loading_finish(&builder);
  struct message_weight_load request = loading_request(GEMM_FORMAT_INT8, GEMM_SCALE_ROW), other = request;
  strcpy(other.tensor, "x\033");
  loading_refuse(fd, &other, STATUS_NOT_FOUND, "no tensor 'x?'");
  strcpy(other.tensor, "");
  loading_refuse(fd, &other, STATUS_NOT_FOUND, "no tensor ''");
  strcpy(other.tensor, "flat");
  loading_refuse(fd, &other, STATUS_UNSUPPORTED, "1 dimension; a weight is a matrix [N, K]");
  strcpy(other.tensor, "q_scale");
  loading_refuse(fd, &other, STATUS_UNSUPPORTED, "0 dimensions");
  strcpy(other.tensor, "empty");
  loading_refuse(fd, &other, STATUS_INVALID, "N must be");
  strcpy(other.tensor, "bare");
  loading_refuse(fd, &other, STATUS_NOT_FOUND, "no scales of a usual name");
  strcpy(other.tensor, "q");
  loading_refuse(fd, &other, STATUS_UNSUPPORTED, "zero points");
  strcpy(other.scale_tensor, "nowhere");
  loading_refuse(fd, &other, STATUS_NOT_FOUND, "no tensor 'nowhere'");
  strcpy(other.scale_tensor, "bare");
  loading_refuse(fd, &other, STATUS_UNSUPPORTED, "scale tensor 'bare' is I8");
  other = request;
  strcpy(other.scale_tensor, "q_scale");
  loading_refuse(fd, &other, STATUS_INVALID, "has no scales");
  other = request;
  other.format = GEMM_FORMATS;
  loading_refuse(fd, &other, STATUS_INVALID, "format");
  other.format = GEMM_FORMAT_NONE;
  loading_refuse(fd, &other, STATUS_INVALID, "format");
  other = request;
  other.scale = GEMM_SCALE_BLOCK; /* not INT8's */
  loading_refuse(fd, &other, STATUS_INVALID, "scale mode");
  other.scale = 99;
  loading_refuse(fd, &other, STATUS_INVALID, "scale mode");
  other = request;
  other.method = GEMM_METHOD_TERNARY;
  loading_refuse(fd, &other, STATUS_UNSUPPORTED, "method ternary does not make int8");
  other.method = 4;
  loading_refuse(fd, &other, STATUS_UNSUPPORTED, "method unknown");
  other = loading_request(GEMM_FORMAT_INT2, GEMM_SCALE_GROUP);
  other.method = GEMM_METHOD_ABSMAX;
  loading_refuse(fd, &other, STATUS_UNSUPPORTED, "method absmax does not make int2");
  other = loading_request(GEMM_FORMAT_F16, GEMM_SCALE_NONE);
  other.method = GEMM_METHOD_ABSMAX;
  loading_refuse(fd, &other, STATUS_UNSUPPORTED, "method absmax does not make f16");
  close(fd);
}

static void test_descriptors_are_refused(void **state) {
  struct message_weight_load request = loading_request(GEMM_FORMAT_INT8, GEMM_SCALE_ROW);
  int ends[2];
  assert_int_equal(pipe(ends), 0);
  loading_refuse(ends[0], &request, STATUS_BAD_DESCRIPTOR, "regular file");
  close(ends[0]);
  close(ends[1]);
  int folder = open("/", O_RDONLY | O_DIRECTORY), null = open("/dev/null", O_RDONLY);
  loading_refuse(folder, &request, STATUS_BAD_DESCRIPTOR, "regular file");
  loading_refuse(null, &request, STATUS_BAD_DESCRIPTOR, "regular file");
  close(folder);
  close(null);
  loading_refuse(-1, &request, STATUS_BAD_DESCRIPTOR, "weights file");
  int empty = memfd_create("empty", MFD_CLOEXEC);
  loading_refuse(empty, &request, STATUS_BAD_FILE, "file has 0 bytes");
  close(empty);
  const float values[] = {1};
  int fd = loading_f32(values, 1, 1);
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  int write_only = open(path, O_WRONLY);
  assert_true(write_only >= 0);
  loading_refuse(write_only, &request, STATUS_BAD_DESCRIPTOR, "cannot be read");
  close(write_only);
  close(fd);
}

static void test_sparse_giant_is_refused(void **state) {
  /* A file of 512 TiB costs its maker nothing. */
  const char *json = "{\"w\":{\"dtype\":\"F32\",\"shape\":[16777216,8388608],\"data_offsets\":[0,562949953421312]}}";
  uint64_t length = strlen(json);
  int fd = memfd_create("sparse", MFD_CLOEXEC);
  assert_int_equal(write(fd, &length, 8), 8);
  assert_int_equal(write(fd, json, length), length);
  assert_int_equal(ftruncate(fd, (off_t)(8 + length + 562949953421312)), 0);
  struct message_weight_load request = loading_request(GEMM_FORMAT_FP8, GEMM_SCALE_ROW);
  loading_refuse(fd, &request, STATUS_NOMEM, "host memory");
  close(fd);
}

static void test_file_truncated_while_read(void **state) {
  enum { N = 8, K = 100 };
  float *values = loading_values(N * K);
  int fd = loading_f32(values, N, K);
  struct message_weight_load request = loading_request(GEMM_FORMAT_INT8, GEMM_SCALE_ROW);
  struct error error = {0};
  struct files files;
  struct source source;
  assert_int_equal(files_open(&files, &fd, 1, false, &error), STATUS_OK);
  assert_int_equal(source_resolve(&files.model, &request, 0, &source, &error), STATUS_OK);
  uint8_t *canonical = calloc(1, source.layout.total_bytes);
  assert_non_null(canonical);
  uint64_t end = source.pieces[0].from.tensor->tensor->begin + 123;
  assert_int_equal(ftruncate(fd, (off_t)end), 0);
  struct watch watch = {.total = convert_bytes(&source)};
  assert_int_equal(convert_run(&files, &source, canonical, 2, &watch, &error), STATUS_BAD_FILE);
  char expected[64];
  snprintf(expected, sizeof expected, "file ends at byte %llu", (unsigned long long)end);
  assert_non_null(strstr(error.text, expected));
  free(canonical);
  files_close(&files);
  close(fd);
  free(values);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_values_are_refused_by_place), cmocka_unit_test(test_stored_values_are_refused),
      cmocka_unit_test(test_scales_of_a_wrong_shape),     cmocka_unit_test(test_requests_are_refused),
      cmocka_unit_test(test_descriptors_are_refused),     cmocka_unit_test(test_sparse_giant_is_refused),
      cmocka_unit_test(test_file_truncated_while_read),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
