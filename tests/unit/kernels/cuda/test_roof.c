/* What a device can do at most, from what its driver says of it. */
#include "kernels/cuda/heuristics/roof.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* What the makers' data sheets say, to 3 %: 4.8 TB/s and 1979 TOPS at 1830 MHz; 1.56 TB/s and 624 TOPS. */
static void test_roofs(void **state) {
  (void)state;
  struct roof_device h200 = {.capability = 90,
                             .multiprocessors = 132,
                             .clock_khz = 1830000,
                             .memory_clock_khz = 3201000,
                             .memory_bus_bits = 6144};
  struct roof_device a100 = {.capability = 80,
                             .multiprocessors = 108,
                             .clock_khz = 1410000,
                             .memory_clock_khz = 1215000,
                             .memory_bus_bits = 5120};
  struct roof_device unknown = {.capability = 121, .multiprocessors = 48, .clock_khz = 2000000};
  assert_float_equal((double)roof_memory(&h200) / 1e12, 4.8, 0.15);
  assert_float_equal((double)roof_operations(&h200) / 1e12, 1979, 1);
  assert_float_equal((double)roof_memory(&a100) / 1e12, 1.555, 0.01);
  assert_float_equal((double)roof_operations(&a100) / 1e12, 624, 1);
  assert_int_equal(roof_memory(&unknown), 0);
  assert_int_equal(roof_operations(&unknown), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_roofs),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
