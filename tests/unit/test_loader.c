/* Loads from real descriptors: what comes out in canonical form, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../daemon/loader/convert.h"
#include "../../daemon/loader/load.h"
#include "../../daemon/loader/loader.h"
#include "../../daemon/loader/quantize.h"
#include "../../daemon/memfd.h"
#include "../../daemon/transport.h"
#include "../../proto/number.h"

/* ---- files */

struct builder {
  char json[4096];
  size_t json_length;
  uint8_t *data;
  size_t bytes;
};

/* Adds a tensor of `rank` 0, 1 or 2. */
static void add(struct builder *builder, const char *name, const char *dtype, int rank, int64_t rows, int64_t columns,
                const void *values, size_t bytes) {
  char shape[64] = "";
  if (rank == 1)
    snprintf(shape, sizeof shape, "%lld", (long long)rows);
  if (rank == 2)
    snprintf(shape, sizeof shape, "%lld,%lld", (long long)rows, (long long)columns);
  builder->json_length +=
      (size_t)snprintf(builder->json + builder->json_length, sizeof builder->json - builder->json_length,
                       "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
                       builder->json_length ? "," : "{", name, dtype, shape, builder->bytes, builder->bytes + bytes);
  builder->data = realloc(builder->data, builder->bytes + bytes);
  assert_non_null(builder->data);
  memcpy(builder->data + builder->bytes, values, bytes);
  builder->bytes += bytes;
}

/* The finished file, open for reading and writing; the builder is empty again. */
static int finish(struct builder *builder) {
  int fd = memfd_create("file", MFD_CLOEXEC);
  assert_true(fd >= 0);
  uint64_t length = builder->json_length + 1;
  assert_int_equal(write(fd, &length, 8), 8);
  assert_int_equal(write(fd, builder->json, builder->json_length), builder->json_length);
  assert_int_equal(write(fd, "}", 1), 1);
  assert_int_equal(write(fd, builder->data, builder->bytes), builder->bytes);
  free(builder->data);
  *builder = (struct builder){0};
  return fd;
}

static int file_of_f32(const float *values, int64_t n, int64_t k) {
  struct builder builder = {0};
  add(&builder, "w", "F32", 2, n, k, values, (size_t)(n * k) * sizeof *values);
  return finish(&builder);
}

static uint64_t random_state = 7;

static float uniform(void) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return (float)((double)(int32_t)(random_state >> 32) / 2147483648.0);
}

static float *random_values(int64_t count) {
  float *values = malloc((size_t)count * sizeof *values);
  assert_non_null(values);
  for (int64_t i = 0; i < count; i++)
    values[i] = uniform() + uniform() * uniform();
  return values;
}

/* ---- loads */

struct loaded {
  struct message_load_done done;
  struct gemm_layout layout;
  uint8_t *bytes;
};

static struct message_weight_load request_of(enum gemm_format format, enum gemm_scale scale) {
  return (struct message_weight_load){.name = "name", .tensor = "w", .format = format, .scale = scale};
}

static struct loaded load(int fd, const struct message_weight_load *request, unsigned threads) {
  struct loaded loaded;
  struct error error;
  int memfd = -1;
  if (load_run(request, fd, threads, NULL, NULL, &loaded.done, &memfd, &error) != STATUS_OK)
    fail_msg("%s", error.text);
  assert_int_equal(memfd_check(memfd, loaded.done.bytes, true, &error), STATUS_OK);
  struct gemm_weight weight = {.n = loaded.done.n,
                               .k = loaded.done.k,
                               .format = (enum gemm_format)loaded.done.format,
                               .scale = (enum gemm_scale)loaded.done.scale};
  assert_int_equal(gemm_layout_compute(&weight, &loaded.layout, &error), STATUS_OK);
  assert_int_equal(loaded.layout.total_bytes, loaded.done.bytes);
  loaded.bytes = memfd_map(memfd, loaded.done.bytes, false, &error);
  assert_non_null(loaded.bytes);
  close(memfd);
  return loaded;
}

static void unload(struct loaded *loaded) {
  munmap(loaded->bytes, loaded->done.bytes);
}

static const uint8_t *row_of(const struct loaded *loaded, int64_t row) {
  return loaded->bytes + (uint64_t)row * loaded->layout.row_bytes;
}

static float scale_of(const struct loaded *loaded, int64_t index) {
  float value;
  memcpy(&value, loaded->bytes + loaded->layout.scales_offset + 4 * index, 4);
  return value;
}

static uint16_t half_of(const uint8_t *bytes, int64_t index) {
  uint16_t value;
  memcpy(&value, bytes + 2 * index, 2);
  return value;
}

