/* GPTQ against the algorithm as it was published, by inverses; the matrices below it against plain sums. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/number.h"
#include "proto/weights/gptq.h"
#include "proto/weights/matrix.h"
#include "proto/weights/quantize.h"
#include "proto/weights/quantize4.h"

enum { N = 13, K = 300, GROUPS = 3, ROWS = 700 }; /* a ragged group, and a ragged tile of rows */

static const struct gptq_grid grids[] = {{.int8 = false, .row = false},
                                         {.int8 = false, .row = true},
                                         {.int8 = true, .row = true},
                                         {.int4 = true, .row = false},
                                         {.int4 = true, .row = true}};
enum { GRIDS = sizeof grids / sizeof *grids };

static uint64_t random_state;

static double uniform(void) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return (double)(int32_t)(random_state >> 32) / 2147483648.0;
}

static double *doubles(size_t count) {
  double *values = calloc(count, sizeof *values);
  assert_non_null(values);
  return values;
}

/* Rows whose columns hang together, of very different sizes, as activations do. */
static double *activations(size_t rows) {
  double *x = doubles(rows * K);
  for (size_t row = 0; row < rows; row++) {
    double common = uniform();
    for (size_t i = 0; i < K; i++)
      x[row * K + i] =
          (0.7 * common + 0.3 * uniform() + (i > 0 ? 0.5 * x[row * K + i - 1] : 0.0)) * (i % 37 == 5 ? 6 : 1);
  }
  return x;
}

static double *hessian(const double *x, size_t rows) {
  double *h = doubles(K * K);
  matrix_add_gram(h, K, x, rows, 2);
  return h;
}

static float *weights(void) {
  float *w = malloc(N * K * sizeof *w);
  assert_non_null(w);
  for (size_t i = 0; i < N * K; i++)
    w[i] = (float)(uniform() + uniform() + uniform());
  return w;
}

static void test_gram_is_the_sum_of_products(void **state) {
  double *x = activations(ROWS), *h = hessian(x, ROWS), *twice = hessian(x, 500);
  matrix_add_gram(twice, K, x + 500 * K, ROWS - 500, 3);
  for (size_t i = 0; i < K; i += 7)
    for (size_t j = 0; j <= i; j += 3) {
      double sum = 0.0;
      for (size_t row = 0; row < ROWS; row++)
        sum += x[row * K + i] * x[row * K + j];
      assert_true(fabs(h[i * K + j] - sum) <= 1e-9 * ROWS);
      assert_true(fabs(twice[i * K + j] - sum) <= 1e-9 * ROWS);
    }
  free(x);
  free(h);
  free(twice);
}

static void test_cholesky_multiplies_back(void **state) {
  double *x = activations(ROWS), *h = hessian(x, ROWS), *l = hessian(x, ROWS), *scratch = doubles(K * MATRIX_COLUMNS);
  assert_true(matrix_cholesky(l, K, scratch, 3));
  for (size_t i = 0; i < K; i++)
    for (size_t j = 0; j <= i; j++) {
      double sum = 0.0;
      for (size_t c = 0; c <= j; c++)
        sum += l[i * K + c] * l[j * K + c];
      assert_true(fabs(sum - h[i * K + j]) <= 1e-12 * sqrt(h[i * K + i] * h[j * K + j]));
    }
  h[200 * K + 200] = -1.0;
  assert_false(matrix_cholesky(h, K, scratch, 3));
  free(x);
  free(h);
  free(l);
  free(scratch);
}

/* ---- the published algorithm, for one row, in the order that `gptq` has chosen */

/* upper U of inverse(h) = U^T U, h being damped and in order of processing. */
static double *upper_of_inverse(const double *h) {
  double *a = doubles(K * K), *inverse = doubles(K * K), *upper = doubles(K * K);
  memcpy(a, h, K * K * sizeof *a);
  for (size_t i = 0; i < K; i++)
    inverse[i * K + i] = 1.0;
  for (size_t p = 0; p < K; p++) { /* Gauss-Jordan; positive definite, so no pivoting */
    double pivot = a[p * K + p];
    for (size_t j = 0; j < K; j++) {
      a[p * K + j] /= pivot;
      inverse[p * K + j] /= pivot;
    }
    for (size_t i = 0; i < K; i++) {
      double factor = a[i * K + p];
      for (size_t j = 0; j < K && i != p && factor != 0.0; j++) {
        a[i * K + j] -= factor * a[p * K + j];
        inverse[i * K + j] -= factor * inverse[p * K + j];
      }
    }
  }
  for (size_t i = 0; i < K; i++)
    for (size_t j = i; j < K; j++) {
      double sum = inverse[i * K + j];
      for (size_t c = 0; c < i; c++)
        sum -= upper[c * K + i] * upper[c * K + j];
      upper[i * K + j] = i == j ? sqrt(sum) : sum / upper[i * K + i];
    }
  free(a);
  free(inverse);
  return upper;
}

