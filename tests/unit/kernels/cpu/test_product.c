/* How many threads compute a product while clients look out for it. */
#include "kernels/cpu/product/product.h"
#include "kernels/cpu/weight/weight.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static int threads_for(int cores, int threads, uint32_t awake, int64_t n, int64_t k, int64_t m) {
  struct product_engine engine = {.cores = cores};
  struct product_way way = {.threads = threads};
  struct backend_weight weight = {.shape = {.n = n, .k = k, .format = GEMM_FORMAT_INT8, .scale = GEMM_SCALE_ROW}};
  struct backend_job job = {.weight = &weight, .m = m, .awake = awake};
  struct error error;
  assert_int_equal(cpu_layout_compute(&weight.shape, &weight.layout, &error), STATUS_OK);
  return cpu_product_threads(&engine, &way, &job);
}

static void brief_products_leave_cores_to_those_who_wait(void **state) {
  assert_int_equal(threads_for(2, 2, 0, 1536, 384, 1), 2);
  assert_int_equal(threads_for(2, 2, 1, 1536, 384, 1), 1);
  assert_int_equal(threads_for(2, 2, 1, 1536, 384, 16), 1);
  assert_int_equal(threads_for(16, 16, 4, 1536, 384, 1), 12);
  assert_int_equal(threads_for(16, 16, 15, 1536, 384, 1), 1);
}

static void one_thread_is_left_however_many_wait(void **state) {
  assert_int_equal(threads_for(2, 2, 2, 1536, 384, 1), 1);
  assert_int_equal(threads_for(2, 2, 256, 1536, 384, 1), 1);
}

static void threads_that_leave_enough_are_left_alone(void **state) {
  assert_int_equal(threads_for(16, 8, 8, 1536, 384, 1), 8);
  assert_int_equal(threads_for(16, 8, 9, 1536, 384, 1), 7);
  assert_int_equal(threads_for(2, 1, 4, 1536, 384, 1), 1);
}

/* Clients sleep through these. */
static void long_products_take_all(void **state) {
  assert_int_equal(threads_for(2, 2, 1, 4096, 4096, 1), 2);
  assert_int_equal(threads_for(2, 2, 1, 1536, 384, 64), 2);
  assert_int_equal(threads_for(2, 2, 1, 1 << 20, 131071, INT32_MAX), 2);
}

static void plain_loops_leave_cores_too(void **state) {
  struct product_engine engine = {.cores = 4};
  struct backend_weight weight = {.shape = {.n = 1536, .k = 384, .format = GEMM_FORMAT_INT8}};
  struct backend_job job = {.weight = &weight, .m = 1};
  struct error error;
  assert_int_equal(cpu_pool_create(4, NULL, &engine.pool, &error), STATUS_OK);
  assert_int_equal(cpu_product_plain_threads(&engine, &job, 64), 4);
  job.awake = 1;
  assert_int_equal(cpu_product_plain_threads(&engine, &job, 64), 3);
  assert_int_equal(cpu_product_plain_threads(&engine, &job, 1536), 4);
  job.awake = 9;
  assert_int_equal(cpu_product_plain_threads(&engine, &job, 64), 1);
  cpu_pool_destroy(engine.pool);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(brief_products_leave_cores_to_those_who_wait),
      cmocka_unit_test(one_thread_is_left_however_many_wait),
      cmocka_unit_test(threads_that_leave_enough_are_left_alone),
      cmocka_unit_test(long_products_take_all),
      cmocka_unit_test(plain_loops_leave_cores_too),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
