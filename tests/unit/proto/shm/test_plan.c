/* The checks of plans that both sides make: each field, and what one step says of the next. What a real worker answers
 * is in end_to_end/test_plans.c. */
#include "proto/shm/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum { BEGIN = 4096, END = 65536 };

static const struct gemm_weight up = {.n = 64, .k = 16, .format = GEMM_FORMAT_INT8, .scale = GEMM_SCALE_ROW};
static const struct gemm_weight down = {.n = 16, .k = 32, .format = GEMM_FORMAT_F16, .scale = GEMM_SCALE_NONE};

/* What PROTOCOL.md says, in numbers. */
static void offsets_on_the_wire(void **state) {
  assert_int_equal(sizeof(struct ring_step), 64);
  assert_int_equal(offsetof(struct ring_step, weight), 0);
  assert_int_equal(offsetof(struct ring_step, activation), 4);
  assert_int_equal(offsetof(struct ring_step, gated), 5);
  assert_int_equal(offsetof(struct ring_step, y_type), 6);
  assert_int_equal(offsetof(struct ring_step, bias_type), 7);
  assert_int_equal(offsetof(struct ring_step, n), 8);
  assert_int_equal(offsetof(struct ring_step, k), 12);
  assert_int_equal(offsetof(struct ring_step, bias_offset), 16);
  assert_int_equal(offsetof(struct ring_step, reserved), 24);
}

static void places(void **state) {
  static const struct {
    uint32_t steps;
    uint64_t offset;
    const char *text; /* NULL: right */
  } cases[] = {
      {1, BEGIN, NULL},
      {16, END - 16 * 64, NULL},
      {0, BEGIN, "steps must be 1..16, got 0"},
      {17, BEGIN, "steps must be 1..16, got 17"},
      {UINT32_MAX, BEGIN, "steps must be 1..16, got 4294967295"},
      {1, BEGIN - 64, "plan offset must be 4096..65472, got 4032"},
      {2, END - 64, "plan offset must be 4096..65408, got 65472"},
      {1, UINT64_MAX, "plan offset must be 4096..65472, got 9223372036854775807"},
      {1, BEGIN + 8, "plan offset must be a multiple of 64, got 4104"},
  };
  struct error error;
  for (size_t i = 0; i < COUNT(cases); i++) {
    enum status status = plan_place_check(cases[i].steps, cases[i].offset, BEGIN, END, &error);
    assert_int_equal(status, cases[i].text == NULL ? STATUS_OK : STATUS_INVALID);
    if (cases[i].text != NULL)
      assert_string_equal(error.text, cases[i].text);
  }
  assert_int_equal(plan_place_check(1, 0, 0, 32, &error), STATUS_INVALID); /* an arena smaller than a step */
}

static void steps_are_read(void **state) {
  const struct ring_step good = {.activation = GEMM_GELU,
                                 .gated = 1,
                                 .y_type = GEMM_BF16,
                                 .bias_type = GEMM_F32,
                                 .n = 64,
                                 .k = 16,
                                 .bias_offset = 8};
  struct plan_step step;
  struct error error;
  assert_int_equal(plan_step_read(&good, &up, &step, &error), STATUS_OK);
  assert_int_equal(step.activation, GEMM_GELU);
  assert_true(step.gated && step.bias_offset == 8 && step.weight.n == 64);
  assert_int_equal(step.y_type, GEMM_BF16);
  assert_int_equal(step.bias_type, GEMM_F32);
  assert_true(plan_step_columns(&step) == 32);
  struct ring_step bad[4] = {good, good, good, good};
  static const char *const texts[] = {"N must be 64, got 63", "K must be 16, got 0", "activation must be 0..4, got 5",
                                      "gated must be 0..1, got 255"};
  bad[0].n = 63;
  bad[1].k = 0;
  bad[2].activation = 5;
  bad[3].gated = 255;
  for (size_t i = 0; i < COUNT(bad); i++) {
    assert_int_equal(plan_step_read(&bad[i], &up, &step, &error), STATUS_INVALID);
    assert_string_equal(error.text, texts[i]);
  }
  for (size_t i = 0; i < sizeof good.reserved; i++) {
    struct ring_step later = good;
    later.reserved[i] = 1;
    assert_int_equal(plan_step_read(&later, &up, &step, &error), STATUS_INVALID);
    assert_int_equal(error.field, FIELD_RESERVED);
  }
}