static double code_of(const struct gptq_grid *grid, double value, double scale) {
  double least = grid->int8 ? -127.0 : grid->int4 ? -8.0 : -1.0, most = grid->int8 ? 127.0 : grid->int4 ? 7.0 : 2.0;
  return fmin(fmax(rint(value / scale), least), most);
}

/* The scale that a whole row, or a group, is quantized with before anything is searched. */
static double first_scale(const struct gptq_grid *grid, const float *values, size_t count) {
  uint8_t fitted[K];
  uint32_t sorted[2 * K];
  if (grid->int8)
    return (double)number_scale_int8(quantize_absmax(values, count));
  if (grid->int4)
    return (double)quantize_int4(&(struct quantize4){.search = true}, values, count, fitted, &(uint8_t){0});
  return (double)number_from_f16(quantize_least_squares(values, count, sorted, fitted));
}

static void published(const struct gptq *gptq, const struct gptq_grid *grid, const double *h, double damping,
                      const float *w, int8_t *codes, float *scales) {
  double *ordered = doubles(K * K), *row = doubles(K), trace = 0.0;
  size_t column[K], place = 0;
  for (size_t i = 0; i < K; i++) {
    column[i] = gptq->column[K - 1 - i];
    trace += h[i * K + i];
  }
  for (size_t i = 0; i < K; i++)
    for (size_t j = 0; j < K; j++) {
      size_t a = column[i], b = column[j];
      ordered[i * K + j] = (a > b ? h[a * K + b] : h[b * K + a]) + (i == j ? damping * trace / K : 0.0);
    }
  double *upper = upper_of_inverse(ordered);
  for (size_t i = 0; i < K; i++)
    row[i] = (double)w[column[i]];
  for (size_t g = GROUPS; g-- > 0;) {
    size_t group = gptq->group[g], count = K - group * 128 < 128 ? K - group * 128 : 128;
    float target[128];
    for (size_t i = 0; i < count; i++) /* as gptq.c has them, so that ties fall alike */
      target[count - 1 - i] = (float)row[place + i];
    double scale = grid->row ? first_scale(grid, w, K) : first_scale(grid, target, count);
    scales[grid->row ? 0 : group] = (float)scale;
    for (size_t i = place; i < place + count; i++) {
      double code = code_of(grid, row[i], scale);
      double wrong = (row[i] - code * scale) / upper[i * K + i];
      codes[column[i]] = (int8_t)code;
      for (size_t j = i + 1; j < K; j++)
        row[j] -= wrong * upper[i * K + j];
    }
    place += count;
  }
  free(ordered);
  free(row);
  free(upper);
}

static void test_codes_are_those_of_the_published_algorithm(void **state) {
  struct error error;
  struct gptq gptq;
  double *x = activations(ROWS), *h = hessian(x, ROWS);
  float *w = weights();
  int8_t codes[N * K], expected[K];
  float scales[N * GROUPS], expected_scales[GROUPS];
  struct gptq_weight weight = {.w = w, .n = N, .k = K, .codes = codes, .scales = scales};
  assert_int_equal(gptq_prepare(&gptq, h, K, 0.01, 2, &error), STATUS_OK);
  for (size_t i = 0; i < GRIDS; i++) {
    size_t count = gptq_scales(&grids[i], K);
    assert_int_equal(count, grids[i].row ? 1 : GROUPS);
    assert_int_equal(gptq_quantize(&gptq, &grids[i], &weight, 2, &error), STATUS_OK);
    for (size_t row = 0; row < N; row++) {
      published(&gptq, &grids[i], h, 0.01, w + row * K, expected, expected_scales);
      assert_memory_equal(scales + row * count, expected_scales, count * sizeof *scales);
      assert_memory_equal(codes + row * K, expected, sizeof expected);
    }
  }
  gptq_free(&gptq);
  free(x);
  free(h);
  free(w);
}

