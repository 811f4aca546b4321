/* Which kernel serves a product where nobody names one; and what a variant stands for that does not take a product: the
 * backend's own choice. No device. */
#include "kernels/cuda/exec/staging.h"
#include "kernels/cuda/families/cublaslt/config.h"
#include "kernels/cuda/families/select.h"
#include "kernels/cuda/families/sm90/hopper/config.h"
#include "kernels/cuda/families/sm90/many/config.h"
#include "kernels/cuda/state.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cuda_choices.h"

static const struct kernel_device hopper = {.capability = 90, .multiprocessors = 132, .places = true};

static struct kernel_problem problem_on(const struct kernel_device *device, const struct gemm_weight *weight,
                                        int64_t m) {
  struct layout layout;
  struct error error;
  assert_int_equal(layout_compute(weight, layout_choose(weight, device->capability, device->places), &layout, &error),
                   STATUS_OK);
  return (struct kernel_problem){.device = *device,
                                 .format = weight->format,
                                 .scale = weight->scale,
                                 .tiled = layout_is_tiled(&layout),
                                 .n = weight->n,
                                 .k = weight->k,
                                 .n_padded = layout.n,
                                 .k_padded = layout.k,
                                 .m = staging_pad(weight, m),
                                 .x_type = GEMM_BF16,
                                 .y_type = GEMM_BF16};
}

/* ---- what serves */

static void parse(const char *text, struct gemm_weight *weight, int64_t *m, enum gemm_type types[3]) {
  char format[9], scale[9], names[3][9];
  if (sscanf(text, "%8[a-z0-9]-%8[a-z]-%" SCNd64 "x%" SCNd64 "-%8[a-z0-9]-%8[a-z0-9]-%8[a-z0-9]-m%" SCNd64, format,
             scale, &weight->n, &weight->k, names[0], names[1], names[2], m) != 8 ||
      !gemm_format_parse(format, &weight->format) || !gemm_scale_parse(scale, &weight->scale))
    fail_msg("%s", text);
  for (int i = 0; i < 3; i++)
    if (!gemm_type_parse(names[i], &types[i]))
      types[i] = GEMM_TYPE_NONE;
}

/* Which algorithm the library has is for it to say. */
static const char *text_of(const struct kernel_problem *problem, const struct variant *variant,
                           char out[VARIANT_TEXT_BYTES]) {
  int ways[LIBRARY_WAYS], i = 0;
  struct library_way way;
  if (variant->family == &variant_plain)
    return "plain";
  if (strncmp(variant->family->name, "sm80_", 5) == 0) /* whose cost model is of a device that is not there */
    return variant->family->name;
  if (variant->family != &library_family)
    return variant_text(variant, out);
  library_order(problem, ways);
  while (!library_way(problem, ways[i], &way))
    i++;
  snprintf(out, VARIANT_TEXT_BYTES, "cublaslt way=%d", library_way_first(problem, ways[i]));
  return out;
}

static void test_choices(void **state) {
  for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
    struct gemm_weight weight = {.experts = 0};
    enum gemm_type types[3];
    int64_t m;
    parse(choices[i].problem, &weight, &m, types);
    const struct kernel_device device = {.capability = choices[i].capability,
                                         .multiprocessors = choices[i].multiprocessors,
                                         .shared_most = (choices[i].capability == 80  ? 163
                                                         : choices[i].capability < 90 ? 99
                                                                                      : 227)
                                                        << 10,
                                         .workspace_bytes = 8 << 20,
                                         .places = true};
    struct kernel_problem problem = problem_on(&device, &weight, m);
    problem.x_type = types[0];
    problem.y_type = types[1];
    problem.bias_type = types[2];
    problem.in_row = choices[i].in_row;
    struct offer offers[OFFERS_MOST];
    char text[VARIANT_TEXT_BYTES];
    int count = select_offers(&problem, offers);
    assert_in_range(count, 1, OFFERS_MOST - 1);
    assert_ptr_equal(offers[count - 1].variant.family, &variant_plain);
    const char *chosen = text_of(&problem, &offers[0].variant, text);
    if (strcmp(chosen, choices[i].chosen) != 0)
      fail_msg("%s on %d: %s, not %s", choices[i].problem, choices[i].capability, chosen, choices[i].chosen);
  }
}