static void expect_zeros(const uint8_t *from, const uint8_t *to) {
  for (; from < to; from++)
    assert_int_equal(*from, 0);
}

static void refuse(int fd, const struct message_weight_load *request, enum status status, const char *reason) {
  struct message_load_done done;
  struct error error = {0};
  int memfd = -1;
  assert_int_equal(load_run(request, fd, 2, NULL, NULL, &done, &memfd, &error), status);
  assert_int_equal(error.status, status);
  assert_int_equal(memfd, -1);
  if (!strstr(error.text, reason))
    fail_msg("'%s' does not say '%s'", error.text, reason);
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
  float *values = random_values(n * k);
  for (int64_t j = 0; j < k; j++)
    values[(n / 2) * k + j] = 0.0f;
  int fd = file_of_f32(values, n, k);
  struct message_weight_load request = request_of(format, scale);
  struct loaded loaded = load(fd, &request, 2);
  int64_t rows = scale == GEMM_SCALE_ONE ? n : scale == GEMM_SCALE_BLOCK ? 128 : 1;
  int64_t columns = scale == GEMM_SCALE_BLOCK ? 128 : k, index = 0;
  for (int64_t i = 0; i < n; i += rows)
    for (int64_t j = 0; j < k; j += columns, index++) {
      int64_t height = n - i < rows ? n - i : rows, width = k - j < columns ? k - j : columns;
      float absmax = absmax_of(values, k, i, height, j, width);
      float expected = format == GEMM_FORMAT_INT8 ? number_scale_int8(absmax) : number_scale_e4m3(absmax);
      assert_true(scale_of(&loaded, index) == expected);
      for (int64_t a = i; a < i + height; a++)
        for (int64_t b = j; b < j + width; b++) {
          float value = values[a * k + b];
          uint8_t code = format == GEMM_FORMAT_INT8 ? (uint8_t)number_quantize_int8(value, expected)
                                                    : number_quantize_e4m3(value, expected);
          assert_int_equal(row_of(&loaded, a)[b], code);
        }
    }
  assert_int_equal(index, loaded.layout.scale_count);
  for (int64_t i = 0; i < n; i++)
    expect_zeros(row_of(&loaded, i) + k, row_of(&loaded, i + 1));
  expect_zeros(loaded.bytes + loaded.layout.codes_bytes, loaded.bytes + loaded.layout.scales_offset);
  assert_int_equal(loaded.done.scale, scale);
  unload(&loaded);
  close(fd);
  free(values);
}

static void test_int8(void **state) {
  (void)state;
  expect_absmax(GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 1, 1);
  expect_absmax(GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 5, 19);
  expect_absmax(GEMM_FORMAT_INT8, GEMM_SCALE_ONE, 7, 33);
}

static void test_fp8(void **state) {
  (void)state;
  expect_absmax(GEMM_FORMAT_FP8, GEMM_SCALE_ROW, 5, 19);
  expect_absmax(GEMM_FORMAT_FP8, GEMM_SCALE_ONE, 7, 32);
  expect_absmax(GEMM_FORMAT_FP8, GEMM_SCALE_BLOCK, 1, 1);
  expect_absmax(GEMM_FORMAT_FP8, GEMM_SCALE_BLOCK, 130, 300);
}

/* More than one band and, with block scales, more than one tile of columns. */
static void test_many_bands(void **state) {
  (void)state;
  expect_absmax(GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 700, 1001);
  expect_absmax(GEMM_FORMAT_FP8, GEMM_SCALE_ONE, 700, 1001);
  expect_absmax(GEMM_FORMAT_FP8, GEMM_SCALE_BLOCK, 257, 4500);
}

static void expect_int2(enum gemm_scale scale, enum message_method method, int64_t n, int64_t k) {
  float *values = random_values(n * k);
  int fd = file_of_f32(values, n, k);
  struct message_weight_load request = request_of(GEMM_FORMAT_INT2, scale);
  request.method = method;
  struct loaded loaded = load(fd, &request, 2);
  int64_t group = scale == GEMM_SCALE_ROW ? k : 128, index = 0;
  uint32_t *scratch = malloc((size_t)k * 2 * sizeof *scratch);
  uint8_t *codes = malloc((size_t)k);
  assert_true(scratch && codes);
  for (int64_t i = 0; i < n; i++) {
    for (int64_t j = 0; j < k; j += group, index++) {
      size_t count = (size_t)(k - j < group ? k - j : group);
      const float *from = values + i * k + j;
      uint16_t expected = method == METHOD_TERNARY ? quantize_ternary(from, count, codes + j)
                                                   : quantize_least_squares(from, count, scratch, codes + j);
      assert_int_equal(half_of(loaded.bytes + loaded.layout.scales_offset, index), expected);
    }
    for (uint64_t j = 0; j < 4 * loaded.layout.row_bytes; j++) {
      int code = row_of(&loaded, i)[j / 4] >> (2 * (j % 4)) & 3;
      assert_int_equal(code, j < (uint64_t)k ? codes[j] : 1);
    }
  }
  assert_int_equal(index, loaded.layout.scale_count);
  assert_int_equal(loaded.layout.row_bytes % 32, 0);
  unload(&loaded);
  close(fd);
  free(values);
  free(scratch);
  free(codes);
}

