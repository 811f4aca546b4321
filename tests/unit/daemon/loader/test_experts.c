/* Weights with experts: each must be what it would be as a weight by itself. */
#include "tests/support/worker/loading.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { E = 3, N = 133, K = 261 };

static const struct {
  enum gemm_format format;
  enum gemm_scale scale;
} kinds[] = {{GEMM_FORMAT_INT8, GEMM_SCALE_ONE},   {GEMM_FORMAT_INT8, GEMM_SCALE_ROW},
             {GEMM_FORMAT_FP8, GEMM_SCALE_BLOCK},  {GEMM_FORMAT_INT2, GEMM_SCALE_GROUP},
             {GEMM_FORMAT_INT2A8, GEMM_SCALE_ROW}, {GEMM_FORMAT_BF16, GEMM_SCALE_NONE}};

/* A file with "all" [E, N, K], and "e.0" .. [N, K] of the same numbers. */
static int make_file(const float *values) {
  struct loading_file file = {0};
  size_t one = (size_t)N * K;
  loading_add(&file, "all", "F32", 3, N, K, values, E * one * sizeof *values);
  for (int e = 0; e < E; e++) {
    char name[16];
    snprintf(name, sizeof name, "e.%d", e);
    loading_add(&file, name, "F32", 2, N, K, values + (size_t)e * one, one * sizeof *values);
  }
  return loading_finish(&file);
}

static struct message_weight_load request_of(int kind, const char *tensor, uint32_t experts, uint32_t expert) {
  struct message_weight_load request = loading_request(kinds[kind].format, kinds[kind].scale);
  snprintf(request.tensor, sizeof request.tensor, "%s", tensor);
  request.experts = experts;
  request.expert = expert;
  return request;
}

static void expect_expert(const struct loaded *all, int64_t place, const struct loaded *one) {
  const uint8_t *codes = all->bytes + (uint64_t)place * one->layout.codes_bytes;
  const uint8_t *scales = all->bytes + all->layout.scales_offset + (uint64_t)place * one->layout.scales_bytes;
  assert_memory_equal(codes, one->bytes, one->layout.codes_bytes);
  assert_memory_equal(scales, one->bytes + one->layout.scales_offset, one->layout.scales_bytes);
}

static void test_each_is_a_weight(void **state) {
  float *values = loading_values((int64_t)E * N * K);
  int fd = make_file(values);
  for (int kind = 0; kind < (int)(sizeof kinds / sizeof *kinds); kind++) {
    static const char *const names[] = {"all", "e.{}"};
    for (int i = 0; i < 2; i++) {
      struct message_weight_load request = request_of(kind, names[i], E, 0), rank = request_of(kind, names[i], 2, 1);
      struct loaded all = loading_run(fd, &request, 2), part = loading_run(fd, &rank, 1);
      assert_int_equal(all.done.experts, E);
      assert_int_equal(all.done.n, N);
      assert_int_equal(part.done.experts, 2);
      for (int e = 0; e < E; e++) {
        char name[16];
        snprintf(name, sizeof name, "e.%d", e);
        struct message_weight_load alone = request_of(kind, name, 0, 0);
        struct loaded one = loading_run(fd, &alone, 2);
        expect_expert(&all, e, &one);
        if (e > 0)
          expect_expert(&part, e - 1, &one);
        assert_memory_not_equal(all.done.hash, one.done.hash, sizeof one.done.hash);
        loading_free(&one);
      }
      assert_memory_not_equal(all.done.hash, part.done.hash, sizeof all.done.hash);
      loading_free(&all);
      loading_free(&part);
    }
  }
  close(fd);
  free(values);
}

/* Fused, and the part of a rank: of each expert rows of each tensor, or columns. */
static void test_ranks(void **state) {
  enum { ROWS = 8, COLUMNS = 32 };
  float *values = loading_values(2 * 2 * ROWS * COLUMNS);
  struct loading_file file = {0};
  for (int i = 0; i < 4; i++) {
    char name[16];
    snprintf(name, sizeof name, "%s.%d", i % 2 == 0 ? "gate" : "up", i / 2);
    loading_add(&file, name, "F32", 2, ROWS, COLUMNS, values + i * ROWS * COLUMNS, ROWS * COLUMNS * sizeof *values);
  }
  int fd = loading_finish(&file);
  for (int columns = 0; columns < 2; columns++) {
    struct message_weight_load request = request_of(1, "gate.{}", 2, 0);
    request.more_count = 1;
    strcpy(request.more[0].tensor, "up.{}");
    request.parts = 2;
    request.part = 1;
    request.columns = columns;
    struct loaded all = loading_run(fd, &request, 2);
    assert_int_equal(all.done.n, columns ? 2 * ROWS : ROWS);
    assert_int_equal(all.done.k, columns ? COLUMNS / 2 : COLUMNS);
    for (int e = 0; e < 2; e++) {
      struct message_weight_load alone = request;
      alone.experts = 0;
      snprintf(alone.tensor, sizeof alone.tensor, "gate.%d", e);
      snprintf(alone.more[0].tensor, sizeof alone.more[0].tensor, "up.%d", e);
      struct loaded one = loading_run(fd, &alone, 2);
      expect_expert(&all, e, &one);
      loading_free(&one);
    }
    loading_free(&all);
  }
  close(fd);
  free(values);
}

static void test_refused(void **state) {
  float *values = loading_values((int64_t)E * N * K);
  struct loading_file file = {0};
  loading_add(&file, "all", "F32", 3, N, K, values, (size_t)E * N * K * sizeof *values);
  loading_add(&file, "flat", "F32", 2, N, K, values, (size_t)N * K * sizeof *values);
  loading_add(&file, "codes", "I32", 3, 4, 4, values, 2 * 16 * sizeof *values);
  loading_add(&file, "e.0", "F32", 2, 4, 8, values, 32 * sizeof *values);
  loading_add(&file, "e.1", "F32", 2, 8, 4, values, 32 * sizeof *values);
  int fd = loading_finish(&file);
  struct message_weight_load request = request_of(1, "all", E + 1, 0);
  loading_refuse(fd, &request, STATUS_NOT_FOUND, "tensor 'all' has 3 experts, and none of number 3");
  request = request_of(1, "all", 1, UINT32_MAX);
  loading_refuse(fd, &request, STATUS_NOT_FOUND, "none of number 4294967295");
  request = request_of(1, "flat", 2, 0);
  loading_refuse(fd, &request, STATUS_UNSUPPORTED, "tensor 'flat' has 2 dimensions");
  request = request_of(1, "codes", 2, 0);
  loading_refuse(fd, &request, STATUS_UNSUPPORTED, "stacked experts are taken as F32, F16, BF16 or MXFP4");
  request = request_of(1, "e.{}", 2, 0);
  loading_refuse(fd, &request, STATUS_UNSUPPORTED, "'e.1' makes an expert of 8 x 4");
  request = request_of(1, "e.{}", 3, 0);
  loading_refuse(fd, &request, STATUS_UNSUPPORTED, "'e.1' makes an expert of 8 x 4");
  request = request_of(1, "e.{}", 2, 1);
  loading_refuse(fd, &request, STATUS_NOT_FOUND, "no tensor 'e.2'");
  request = request_of(1, "all", 0, 0);
  loading_refuse(fd, &request, STATUS_UNSUPPORTED, "3 dimensions");
  close(fd);
  free(values);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_each_is_a_weight),
      cmocka_unit_test(test_ranks),
      cmocka_unit_test(test_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
