/* How weights and products live on every backend that has a device here: slabs that outlive their process, checksums,
 * layouts of other builds, and products beyond the number in flight.
 *
 * Arguments and environment as for test_conformance. */
#include "kernels/backend.h"
#include "tests/support/reference/oracle.h"
#include "tests/support/worker/device.h"

#include <fcntl.h>
#include <setjmp.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define SLAB_BYTES ((uint64_t)8 << 20)

static struct device device; /* of the group that runs */

struct exchange { /* between this program and itself, in a memfd */
  uint64_t checksum;
  uint8_t y[65536];
};

static const struct gemm_weight kept_shape = {.n = 130, .k = 500, .format = GEMM_FORMAT_FP8, .scale = GEMM_SCALE_BLOCK};
enum { KEPT_OFFSET = 1 << 16, KEPT_ROWS = 6 };

static void use_kept(struct device *own, struct backend_weight *weight, struct exchange *out) {
  struct oracle_x x;
  struct error error = {0};
  oracle_x_make(&x, KEPT_ROWS, kept_shape.k, GEMM_F16, 1, 8);
  struct device_request request = {.weight = weight, .shape = &kept_shape, .x = &x, .m = x.m, .y_type = GEMM_F32};
  void *y = device_run(own, &request);
  memcpy(out->y, y, (size_t)(KEPT_ROWS * kept_shape.n) * sizeof(float));
  free(y);
  oracle_x_free(&x);
  assert_int_equal(own->ops->weight_checksum(own->backend, weight, &out->checksum, &error), STATUS_OK);
}

static const struct backend_ops *find_backend(const char *name) {
  for (int i = 0; backend_table[i] != NULL; i++) {
    if (strcmp(backend_table[i]->name, name) == 0) {
      return backend_table[i];
    }
  }
  return NULL;
}