static void test_int2(void **state) {
  (void)state;
  expect_int2(GEMM_SCALE_GROUP, METHOD_DEFAULT, 1, 1);
  expect_int2(GEMM_SCALE_GROUP, METHOD_LEAST_SQUARES, 9, 300);
  expect_int2(GEMM_SCALE_GROUP, METHOD_TERNARY, 9, 130);
  expect_int2(GEMM_SCALE_ROW, METHOD_LEAST_SQUARES, 4, 257);
  expect_int2(GEMM_SCALE_ROW, METHOD_TERNARY, 3, 128);
}

static void test_halves(void **state) {
  (void)state;
  const float values[] = {1.0f, -2.5f, 1e-8f, 65504.0f, 0.1f, 3.0f};
  int fd = file_of_f32(values, 2, 3);
  for (enum gemm_format format = GEMM_FORMAT_F16; format <= GEMM_FORMAT_BF16; format++) {
    struct message_weight_load request = request_of(format, GEMM_SCALE_NONE);
    struct loaded loaded = load(fd, &request, 1);
    for (int i = 0; i < 6; i++) {
      uint16_t expected = format == GEMM_FORMAT_F16 ? number_to_f16(values[i]) : number_to_bf16(values[i]);
      assert_int_equal(half_of(row_of(&loaded, i / 3), i % 3), expected);
    }
    expect_zeros(row_of(&loaded, 0) + 6, row_of(&loaded, 1));
    expect_zeros(row_of(&loaded, 1) + 6, loaded.bytes + loaded.done.bytes);
    assert_int_equal(loaded.done.scale, GEMM_SCALE_NONE);
    unload(&loaded);
  }
  close(fd);
}

/* The same numbers as F16, BF16 and F32 give the same weight. */
static void test_source_types(void **state) {
  (void)state;
  const float values[] = {1.0f, -0.5f, 0.25f, 2.0f, -8.0f, 0.0f, 1.5f, 96.0f};
  uint16_t f16[8], bf16[8];
  uint8_t hash[32];
  for (int i = 0; i < 8; i++) {
    f16[i] = number_to_f16(values[i]);
    bf16[i] = number_to_bf16(values[i]);
  }
  struct builder builder = {0};
  add(&builder, "a", "F16", 2, 2, 4, f16, sizeof f16);
  add(&builder, "b", "BF16", 2, 2, 4, bf16, sizeof bf16);
  add(&builder, "c", "F32", 2, 2, 4, values, sizeof values);
  int fd = finish(&builder);
  for (uint32_t format = GEMM_FORMAT_INT8; format <= GEMM_FORMAT_BF16; format++)
    for (int i = 0; i < 3; i++) {
      struct message_weight_load request = request_of((enum gemm_format)format, GEMM_SCALE_NONE);
      request.tensor[0] = (char)('a' + i);
      struct loaded loaded = load(fd, &request, 2);
      if (i > 0)
        assert_memory_equal(hash, loaded.done.hash, 32);
      memcpy(hash, loaded.done.hash, 32);
      unload(&loaded);
    }
  close(fd);
}

/* ---- stored as they are */

static void test_stored_scale_names_and_types(void **state) {
  (void)state;
  static const char *const names[] = {"m.weight_scale", "m.weight_scale_inv", "m.weight.scale",
                                      "m.scale",        "m.scales",           "m.scale_weight"};
  const int8_t codes[] = {1, -2, 3, -128, 127, 0};
  const float scales[] = {0.5f, 0.25f};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    struct builder builder = {0};
    uint16_t halves[2];
    for (int j = 0; j < 2; j++)
      halves[j] = i % 3 == 1 ? number_to_f16(scales[j]) : number_to_bf16(scales[j]);
    add(&builder, "m.weight", "I8", 2, 2, 3, codes, sizeof codes);
    if (i % 3 == 0)
      add(&builder, names[i], "F32", 2, 2, 1, scales, sizeof scales);
    else
      add(&builder, names[i], i % 3 == 1 ? "F16" : "BF16", 1, 2, 0, halves, sizeof halves);
    int fd = finish(&builder);
    struct message_weight_load request = request_of(GEMM_FORMAT_INT8, GEMM_SCALE_NONE);
    strcpy(request.tensor, "m.weight");
    struct loaded loaded = load(fd, &request, 2);
    assert_int_equal(loaded.done.scale, GEMM_SCALE_ROW);
    assert_memory_equal(row_of(&loaded, 0), codes, 3);
    assert_memory_equal(row_of(&loaded, 1), codes + 3, 3);
    expect_zeros(row_of(&loaded, 0) + 3, row_of(&loaded, 1));
    assert_true(scale_of(&loaded, 0) == 0.5f);
    assert_true(scale_of(&loaded, 1) == 0.25f);
    unload(&loaded);
    close(fd);
  }
}

