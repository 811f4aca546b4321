/* Weights that a device quantizes: the bits are those of the host's own conversion, row by row and group by group, from
 * every type, in host memory and on the device; and what cannot be converted is refused with its place.
 *
 * Arguments and environment as for test_conformance. */
#include "kernels/backend.h"
#include "proto/number.h"
#include "proto/weights/quantize.h"
#include "tests/support/worker/device.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

static struct device device;

static const enum gemm_type types[] = {GEMM_F32, GEMM_F16, GEMM_BF16};

struct target {
  enum gemm_format format;
  enum gemm_scale scale;
  bool ternary;
};

static const struct target targets[] = {
    {GEMM_FORMAT_INT8, GEMM_SCALE_ROW, false},   {GEMM_FORMAT_INT8, GEMM_SCALE_ONE, false},
    {GEMM_FORMAT_FP8, GEMM_SCALE_ROW, false},    {GEMM_FORMAT_FP8, GEMM_SCALE_ONE, false},
    {GEMM_FORMAT_FP8, GEMM_SCALE_BLOCK, false},  {GEMM_FORMAT_INT2, GEMM_SCALE_GROUP, false},
    {GEMM_FORMAT_INT2, GEMM_SCALE_GROUP, true},  {GEMM_FORMAT_INT2A8, GEMM_SCALE_GROUP, false},
    {GEMM_FORMAT_INT2A8, GEMM_SCALE_GROUP, true}};

/* ---- numbers as they lie in a file */

struct numbers {
  enum gemm_type type;
  int64_t n, k;
  uint8_t *bytes;
  float *values; /* the same, as f32 */
};

static uint32_t mix(uint32_t value) {
  value = (value ^ value >> 16) * 0x7feb352du;
  value = (value ^ value >> 15) * 0x846ca68bu;
  return value ^ value >> 16;
}

/* About normal, from three uniform numbers. */
static float about_normal(uint32_t seed) {
  float sum = 0.0f;
  for (uint32_t i = 0; i < 3; i++)
    sum += (float)mix(seed * 3 + i) * 0x1p-32f - 0.5f;
  return sum;
}

/* Rows of every kind: as weights are, of zeros, so small that their scale is zero, large, ternary already, with equal
 * magnitudes. */
static float value_of(int64_t row, int64_t column, int64_t k) {
  uint32_t seed = (uint32_t)(row * k + column);
  float value = about_normal(seed);
  switch (row % 9) {
  case 3:
    return column % 2 == 0 ? 0.0f : -0.0f;
  case 4:
    return value * 1e-38f;
  case 5:
    return value * 3e4f;
  case 6:
    return mix(seed) % 3 == 0 ? 0.0f : mix(seed) % 3 == 1 ? 0.125f : -0.125f;
  case 7:
    return (float)((int)(mix(seed) % 9) - 4) * 0.5f;
  default:
    return value * 0.05f;
  }
}

static void put(struct numbers *numbers, int64_t at, float value) {
  uint16_t half = numbers->type == GEMM_F16 ? number_to_f16(value) : number_to_bf16(value);
  if (numbers->type == GEMM_F32)
    memcpy(numbers->bytes + 4 * at, &value, sizeof value);
  else
    memcpy(numbers->bytes + 2 * at, &half, sizeof half);
  numbers->values[at] = numbers->type == GEMM_F32   ? value
                        : numbers->type == GEMM_F16 ? number_from_f16(half)
                                                    : number_from_bf16(half);
}

static struct numbers numbers_make(enum gemm_type type, int64_t n, int64_t k) {
  struct numbers numbers = {.type = type, .n = n, .k = k};
  numbers.bytes = malloc((size_t)(n * k) * 4);
  numbers.values = malloc((size_t)(n * k) * sizeof(float));
  assert_non_null(numbers.bytes);
  assert_non_null(numbers.values);
  for (int64_t row = 0; row < n; row++)
    for (int64_t column = 0; column < k; column++)
      put(&numbers, row * k + column, value_of(row, column, k));
  return numbers;
}

