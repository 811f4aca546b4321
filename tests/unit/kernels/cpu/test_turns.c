/* Products of the CPU backend that are computed a turn at a time: the same bits as in one go, whatever comes between;
 * they can be given up, and what they take is bounded and given back. */
#include "kernels/backend.h"
#include "tests/support/reference/oracle.h"
#include "tests/support/system/private_bytes.h"
#include "tests/support/worker/device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

extern const struct backend_ops cpu_backend;

#define MOST ((uint64_t)64 << 20)

enum { LONGEST_NS = 20000000, EVERY = 32 /* more than can be under way */ };

static struct device device;

static int open_device(void **state) {
  device_open(&device, &cpu_backend, 1, (uint64_t)96 << 20);
  return 0;
}

static int close_device(void **state) {
  device_close(&device);
  close(device.slab_fd);
  return 0;
}

static struct backend_turns *begin(const struct backend_job *job) {
  struct backend_turns *turns;
  struct error error;
  assert_int_equal(device.ops->turns_begin(device.backend, job, EVERY, &turns, &error), STATUS_OK);
  return turns;
}

/* As short turns as can be, with `between` in each pause where it is not NULL. Returns how many. */
static unsigned finish_in_turns(const struct backend_job *job, const struct backend_job *between) {
  struct backend_turns *turns = begin(job);
  struct backend_done done;
  struct error error;
  unsigned count = 1;
  for (; !device.ops->turns_next(device.backend, turns, 0, &done, &error); count++)
    if (between != NULL)
      device_finish(&device, between);
  assert_int_equal(done.status, STATUS_OK);
  assert_int_equal(done.tag, job->tag);
  return count;
}

static void same_bits(const struct gemm_weight *shape, int64_t m, enum gemm_type x_type, bool interrupted) {
  struct oracle_weight weight, small;
  const struct gemm_weight small_shape = {48, 96, GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 0, 0};
  struct oracle_x x, small_x;
  oracle_weight_make(&weight, shape, 1);
  oracle_weight_make(&small, &small_shape, 2);
  oracle_x_make(&x, m, shape->k, x_type, (int64_t)gemm_x_scale_columns(shape), 3);
  oracle_x_make(&small_x, 3, 96, GEMM_F32, 1, 4);
  struct backend_weight *stored = device_load(&device, &weight, 0);
  uint64_t behind = (weight.layout.total_bytes * 2 / GEMM_SECTION + 1) * GEMM_SECTION;
  struct backend_weight *other = device_load(&device, &small, behind);
  struct device_request request = {.weight = stored, .shape = shape, .x = &x, .m = m, .y_type = GEMM_F32};
  struct backend_job job = device_stage(&device, &request);
  device_finish(&device, &job);
  uint8_t *whole = device_collect(&device, &request, &job);
  float *small_y = malloc(3 * 48 * sizeof *small_y);
  struct backend_job between = {.tag = 9,
                                .weight = other,
                                .arena = device.arena,
                                .m = 3,
                                .x_type = GEMM_F32,
                                .y_type = GEMM_F32,
                                .x = small_x.data,
                                .y = small_y,
                                .x_stride = 96 * sizeof(float),
                                .y_stride = 48 * sizeof(float)};
  job = device_stage(&device, &request);
  assert_true(finish_in_turns(&job, interrupted ? &between : NULL) > 1);
  uint8_t *turned = device_collect(&device, &request, &job);
  assert_memory_equal(whole, turned, (size_t)(m * shape->n) * sizeof(float));
  free(whole);
  free(turned);
  free(small_y);
  device.ops->weight_detach(device.backend, stored);
  device.ops->weight_detach(device.backend, other);
  oracle_weight_free(&weight);
  oracle_weight_free(&small);
  oracle_x_free(&x);
  oracle_x_free(&small_x);
}

static void every_format_gives_the_same_bits(void **state) {
  for (int i = 0; i < oracle_kinds_count; i++) {
    struct gemm_weight shape = {.n = 150, .k = 500, .format = oracle_kinds[i].format, .scale = oracle_kinds[i].scale};
    enum gemm_type x_type = shape.format == GEMM_FORMAT_F16    ? GEMM_F16
                            : shape.format == GEMM_FORMAT_BF16 ? GEMM_BF16
                                                               : GEMM_F32;
    same_bits(&shape, 70, x_type, i % 2 == 0);
  }
}