/* A file with an FP8 tensor w of n x k and a scale tensor s. */
static int fp8_file(int64_t n, int64_t k, int rank, int64_t rows, int64_t columns) {
  uint8_t *codes = malloc((size_t)(n * k));
  int64_t count = (rank > 0 ? rows : 1) * (rank > 1 ? columns : 1);
  float *scales = random_values(count);
  assert_non_null(codes);
  for (int64_t i = 0; i < n * k; i++)
    codes[i] = (uint8_t)(i % 0x7f);
  for (int64_t i = 0; i < count; i++)
    scales[i] = (float)(i + 1);
  struct builder builder = {0};
  add(&builder, "s", "F32", rank, rows, columns, scales, (size_t)count * 4);
  add(&builder, "w", "F8_E4M3", 2, n, k, codes, (size_t)(n * k));
  free(codes);
  free(scales);
  return finish(&builder);
}

static void expect_mode(int64_t n, int64_t k, int rank, int64_t rows, int64_t columns, enum gemm_scale wanted,
                        enum gemm_scale expected) {
  int fd = fp8_file(n, k, rank, rows, columns);
  struct message_weight_load request = request_of(GEMM_FORMAT_FP8, wanted);
  strcpy(request.scale_tensor, "s");
  if (expected == GEMM_SCALE_NONE) {
    refuse(fd, &request, STATUS_UNSUPPORTED, "scale tensor 's'");
  } else {
    struct loaded loaded = load(fd, &request, 2);
    assert_int_equal(loaded.done.scale, expected);
    for (uint64_t i = 0; i < loaded.layout.scale_count; i++)
      assert_true(scale_of(&loaded, (int64_t)i) == (float)(i + 1));
    for (int64_t i = 0; i < n * k; i++)
      assert_int_equal(row_of(&loaded, i / k)[i % k], i % 0x7f);
    unload(&loaded);
  }
  close(fd);
}

static void test_stored_scale_modes(void **state) {
  (void)state;
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

static void test_stored_int2(void **state) {
  (void)state;
  enum { N = 3, COLUMNS = 35 }; /* K = 140: two groups */
  uint8_t codes[N * COLUMNS];
  uint16_t scales[N * 2];
  for (int i = 0; i < N * COLUMNS; i++)
    codes[i] = (uint8_t)(i * 7);
  for (int i = 0; i < N * 2; i++)
    scales[i] = number_to_f16((float)(i - 2)); /* a scale of INT2 may be negative */
  struct builder builder = {0};
  add(&builder, "m.int2", "U8", 2, N, COLUMNS, codes, sizeof codes);
  add(&builder, "m.int2_scale", "F16", 2, N, 2, scales, sizeof scales);
  add(&builder, "row", "F16", 1, N, 0, scales, N * 2);
  int fd = finish(&builder);
  struct message_weight_load request = request_of(GEMM_FORMAT_INT2, GEMM_SCALE_NONE);
  strcpy(request.tensor, "m.int2");
  struct loaded loaded = load(fd, &request, 2);
  assert_int_equal(loaded.done.k, 140);
  assert_int_equal(loaded.done.scale, GEMM_SCALE_GROUP);
  assert_memory_equal(loaded.bytes + loaded.layout.scales_offset, scales, sizeof scales);
  for (int i = 0; i < N; i++) {
    assert_memory_equal(row_of(&loaded, i), codes + i * COLUMNS, COLUMNS);
    for (uint64_t j = COLUMNS; j < loaded.layout.row_bytes; j++)
      assert_int_equal(row_of(&loaded, i)[j], 0x55);
  }
  unload(&loaded);
  strcpy(request.scale_tensor, "row");
  loaded = load(fd, &request, 2);
  assert_int_equal(loaded.done.scale, GEMM_SCALE_ROW);
  unload(&loaded);
  close(fd);
}

/* ---- identity */

static void test_same_result_with_any_number_of_threads(void **state) {
  (void)state;
  enum { N = 300, K = 2000 };
  float *values = random_values(N * K);
  int fd = file_of_f32(values, N, K);
  static const struct {
    enum gemm_format format;
    enum gemm_scale scale;
  } kinds[] = {{GEMM_FORMAT_INT8, GEMM_SCALE_ROW},  {GEMM_FORMAT_INT8, GEMM_SCALE_ONE},
               {GEMM_FORMAT_FP8, GEMM_SCALE_BLOCK}, {GEMM_FORMAT_INT2, GEMM_SCALE_GROUP},
               {GEMM_FORMAT_INT2, GEMM_SCALE_ROW},  {GEMM_FORMAT_BF16, GEMM_SCALE_NONE}};
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
    struct message_weight_load request = request_of(kinds[i].format, kinds[i].scale);
    struct loaded one = load(fd, &request, 1);
    for (unsigned threads = 2; threads < 100; threads = threads * 6 - 5) {
      struct loaded many = load(fd, &request, threads);
      assert_memory_equal(one.done.hash, many.done.hash, 32);
      assert_memory_equal(one.bytes, many.bytes, one.done.bytes);
      unload(&many);
    }
    unload(&one);
  }
  close(fd);
  free(values);
}

