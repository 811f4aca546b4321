/* Products whose W comes from the arena, asked of every backend: ragged and strided, tall in K, one after the other
 * with stored weights between, the same bits twice. */
#include "kernels/backend.h"
#include "kernels/operands.h"
#include "tests/support/reference/oracle.h"
#include "tests/support/worker/device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))
#define SLAB_BYTES ((uint64_t)8 << 20)

enum { VARIANTS_MOST = 64 };

static struct device device;

static const struct {
  int64_t m, n, k, w_extra, x_extra, y_extra; /* extra elements between rows */
} sizes[] = {
    {1, 1, 1, 0, 0, 0},      {5, 17, 33, 0, 0, 0},     {64, 64, 256, 0, 0, 0},   {70, 130, 100, 12, 3, 5},
    {33, 48, 1000, 8, 0, 1}, {64, 64, 25088, 0, 0, 0}, {17, 40, 32768, 0, 0, 0},
};

static uint64_t place(uint64_t *used, uint64_t bytes) {
  uint64_t begin = *used;
  *used = (begin + bytes + 127) / 64 * 64; /* and a guard */
  return begin;
}

static void copy_rows(uint8_t *to, uint64_t stride, const void *from, uint64_t row_bytes, uint64_t from_stride,
                      int64_t rows) {
  for (int64_t row = 0; row < rows; row++)
    memcpy(to + (uint64_t)row * stride, (const uint8_t *)from + (uint64_t)row * from_stride, row_bytes);
}

/* Dense y, after a look at what lies between its rows. */
static void *collect(const struct backend_job *job, int64_t n) {
  uint64_t row_bytes = (uint64_t)n * gemm_type_bytes(job->y_type);
  uint8_t *out = malloc((uint64_t)job->m * row_bytes);
  assert_non_null(out);
  for (int64_t row = 0; row < job->m; row++) {
    const uint8_t *from = (const uint8_t *)job->y + (uint64_t)row * job->y_stride;
    memcpy(out + (uint64_t)row * row_bytes, from, row_bytes);
    for (uint64_t i = row_bytes; i < job->y_stride; i++)
      assert_int_equal(from[i], 0xfd);
  }
  return out;
}

/* `variant`: NULL, or what was found for stored weights of this shape. */
static void one(int size, enum gemm_format format, enum gemm_type y_type, const struct variant *variant) {
  int64_t m = sizes[size].m, n = sizes[size].n, k = sizes[size].k;
  enum gemm_type type = format == GEMM_FORMAT_F16 ? GEMM_F16 : GEMM_BF16;
  struct gemm_weight shape = {.n = n, .k = k, .format = format, .scale = GEMM_SCALE_NONE};
  struct oracle_weight weight;
  struct oracle_x x;
  oracle_weight_make(&weight, &shape, (uint64_t)size + 1);
  oracle_x_make(&x, m, k, type, 1, 9);
  double *values = oracle_x_values(&x, &shape, false);
  double *reference = oracle_product(values, m, &weight, NULL);
  uint64_t row = (uint64_t)k * 2, w_stride = row + 2 * (uint64_t)sizes[size].w_extra, used = 0;
  uint64_t y_element = gemm_type_bytes(y_type), y_stride = (uint64_t)(n + sizes[size].y_extra) * y_element;
  uint64_t x_stride = row + 2 * (uint64_t)sizes[size].x_extra;
  uint64_t w_at = place(&used, (uint64_t)n * w_stride), x_at = place(&used, (uint64_t)m * x_stride);
  uint64_t y_at = place(&used, (uint64_t)m * y_stride);
  memset(device.base, 0xfd, used);
  copy_rows(device.base + w_at, w_stride, weight.canonical, row, weight.layout.row_bytes, n);
  copy_rows(device.base + x_at, x_stride, x.data, row, row, m);
  struct backend_operand operand = {.shape = shape, .w = device.base + w_at, .stride = w_stride};
  struct backend_job job = {.tag = 7,
                            .operand = &operand,
                            .arena = device.arena,
                            .variant = variant,
                            .m = m,
                            .x_type = type,
                            .y_type = y_type,
                            .x = device.base + x_at,
                            .y = device.base + y_at,
                            .x_stride = x_stride,
                            .y_stride = y_stride};
  device_finish(&device, &job);
  uint8_t *first = collect(&job, n);
  memset(device.base + y_at, 0xfd, (uint64_t)m * y_stride);
  device_finish(&device, &job);
  uint8_t *second = collect(&job, n);
  assert_memory_equal(first, second, (uint64_t)(m * n) * y_element);
  for (int64_t i = 0; i < m; i++) {
    double error = oracle_row_error(format, reference + i * n, first + (uint64_t)(i * n) * y_element, y_type, n);
    double limit = oracle_row_gate(&shape, y_type, reference + i * n);
    if (!(error <= limit))
      fail_msg("%s M %lld N %lld K %lld, y %s: row %lld is off by %.3g, allowed %.3g", gemm_format_name(format),
               (long long)m, (long long)n, (long long)k, gemm_type_name(y_type), (long long)i, error, limit);
  }
  free(first);
  free(second);
  free(reference);
  free(values);
  oracle_x_free(&x);
  oracle_weight_free(&weight);
}