static void numbers_free(struct numbers *numbers) {
  free(numbers->bytes);
  free(numbers->values);
}

static enum status read_numbers(void *context, uint64_t offset, void *to, uint64_t bytes, struct error *error) {
  const struct numbers *numbers = context;
  memcpy(to, numbers->bytes + offset, bytes);
  return STATUS_OK;
}

/* ---- the host's conversion */

static float scale_of(enum gemm_format format, float absmax) {
  return format == GEMM_FORMAT_INT8 ? number_scale_int8(absmax) : number_scale_e4m3(absmax);
}

static void quantize(enum gemm_format format, const float *values, size_t count, float scale, uint8_t *codes) {
  if (format == GEMM_FORMAT_INT8)
    quantize_int8(values, count, scale, (int8_t *)codes);
  else
    quantize_e4m3(values, count, scale, codes);
}

static void by_groups(const struct numbers *numbers, const struct gemm_layout *layout, bool ternary, uint8_t *out) {
  size_t k = (size_t)numbers->k;
  uint32_t scratch[2 * GEMM_GROUP];
  uint8_t *codes = malloc(k);
  assert_non_null(codes);
  for (size_t row = 0; row < (size_t)numbers->n; row++) {
    for (size_t begin = 0; begin < k; begin += GEMM_GROUP) {
      size_t count = k - begin < GEMM_GROUP ? k - begin : GEMM_GROUP;
      const float *values = numbers->values + row * k + begin;
      uint16_t scale = ternary ? quantize_ternary(values, count, codes + begin)
                               : quantize_least_squares(values, count, scratch, codes + begin);
      memcpy(out + layout->scales_offset + (row * layout->scale_columns + begin / GEMM_GROUP) * 2, &scale, 2);
    }
    quantize_pack(codes, k, out + row * layout->row_bytes, layout->row_bytes);
  }
  free(codes);
}

/* Codes and scale of rows [row, row + rows), columns [column, column + columns). */
static void by_rectangle(const struct numbers *numbers, const struct gemm_weight *weight,
                         const struct gemm_layout *layout, size_t row, size_t rows, size_t column, size_t columns,
                         size_t scale_at, uint8_t *out) {
  size_t k = (size_t)numbers->k;
  float absmax = 0.0f;
  for (size_t i = row; i < row + rows; i++)
    absmax = fmaxf(absmax, quantize_absmax(numbers->values + i * k + column, columns));
  float scale = scale_of(weight->format, absmax);
  for (size_t i = row; i < row + rows; i++)
    quantize(weight->format, numbers->values + i * k + column, columns, scale, out + i * layout->row_bytes + column);
  memcpy(out + layout->scales_offset + scale_at * sizeof scale, &scale, sizeof scale);
}

static void by_host(const struct numbers *numbers, const struct gemm_weight *weight, const struct gemm_layout *layout,
                    bool ternary, uint8_t *out) {
  size_t n = (size_t)numbers->n, k = (size_t)numbers->k;
  for (size_t row = 0; gemm_is_wide(weight->format) && row < n; row++)
    memcpy(out + row * layout->row_bytes, numbers->bytes + row * k * 2, k * 2);
  if (gemm_is_wide(weight->format))
    return;
  if (gemm_is_int2(weight->format)) {
    by_groups(numbers, layout, ternary, out);
    return;
  }
  size_t height = weight->scale == GEMM_SCALE_ONE ? n : weight->scale == GEMM_SCALE_ROW ? 1 : GEMM_GROUP;
  size_t width = weight->scale == GEMM_SCALE_BLOCK ? GEMM_GROUP : k, at = 0;
  for (size_t row = 0; row < n; row += height)
    for (size_t column = 0; column < k; column += width)
      by_rectangle(numbers, weight, layout, row, n - row < height ? n - row : height, column,
                   k - column < width ? k - column : width, at++, out);
}

/* ---- both */

static struct gemm_weight shape_of(const struct numbers *numbers, const struct target *target) {
  return (struct gemm_weight){.n = numbers->n, .k = numbers->k, .format = target->format, .scale = target->scale};
}