static void test_hash_tells_contents_apart(void **state) {
  (void)state;
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
    int fd = file_of_f32(rows[i].values, rows[i].n, rows[i].k);
    struct message_weight_load request = request_of(rows[i].format, rows[i].scale);
    struct loaded loaded = load(fd, &request, 2);
    memcpy(hashes[i], loaded.done.hash, 32);
    unload(&loaded);
    close(fd);
    for (int j = 0; j < i; j++)
      assert_memory_not_equal(hashes[i], hashes[j], 32);
  }
}

/* ---- refused */

static void test_values_are_refused_by_place(void **state) {
  (void)state;
  enum { N = 600, K = 1000 };
  float *values = random_values(N * K);
  struct message_weight_load request = request_of(GEMM_FORMAT_INT8, GEMM_SCALE_ROW);
  values[590 * K + 1] = NAN;
  values[301 * K + 44] = INFINITY;
  values[301 * K + 45] = NAN;
  int fd = file_of_f32(values, N, K);
  for (uint32_t format = GEMM_FORMAT_INT8; format <= GEMM_FORMAT_BF16; format++) {
    request.format = format;
    request.scale = GEMM_SCALE_NONE;
    refuse(fd, &request, STATUS_BAD_FILE, "inf in row 301, column 44 is not finite");
  }
  request.format = GEMM_FORMAT_FP8;
  request.scale = GEMM_SCALE_ONE;
  refuse(fd, &request, STATUS_BAD_FILE, "inf in row 301, column 44 is not finite");
  request.scale = GEMM_SCALE_BLOCK;
  refuse(fd, &request, STATUS_BAD_FILE, "inf in row 301, column 44 is not finite");
  close(fd);
  values[590 * K + 1] = values[301 * K + 44] = values[301 * K + 45] = 1.0f;
  values[3 * K + 2] = -70000.0f;
  fd = file_of_f32(values, N, K);
  request = request_of(GEMM_FORMAT_F16, GEMM_SCALE_NONE);
  refuse(fd, &request, STATUS_BAD_FILE, "-70000 in row 3, column 2 is beyond f16");
  request = request_of(GEMM_FORMAT_INT2, GEMM_SCALE_NONE);
  refuse(fd, &request, STATUS_BAD_FILE, "-70000 in row 3, column 2 is beyond");
  close(fd);
  free(values);
}

static void refuse_stored(const char *dtype, uint8_t code, float first_scale, enum gemm_format format,
                          enum status status, const char *reason) {
  uint8_t codes[8] = {0};
  codes[6] = code;
  float scales[] = {1.0f, first_scale};
  struct builder builder = {0};
  add(&builder, "w", dtype, 2, 2, 4, codes, sizeof codes);
  add(&builder, "w_scale", "F32", 1, 2, 0, scales, sizeof scales);
  int fd = finish(&builder);
  struct message_weight_load request = request_of(format, GEMM_SCALE_NONE);
  refuse(fd, &request, status, reason);
  close(fd);
}