/* One answer for a bucket, others for this very M and for products in a row; the first answer is kept. */
static void test_answers(void **state) {
  static const struct gemm_weight fp8 = {.n = 8192, .k = 3584, .format = GEMM_FORMAT_FP8, .scale = GEMM_SCALE_ROW};
  struct selector *selector = selector_open();
  struct offer offers[OFFERS_MOST];
  assert_non_null(selector);
  for (int i = 0; i < 2; i++) {
    struct kernel_problem at = problem_on(&hopper, &fp8, 33), bucket = problem_on(&hopper, &fp8, 48);
    struct variant found = selector_find(selector, NULL, &at, false);
    assert_true(select_offers(&bucket, offers) > 0 && variant_equal(&found, &offers[0].variant));
    found = selector_find(selector, NULL, &at, true);
    assert_true(select_offers(&at, offers) > 0 && variant_equal(&found, &offers[0].variant));
    bucket.in_row = at.in_row = true;
    found = selector_find(selector, NULL, &at, false);
    assert_true(select_offers(&bucket, offers) > 0 && variant_equal(&found, &offers[0].variant));
  }
  selector_close(selector);
}

/* 2-bit weights are asked about as many rows as there are. */
static void test_answers_for_two_bits(void **state) {
  static const struct gemm_weight int2 = {.n = 4096, .k = 4096, .format = GEMM_FORMAT_INT2, .scale = GEMM_SCALE_GROUP};
  struct selector *selector = selector_open();
  assert_non_null(selector);
  for (int64_t m = 1; m < 400; m++)
    for (int type = GEMM_F32; type <= GEMM_BF16; type++) {
      struct kernel_problem problem = problem_on(&hopper, &int2, m);
      struct offer offers[OFFERS_MOST];
      problem.x_type = (enum gemm_type)type;
      struct variant found = selector_find(selector, NULL, &problem, m % 2 != 0);
      assert_true(select_offers(&problem, offers) > 0 && variant_equal(&found, &offers[0].variant));
    }
  selector_close(selector);
}

/* Weights that are stored alike may have kernels of their own: those of fewer than 128 columns. */
static void test_answers_by_columns(void **state) {
  static const struct gemm_weight weights[] = {
      {.k = 1024, .format = GEMM_FORMAT_INT4, .scale = GEMM_SCALE_GROUP64},
      {.k = 512, .format = GEMM_FORMAT_INT4, .scale = GEMM_SCALE_GROUP_BF16_ZEROS},
      {.k = 4096, .format = GEMM_FORMAT_FP8, .scale = GEMM_SCALE_ROW},
  };
  struct selector *selector = selector_open();
  assert_non_null(selector);
  for (size_t i = 0; i < sizeof weights / sizeof *weights; i++)
    for (int64_t m = 1; m <= 4096; m *= 2)
      for (int n = 128; n >= 120; n -= 4) {
        struct gemm_weight weight = weights[i];
        struct offer offers[OFFERS_MOST];
        weight.n = n;
        struct kernel_problem problem = problem_on(&hopper, &weight, m);
        struct variant found = selector_find(selector, NULL, &problem, true);
        assert_true(select_offers(&problem, offers) > 0 && variant_equal(&found, &offers[0].variant));
      }
  selector_close(selector);
}

