/* gemm-bench as a shell uses it: what it counts, and what it refuses. */
#include "tests/support/daemon/daemon.h"
#include "tests/support/daemon/shell.h"
#include "tests/support/reference/checkpoint.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N = 24, K = 40 };

static struct daemon gemmd;

static int begin(void **state) {
  struct oracle_weight weight;
  daemon_make(&gemmd, "");
  shell_begin(&gemmd);
  oracle_weight_make(&weight, &(struct gemm_weight){N, K, GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 0, 0}, 1);
  checkpoint_write_one(daemon_path(&gemmd, "model.safetensors"), "w", &weight);
  oracle_weight_free(&weight);
  daemon_start(&gemmd);
  shell_expect("$T/gemmctl load model.safetensors --tensor w --format int8", 0);
  return 0;
}

static int end(void **state) {
  daemon_end(&gemmd);
  return 0;
}

static void check_quantiles(const json_t *object, const char *key) {
  const json_t *times = json_object_get(object, key);
  double p50 = json_real_value(json_object_get(times, "p50")), p99 = json_real_value(json_object_get(times, "p99"));
  double p999 = json_real_value(json_object_get(times, "p999"));
  assert_true(p50 > 0 && p50 <= p99 && p99 <= p999);
}

static void test_counts_what_it_was_asked_for(void **state) {
  json_t *object =
      shell_expect_json("$T/gemm-bench --weight w --m 3 --clients 3 --in-flight 2 --requests 200 --warmup 0 --json", 0);
  assert_string_equal(shell_string(object, "weight"), "w");
  assert_string_equal(shell_string(object, "format"), "int8");
  assert_int_equal(shell_integer(object, "n"), N);
  assert_int_equal(shell_integer(object, "k"), K);
  assert_int_equal(shell_integer(object, "m"), 3);
  assert_int_equal(shell_integer(object, "clients"), 3);
  assert_int_equal(shell_integer(object, "requests"), 200);
  assert_int_equal(shell_integer(object, "failures"), 0);
  assert_true(json_real_value(json_object_get(object, "rows_per_s")) > 0);
  check_quantiles(object, "latency_us");
  check_quantiles(object, "overhead_us");
  json_decref(object);
}

static void test_asks_at_a_rate_for_a_mix(void **state) {
  json_t *object = shell_expect_json("$T/gemm-bench --weight w,w --m 1:3,4:1 --clients 2 --in-flight 4 --rate 20000 "
                                     "--requests 300 --warmup 0 --histogram --json",
                                     0);
  assert_int_equal(json_array_size(json_object_get(object, "weights")), 2);
  assert_string_equal(shell_string(object, "m"), "1:3,4:1");
  assert_int_equal(shell_integer(object, "requests"), 300);
  check_quantiles(object, "latency_us");
  check_quantiles(object, "socket_us");
  json_int_t calls = 0;
  size_t i;
  json_t *bucket;
  json_array_foreach(json_object_get(json_object_get(object, "latency_us"), "buckets"), i, bucket) {
    calls += json_integer_value(json_array_get(bucket, 1));
  }
  assert_int_equal(calls, 300);
  json_decref(object);
}

static void test_usage(void **state) {
  assert_non_null(strstr(shell_expect("$T/gemm-bench serve --help", 0)->out, "Example:\n  gemm-bench --weight"));
  SHELL_EXPECT_ERROR("$T/gemm-bench --weight w --seconds nan", 2, "--seconds must be", "got nan");
  SHELL_EXPECT_ERROR("$T/gemm-bench --weight w --seconds 1 --requests 1", 2,
                     "--seconds and --requests exclude each other");
  SHELL_EXPECT_ERROR("$T/gemm-bench --weight w --m 1:0", 2, "--m must be 1..1048576", "got 1:0");
  SHELL_EXPECT_ERROR("$T/gemm-bench --weight ,w", 2, "--weight takes 1..16 names");
  SHELL_EXPECT_ERROR("$T/gemm-bench --weight w --rate 5 --pause 5", 2, "--rate and --pause exclude each other");
  SHELL_EXPECT_ERROR("$T/gemm-bench --socket $D/none --weight w", 3, "gemm-bench: serve: ", "/none");
}

static void test_fails_where_products_fail(void **state) {
  json_t *object = shell_expect_json("$T/gemm-bench --weight w --x-type e4m3 --requests 4 --warmup 0 --json", 1);
  assert_true(shell_integer(object, "failures") > 0);
  json_decref(object);
  SHELL_EXPECT_ERROR("$T/gemm-bench --weight none", 1, "none", "(NOT_FOUND)");
}

/* What an installation has: the program, and no other beside it. A bundle's finds its kernels in lib. */
static void test_says_where_the_other_way_is_to_be_had(void **state) {
  (void)shell_expect(
      "mkdir -p $D/alone/bin && cp $T/gemm-bench $D/alone/bin/ && ln -s $(realpath $T)/../lib $D/alone/lib", 0);
  SHELL_EXPECT_ERROR(
      "PATH=/usr/bin:/bin $D/alone/bin/gemm-bench --weight w --requests 4 --warmup 0 --compare inprocess", 1,
      "gemm-inprocess is neither beside this program nor in the PATH", "make bench");
  (void)shell_expect("rm -r $D/alone", 0);
  SHELL_EXPECT_ERROR("$T/gemm-bench --weight w --requests 4 --compare library", 2, "--compare", "library");
}

/* A bundle has no such program. */
static void test_compares_with_one_process(void **state) {
  if (strcmp(shell_expect("test -x $T/gemm-inprocess && echo there || true", 0)->out, "there\n") != 0)
    skip();
  json_t *object =
      shell_expect_json("$T/gemm-bench --weight w --m 2 --requests 20 --warmup 0 --compare inprocess --json", 0);
  const json_t *compared = json_object_get(object, "inprocess");
  assert_true(json_number_value(json_object_get(compared, "best_us")) > 0);
  json_decref(object);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_counts_what_it_was_asked_for),
      cmocka_unit_test(test_asks_at_a_rate_for_a_mix),
      cmocka_unit_test(test_usage),
      cmocka_unit_test(test_fails_where_products_fail),
      cmocka_unit_test(test_says_where_the_other_way_is_to_be_had),
      cmocka_unit_test(test_compares_with_one_process),
  };
  return cmocka_run_group_tests(tests, begin, end);
}