static void test_stored_values_are_refused(void **state) {
  (void)state;
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

static void test_requests_are_refused(void **state) {
  (void)state;
  const float values[] = {1, 2, 3, 4};
  const int8_t codes[] = {1, 2, 3, 4};
  struct builder builder = {0};
  add(&builder, "w", "F32", 2, 2, 2, values, sizeof values);
  add(&builder, "flat", "F32", 1, 4, 0, values, sizeof values);
  add(&builder, "empty", "F32", 2, 0, 4, values, 0);
  add(&builder, "bare", "I8", 2, 2, 2, codes, sizeof codes);
  add(&builder, "q", "I8", 2, 2, 2, codes, sizeof codes);
  add(&builder, "q_scale", "F32", 0, 0, 0, values, 4);
  add(&builder, "q_zero_point", "I8", 1, 2, 0, codes, 2);
  int fd = finish(&builder);
  struct message_weight_load request = request_of(GEMM_FORMAT_INT8, GEMM_SCALE_ROW), other = request;
  strcpy(other.tensor, "x\033");
  refuse(fd, &other, STATUS_NOT_FOUND, "no tensor 'x?'");
  strcpy(other.tensor, "");
  refuse(fd, &other, STATUS_NOT_FOUND, "no tensor ''");
  strcpy(other.tensor, "flat");
  refuse(fd, &other, STATUS_UNSUPPORTED, "1 dimension; a weight is a matrix [N, K]");
  strcpy(other.tensor, "q_scale");
  refuse(fd, &other, STATUS_UNSUPPORTED, "0 dimensions");
  strcpy(other.tensor, "empty");
  refuse(fd, &other, STATUS_INVALID, "N must be");
  strcpy(other.tensor, "bare");
  refuse(fd, &other, STATUS_NOT_FOUND, "no scales of a usual name");
  strcpy(other.tensor, "q");
  refuse(fd, &other, STATUS_UNSUPPORTED, "zero points");
  strcpy(other.scale_tensor, "nowhere");
  refuse(fd, &other, STATUS_NOT_FOUND, "no tensor 'nowhere'");
  strcpy(other.scale_tensor, "bare");
  refuse(fd, &other, STATUS_UNSUPPORTED, "scale tensor 'bare' is I8");
  other = request;
  strcpy(other.scale_tensor, "q_scale");
  refuse(fd, &other, STATUS_INVALID, "has no scales");
  other = request;
  other.format = 6;
  refuse(fd, &other, STATUS_INVALID, "format");
  other.format = GEMM_FORMAT_NONE;
  refuse(fd, &other, STATUS_INVALID, "format");
  other = request;
  other.scale = GEMM_SCALE_BLOCK; /* not INT8's */
  refuse(fd, &other, STATUS_INVALID, "scale mode");
  other.scale = 99;
  refuse(fd, &other, STATUS_INVALID, "scale mode");
  other = request;
  other.method = METHOD_TERNARY;
  refuse(fd, &other, STATUS_UNSUPPORTED, "method 3 does not make int8");
  other.method = 4;
  refuse(fd, &other, STATUS_UNSUPPORTED, "method 4");
  other = request_of(GEMM_FORMAT_INT2, GEMM_SCALE_GROUP);
  other.method = METHOD_ABSMAX;
  refuse(fd, &other, STATUS_UNSUPPORTED, "method 1 does not make int2");
  other = request_of(GEMM_FORMAT_F16, GEMM_SCALE_NONE);
  other.method = METHOD_ABSMAX;
  refuse(fd, &other, STATUS_UNSUPPORTED, "method 1 does not make f16");
  close(fd);
}

static void test_descriptors_are_refused(void **state) {
  (void)state;
  struct message_weight_load request = request_of(GEMM_FORMAT_INT8, GEMM_SCALE_ROW);
  int ends[2];
  assert_int_equal(pipe(ends), 0);
  refuse(ends[0], &request, STATUS_BAD_DESCRIPTOR, "regular file");
  close(ends[0]);
  close(ends[1]);
  int folder = open("/", O_RDONLY | O_DIRECTORY), null = open("/dev/null", O_RDONLY);
  refuse(folder, &request, STATUS_BAD_DESCRIPTOR, "regular file");
  refuse(null, &request, STATUS_BAD_DESCRIPTOR, "regular file");
  close(folder);
  close(null);
  refuse(-1, &request, STATUS_BAD_DESCRIPTOR, "weights file");
  int empty = memfd_create("empty", MFD_CLOEXEC);
  refuse(empty, &request, STATUS_BAD_FILE, "file has 0 bytes");
  close(empty);
  const float values[] = {1};
  int fd = file_of_f32(values, 1, 1);
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  int write_only = open(path, O_WRONLY);
  assert_true(write_only >= 0);
  refuse(write_only, &request, STATUS_BAD_DESCRIPTOR, "cannot be read");
  close(write_only);
  close(fd);
}

static void test_sparse_giant_is_refused(void **state) {
  (void)state;
  /* A file of 512 TiB costs its maker nothing. */
  const char *json = "{\"w\":{\"dtype\":\"F32\",\"shape\":[16777216,8388608],\"data_offsets\":[0,562949953421312]}}";
  uint64_t length = strlen(json);
  int fd = memfd_create("sparse", MFD_CLOEXEC);
  assert_int_equal(write(fd, &length, 8), 8);
  assert_int_equal(write(fd, json, length), length);
  assert_int_equal(ftruncate(fd, (off_t)(8 + length + 562949953421312)), 0);
  struct message_weight_load request = request_of(GEMM_FORMAT_FP8, GEMM_SCALE_ROW);
  refuse(fd, &request, STATUS_NOMEM, "host memory");
  close(fd);
}

static void test_file_truncated_while_read(void **state) {
  (void)state;
  enum { N = 8, K = 100 };
  float *values = random_values(N * K);
  int fd = file_of_f32(values, N, K);
  struct message_weight_load request = request_of(GEMM_FORMAT_INT8, GEMM_SCALE_ROW);
  struct error error = {0};
  struct file file;
  struct safetensors header;
  struct source source;
  assert_int_equal(file_open(&file, fd, &error), STATUS_OK);
  assert_int_equal(file_header(&file, &header, &error), STATUS_OK);
  assert_int_equal(source_resolve(&header, &request, &source, &error), STATUS_OK);
  uint8_t *canonical = calloc(1, source.layout.total_bytes);
  assert_non_null(canonical);
  uint64_t end = source.tensor->begin + 123;
  assert_int_equal(ftruncate(fd, (off_t)end), 0);
  struct watch watch = {.total = convert_bytes(&source)};
  assert_int_equal(convert_run(&file, &source, canonical, 2, &watch, &error), STATUS_BAD_FILE);
  char expected[64];
  snprintf(expected, sizeof expected, "file ends at byte %llu", (unsigned long long)end);
  assert_non_null(strstr(error.text, expected));
  free(canonical);
  safetensors_free(&header);
  close(fd);
  free(values);
}

/* ---- bands */

struct order {
  uint64_t late; /* this band of 0 and 1 fails only after the other one has */
  atomic_bool failed;
};

static enum status fail_in_order(void *context, uint64_t band, void *scratch, struct error *error) {
  struct order *order = context;
  (void)scratch;
  while (band == order->late && !atomic_load(&order->failed))
    sched_yield();
  for (int i = 0; band == order->late && i < 1000; i++)
    sched_yield(); /* a chance for the other thread to report first */
  atomic_store(&order->failed, true);
  return error_set(error, STATUS_BAD_FILE, "band %llu", (unsigned long long)band);
}

static void test_first_bad_band_is_named(void **state) {
  (void)state;
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
  (void)state;
  float *values = random_values(40 * 50);
  int fd = file_of_f32(values, 40, 50);
  struct message_weight_load request = request_of(GEMM_FORMAT_FP8, GEMM_SCALE_ONE);
  struct message_load_done done;
  struct error error;
  struct seen seen = {0};
  int memfd = -1;
  assert_int_equal(load_run(&request, fd, 2, see, &seen, &done, &memfd, &error), STATUS_OK);
  close(memfd);
  assert_true(seen.calls > 0);
  assert_int_equal(seen.total, 2 * 40 * 50 * 4 + done.bytes); /* two passes, then the hash */
  assert_int_equal(seen.done, seen.total);
  seen = (struct seen){.stop = true};
  memfd = -1;
  assert_int_equal(load_run(&request, fd, 2, see, &seen, &done, &memfd, &error), STATUS_CANCELLED);
  assert_int_equal(memfd, -1);
  close(fd);
  free(values);
}

/* ---- the process */

static pid_t start_loader(int *control) {
  int pair[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    struct config config;
    config_defaults(&config);
    strcpy(config.log_level, "error");
    close(pair[0]);
    _exit(loader_run(&config, pair[1]));
  }
  close(pair[1]);
  *control = pair[0];
  return pid;
}

static void expect_exit(pid_t pid, int code) {
  int status = 0;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), code);
}