/* Few rows of 4-bit weights, and any number of f32 ones, go to int4_few; what lies in no tiles to the plain kernel. */
static void test_four_bits(void **state) {
  static const struct {
    struct gemm_weight weight;
    enum gemm_type x_type;
    int64_t m;
    const char *family;
  } cases[] = {
      {{.n = 8192, .k = 8192, .format = GEMM_FORMAT_INT4, .scale = GEMM_SCALE_GROUP}, GEMM_F16, 1, "int4_few"},
      {{.n = 5000, .k = 4000, .format = GEMM_FORMAT_INT4, .scale = GEMM_SCALE_GROUP64_ZEROS}, GEMM_BF16, 4, "int4_few"},
      {{.n = 4096, .k = 4096, .format = GEMM_FORMAT_MXFP4, .scale = GEMM_SCALE_GROUP32}, GEMM_BF16, 8, "int4_few"},
      {{.n = 4096, .k = 4096, .format = GEMM_FORMAT_NVFP4, .scale = GEMM_SCALE_GROUP16_FACTORS},
       GEMM_BF16,
       8,
       "int4_few"},
      {{.n = 57344, .k = 8192, .format = GEMM_FORMAT_NVFP4, .scale = GEMM_SCALE_GROUP16_FACTORS},
       GEMM_F16,
       8,
       "int4_few"},
      {{.n = 8192, .k = 8192, .format = GEMM_FORMAT_INT4, .scale = GEMM_SCALE_GROUP32}, GEMM_F32, 500, "int4_few"},
      {{.n = 8192, .k = 8192, .format = GEMM_FORMAT_INT4, .scale = GEMM_SCALE_GROUP}, GEMM_F16, 128, "int4_many"},
      {{.n = 64, .k = INT4_FEW_K_MOST + 1, .format = GEMM_FORMAT_MXFP4, .scale = GEMM_SCALE_GROUP32},
       GEMM_F16,
       1,
       "plain"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct kernel_problem problem = problem_on(&hopper, &cases[i].weight, cases[i].m);
    struct offer offers[OFFERS_MOST];
    problem.x_type = cases[i].x_type;
    problem.y_type = GEMM_F16;
    assert_true(select_offers(&problem, offers) > 0);
    assert_string_equal(offers[0].variant.family->name, cases[i].family);
    problem.device.capability = 89;
    problem.device.shared_most = 99 << 10;
    problem.tiled = true;
    assert_true(select_offers(&problem, offers) > 0);
    assert_string_equal(offers[0].variant.family->name, "sm80_int4");
    problem.tiled = false;
    assert_true(select_offers(&problem, offers) > 0);
    assert_string_equal(offers[0].variant.family->name, "plain");
  }
}

/* Zero points of f16 have one family on Hopper; what is not dense, and other devices, the plain kernels. */
static void test_real_zero_points(void **state) {
  struct gemm_weight weight = {.n = 8192, .k = 8192, .format = GEMM_FORMAT_INT4, .scale = GEMM_SCALE_GROUP_ZEROS_F16};
  struct offer offers[OFFERS_MOST];
  for (int i = 0; i < 6; i++) {
    weight.format = i % 2 == 0 ? GEMM_FORMAT_INT4 : GEMM_FORMAT_INT4A8;
    struct kernel_problem problem = problem_on(&hopper, &weight, i < 2 ? 1 : i < 4 ? 64 : 5000);
    problem.x_type = problem.y_type = GEMM_F16;
    assert_true(problem.tiled);
    assert_int_equal(select_offers(&problem, offers), 2);
    assert_string_equal(offers[0].variant.family->name, "int4_zeros");
    assert_string_equal(offers[1].variant.family->name, "plain");
    problem.tiled = false;
    assert_int_equal(select_offers(&problem, offers), 1);
    assert_string_equal(offers[0].variant.family->name, "plain");
  }
}

/* ---- what does not take a product, of which nothing is queued then */

static const struct gemm_weight int8 = {.n = 152064, .k = 8192, .format = GEMM_FORMAT_INT8, .scale = GEMM_SCALE_ROW};

static struct backend_weight stored(const struct gemm_weight *weight, uint32_t layout) {
  struct backend_weight out = {.weight = *weight};
  struct error error;
  assert_int_equal(layout_compute(weight, layout, &out.layout, &error), STATUS_OK);
  return out;
}

static enum status launched(const struct kernel_family *family, const struct variant *variant,
                            const struct backend_weight *weight, int64_t m) {
  static struct backend backend = {.gpu = {.capability = 90, .multiprocessors = 132}};
  const struct kernel_call call = {.weight = weight, .m = m, .m_padded = m, .x_type = GEMM_F32, .y_type = GEMM_BF16};
  struct error error;
  return family->launch(&backend, &call, variant, &error);
}

/* A product that comes in several goes has fewer rows in each than the one that the variant was chosen for. */
static void test_many_rows_that_are_few(void **state) {
  const struct variant variant = {.family = &many_family, .values = {256, 16}};
  const struct backend_weight weight = stored(&int8, LAYOUT_ROWS);
  static const struct {
    int64_t m;
    bool takes;
  } cases[] = {{1, false}, {128, false}, {129, true}, {384, true}, {16384, true}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const struct kernel_problem problem = problem_on(&hopper, &int8, cases[i].m);
    assert_int_equal(many_takes(&problem), cases[i].takes);
    if (!cases[i].takes)
      assert_int_equal(launched(&many_kernels, &variant, &weight, cases[i].m), STATUS_UNSUPPORTED);
  }
}

/* A go of any number of rows has a kernel by these: what was chosen for more rows stays valid. */
static void test_others_take_any_rows(void **state) {
  struct variant variant = {.family = &hopper_family, .values = {64, 1, 64, 1, 3}};
  struct error error;
  for (int64_t m = 1; m <= 16384; m *= 2) {
    const struct kernel_problem problem = problem_on(&hopper, &int8, m);
    assert_true(hopper_takes(&problem));
    assert_int_equal(hopper_kernels.check(NULL, &problem, &variant, NULL, &error), STATUS_OK);
  }
}

/* Whether the family's kernels read the weight: by its own word, but where that takes a device. */
static bool reads(const struct kernel_family *family, const struct gemm_weight *weight, bool tiled) {
  static const int64_t rows[] = {16, 4096};
  if (!family->check || family == &tile_kernels || family == &library_kernels)
    return !tiled && !family->experts;
  for (int i = 0; i < 4; i++) {
    struct kernel_problem problem = problem_on(&hopper, weight, rows[i / 2]);
    struct variant variant = variant_default(family->variants);
    struct error error;
    problem.x_type = i % 2 == 0 ? GEMM_F32 : GEMM_BF16;
    if (family->check(NULL, &problem, &variant, NULL, &error) == STATUS_OK)
      return true;
  }
  return false;
}

/* Whatever a kept tuning names, a weight that the family's kernels do not read is refused. */
static void test_other_weights(void **state) {
  static const struct gemm_weight int2 = {.n = 4096, .k = 4096, .format = GEMM_FORMAT_INT2, .scale = GEMM_SCALE_GROUP};
  static const struct gemm_weight int2a8 = {
      .n = 4096, .k = 4096, .format = GEMM_FORMAT_INT2A8, .scale = GEMM_SCALE_GROUP};
  const struct backend_weight weights[] = {stored(&int8, LAYOUT_ROWS), stored(&int2, LAYOUT_TILES2),
                                           stored(&int2a8, LAYOUT_TILES2A8)};
  int refused = 0;
  for (int i = 0; kernel_families[i]; i++)
    for (int j = 0; j < 3; j++) {
      const struct variant variant = variant_default(kernel_families[i]->variants);
      if (reads(kernel_families[i], &weights[j].weight, j > 0))
        continue;
      assert_int_equal(launched(kernel_families[i], &variant, &weights[j], 16), STATUS_UNSUPPORTED);
      refused++;
    }
  assert_in_range(refused, 40, 3 * 64);
}

static void test_table(void **state) {
  static const char *const names[] = {"plain",        "tile",      "cublaslt",     "hopper",       "few",
                                      "many",         "fp8_many",  "int2_few",     "int2_many",    "int2a8",
                                      "int4_few",     "int4_many", "int4_zeros",   "sm80_int2",    "sm80_int4",
                                      "sm80_rows",    "grouped",   "grouped_many", "grouped_int2", "grouped_int2_many",
                                      "grouped_int4", "pairs"};
  const int rows = (int)(sizeof names / sizeof *names);
  int count = 0;
  for (; kernel_families[count]; count++) {
    assert_in_range(count, 0, rows - 1);
    assert_string_equal(cuda_families[count]->name, names[count]);
    assert_ptr_equal(kernel_families[count]->variants, cuda_families[count]);
    const struct variant variant = variant_default(cuda_families[count]);
    assert_ptr_equal(kernel_family_of(&variant), kernel_families[count]);
  }
  assert_int_equal(count, rows);
  assert_null(cuda_families[count]);
  assert_null(kernel_family_of(NULL));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_choices),
      cmocka_unit_test(test_answers),
      cmocka_unit_test(test_answers_for_two_bits),
      cmocka_unit_test(test_answers_by_columns),
      cmocka_unit_test(test_four_bits),
      cmocka_unit_test(test_real_zero_points),
      cmocka_unit_test(test_many_rows_that_are_few),
      cmocka_unit_test(test_others_take_any_rows),
      cmocka_unit_test(test_other_weights),
      cmocka_unit_test(test_table),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