/* ---- by columns, in batches, added to y */

static const struct {
  int64_t m, n, k;
  uint64_t extra; /* elements between lines */
} form_sizes[] = {{1, 1, 1, 0},      {5, 17, 33, 0},    {64, 64, 256, 0},
                  {70, 130, 100, 3}, {65, 48, 1000, 1}, {17, 40, 70000, 0}};

/* Row-major [rows, k] of 16-bit elements as they lie by columns, or as they are. */
static void lay(uint8_t *to, uint64_t stride, const uint16_t *from, int64_t rows, int64_t k, bool turned) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < k; j++)
      memcpy(to + (turned ? (uint64_t)j * stride + (uint64_t)i * 2 : (uint64_t)i * stride + (uint64_t)j * 2),
             &from[i * k + j], 2);
}

/* Memory of another process, which is the device's where that has some. */
struct foreign {
  struct backend_slab *slab;
  struct backend_arena *memory;
  uint8_t *address;
  int fd;
};

static void foreign_open(struct foreign *foreign, uint64_t bytes) {
  struct backend_info info;
  struct error error;
  void *address = NULL;
  device.ops->describe(device.backend, &info);
  uint64_t whole = (bytes + info.slab_granularity - 1) / info.slab_granularity * info.slab_granularity;
  assert_int_equal(device.ops->slab_create(device.backend, whole, &foreign->fd, &foreign->slab, &error), STATUS_OK);
  if (device.ops->memory_import(device.backend, foreign->fd, whole, &foreign->memory, &address, &error) != STATUS_OK)
    fail_msg("%s", error.text);
  foreign->address = address;
}

static void foreign_close(struct foreign *foreign) {
  device.ops->memory_close(device.backend, foreign->memory);
  device.ops->slab_close(device.backend, foreign->slab);
  close(foreign->fd);
}

/* Lines of f16 at an offset of the arena to the same one of the memory, by a product with the identity. */
static void copy_lines(const struct foreign *foreign, uint64_t at, int64_t lines, int64_t elements, uint64_t stride,
                       uint64_t identity_at) {
  uint16_t *identity = (uint16_t *)(void *)(device.base + identity_at);
  memset(identity, 0, (uint64_t)(elements * elements) * 2);
  for (int64_t i = 0; i < elements; i++)
    identity[i * elements + i] = 0x3c00; /* 1 */
  struct backend_operand operand = {
      .shape = {.n = elements, .k = elements, .format = GEMM_FORMAT_F16, .scale = GEMM_SCALE_NONE},
      .w = identity,
      .stride = (uint64_t)elements * 2};
  struct backend_job job = {.operand = &operand,
                            .arena = device.arena,
                            .y_memory = foreign->memory,
                            .m = lines,
                            .x_type = GEMM_F16,
                            .y_type = GEMM_F16,
                            .x = device.base + at,
                            .y = foreign->address + at,
                            .x_stride = stride,
                            .y_stride = stride};
  device_finish(&device, &job);
}