static void check(const struct numbers *numbers, const struct target *target, const struct backend_source *source) {
  struct gemm_weight weight = shape_of(numbers, target);
  struct gemm_layout layout;
  struct error error;
  assert_int_equal(gemm_layout_compute(&weight, &layout, &error), STATUS_OK);
  uint8_t *expected = calloc(1, layout.total_bytes), *got = calloc(1, layout.total_bytes);
  assert_non_null(expected);
  assert_non_null(got);
  by_host(numbers, &weight, &layout, target->ternary, expected);
  if (device.ops->weight_convert(device.backend, &weight, source, got, &error) != STATUS_OK)
    fail_msg("%s", error.text);
  for (uint64_t i = 0; i < layout.total_bytes; i++)
    if (expected[i] != got[i])
      fail_msg("%s/%s of %s, %lld x %lld: byte %llu (row %llu, scales at %llu) is %u, the host's %u",
               gemm_format_name(weight.format), gemm_scale_name(weight.scale), gemm_type_name(numbers->type),
               (long long)weight.n, (long long)weight.k, (unsigned long long)i,
               (unsigned long long)(i / layout.row_bytes), (unsigned long long)layout.scales_offset, got[i],
               expected[i]);
  free(expected);
  free(got);
}

static void skip_without(void) {
  if (!device.ops->weight_convert)
    skip();
}

static struct backend_source source_of(struct numbers *numbers, bool ternary) {
  return (struct backend_source){.type = numbers->type, .ternary = ternary, .read = read_numbers, .context = numbers};
}

/* Columns that no vector, no square and no group fits, and as many as they do; slices of one and of several rows; so
 * many elements that a thread has one part of a row, two or four. */
static void test_bits_are_the_hosts(void **state) {
  static const int64_t shapes[][2] = {{9, 1},      {130, 100},   {300, 129}, {257, 1000},
                                      {129, 4096}, {1500, 2048}, {160, 9000}};
  skip_without();
  for (int i = 0; i < COUNT(shapes); i++)
    for (int t = 0; t < COUNT(types); t++) {
      struct numbers numbers = numbers_make(types[t], shapes[i][0], shapes[i][1]);
      for (int j = 0; j < COUNT(targets); j++) {
        struct backend_source source = source_of(&numbers, targets[j].ternary);
        check(&numbers, &targets[j], &source);
      }
      numbers_free(&numbers);
    }
}

/* Many groups of every kind of distribution: where two scales are nearly as good, the same one is taken. */
static void test_least_squares_in_quantity(void **state) {
  static const struct target target = {GEMM_FORMAT_INT2, GEMM_SCALE_GROUP, false};
  skip_without();
  for (int t = 0; t < COUNT(types); t++) {
    struct numbers numbers = numbers_make(types[t], 4096, 2048);
    struct backend_source source = source_of(&numbers, false);
    check(&numbers, &target, &source);
    numbers_free(&numbers);
  }
}

