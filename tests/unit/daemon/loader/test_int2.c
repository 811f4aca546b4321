/* INT2 as files have it: codes and scales that are stored so, what the shape of the scales stands for, and the K that
 * codes cannot have. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/number.h"
#include "tests/support/worker/loading.h"

static void test_stored_int2(void **state) {
  (void)state;
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
  (void)state;
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
  (void)state;
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

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_stored_int2),
      cmocka_unit_test(test_one_group_a_row),
      cmocka_unit_test(test_any_k_from_numbers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