/* So long that one panel is more than a piece: K is divided, too. */
static void long_k_gives_the_same_bits(void **state) {
  const struct gemm_weight shapes[] = {{40, 400000, GEMM_FORMAT_FP8, GEMM_SCALE_ROW, 0, 0},
                                       {40, 400000, GEMM_FORMAT_FP8, GEMM_SCALE_BLOCK, 0, 0},
                                       {33, 300003, GEMM_FORMAT_F16, GEMM_SCALE_NONE, 0, 0},
                                       {33, 300003, GEMM_FORMAT_BF16, GEMM_SCALE_NONE, 0, 0}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    same_bits(&shapes[i], 15,
              shapes[i].format == GEMM_FORMAT_F16    ? GEMM_F16
              : shapes[i].format == GEMM_FORMAT_BF16 ? GEMM_BF16
                                                     : GEMM_E4M3,
              true);
}

/* W [n, k] and x [m, k] of halves, whose sums are exact. */
struct tensors {
  uint16_t *x, *w;
  float *y;
  struct backend_operand operand;
  struct backend_job job;
};

static uint16_t half(int64_t i) {
  static const uint16_t values[] = {0xbc00, 0xb800, 0, 0x3800, 0x3c00, 0x3800, 0xb800};
  return values[(i * i + i / 7) % 7];
}

static double value(int64_t i) {
  uint16_t bits = half(i);
  return bits == 0 ? 0 : (bits & 0x8000 ? -1 : 1) * ((bits & 0x7fff) == 0x3c00 ? 1 : 0.5);
}

static void make_tensors(struct tensors *out, int64_t m, int64_t n, int64_t k) {
  *out = (struct tensors){.x = malloc((size_t)(m * k) * 2), .w = malloc((size_t)(n * k) * 2)};
  out->y = calloc((size_t)(m * n), sizeof(float));
  for (int64_t i = 0; i < m * k; i++)
    out->x[i] = half(i);
  for (int64_t i = 0; i < n * k; i++)
    out->w[i] = half(i + 3);
  out->operand = (struct backend_operand){
      .shape = {n, k, GEMM_FORMAT_F16, GEMM_SCALE_NONE, 0, 0}, .w = out->w, .stride = (uint64_t)k * 2};
  out->job = (struct backend_job){.tag = 5,
                                  .operand = &out->operand,
                                  .arena = device.arena,
                                  .m = m,
                                  .x_type = GEMM_F16,
                                  .y_type = GEMM_F32,
                                  .x = out->x,
                                  .y = out->y,
                                  .x_stride = (uint64_t)k * 2,
                                  .y_stride = (uint64_t)n * sizeof(float)};
}

static void free_tensors(struct tensors *tensors) {
  free(tensors->x);
  free(tensors->w);
  free(tensors->y);
}

static void check_tensors(const struct tensors *tensors, const float *bias) {
  int64_t n = tensors->operand.shape.n, k = tensors->operand.shape.k;
  for (int64_t row = 0; row < tensors->job.m; row++)
    for (int64_t column = 0; column < n; column++) {
      double sum = bias != NULL ? bias[column] : 0;
      for (int64_t i = 0; i < k; i++)
        sum += value(row * k + i) * value(column * k + i + 3);
      if ((double)tensors->y[row * n + column] != sum)
        fail_msg("row %lld, column %lld: %.9g in place of %.9g", (long long)row, (long long)column,
                 (double)tensors->y[row * n + column], sum);
    }
}

/* Sums over stretches of K, ragged ones, with a bias, in one go and in turns. */
static void tensors_of_any_k_are_exact(void **state) {
  static const int64_t sizes[][3] = {{3, 5, 65536}, {3, 5, 65537}, {2, 70, 200003}, {1, 1, 1 << 20}, {5, 300, 70000}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    struct tensors tensors;
    float bias[300];
    make_tensors(&tensors, sizes[i][0], sizes[i][1], sizes[i][2]);
    for (int n = 0; n < 300; n++)
      bias[n] = (float)(n % 9);
    device_finish(&device, &tensors.job);
    check_tensors(&tensors, NULL);
    memset(tensors.y, 0xff, (size_t)(sizes[i][0] * sizes[i][1]) * sizeof(float));
    tensors.job.bias = bias;
    tensors.job.bias_type = GEMM_F32;
    finish_in_turns(&tensors.job, NULL);
    check_tensors(&tensors, bias);
    free_tensors(&tensors);
  }
}

/* However large W is: what is laid out of it at a time has a bound, is told, and is given back. */
static void memory_is_bounded_and_given_back(void **state) {
  struct tensors tensors;
  make_tensors(&tensors, 4, 2048, 32768); /* W has 128 MiB */
  device.ops->rest(device.backend);
  assert_int_equal(device.ops->working(device.backend), 0);
  uint64_t before = private_bytes(getpid());
  finish_in_turns(&tensors.job, NULL);
  uint64_t told = device.ops->working(device.backend);
  assert_in_range(told, 1 << 20, MOST);
  assert_true(private_bytes(getpid()) <= before + MOST);
  device.ops->rest(device.backend);
  assert_int_equal(device.ops->working(device.backend), 0);
  assert_true(private_bytes(getpid()) <= before + (8 << 20));
  free_tensors(&tensors);
}

static void one_can_be_given_up(void **state) {
  struct tensors tensors;
  struct backend_done done;
  struct error error;
  make_tensors(&tensors, 64, 512, 8192);
  struct backend_turns *turns = begin(&tensors.job);
  assert_false(device.ops->turns_next(device.backend, turns, 0, &done, &error));
  device.ops->turns_abandon(device.backend, turns);
  assert_true(device.ops->turns_next(device.backend, turns, 0, &done, &error));
  assert_int_equal(done.status, STATUS_CANCELLED);
  turns = begin(&tensors.job); /* before its first turn */
  device.ops->turns_abandon(device.backend, turns);
  while (!device.ops->turns_next(device.backend, turns, 0, &done, &error))
    ;
  assert_int_equal(done.status, STATUS_CANCELLED);
  free_tensors(&tensors);
}

static void so_many_are_under_way(void **state) {
  struct tensors tensors[3];
  struct backend_turns *turns[3];
  struct backend_done done;
  struct error error;
  for (int i = 0; i < 3; i++)
    make_tensors(&tensors[i], 8, 64, 4096);
  for (int i = 0; i < 2; i++)
    assert_int_equal(device.ops->turns_begin(device.backend, &tensors[i].job, 2, &turns[i], &error), STATUS_OK);
  assert_int_equal(device.ops->turns_begin(device.backend, &tensors[2].job, 2, &turns[2], &error), STATUS_BUSY);
  assert_int_equal(device.ops->turns_begin(device.backend, &tensors[2].job, 3, &turns[2], &error), STATUS_OK);
  bool ended[3] = {false, false, false};
  while (!ended[0] || !ended[1] || !ended[2])
    for (int i = 0; i < 3; i++) /* each with the others half done */
      if (!ended[i])
        ended[i] = device.ops->turns_next(device.backend, turns[i], 0, &done, &error);
  for (int i = 0; i < 3; i++) {
    check_tensors(&tensors[i], NULL);
    free_tensors(&tensors[i]);
  }
}

/* Whatever its shape: by what this is computed in, as predicted. */
static void no_piece_is_long(void **state) {
  static const int64_t sizes[][3] = {{1, 32, 1 << 21}, {600, 700, 800},   {20000, 16, 64},
                                     {1, 1 << 18, 8},  {16, 16, 1 << 20}, {512, 512, 4096}};
  struct device before = device;
  device_open(&device, &cpu_backend, 1, 1 << 20);
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    struct tensors tensors;
    make_tensors(&tensors, sizes[i][0], sizes[i][1], sizes[i][2]);
    finish_in_turns(&tensors.job, NULL);
    free_tensors(&tensors);
    assert_in_range(device.ops->longest_ns(device.backend), 1, LONGEST_NS);
  }
  int slab_fd = device.slab_fd;
  device_close(&device);
  close(slab_fd);
  device = before;
}