/* Lays W and as many rows of x as the form says, and returns their product, for the caller to free. */
static double *lay_both(const struct oracle_weight *weight, int64_t m, uint64_t seed, const struct tensors_form *form,
                        uint8_t *x_at, uint64_t x_stride, uint8_t *w_at, uint64_t w_stride) {
  int64_t n = weight->shape.n, k = weight->shape.k;
  struct oracle_x x;
  oracle_x_make(&x, m, k, GEMM_F16, 1, seed);
  double *values = oracle_x_values(&x, &weight->shape, false), *product = oracle_product(values, m, weight, NULL);
  uint16_t *dense = malloc((uint64_t)(n * k) * 2);
  assert_non_null(dense);
  copy_rows((uint8_t *)dense, (uint64_t)k * 2, weight->canonical, (uint64_t)k * 2, weight->layout.row_bytes, n);
  lay(w_at, w_stride, dense, n, k, form->w_turned);
  lay(x_at, x_stride, x.data, m, k, form->x_turned);
  free(dense);
  free(values);
  oracle_x_free(&x);
  return product;
}

/* Products of tensors with the same numbers, wherever they lie, give the sums of those that lie by rows. `foreign`: x
 * and W lie there; NULL: in the arena. `variant`: NULL, or what was found for such a product. */
static void one_form(int size, const struct tensors_form *asked, enum gemm_type y_type, const struct foreign *foreign,
                     const struct variant *variant) {
  int64_t m = form_sizes[size].m, n = form_sizes[size].n, k = form_sizes[size].k;
  int64_t batch = k > 10000 && asked->batch > 1 ? 2 : asked->batch;
  struct tensors_form form = *asked;
  form.batch = batch;
  uint64_t extra = 2 * form_sizes[size].extra, y_bytes = gemm_type_bytes(y_type), used = 0;
  uint64_t x_stride = (uint64_t)(form.x_turned ? m : k) * 2 + extra,
           w_stride = (uint64_t)(form.w_turned ? n : k) * 2 + extra;
  uint64_t y_stride = (uint64_t)n * y_bytes + form_sizes[size].extra * y_bytes;
  form.x_step = x_stride * (uint64_t)(form.x_turned ? k : m) + 2;
  form.w_step = w_stride * (uint64_t)(form.w_turned ? k : n) + 6;
  form.y_step = y_stride * (uint64_t)m + 4 * y_bytes;
  uint64_t x_at = place(&used, form.x_step * (uint64_t)batch), w_at = place(&used, form.w_step * (uint64_t)batch);
  uint64_t y_at = place(&used, form.y_step * (uint64_t)batch);
  memset(device.base, 0xfd, used);
  struct gemm_weight shape = {.n = n, .k = k, .format = GEMM_FORMAT_F16, .scale = GEMM_SCALE_NONE};
  double *references[3];
  assert_true(batch <= 3);
  for (int64_t i = 0; i < batch; i++) {
    struct oracle_weight weight;
    oracle_weight_make(&weight, &shape, (uint64_t)(size * 8 + i));
    references[i] = lay_both(&weight, m, (uint64_t)(9 + i), &form, device.base + x_at + (uint64_t)i * form.x_step,
                             x_stride, device.base + w_at + (uint64_t)i * form.w_step, w_stride);
    oracle_weight_free(&weight);
    for (int64_t row = 0; row < m && form.add; row++)
      for (int64_t column = 0; column < n; column++) {
        float held = (float)((row * 7 + column * 3 + i) % 11) - 5;
        operands_put(device.base + y_at + (uint64_t)i * form.y_step + (uint64_t)row * y_stride, column, y_type, held);
        references[i][row * n + column] += held;
      }
  }
  struct backend_operand operand = {.shape = shape, .w = device.base + w_at, .stride = w_stride, .form = form};
  for (int64_t i = 0; i < batch && foreign != NULL; i++) {
    uint64_t at = (uint64_t)i;
    copy_lines(foreign, x_at + at * form.x_step, form.x_turned ? k : m, form.x_turned ? m : k, x_stride, used);
    copy_lines(foreign, w_at + at * form.w_step, form.w_turned ? k : n, form.w_turned ? n : k, w_stride, used);
  }
  if (foreign != NULL) {
    operand.memory = foreign->memory;
    operand.w = foreign->address + w_at;
  }
  struct backend_job job = {.tag = 7,
                            .operand = &operand,
                            .arena = device.arena,
                            .variant = variant,
                            .x_memory = foreign != NULL ? foreign->memory : NULL,
                            .m = m,
                            .x_type = GEMM_F16,
                            .y_type = y_type,
                            .x = (foreign != NULL ? foreign->address : device.base) + x_at,
                            .y = device.base + y_at,
                            .x_stride = x_stride,
                            .y_stride = y_stride};
  device_finish(&device, &job);
  for (int64_t i = 0; i < batch; i++) {
    for (int64_t row = 0; row < m; row++) {
      const uint8_t *y = device.base + y_at + (uint64_t)i * form.y_step + (uint64_t)row * y_stride;
      const double *should = references[i] + row * n;
      double error = oracle_row_error(GEMM_FORMAT_F16, should, y, y_type, n);
      double limit = oracle_row_gate(&shape, y_type, should);
      if (!(error <= limit))
        fail_msg("%s%s%s batch %lld M %lld N %lld K %lld, y %s: row %lld of product %lld is off by %.3g, allowed %.3g",
                 form.x_turned ? "x by columns, " : "", form.w_turned ? "W by columns, " : "",
                 form.add ? "added, " : "", (long long)batch, (long long)m, (long long)n, (long long)k,
                 gemm_type_name(y_type), (long long)row, (long long)i, error, limit);
      bool last = row == m - 1;
      for (uint64_t at = (uint64_t)n * y_bytes; at < (last ? (uint64_t)n * y_bytes + 4 * y_bytes : y_stride); at++)
        assert_int_equal(y[at], 0xfd);
    }
    free(references[i]);
  }
}