static void send_load(int control, uint32_t command, const struct message_weight_load *request, int fd) {
  static uint8_t bytes[LIMIT_MESSAGE_BYTES];
  struct message_head head = {.kind = MESSAGE_REQUEST, .id = 42, .code = command};
  size_t length = 0;
  struct error error;
  assert_int_equal(message_encode(&head, &message_weight_load_type, request, bytes, sizeof bytes, &length, &error),
                   STATUS_OK);
  assert_int_equal(transport_send(control, bytes, length, &fd, fd >= 0 ? 1 : 0, &error), STATUS_OK);
}

static void receive(int control, struct packet *packet, struct message_head *head, struct message_body *body) {
  struct pollfd ready = {.fd = control, .events = POLLIN};
  struct error error;
  assert_int_equal(poll(&ready, 1, 60000), 1);
  assert_int_equal(transport_receive(control, packet, &error), STATUS_OK);
  assert_int_equal(message_decode_head(packet->bytes, packet->length, head, body, &error), STATUS_OK);
}

static void test_process_loads(void **state) {
  (void)state;
  float *values = random_values(300 * 1000);
  int fd = file_of_f32(values, 300, 1000), control, events = 0;
  struct message_weight_load request = request_of(GEMM_FORMAT_INT2, GEMM_SCALE_GROUP);
  struct loaded expected = load(fd, &request, 1);
  pid_t pid = start_loader(&control);
  request.progress = true;
  send_load(control, COMMAND_load, &request, fd);
  struct packet *packet = malloc(sizeof *packet);
  struct message_head head;
  struct message_body body;
  struct message_weight_progress progress = {0};
  struct error error;
  assert_non_null(packet);
  for (receive(control, packet, &head, &body); head.kind == MESSAGE_EVENT; receive(control, packet, &head, &body)) {
    assert_int_equal(head.code, EVENT_weight_progress);
    uint64_t before = progress.done;
    assert_int_equal(message_decode_body(body, &message_weight_progress_type, &progress, &error), STATUS_OK);
    assert_int_equal(progress.request, 42);
    assert_true(progress.done > before && progress.done <= progress.total);
    events++;
  }
  assert_true(events >= 1);
  assert_int_equal(progress.done, progress.total);
  assert_int_equal(head.kind, MESSAGE_REPLY);
  assert_int_equal(head.id, 42);
  assert_int_equal(head.code, STATUS_OK);
  struct message_load_done done;
  assert_int_equal(message_decode_body(body, &message_load_done_type, &done, &error), STATUS_OK);
  assert_memory_equal(done.hash, expected.done.hash, 32);
  assert_int_equal(done.bytes, expected.done.bytes);
  int memfd = packet_take_fd(packet, 0);
  assert_int_equal(memfd_check(memfd, done.bytes, true, &error), STATUS_OK);
  uint8_t *bytes = memfd_map(memfd, done.bytes, false, &error);
  assert_non_null(bytes);
  assert_memory_equal(bytes, expected.bytes, done.bytes);
  munmap(bytes, done.bytes);
  close(memfd);
  close(control);
  expect_exit(pid, 0);
  free(packet);
  unload(&expected);
  close(fd);
  free(values);
}