static void steps_follow_from_one_another(void **state) {
  const struct plan_step good[] = {
      {.weight = up, .activation = GEMM_SILU, .gated = true, .y_type = GEMM_F16},
      {.weight = down, .y_type = GEMM_F32, .bias_type = GEMM_F16, .bias_offset = END - 32},
  };
  static const struct {
    uint32_t bad;
    enum field field;
  } expected[] = {
      {1, FIELD_K},           {1, FIELD_X_TYPE},      {0, FIELD_Y_TYPE},      {1, FIELD_Y_TYPE}, {1, FIELD_BIAS_TYPE},
      {1, FIELD_BIAS_OFFSET}, {1, FIELD_BIAS_OFFSET}, {1, FIELD_BIAS_OFFSET}, {0, FIELD_GATED},  {0, FIELD_N}};
  uint32_t bad;
  struct error error;
  assert_int_equal(plan_check(good, 2, BEGIN, END, &bad, &error), STATUS_OK);
  for (size_t i = 0; i < COUNT(expected); i++) {
    struct plan_step steps[] = {good[0], good[1]};
    switch (i) {
    case 0:
      steps[0].gated = false; /* 64 columns for a K of 32 */
      break;
    case 1:
      steps[0].y_type = GEMM_BF16;
      break;
    case 2:
      steps[0].y_type = GEMM_S32;
      break;
    case 3:
      steps[1].y_type = GEMM_TYPE_NONE;
      break;
    case 4:
      steps[1].bias_type = GEMM_S32;
      break;
    case 5:
      steps[1].bias_offset = END
      -16;
      break;
    case 6:
      steps[1].bias_offset = UINT64_MAX;
      break;
    case 7:
      steps[1].bias_offset = BEGIN + 8;
      break;
    case 8:
      steps[0].activation = GEMM_SWIGLU_CLAMPED; /* of what has no second half */
      steps[0].gated = false;
      break;
    default:
      steps[0].weight.n = 63;
      break;
    }
    assert_int_not_equal(plan_check(steps, 2, BEGIN, END, &bad, &error), STATUS_OK);
    assert_int_equal(bad, expected[i].bad);
    assert_int_equal(error.field, expected[i].field);
  }
}

static void calls(void **state) {
  const struct plan_step steps[] = {
      {.weight = up, .activation = GEMM_SILU, .gated = true, .y_type = GEMM_F16},
      {.weight = down, .y_type = GEMM_F32, .bias_type = GEMM_F32, .bias_offset = BEGIN + 8192},
  };
  const struct gemm_product good = {
      .m = 2, .n = 16, .k = 16, .x_type = GEMM_F32, .y_type = GEMM_F32, .x_offset = BEGIN, .y_offset = BEGIN + 4096};
  struct gemm_extent extent;
  struct error error;
  assert_int_equal(plan_call_check(steps, 2, &good, BEGIN, END, &extent, &error), STATUS_OK);
  assert_true(extent.x_bytes == 128 && extent.y_bytes == 128 && extent.x_stride == 64 && extent.y_stride == 64);
  struct gemm_product bad[6] = {good, good, good, good, good, good};
  static const enum field fields[] = {FIELD_N, FIELD_K, FIELD_Y_TYPE, FIELD_X_TYPE, FIELD_BIAS_TYPE, FIELD_Y_OFFSET};
  bad[0].n = 64;
  bad[1].k = 32;
  bad[2].y_type = GEMM_F16;
  bad[3].x_type = GEMM_E4M3;
  bad[4].bias_type = GEMM_F32;
  bad[5].y_offset = BEGIN + 8192 - 112; /* its last 16 bytes are the bias */
  for (size_t i = 0; i < COUNT(bad); i++) {
    assert_int_not_equal(plan_call_check(steps, 2, &bad[i], BEGIN, END, &extent, &error), STATUS_OK);
    assert_int_equal(error.field, fields[i]);
  }
  assert_string_equal(error.text, "y offset 12176: y overlaps x, bias or x scale");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(offsets_on_the_wire),           cmocka_unit_test(places), cmocka_unit_test(steps_are_read),
      cmocka_unit_test(steps_follow_from_one_another), cmocka_unit_test(calls),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