static void test_order_is_by_the_diagonal_within_and_between_groups(void **state) {
  struct error error;
  struct gptq gptq;
  double *h = doubles(K * K);
  for (size_t i = 0; i < K; i++)
    h[i * K + i] = i < 128 ? 1.0 : i < 256 ? 3.0 : 2.0;
  h[130 * K + 130] = 9.0;
  h[200 * K + 200] = 8.0;
  assert_int_equal(gptq_prepare(&gptq, h, K, 0.01, 1, &error), STATUS_OK);
  assert_int_equal(gptq.group[2], 1);
  assert_int_equal(gptq.group[1], 0); /* 128 columns of 1 weigh more than 44 of 2 */
  assert_int_equal(gptq.group[0], 2);
  assert_int_equal(gptq.column[K - 1], 130);
  assert_int_equal(gptq.column[K - 2], 200);
  assert_int_equal(gptq.column[K - 3], 128);
  assert_int_equal(gptq.column[K - 129], 0);
  gptq_free(&gptq);
  free(h);
}

/* Where columns have nothing to do with each other, no error can be taken back. */
static void test_independent_columns_are_rounded(void **state) {
  struct error error;
  struct gptq gptq;
  double *h = doubles(K * K);
  float *w = weights();
  int8_t codes[N * K], rounded[N * K];
  float scales[N * GROUPS] = {0}, rounded_scales[N * GROUPS] = {0};
  struct gptq_weight weight = {.w = w, .n = N, .k = K, .codes = codes, .scales = scales}, plain = weight;
  plain.codes = rounded;
  plain.scales = rounded_scales;
  for (size_t i = 0; i < K; i++)
    h[i * K + i] = 1.0 + (double)(i % 11);
  assert_int_equal(gptq_prepare(&gptq, h, K, 0.01, 2, &error), STATUS_OK);
  for (size_t i = 0; i < GRIDS; i++) {
    assert_int_equal(gptq_quantize(&gptq, &grids[i], &weight, 2, &error), STATUS_OK);
    assert_int_equal(gptq_round(&grids[i], &plain, 2, &error), STATUS_OK);
    assert_memory_equal(codes, rounded, sizeof codes);
    assert_memory_equal(scales, rounded_scales, sizeof scales);
  }
  gptq_free(&gptq);
  free(h);
  free(w);
}

/* The error is that of the products themselves. */
static double error_of_products(const double *x, size_t rows, const struct gptq_grid *grid,
                                const struct gptq_weight *weight) {
  double wrong = 0.0, whole = 0.0;
  size_t count = gptq_scales(grid, K);
  for (size_t row = 0; row < rows; row++)
    for (size_t n = 0; n < N; n++) {
      double y = 0.0, difference = 0.0;
      for (size_t i = 0; i < K; i++) {
        double q = (double)weight->scales[n * count + (count > 1 ? i / 128 : 0)] * weight->codes[n * K + i];
        y += x[row * K + i] * (double)weight->w[n * K + i];
        difference += x[row * K + i] * ((double)weight->w[n * K + i] - q);
      }
      whole += y * y;
      wrong += difference * difference;
    }
  return sqrt(wrong / whole);
}

static void test_output_error_is_lower_also_for_rows_not_seen(void **state) {
  struct error error;
  struct gptq gptq;
  double *x = activations(ROWS), *h = hessian(x, ROWS), *other = activations(200), *unseen = hessian(other, 200);
  float *w = weights();
  int8_t codes[N * K], again[N * K];
  float scales[N * GROUPS], scales_again[N * GROUPS];
  struct gptq_weight weight = {.w = w, .n = N, .k = K, .codes = codes, .scales = scales}, same = weight;
  same.codes = again;
  same.scales = scales_again;
  double rounded, chosen;
  assert_int_equal(gptq_prepare(&gptq, h, K, 0.01, 1, &error), STATUS_OK);
  for (size_t i = 0; i < 2 * GRIDS; i++) {
    struct gptq_grid grid = grids[i / 2];
    grid.search = i % 2 == 1;
    size_t bytes = N * gptq_scales(&grid, K) * sizeof *scales;
    assert_int_equal(gptq_round(&grid, &weight, 1, &error), STATUS_OK);
    assert_int_equal(gptq_error(unseen, &grid, &weight, 2, &rounded, &error), STATUS_OK);
    assert_int_equal(gptq_quantize(&gptq, &grid, &weight, 1, &error), STATUS_OK);
    assert_int_equal(gptq_error(unseen, &grid, &weight, 1, &chosen, &error), STATUS_OK);
    assert_true(chosen < 0.75 * rounded);
    assert_int_equal(gptq_quantize(&gptq, &grid, &same, 3, &error), STATUS_OK);
    assert_memory_equal(codes, again, sizeof codes);
    assert_memory_equal(scales, scales_again, bytes);
    assert_true(fabs(chosen - error_of_products(other, 200, &grid, &weight)) < 1e-9);
  }
  gptq_free(&gptq);
  free(x);
  free(h);
  free(other);
  free(unseen);
  free(w);
}