/* What another process has on the device: a slab, into which halves are stored as they are. */
static void test_from_device_memory(void **state) {
  enum { N = 384, K = 512, AT = 4096 };
  skip_without();
  for (int t = 1; t < COUNT(types); t++) {
    struct numbers numbers = numbers_make(types[t], N, K);
    struct gemm_weight weight = {
        .n = N, .k = K, .format = types[t] == GEMM_F16 ? GEMM_FORMAT_F16 : GEMM_FORMAT_BF16, .scale = GEMM_SCALE_NONE};
    struct backend_arena *memory;
    struct error error;
    void *address;
    if (device.ops->weight_store(device.backend, &weight, numbers.bytes, device.slab, AT, &error) != STATUS_OK ||
        device.ops->memory_import(device.backend, device.slab_fd, device.slab_bytes, &memory, &address, &error) !=
            STATUS_OK)
      fail_msg("%s", error.text);
    for (int j = 0; j < COUNT(targets); j++) {
      const struct backend_source source = {.type = types[t],
                                            .ternary = targets[j].ternary,
                                            .memory = memory,
                                            .x = (uint8_t *)address + AT,
                                            .stride = K * 2};
      check(&numbers, &targets[j], &source);
    }
    /* As they are; and the first K - 3 of each row, which is padded then. */
    const struct target same = {weight.format, GEMM_SCALE_NONE, false};
    const struct backend_source whole = {
        .type = types[t], .memory = memory, .x = (uint8_t *)address + AT, .stride = K * 2};
    check(&numbers, &same, &whole);
    struct numbers narrow = numbers_make(types[t], N, K - 3);
    for (int64_t row = 0; row < N; row++)
      memcpy(narrow.bytes + row * (K - 3) * 2, numbers.bytes + row * K * 2, (K - 3) * 2);
    check(&narrow, &same, &whole);
    numbers_free(&narrow);
    device.ops->memory_close(device.backend, memory);
    numbers_free(&numbers);
  }
}

static void refused(struct numbers *numbers, const struct target *target, const char *sentence) {
  struct gemm_weight weight = shape_of(numbers, target);
  struct backend_source source = source_of(numbers, target->ternary);
  struct gemm_layout layout;
  struct error error;
  assert_int_equal(gemm_layout_compute(&weight, &layout, &error), STATUS_OK);
  uint8_t *out = calloc(1, layout.total_bytes);
  assert_non_null(out);
  assert_int_equal(device.ops->weight_convert(device.backend, &weight, &source, out, &error), STATUS_BAD_FILE);
  assert_string_equal(error.text, sentence);
  free(out);
}

/* The first in the order of the rows, whatever slice ends first. */
static void test_bad_values_have_a_place(void **state) {
  enum { N = 3000, K = 2048 };
  skip_without();
  struct numbers numbers = numbers_make(GEMM_F32, N, K);
  put(&numbers, (int64_t)2600 * K + 7, NAN);
  put(&numbers, (int64_t)1700 * K + 5, INFINITY);
  for (int j = 0; j < COUNT(targets); j++)
    refused(&numbers, &targets[j], "inf in row 1700, column 5 is not finite");
  put(&numbers, (int64_t)1200 * K + 2, -1e5f);
  for (int j = 0; j < COUNT(targets); j++)
    refused(&numbers, &targets[j],
            gemm_is_int2(targets[j].format) ? "-100000 in row 1200, column 2 is beyond what an f16 scale can express"
                                            : "inf in row 1700, column 5 is not finite");
  numbers_free(&numbers);
}

static void test_what_the_device_does_not_convert(void **state) {
  static const struct target beyond[] = {{GEMM_FORMAT_F16, GEMM_SCALE_NONE, false},
                                         {GEMM_FORMAT_BF16, GEMM_SCALE_NONE, false},
                                         {GEMM_FORMAT_INT2, GEMM_SCALE_ROW, false}};
  skip_without();
  struct numbers numbers = numbers_make(GEMM_F32, 4, 256);
  uint8_t out[16384] = {0};
  for (int j = 0; j < COUNT(beyond); j++) {
    struct gemm_weight weight = shape_of(&numbers, &beyond[j]);
    struct backend_source source = source_of(&numbers, false);
    struct error error;
    assert_int_equal(device.ops->weight_convert(device.backend, &weight, &source, out, &error), STATUS_UNSUPPORTED);
  }
  numbers_free(&numbers);
}

static int group(const struct backend_ops *ops) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_bits_are_the_hosts),
      cmocka_unit_test(test_least_squares_in_quantity),
      cmocka_unit_test(test_from_device_memory),
      cmocka_unit_test(test_bad_values_have_a_place),
      cmocka_unit_test(test_what_the_device_does_not_convert),
  };
  device_group(&device, ops, (uint64_t)32 << 20);
  return cmocka_run_group_tests_name(ops->name, tests, device_group_open, device_group_close);
}

int main(int count, char **arguments) {
  return device_groups(count, arguments, group);
}
