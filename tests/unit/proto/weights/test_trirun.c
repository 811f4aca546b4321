/* Weights packed by TriRun, loaded from a safetensors file. They are packed here in the steps that TriRun's own packer
 * publishes, lists of indices and all, which the loader does not have. */
#include "proto/number.h"
#include "tests/support/worker/loading.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { LIST = 1024 };

static int code_of(int64_t n, int64_t k) {
  return (int)((uint32_t)(n * 2654435761u + k * 40503u) >> 11 & 3);
}

static uint16_t scale_of(int64_t n, int64_t group) {
  return number_to_f16((float)(1 + n * 3 + group) / 64.0f);
}

static void regroup(int *list, const int *order, int count) {
  int before[LIST];
  memcpy(before, list, sizeof before);
  for (int i = 0; i < LIST; i++)
    list[i] = before[i / count * count + order[i % count]];
}

/* Where the 1024 codes of 16 of K by 64 columns come from, in four tiles of 16 x 16. */
static void make_list(int *list) {
  static const int eights[] = {0, 2, 4, 6, 1, 3, 5, 7};
  static const int sixteens[] = {0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15};
  int count = 0;
  for (int lane = 0; lane < 32; lane++) {
    for (int tile = 0; tile < 4; tile++) {
      for (int block = 0; block < 2; block++) {
        int q = lane % 4, rows[] = {2 * q, 2 * q + 1, 2 * (q + 4), 2 * (q + 4) + 1};
        for (int i = 0; i < 4; i++)
          list[count++] = 256 * tile + 16 * rows[i] + lane / 4 + 8 * block;
      }
    }
  }
  regroup(list, eights, 8);
  regroup(list, sixteens, 16);
}

static uint32_t *pack_codes(int64_t n, int64_t k) {
  int list[LIST];
  uint32_t *words = calloc((size_t)(n * k / 16), sizeof *words);
  assert_non_null(words);
  make_list(list);
  for (int64_t row = 0; row < k / 16; row++) {
    for (int64_t i = 0; i < 16 * n; i++) { /* codes of one row of words, tile by tile */
      int64_t from = i / LIST
      *LIST
      +list[i % LIST], tile = from / 256;
      int code = code_of(tile * 16 + from % 16, row * 16 + from % 256 / 16);
      words[row * n + i / 16] |= (uint32_t)code << 2 * (i % 16);
    }
  }
  return words;
}

static uint16_t *pack_scales(int64_t n, int64_t groups) {
  static const int single[] = {0, 1, 8, 9, 16, 17, 24, 25};
  uint16_t *scales = calloc((size_t)(n * groups), sizeof *scales);
  assert_non_null(scales);
  for (int64_t group = 0; group < groups; group++) {
    for (int64_t i = 0; i < n; i++) {
      int64_t from = groups > 1 ? i / 64 * 64 + i % 64 / 8 + i % 8 * 8 : i / 32 * 32 + 2 * (i % 32 / 8) + single[i % 8];
      scales[group * n + i] = scale_of(from, group);
    }
  }
  return scales;
}

static int packed_file(const char *name, int64_t n, int64_t k, int64_t scale_rows) {
  struct loading_file builder = {0};
  uint32_t *words = pack_codes(n, k);
  uint16_t *scales = pack_scales(n, scale_rows);
  loading_add(&builder, name, "I32", 2, k / 16, n, words, (size_t)(n * k / 16) * sizeof *words);
  loading_add(&builder, "layer.s", "F16", 2, scale_rows, n, scales, (size_t)(n * scale_rows) * sizeof *scales);
  free(words);
  free(scales);
  return loading_finish(&builder);
}

static void check(enum gemm_format format, int64_t n, int64_t k, int64_t scale_rows) {
  int fd = packed_file("layer.B", n, k, scale_rows);
  struct message_weight_load request = loading_request(format, GEMM_SCALE_NONE);
  strcpy(request.tensor, "layer.B");
  struct loaded loaded = loading_run(fd, &request, 2);
  assert_int_equal(loaded.done.n, n);
  assert_int_equal(loaded.done.k, k);
  assert_int_equal(loaded.done.scale, scale_rows == 1 ? GEMM_SCALE_ROW : GEMM_SCALE_GROUP);
  for (int64_t i = 0; i < n; i++) {
    const uint8_t *row = loading_row(&loaded, i);
    for (int64_t j = 0; j < k; j++)
      assert_int_equal(row[j / 4] >> j % 4 * 2 & 3, code_of(i, j));
    for (int64_t group = 0; group < scale_rows; group++) {
      uint16_t scale;
      memcpy(&scale, loaded.bytes + loaded.layout.scales_offset + 2 * (i * scale_rows + group), sizeof scale);
      assert_int_equal(scale, scale_of(i, group));
    }
  }
  loading_free(&loaded);
  close(fd);
}

static void test_groups(void **state) {
  check(GEMM_FORMAT_INT2, 256, 256, 2);
  check(GEMM_FORMAT_INT2A8, 512, 384, 3);
  check(GEMM_FORMAT_INT2, 256, 128 * 300, 300); /* bands of the fewest columns */
}

static void test_one_scale_a_column(void **state) {
  check(GEMM_FORMAT_INT2, 256, 128, 1);
  check(GEMM_FORMAT_INT2, 768, 512, 1);
}

static void test_refused(void **state) {
  struct message_weight_load request = loading_request(GEMM_FORMAT_INT2, GEMM_SCALE_NONE);
  int fd = packed_file("layer.packed", 256, 256, 2);
  strcpy(request.tensor, "layer.packed");
  loading_refuse(fd, &request, STATUS_UNSUPPORTED, "that is taken as TriRun packs it alone, under the name B");
  close(fd);
  strcpy(request.tensor, "layer.B");
  fd = packed_file("layer.B", 320, 256, 2);
  loading_refuse(fd, &request, STATUS_UNSUPPORTED, "TriRun packs N in multiples of 256 and K of 128, got 320 x 256");
  close(fd);
  fd = packed_file("layer.B", 256, 384, 2);
  loading_refuse(fd, &request, STATUS_UNSUPPORTED, "[2, 256] is no scale of TriRun for 256 x 384");
  close(fd);
  fd = packed_file("layer.B", 256, 256, 2);
  request.scale = GEMM_SCALE_ROW;
  loading_refuse(fd, &request, STATUS_UNSUPPORTED, "is no row scale of TriRun");
  request = loading_request(GEMM_FORMAT_INT8, GEMM_SCALE_NONE);
  strcpy(request.tensor, "layer.B");
  loading_refuse(fd, &request, STATUS_UNSUPPORTED, "it loads as int2, not as int8");
  close(fd);
  struct loading_file builder = {0};
  uint32_t *words = pack_codes(256, 128);
  loading_add(&builder, "B", "I32", 2, 8, 256, words, 8 * 256 * sizeof *words);
  free(words);
  fd = loading_finish(&builder);
  request = loading_request(GEMM_FORMAT_INT2, GEMM_SCALE_NONE);
  strcpy(request.tensor, "B");
  loading_refuse(fd, &request, STATUS_NOT_FOUND, "the file has no scales of a usual name for it");
  close(fd);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_groups),
      cmocka_unit_test(test_one_scale_a_column),
      cmocka_unit_test(test_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
