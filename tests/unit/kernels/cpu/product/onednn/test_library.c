/* oneDNN as a variant of the CPU backend: the same bits, where it is installed; refused with the reason where not. */
#include "kernels/backend.h"
#include "tests/support/worker/device.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

extern const struct backend_ops cpu_backend;

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

/* A weight, rows of x, and oneDNN's variant. */
struct library_bench {
  struct device device;
  struct oracle_weight weight;
  struct oracle_x x;
  struct variant onednn;
  struct device_request request;
  struct variant_problem problem;
};

static void library_open(struct library_bench *bench, int64_t k, int64_t rows) {
  struct error error = {0};
  *bench = (struct library_bench){0};
  device_open(&bench->device, &cpu_backend, 1, 1 << 20);
  oracle_weight_make(&bench->weight, &(struct gemm_weight){203, k, GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 0, 0}, 1);
  oracle_x_make(&bench->x, rows, k, GEMM_F32, 1, 1);
  assert_int_equal(variant_parse(cpu_backend.families, "onednn", &bench->onednn, &error), STATUS_OK);
  bench->request = (struct device_request){.weight = device_load(&bench->device, &bench->weight, 0),
                                           .shape = &bench->weight.shape,
                                           .x = &bench->x,
                                           .y_type = GEMM_F32};
  bench->problem = (struct variant_problem){
      .weight = bench->weight.shape, .x_type = GEMM_F32, .y_type = GEMM_F32, .bias_type = GEMM_TYPE_NONE};
}

static void library_close(struct library_bench *bench) {
  cpu_backend.weight_detach(bench->device.backend, bench->request.weight);
  oracle_x_free(&bench->x);
  oracle_weight_free(&bench->weight);
  device_close(&bench->device);
  close(bench->device.slab_fd);
}

/* Every bit of so many rows is as by our kernels. */
static void expect_library(struct library_bench *bench, int64_t rows) {
  bench->request.m = rows;
  bench->request.variant = NULL;
  void *own = device_run(&bench->device, &bench->request);
  bench->request.variant = &bench->onednn;
  void *library = device_run(&bench->device, &bench->request);
  assert_memory_equal(own, library, (size_t)(rows * bench->weight.shape.n) * sizeof(float));
  free(own);
  free(library);
}

/* oneDNN's sums are exact for INT8: every bit is as by our kernels, whatever rows its primitives were made for. Where
 * it is not installed the variant is refused with the reason. */
static void test_library(void **state) {
  struct library_bench bench;
  struct error error = {0};
  library_open(&bench, 257, 70);
  struct backend *backend = bench.device.backend;
  bench.problem.m = 96;
  enum status status = cpu_backend.variant_check(backend, &bench.problem, &bench.onednn, NULL, &error);
  if (status != STATUS_OK) {
    assert_int_equal(status, STATUS_UNSUPPORTED);
    assert_non_null(strstr(error.text, "oneDNN"));
  }
  /* what takes long at first is listed apart */
  struct variant listed[64];
  int count = cpu_backend.variants(backend, &bench.problem, NULL, false, listed, 64);
  for (int i = 0; i < count; i++)
    assert_false(listed[i].family->library);
  assert_int_equal(cpu_backend.library_variants(backend, &bench.problem, false, listed, 64), status == STATUS_OK);
  for (int64_t m = 1; status == STATUS_OK && m <= 70; m += m < 10 ? 1 : 20)
    expect_library(&bench, m);
  bench.problem.weight.format = GEMM_FORMAT_F16;
  bench.problem.weight.scale = GEMM_SCALE_NONE;
  assert_int_equal(cpu_backend.variant_check(backend, &bench.problem, &bench.onednn, NULL, &error), STATUS_UNSUPPORTED);
  library_close(&bench);
}

/* What was kept with another oneDNN, or without one, is of another identity: nobody has compared it with this one. */
static void test_library_is_of_the_identity(void **state) {
  const struct gemm_weight shape = {64, 64, GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 0, 0};
  const struct backend_config with = {.in_flight = 1, .threads = 1, .library_bytes = 1 << 20};
  const struct backend_config without = {.in_flight = 1, .threads = 1};
  const struct variant_problem problem = {.weight = shape, .m = 1, .x_type = GEMM_F32, .y_type = GEMM_F32};
  struct backend_info info, other;
  struct backend *backend = NULL;
  struct variant onednn;
  struct error error = {0};
  assert_int_equal(variant_parse(cpu_backend.families, "onednn", &onednn, &error), STATUS_OK);
  assert_int_equal(cpu_backend.open(&without, &backend, &error), STATUS_OK);
  cpu_backend.describe(backend, &other);
  cpu_backend.close(backend);
  assert_null(strstr(other.identity, "onednn"));
  assert_int_equal(cpu_backend.open(&with, &backend, &error), STATUS_OK);
  cpu_backend.describe(backend, &info);
  bool there = cpu_backend.variant_check(backend, &problem, &onednn, NULL, &error) == STATUS_OK;
  cpu_backend.close(backend);
  assert_int_equal(strcmp(info.identity, other.identity) != 0, there);
  assert_int_equal(strstr(info.identity, "-onednn-2.") != NULL, there);
  assert_string_equal(info.device_name, other.device_name);
}

/* A weight keeps primitives for some numbers of rows alone, and one product may want two: neither makes room for the
 * other. */
static void test_library_makes_room(void **state) {
  static const int64_t rows[] = {512, 1, 2, 4, 8, 16, 24, 32, 512 + 96};
  struct library_bench bench;
  struct error error;
  library_open(&bench, 64, 512 + 96);
  bench.problem.m = 512;
  bool there =
      cpu_backend.variant_check(bench.device.backend, &bench.problem, &bench.onednn, NULL, &error) == STATUS_OK;
  for (int i = 0; i < COUNT(rows) && there; i++)
    expect_library(&bench, rows[i]);
  library_close(&bench);
}

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/* Between the backend and oneDNN, which it opens at run time. The sanitizers want dlsym for themselves. */
static bool library_fails;
static int (*execute)(void *, void *, int, void *);

static int execute_or_not(void *primitive, void *stream, int count, void *arguments) {
  return library_fails ? 1 /* dnnl_out_of_memory */ : execute(primitive, stream, count, arguments);
}

void *dlsym(void *handle, const char *name) {
  void *(*find)(void *, const char *);
  *(void **)&find = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
  if (strcmp(name, "dnnl_primitive_execute") != 0)
    return find(handle, name);
  *(void **)&execute = find(handle, name);
  int (*instead)(void *, void *, int, void *) = execute_or_not;
  return *(void **)&instead;
}

/* What oneDNN cannot compute is computed all the same. */
static void test_library_fails(void **state) {
  struct library_bench bench;
  struct error error;
  library_open(&bench, 257, 600);
  bench.problem.m = 600;
  bool there =
      cpu_backend.variant_check(bench.device.backend, &bench.problem, &bench.onednn, NULL, &error) == STATUS_OK;
  for (int64_t rows = 7; rows <= 600 && there; rows += 593) {
    expect_library(&bench, rows); /* its copy of the weight is there */
    library_fails = true;
    expect_library(&bench, rows);
    library_fails = false;
    expect_library(&bench, rows);
  }
  library_close(&bench);
}
#else
static void test_library_fails(void **state) {
  skip();
}
#endif

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_library),
      cmocka_unit_test(test_library_is_of_the_identity),
      cmocka_unit_test(test_library_makes_room),
      cmocka_unit_test(test_library_fails),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
