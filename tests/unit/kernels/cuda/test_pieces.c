/* How long products are cut: no piece is predicted to take longer than it may, but for the least of them. */
#include "kernels/cuda/exec/turns/pieces.h"
#include "proto/gemm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum { BUDGET_NS = 2000000 };

static const struct pieces_device h200 = {.operations_per_s = 1979000000000000, .bytes_per_s = 4800000000000};
static const struct pieces_device unknown;

static struct pieces_work of_weight(int64_t n, int64_t k, bool far) {
  return (struct pieces_work){.operations_a_row = 2.0 * (double)n * (double)k,
                              .weight_bytes = (uint64_t)(n * k),
                              .row_bytes = (uint64_t)(n + k) * 2,
                              .far = far};
}

static void within_budget(const struct pieces_device *device, const struct pieces_work *work, int64_t rows) {
  int64_t piece = pieces_rows(device, work, rows, BUDGET_NS);
  assert_in_range(piece, 1, rows);
  if (piece > GEMM_GROUP)
    assert_true(pieces_predict_ns(device, work, piece) <= BUDGET_NS);
  int64_t pieces = (rows + piece - 1) / piece;
  if (pieces > 1) /* whole groups of rows, and none that is left with a few */
    assert_true(piece % GEMM_GROUP == 0 || piece < GEMM_GROUP);
}

static void rows_of_weights(void **state) {
  static const int64_t sizes[] = {1, 128, 4096, 57344, 1 << 20}, rows[] = {1, 100, 129, 8192, 100000, 1 << 24};
  for (size_t n = 0; n < COUNT(sizes); n++)
    for (size_t k = 0; k < COUNT(sizes); k++)
      for (size_t m = 0; m < COUNT(rows); m++) {
        struct pieces_work work = of_weight(sizes[n], sizes[k], m % 2 == 0);
        within_budget(&h200, &work, rows[m]);
        within_budget(&unknown, &work, rows[m]);
      }
}

/* A layer's usual product is one piece, where x and y are on the device. */
static void usual_ones_stay_whole(void **state) {
  struct pieces_work work = of_weight(4096, 4096, false);
  assert_int_equal(pieces_rows(&h200, &work, 8192, BUDGET_NS), 8192);
  assert_true(pieces_predict_ns(&h200, &work, 64) < BUDGET_NS / 10);
}

/* Multiplying 8192 x 8192 x 16384 takes pieces; none of one row after the other. */
static void large_ones_are_cut(void **state) {
  struct pieces_work work = of_weight(8192, 16384, true);
  int64_t piece = pieces_rows(&h200, &work, 8192, BUDGET_NS);
  assert_in_range(piece, GEMM_GROUP, 2048);
}

/* Rows of 2^24 elements in the host's memory: 16 of them would be half a GiB on its way at a time. */
static void long_rows_go_alone(void **state) {
  struct pieces_work work = of_weight(16, 1 << 24, true);
  for (int64_t rows = 2; rows <= 4096; rows *= 2)
    assert_int_equal(pieces_rows(&h200, &work, rows, BUDGET_NS), 1);
  work.row_bytes /= 8;
  int64_t piece = pieces_rows(&h200, &work, 128, BUDGET_NS);
  assert_in_range(piece, 2, 16);
  assert_true(pieces_predict_ns(&h200, &work, piece) <= 2 * BUDGET_NS);
  /* W of 32 GiB is not read once more for each of them */
  work.weight_bytes = (uint64_t)32 << 30;
  assert_int_equal(pieces_rows(&h200, &work, 128, BUDGET_NS), 64);
}

static void copies_count(void **state) {
  struct pieces_work work = of_weight(1024, 1024, false);
  uint64_t before = pieces_predict_ns(&h200, &work, 1);
  work.copied_bytes = (uint64_t)1 << 30;
  assert_true(pieces_predict_ns(&h200, &work, 1) > before + 20000000);
}

static void panels(void **state) {
  static const struct {
    int64_t n;
    uint64_t row_bytes, bytes;
    int64_t panel;
  } cases[] = {
      {1, 64, 1 << 20, 1},
      {1000, 64, 1 << 20, 1000},
      {8192, 32768, 64 << 20, 2048},       /* four that are equal */
      {5000, 32768, 64 << 20, 1792},       /* three, whole groups */
      {100, 32 << 20, 64 << 20, 2},        /* rows of 2^24 */
      {7, (uint64_t)1 << 31, 64 << 20, 1}, /* a row that alone is longer */
  };
  for (size_t i = 0; i < COUNT(cases); i++)
    assert_int_equal(pieces_panel(cases[i].n, cases[i].row_bytes, cases[i].bytes), cases[i].panel);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows_of_weights),    cmocka_unit_test(usual_ones_stay_whole),
      cmocka_unit_test(large_ones_are_cut), cmocka_unit_test(long_rows_go_alone),
      cmocka_unit_test(copies_count),       cmocka_unit_test(panels),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
