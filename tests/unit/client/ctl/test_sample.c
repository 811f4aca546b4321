/* What gemmctl top reads out of the text of numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* The tools' objects are no part of a library: the file itself. */
#include "client/ctl/sample.c"

static const char before_text[] = "# HELP gemmd_request_seconds x\n"
                                  "gemmd_device_queue{device=\"1\",name=\"a \\\"card\\\" b\"} 7\n"
                                  "gemmd_request_seconds_bucket{device=\"0\",format=\"int8\",le=\"2e-06\"} 10\n"
                                  "gemmd_request_seconds_bucket{device=\"0\",format=\"int8\",le=\"4e-06\"} 10\n"
                                  "gemmd_request_seconds_bucket{device=\"0\",format=\"int8\",le=\"+Inf\"} 10\n"
                                  "gemmd_refusals_total{at=\"control\",reason=\"BUSY\"} 3\n"
                                  "gemmd_refusals_total{at=\"0\",reason=\"TIMEOUT\"} 4\n"
                                  "gemmd_cut_off_total 9\n";
static const char now_text[] = "gemmd_request_seconds_bucket{device=\"0\",format=\"fp8\",le=\"+Inf\"} 1\n"
                               "gemmd_request_seconds_bucket{device=\"0\",format=\"int8\",le=\"2e-06\"} 60\n"
                               "gemmd_request_seconds_bucket{device=\"0\",format=\"int8\",le=\"4e-06\"} 110\n"
                               "gemmd_request_seconds_bucket{device=\"0\",format=\"int8\",le=\"+Inf\"} 110";

static struct sample before, now;

static void numbers_are_found(void **state) {
  sample_parse(before_text, &before);
  assert_true(before.queue[1] == 7 && before.queue[0] == 0);
  assert_true(before.refusals == 7 && before.cut_off == 9);
  assert_int_equal(before.waits_count, 1);
  assert_string_equal(before.waits[0].format, "int8");
  assert_int_equal(before.waits[0].count, 3);
}

static void waits_between_two_moments(void **state) {
  sample_parse(now_text, &now);
  assert_int_equal(now.waits_count, 2);
  const struct sample_waits *waits = &now.waits[1], *was = sample_find(&before, waits);
  assert_non_null(was);
  assert_null(sample_find(&before, &now.waits[0]));
  assert_true(fabs(sample_quantile(was, waits, 0.25) - 1e-6) < 1e-12); /* half of the first 50 of 100 */
  assert_true(fabs(sample_quantile(was, waits, 0.75) - 3e-6) < 1e-12);
  assert_true(sample_quantile(waits, waits, 0.5) < 0);         /* nothing happened */
  assert_true(sample_quantile(NULL, &now.waits[0], 0.5) == 0); /* beyond the last bound: that */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(numbers_are_found),
      cmocka_unit_test(waits_between_two_moments),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