/* On the rows that were seen, the best of the multiples of a row is no worse than the first; outliers are clipped. */
static void test_scales_are_searched(void **state) {
  struct error error;
  struct gptq gptq;
  double *x = activations(ROWS), *h = hessian(x, ROWS), plain, searched;
  float *w = weights();
  int8_t codes[N * K];
  float scales[N * GROUPS], first[N * GROUPS];
  struct gptq_weight weight = {.w = w, .n = N, .k = K, .codes = codes, .scales = first};
  for (size_t row = 0; row < N; row++) /* one that no output hangs on */
    w[row * K + 70] *= 40.0f;
  for (size_t i = 0; i < K; i++)
    h[(i > 70 ? i : 70) * K + (i > 70 ? 70 : i)] *= i == 70 ? 1e-6 : 1e-3;
  assert_int_equal(gptq_prepare(&gptq, h, K, 1e-6, 1, &error), STATUS_OK);
  for (size_t i = 0; i < GRIDS; i++) {
    struct gptq_grid grid = grids[i];
    weight.scales = first;
    assert_int_equal(gptq_quantize(&gptq, &grid, &weight, 1, &error), STATUS_OK);
    assert_int_equal(gptq_error(h, &grid, &weight, 1, &plain, &error), STATUS_OK);
    grid.search = true;
    weight.scales = scales;
    assert_int_equal(gptq_quantize(&gptq, &grid, &weight, 1, &error), STATUS_OK);
    assert_int_equal(gptq_error(h, &grid, &weight, 1, &searched, &error), STATUS_OK);

    assert_true(searched < (grid.row ? 0.95 : 1.0) * plain);
    if (grid.int8)
      assert_true(scales[0] < first[0]);
  }
  gptq_free(&gptq);
  free(x);
  free(h);
  free(w);
}

static void test_refusals(void **state) {
  struct error error;
  struct gptq gptq;
  double *h = doubles(K * K);
  assert_int_equal(gptq_prepare(&gptq, h, K, 0.01, 1, &error), STATUS_INVALID);
  assert_string_equal(error.text, "the calibration rows are all zero");
  gptq_free(&gptq);
  for (size_t i = 0; i < K; i++)
    h[i * K + i] = 1.0;
  h[1 * K + 0] = 4.0;
  assert_int_equal(gptq_prepare(&gptq, h, K, 0.01, 1, &error), STATUS_INVALID);
  assert_string_equal(error.text, "the Hessian is not positive definite with a damping of 0.01");
  gptq_free(&gptq);
  free(h);
}

/* Columns that are never anything but 0 are rounded as they are. */
static void test_dead_columns(void **state) {
  struct error error;
  struct gptq gptq;
  double *x = activations(ROWS);
  for (size_t row = 0; row < ROWS; row++)
    for (size_t i = 128; i < 256; i++)
      x[row * K + i] = 0.0;
  double *h = hessian(x, ROWS);
  float *w = weights();
  int8_t codes[N * K], rounded[N * K];
  float scales[N * GROUPS], rounded_scales[N * GROUPS];
  struct gptq_weight weight = {.w = w, .n = N, .k = K, .codes = codes, .scales = scales}, plain = weight;
  plain.codes = rounded;
  plain.scales = rounded_scales;
  assert_int_equal(gptq_round(&grids[0], &plain, 1, &error), STATUS_OK);
  assert_int_equal(gptq_prepare(&gptq, h, K, 0.01, 2, &error), STATUS_OK);
  assert_int_equal(gptq_quantize(&gptq, &grids[0], &weight, 2, &error), STATUS_OK);
  for (size_t row = 0; row < N; row++) {
    assert_true(scales[row * GROUPS + 1] == rounded_scales[row * GROUPS + 1]);
    assert_memory_equal(codes + row * K + 128, rounded + row * K + 128, 128);
  }
  gptq_free(&gptq);
  free(x);
  free(h);
  free(w);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_gram_is_the_sum_of_products),
      cmocka_unit_test(test_cholesky_multiplies_back),
      cmocka_unit_test(test_codes_are_those_of_the_published_algorithm),
      cmocka_unit_test(test_order_is_by_the_diagonal_within_and_between_groups),
      cmocka_unit_test(test_independent_columns_are_rounded),
      cmocka_unit_test(test_output_error_is_lower_also_for_rows_not_seen),
      cmocka_unit_test(test_scales_are_searched),
      cmocka_unit_test(test_refusals),
      cmocka_unit_test(test_dead_columns),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