/* What decides whether a product has turns grows with everything that takes time. */
static void predictions_know_every_dimension(void **state) {
  struct backend_operand operand = {.shape = {256, 256, GEMM_FORMAT_F16, GEMM_SCALE_NONE, 0, 0}};
  struct backend_job job = {.operand = &operand, .m = 1};
  assert_true(device.ops->predict_ns(device.backend, &job) < 2000000);
  job.m = 1 << 20;
  assert_true(device.ops->predict_ns(device.backend, &job) > 2000000);
  job.m = 1;
  operand.shape.n = 1 << 20;
  assert_true(device.ops->predict_ns(device.backend, &job) > 2000000);
  operand.shape.n = 1;
  operand.shape.k = 1 << 22;
  assert_true(device.ops->predict_ns(device.backend, &job) > 2000000);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_format_gives_the_same_bits),
      cmocka_unit_test(long_k_gives_the_same_bits),
      cmocka_unit_test(tensors_of_any_k_are_exact),
      cmocka_unit_test(memory_is_bounded_and_given_back),
      cmocka_unit_test(one_can_be_given_up),
      cmocka_unit_test(so_many_are_under_way),
      cmocka_unit_test(no_piece_is_long),
      cmocka_unit_test(predictions_know_every_dimension),
  };
  return cmocka_run_group_tests(tests, open_device, close_device);
}