static void all_forms(int size, const struct foreign *foreign) {
  static const enum gemm_type y_types[] = {GEMM_F32, GEMM_F16, GEMM_BF16};
  for (int bits = 0; bits < 16; bits++) {
    const struct tensors_form form = {
        .x_turned = bits & 1, .w_turned = bits & 2, .add = bits & 4, .batch = bits & 8 ? 3 : 1};
    one_form(size, &form, y_types[(size + bits) % COUNT(y_types)], foreign, NULL);
  }
}

static void test_forms(void **state) {
  for (int size = 0; size < COUNT(form_sizes); size++)
    all_forms(size, NULL);
}

static void test_forms_in_memory(void **state) {
  struct foreign foreign;
  foreign_open(&foreign, (uint64_t)8 << 20);
  for (int size = 0; size < COUNT(form_sizes); size++)
    if (form_sizes[size].k <= 1000)
      all_forms(size, &foreign);
  foreign_close(&foreign);
}

/* As the tuner does it: all that is listed for a form computes it, wherever the tensors lie, and can be timed. */
static void test_every_variant_of_a_form(void **state) {
  enum { SIZE = 2 };
  const struct backend_ops *ops = device.ops;
  struct foreign foreign;
  foreign_open(&foreign, (uint64_t)2 << 20);
  for (int bits = 0; bits < 4; bits++) {
    const struct tensors_form form = {.x_turned = bits & 1, .w_turned = bits & 2, .batch = 1};
    const struct variant_problem problem = {
        .weight = {.n = form_sizes[SIZE].n,
                   .k = form_sizes[SIZE].k,
                   .format = GEMM_FORMAT_F16,
                   .scale = GEMM_SCALE_NONE},
        .m = form_sizes[SIZE].m,
        .x_type = GEMM_F16,
        .y_type = GEMM_F32,
        .tensors = {.given = true, .x_turned = form.x_turned, .w_turned = form.w_turned, .align = 16}};
    struct variant variants[VARIANTS_MOST];
    struct error error;
    struct backend_operand operand = {.shape = problem.weight, .form = form};
    struct backend_job job = {.operand = &operand,
                              .arena = device.arena,
                              .m = problem.m,
                              .x_type = GEMM_F16,
                              .y_type = GEMM_F32,
                              .y = device.base,
                              .y_stride = (uint64_t)problem.weight.n * 4};
    size_t copies = 1;
    int count = ops->variants(device.backend, &problem, NULL, false, variants, VARIANTS_MOST);
    assert_in_range(count, 1, VARIANTS_MOST);
    if (ops->library_variants != NULL)
      count += ops->library_variants(device.backend, &problem, false, variants + count, VARIANTS_MOST - count);
    for (int v = 0; v < count; v++)
      if (ops->variant_check(device.backend, &problem, &variants[v], NULL, &error) == STATUS_OK) {
        one_form(SIZE, &form, GEMM_F32, NULL, &variants[v]);
        one_form(SIZE, &form, GEMM_F32, &foreign, &variants[v]);
      } else if (v == 0) {
        fail_msg("the first choice is refused: %s", error.text);
      }
    if (ops->tensors_make == NULL)
      continue;
    if (ops->tensors_make(device.backend, &problem, &job, &operand, &copies, &error) != STATUS_OK)
      fail_msg("%s", error.text);
    for (int v = 0; v < count; v++) {
      const struct backend_timing timing = {.launches = 3, .quantize = true, .dependent = true};
      uint64_t ns = 0;
      job.variant = &variants[v];
      if (ops->variant_check(device.backend, &problem, &variants[v], NULL, &error) == STATUS_OK &&
          ops->measure(device.backend, &job, NULL, copies, &timing, &ns, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    }
    ops->tensors_drop(device.backend);
  }
  foreign_close(&foreign);
}

static void test_tensors(void **state) {
  static const enum gemm_type y_types[] = {GEMM_F32, GEMM_F16, GEMM_BF16};
  for (int size = 0; size < COUNT(sizes); size++)
    for (int y = 0; y < COUNT(y_types); y++) {
      one(size, GEMM_FORMAT_F16, y_types[y], NULL);
      one(size, GEMM_FORMAT_BF16, y_types[y], NULL);
    }
}

/* Kernels that serve stored weights of the shape serve these, too, or give way to the backend's own choice. */
static void test_every_variant(void **state) {
  static const enum gemm_format formats[] = {GEMM_FORMAT_F16, GEMM_FORMAT_BF16};
  for (int i = 0; i < COUNT(formats) * COUNT(sizes); i++) {
    int size = i / COUNT(formats);
    enum gemm_format format = formats[i % COUNT(formats)];
    struct variant_problem problem = {
        .weight = {.n = sizes[size].n, .k = sizes[size].k, .format = format, .scale = GEMM_SCALE_NONE},
        .m = variant_bucket(sizes[size].m),
        .x_type = format == GEMM_FORMAT_F16 ? GEMM_F16 : GEMM_BF16,
        .y_type = GEMM_F32};
    struct variant variants[VARIANTS_MOST];
    struct error error;
    int count = device.ops->variants(device.backend, &problem, NULL, false, variants, VARIANTS_MOST);
    if (device.ops->library_variants != NULL)
      count += device.ops->library_variants(device.backend, &problem, false, variants + count, VARIANTS_MOST - count);
    for (int v = 0; v < count && sizes[size].k < 2000; v++)
      if (device.ops->variant_check(device.backend, &problem, &variants[v], NULL, &error) == STATUS_OK)
        one(size, format, GEMM_F32, &variants[v]);
  }
}

static void test_other_formats_are_refused(void **state) {
  struct backend_operand operand = {
      .shape = {.n = 64, .k = 64, .format = GEMM_FORMAT_INT8}, .w = device.base, .stride = 64};
  struct backend_job job = {.operand = &operand,
                            .arena = device.arena,
                            .m = 1,
                            .x_type = GEMM_F16,
                            .y_type = GEMM_F16,
                            .x = device.base + 8192,
                            .y = device.base + 16384,
                            .x_stride = 128,
                            .y_stride = 128};
  struct error error;
  assert_int_equal(device.ops->submit(device.backend, &job, &error), STATUS_UNSUPPORTED);
  one(1, GEMM_FORMAT_F16, GEMM_F32, NULL);
}

static int run_group(const struct backend_ops *ops) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_tensors),         cmocka_unit_test(test_forms),
      cmocka_unit_test(test_forms_in_memory), cmocka_unit_test(test_every_variant_of_a_form),
      cmocka_unit_test(test_every_variant),   cmocka_unit_test(test_other_formats_are_refused)};
  device_group(&device, ops, SLAB_BYTES);
  return cmocka_run_group_tests_name(ops->name, tests, device_group_open, device_group_close);
}

int main(int count, char **arguments) {
  return device_groups(count, arguments, run_group);
}