static void expect_failure(uint32_t command, const struct message_weight_load *request, int fd, enum status status,
                           const char *reason) {
  int control;
  pid_t pid = start_loader(&control);
  send_load(control, command, request, fd);
  struct packet *packet = malloc(sizeof *packet);
  struct message_head head;
  struct message_body body;
  struct error error;
  assert_non_null(packet);
  receive(control, packet, &head, &body);
  assert_int_equal(head.kind, MESSAGE_REPLY);
  assert_int_equal(head.id, 42);
  assert_int_equal(head.code, status);
  assert_int_equal(packet->fd_count, 0);
  message_decode_failure(head.code, body, &error);
  if (!strstr(error.text, reason))
    fail_msg("'%s' does not say '%s'", error.text, reason);
  packet_close(packet);
  free(packet);
  close(control);
  expect_exit(pid, 0);
}

static void test_process_refuses(void **state) {
  (void)state;
  const float values[] = {1};
  int fd = file_of_f32(values, 1, 1);
  struct message_weight_load request = request_of(GEMM_FORMAT_INT8, GEMM_SCALE_ROW);
  expect_failure(COMMAND_weight_load, &request, fd, STATUS_PROTOCOL, "takes the request load");
  expect_failure(COMMAND_load, &request, -1, STATUS_PROTOCOL, "brings 1 descriptor, got 0");
  strcpy(request.tensor, "none");
  expect_failure(COMMAND_load, &request, fd, STATUS_NOT_FOUND, "no tensor 'none'");
  close(fd);
}

static void test_process_ends_with_its_socket(void **state) {
  (void)state;
  int control;
  pid_t pid = start_loader(&control);
  close(control);
  expect_exit(pid, 1);
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
      cmocka_unit_test(test_stored_int2),
      cmocka_unit_test(test_same_result_with_any_number_of_threads),
      cmocka_unit_test(test_hash_tells_contents_apart),
      cmocka_unit_test(test_values_are_refused_by_place),
      cmocka_unit_test(test_stored_values_are_refused),
      cmocka_unit_test(test_requests_are_refused),
      cmocka_unit_test(test_descriptors_are_refused),
      cmocka_unit_test(test_sparse_giant_is_refused),
      cmocka_unit_test(test_file_truncated_while_read),
      cmocka_unit_test(test_first_bad_band_is_named),
      cmocka_unit_test(test_progress_and_cancel),
      cmocka_unit_test(test_process_loads),
      cmocka_unit_test(test_process_refuses),
      cmocka_unit_test(test_process_ends_with_its_socket),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
