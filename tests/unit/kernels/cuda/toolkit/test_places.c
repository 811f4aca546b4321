/* INT2 weights where a device's sparse matrix instructions do not take any metadata: none is stored in tiles, and none
 * that lies in tiles is taken. All that is asked for here ends before the device is. */
#include "kernels/cuda/state.h"
#include "kernels/cuda/weight/weight.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct gemm_weight codes2 = {.n = 256, .k = 512, .format = GEMM_FORMAT_INT2, .scale = GEMM_SCALE_GROUP};
static const struct gemm_weight codes2a8 = {
    .n = 256, .k = 512, .format = GEMM_FORMAT_INT2A8, .scale = GEMM_SCALE_GROUP};

static struct backend hopper = {.gpu = {.capability = 90, .multiprocessors = 132}};

static uint32_t planned(const struct gemm_weight *weight, bool places) {
  struct backend_plan plan;
  struct error error;
  hopper.gpu.places = places;
  assert_int_equal(cuda_weight_plan(&hopper, weight, &plan, &error), STATUS_OK);
  return plan.layout;
}

static void test_plans(void **state) {
  (void)state;
  assert_int_equal(planned(&codes2, true), LAYOUT_TILES2);
  assert_int_equal(planned(&codes2, false), LAYOUT_CODES2);
  assert_int_equal(planned(&codes2a8, true), LAYOUT_TILES2A8);
  assert_int_equal(planned(&codes2a8, false), LAYOUT_TILES2A8);
}

/* The slab is empty, so that a layout that is taken fails for that. */
static enum status attached(const struct gemm_weight *weight, uint32_t layout, bool places, struct error *error) {
  struct backend_slab empty = {.bytes = 0};
  struct backend_weight *none = NULL;
  hopper.gpu.places = places;
  return cuda_weight_attach(&hopper, weight, layout, &empty, 0, &none, error);
}

static void test_attaches(void **state) {
  (void)state;
  struct error error;
  assert_int_equal(attached(&codes2, LAYOUT_TILES2, true, &error), STATUS_INVALID);
  assert_int_equal(attached(&codes2, LAYOUT_TILES2, false, &error), STATUS_UNSUPPORTED);
  assert_non_null(strstr(error.text, "sparse"));
  assert_int_equal(attached(&codes2, LAYOUT_CODES2, true, &error), STATUS_INVALID);
  assert_int_equal(attached(&codes2, LAYOUT_CODES2, false, &error), STATUS_INVALID);
  assert_int_equal(attached(&codes2a8, LAYOUT_TILES2A8, false, &error), STATUS_INVALID);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_plans),
      cmocka_unit_test(test_attaches),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