static struct exchange *map_exchange(int fd) {
  struct exchange *out = mmap(NULL, sizeof(*out), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  assert_ptr_not_equal(out, MAP_FAILED);
  return out;
}

static const char **child_arguments; /* backend, slab fd, slab bytes, layout, exchange fd */

/* What the other process does with the slab that it was handed. */
static void test_import(void **state) {
  struct device own;
  struct backend_weight *weight = NULL;
  struct error error = {0};
  struct exchange *out = map_exchange(atoi(child_arguments[4]));
  device_open(&own, find_backend(child_arguments[0]), 1, 0);
  device_import(&own, atoi(child_arguments[1]), strtoull(child_arguments[2], NULL, 10));
  uint32_t layout = (uint32_t)strtoul(child_arguments[3], NULL, 10);
  assert_int_equal(own.ops->weight_attach(own.backend, &kept_shape, layout, own.slab, KEPT_OFFSET, &weight, &error),
                   STATUS_OK);
  use_kept(&own, weight, out);
  own.ops->weight_detach(own.backend, weight);
  device_close(&own);
  munmap(out, sizeof(*out));
}

static int run_child(const char *backend, int slab_fd, uint64_t slab_bytes, uint32_t layout, int exchange_fd) {
  char numbers[4][24];
  extern char **environ;
  pid_t child;
  int status = -1;
  snprintf(numbers[0], sizeof(numbers[0]), "%d", slab_fd);
  snprintf(numbers[1], sizeof(numbers[1]), "%llu", (unsigned long long)slab_bytes);
  snprintf(numbers[2], sizeof(numbers[2]), "%u", layout);
  snprintf(numbers[3], sizeof(numbers[3]), "%d", exchange_fd);
  posix_spawn_file_actions_t actions; /* its report would look like this program's */
  char name[16], self[] = "/proc/self/exe", option[] = "--import";
  snprintf(name, sizeof(name), "%s", backend);
  char *const arguments[] = {self, option, name, numbers[0], numbers[1], numbers[2], numbers[3], NULL};
  assert_int_equal(fcntl(slab_fd, F_SETFD, 0), 0);
  assert_int_equal(fcntl(exchange_fd, F_SETFD, 0), 0);
  assert_int_equal(posix_spawn_file_actions_init(&actions), 0);
  assert_int_equal(posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0), 0);
  assert_int_equal(posix_spawn(&child, self, &actions, NULL, arguments, environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  assert_int_equal(waitpid(child, &status, 0), child);
  return status;
}

static void test_slab_outlives_its_maker(void **state) {
  struct device maker;
  struct backend_plan plan;
  struct error error = {0};
  struct oracle_weight weight;
  struct exchange *first = calloc(1, sizeof(*first));
  assert_non_null(first);
  oracle_weight_make(&weight, &kept_shape, 4);
  device_open(&maker, device.ops, 1, SLAB_BYTES);
  struct backend_weight *handle = device_load(&maker, &weight, KEPT_OFFSET);
  assert_int_equal(maker.ops->weight_plan(maker.backend, &kept_shape, &plan, &error), STATUS_OK);
  use_kept(&maker, handle, first);
  maker.ops->weight_detach(maker.backend, handle);
  device_close(&maker);

  int exchange_fd = memfd_create("exchange", MFD_CLOEXEC);
  assert_int_equal(ftruncate(exchange_fd, sizeof(struct exchange)), 0);
  struct exchange *second = map_exchange(exchange_fd);
  int status = run_child(device.ops->name, maker.slab_fd, maker.slab_bytes, plan.layout, exchange_fd);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
  assert_true(first->checksum == second->checksum);
  assert_memory_equal(first->y, second->y, sizeof(first->y));
  munmap(second, sizeof(*second));
  close(exchange_fd);
  close(maker.slab_fd);
  oracle_weight_free(&weight);
  free(first);
}

/* One bit of one code changes the checksum; the same bytes elsewhere in the slab do not. */
static void test_checksum(void **state) {
  struct error error = {0};
  for (int kind = 0; kind < device_kinds(device.ops); kind++) {
    struct gemm_weight shape = {
        .n = 19, .k = 70, .format = oracle_kinds[kind].format, .scale = oracle_kinds[kind].scale};
    struct oracle_weight weight;
    uint64_t sums[3];
    oracle_weight_make(&weight, &shape, 6);
    for (int i = 0; i < 3; i++) {
      weight.canonical[weight.layout.row_bytes * 11 + 3] ^= i == 2 ? 16 : 0;
      struct backend_weight *handle = device_load(&device, &weight, (uint64_t)i << 20);
      assert_int_equal(device.ops->weight_checksum(device.backend, handle, &sums[i], &error), STATUS_OK);
      device.ops->weight_detach(device.backend, handle);
    }
    assert_true(sums[0] == sums[1]);
    assert_true(sums[0] != sums[2]);
    oracle_weight_free(&weight);
  }
}

/* Into a slab of another size: the same bytes, which serve there, and nothing beside them. */
static void test_copy(void **state) {
  struct error error = {0};
  struct backend_plan plan;
  struct backend_slab *other = NULL;
  struct backend_weight *copy = NULL;
  struct oracle_weight weight;
  struct exchange *first = calloc(1, sizeof(*first)), *second = calloc(1, sizeof(*second));
  enum { FROM = 1 << 16, TO = 3 << 16 };
  int fd = -1;
  assert_true(first != NULL && second != NULL);
  oracle_weight_make(&weight, &kept_shape, 4);
  struct backend_weight *handle = device_load(&device, &weight, FROM);
  assert_int_equal(device.ops->weight_plan(device.backend, &kept_shape, &plan, &error), STATUS_OK);
  assert_int_equal(device.ops->slab_create(device.backend, 2 * SLAB_BYTES, &fd, &other, &error), STATUS_OK);
  assert_int_equal(device.ops->slab_copy(device.backend, device.slab, FROM, other, TO, plan.bytes, &error), STATUS_OK);
  assert_int_equal(device.ops->weight_attach(device.backend, &kept_shape, plan.layout, other, TO, &copy, &error),
                   STATUS_OK);
  use_kept(&device, handle, first);
  use_kept(&device, copy, second);
  assert_true(first->checksum == second->checksum);
  assert_memory_equal(first->y, second->y, sizeof(first->y));
  static const struct {
    uint64_t from, to, bytes;
  } wrong[] = {{FROM, 2 * SLAB_BYTES, 256},
               {FROM, TO, 2 * SLAB_BYTES},
               {UINT64_MAX - 255, TO, 512},
               {FROM, UINT64_MAX - 255, 512},
               {(uint64_t)1 << 62, TO, 256}};
  for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
    assert_int_equal(
        device.ops->slab_copy(device.backend, device.slab, wrong[i].from, other, wrong[i].to, wrong[i].bytes, &error),
        STATUS_INVALID);
  }
  device.ops->weight_detach(device.backend, copy);
  device.ops->weight_detach(device.backend, handle);
  device.ops->slab_close(device.backend, other);
  close(fd);
  oracle_weight_free(&weight);
  free(first);
  free(second);
}

static void test_unknown_layout(void **state) {
  struct gemm_weight shape = {.n = 8, .k = 64, .format = GEMM_FORMAT_INT8, .scale = GEMM_SCALE_ROW};
  struct backend_weight *handle = NULL;
  struct error error = {0};
  enum status status = device.ops->weight_attach(device.backend, &shape, 0xfffffff0u, device.slab, 0, &handle, &error);
  assert_int_not_equal(status, STATUS_OK);
  assert_int_equal(error.status, status);
  assert_true(error.text[0] != 0);
}

static void test_busy(void **state) {
  struct device own;
  struct oracle_weight weight;
  struct oracle_x x;
  struct error error = {0};
  struct backend_done done[4];
  struct gemm_weight shape = {.n = 40, .k = 200, .format = GEMM_FORMAT_INT8, .scale = GEMM_SCALE_ROW};
  oracle_weight_make(&weight, &shape, 1);
  oracle_x_make(&x, 2, shape.k, GEMM_F32, 1, 2);
  device_open(&own, device.ops, 2, SLAB_BYTES);
  struct device_request request = {
      .weight = device_load(&own, &weight, 0), .shape = &shape, .x = &x, .m = 2, .y_type = GEMM_F32};
  struct backend_job job = device_stage(&own, &request);
  for (job.tag = 0; job.tag < 2; job.tag++) {
    assert_int_equal(own.ops->submit(own.backend, &job, &error), STATUS_OK);
  }
  assert_int_equal(own.ops->submit(own.backend, &job, &error), STATUS_BUSY);
  assert_int_equal(error.status, STATUS_BUSY);
  int finished = 0;
  while (finished < 2) {
    finished += own.ops->poll(own.backend, done + finished, 4 - finished);
  }
  assert_int_equal(finished, 2);
  assert_int_equal(done[0].tag + done[1].tag, 1);
  assert_int_equal(own.ops->poll(own.backend, done, 4), 0);
  device_finish(&own, &job);
  free(device_collect(&own, &request, &job));
  own.ops->weight_detach(own.backend, request.weight);
  device_close(&own);
  close(own.slab_fd);
  oracle_x_free(&x);
  oracle_weight_free(&weight);
}

/* The same product again and again, each time of a weight elsewhere: where it was before is no memory any more. Also by
 * copies of it, which do not outlive a rest. */
static void test_measured_where_it_lies_now(void **state) {
  struct error error = {0};
  struct backend_plan plan;
  struct oracle_weight weight;
  struct oracle_x x;
  struct backend_timing timing = {.launches = 5, .quantize = true, .dependent = true};
  oracle_weight_make(&weight, &kept_shape, 4);
  oracle_x_make(&x, KEPT_ROWS, kept_shape.k, GEMM_F16, 1, 8);
  struct backend_weight *handle = device_load(&device, &weight, 0);
  assert_int_equal(device.ops->weight_plan(device.backend, &kept_shape, &plan, &error), STATUS_OK);
  for (int round = 0; round < 4; round++) {
    struct backend_slab *other;
    struct backend_weight *copy;
    uint64_t ns = 0;
    int fd = -1;
    assert_int_equal(device.ops->slab_create(device.backend, SLAB_BYTES, &fd, &other, &error), STATUS_OK);
    assert_int_equal(device.ops->slab_copy(device.backend, device.slab, 0, other, 0, plan.bytes, &error), STATUS_OK);
    assert_int_equal(device.ops->weight_attach(device.backend, &kept_shape, plan.layout, other, 0, &copy, &error),
                     STATUS_OK);
    struct device_request request = {.weight = copy, .shape = &kept_shape, .x = &x, .m = x.m, .y_type = GEMM_F32};
    free(device_run(&device, &request));
    struct backend_job job = device_stage(&device, &request);
    for (int again = 0; again < 3; again++) {
      timing.cold = again > 0;
      assert_int_equal(device.ops->measure(device.backend, &job, &copy, 1, &timing, &ns, &error), STATUS_OK);
      assert_true(ns > 0);
      if (round == 1 && device.ops->rest != NULL)
        device.ops->rest(device.backend);
    }
    device.ops->weight_detach(device.backend, copy);
    device.ops->slab_close(device.backend, other);
    close(fd);
  }
  device.ops->weight_detach(device.backend, handle);
  oracle_x_free(&x);
  oracle_weight_free(&weight);
}

/* What products under way need is counted and stays within what `in_flight` of them may take. A device takes some of it
 * before they come; the machine's own cores take it with them, and give it back. */
static void test_working_memory(void **state) {
  struct device own;
  struct oracle_weight weight;
  struct oracle_x x;
  struct backend_info info;
  struct gemm_weight shape = {.n = 40, .k = 200, .format = GEMM_FORMAT_INT8, .scale = GEMM_SCALE_ROW};
  if (device.ops->working == NULL) {
    skip();
  }
  oracle_weight_make(&weight, &shape, 1);
  oracle_x_make(&x, 2, shape.k, GEMM_F32, 1, 2);
  device_open(&own, device.ops, 2, SLAB_BYTES);
  own.ops->describe(own.backend, &info);
  uint64_t before = own.ops->working(own.backend);
  struct device_request request = {
      .weight = device_load(&own, &weight, 0), .shape = &shape, .x = &x, .m = 2, .y_type = GEMM_F32};
  uint64_t loaded = own.ops->working(own.backend);
  for (int i = 0; i < 6; i++) { /* what comes again becomes a graph */
    free(device_run(&own, &request));
  }
  uint64_t used = own.ops->working(own.backend);
  assert_true(own.ops->on_cores ? before == 0 && loaded == 0 : before > 0 && before < loaded);
  assert_true(loaded < used);
  assert_true(used - loaded < (uint64_t)1 << 20);
  assert_true(used < info.memory_total / 16);
  if (own.ops->rest != NULL) {
    own.ops->rest(own.backend);
    if (own.ops->on_cores)
      assert_int_equal(own.ops->working(own.backend), loaded);
    assert_in_range(own.ops->working(own.backend), loaded, used); /* graphs stay */
  }
  own.ops->weight_detach(own.backend, request.weight);
  device_close(&own);
  close(own.slab_fd);
  oracle_x_free(&x);
  oracle_weight_free(&weight);
}

static int run_group(const struct backend_ops *ops) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_slab_outlives_its_maker),
      cmocka_unit_test(test_checksum),
      cmocka_unit_test(test_copy),
      cmocka_unit_test(test_unknown_layout),
      cmocka_unit_test(test_busy),
      cmocka_unit_test(test_measured_where_it_lies_now),
      cmocka_unit_test(test_working_memory),
  };
  device_group(&device, ops, SLAB_BYTES);
  return cmocka_run_group_tests_name(ops->name, tests, device_group_open, device_group_close);
}

int main(int count, char **arguments) {
  const struct CMUnitTest child[] = {cmocka_unit_test(test_import)};
  if (count == 7 && strcmp(arguments[1], "--import") == 0) {
    child_arguments = (const char **)arguments + 2;
    return cmocka_run_group_tests(child, NULL, NULL);
  }
  return device_groups(count, arguments, run_group);
}
