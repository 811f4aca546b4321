/* Kernels compiled at run time: that what is said to run compiles where this machine has libnvrtc, which needs no
 * device, and what is said where it has none. */
#include "kernels/cuda/families/tile/tile.h"
#include "kernels/cuda/runtime/nvrtc.h"

#include "tests/support/system/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct kernel_device hopper = {
    .capability = 90, .multiprocessors = 132, .shared_most = 227 << 10, .workspace_bytes = 32 << 20};
static const struct kernel_device ampere = {
    .capability = 80, .multiprocessors = 108, .shared_most = 163 << 10, .workspace_bytes = 8 << 20};

static struct kernel_problem problem_of(const struct kernel_device *device, enum gemm_format format) {
  return (struct kernel_problem){.device = *device,
                                 .format = format,
                                 .scale = GEMM_SCALE_ROW,
                                 .x_type = GEMM_BF16,
                                 .tiled = true,
                                 .m = 256,
                                 .n_padded = 4096,
                                 .k_padded = 4096};
}

static struct variant parse(const char *text) {
  static const struct variant_family *const families[] = {&variant_plain, &tile_family, NULL};
  struct variant variant;
  struct error error;
  if (variant_parse(families, text, &variant, &error) != STATUS_OK)
    fail_msg("%s: %s", text, error.text);
  return variant;
}

static struct tile_table table_of(const struct kernel_device *device, const char *nvrtc) {
  struct tile_table table;
  tile_table_open(&table, NULL, device, nvrtc, folder);
  return table;
}

static void test_without_a_compiler(void **state) {
  struct tile_table table = table_of(&hopper, "/nowhere/libnvrtc.so");
  struct kernel_problem problem = problem_of(&hopper, GEMM_FORMAT_INT8);
  struct variant variant = parse("tile");
  struct tile_plan plan;
  struct error error;
  assert_int_equal(tile_plan(&problem, &variant, &plan, &error), STATUS_OK);
  assert_int_equal(tile_can_build(&table, &variant, &plan, &error), STATUS_UNSUPPORTED);
  assert_non_null(strstr(error.text, "cannot be compiled: /nowhere/libnvrtc.so"));
  tile_table_open(&table, NULL, &hopper, NULL, "");
  assert_int_equal(tile_can_build(&table, &variant, &plan, &error), STATUS_UNSUPPORTED);
  assert_non_null(strstr(error.text, "state_dir"));
}

static void test_what_can_run_compiles(void **state) {
  static const struct {
    const struct kernel_device *device;
    enum gemm_format format;
    const char *text;
  } cases[] = {{&hopper, GEMM_FORMAT_INT8, "tile"},
               {&hopper, GEMM_FORMAT_FP8, "tile num_warps=8 num_stages=1"},
               {&hopper, GEMM_FORMAT_INT2, "tile block_m=64 block_n=64 block_k=128 num_stages=3"},
               {&hopper, GEMM_FORMAT_INT2A8, "tile block_m=32 block_n=64 block_k=256 num_warps=2"},
               {&ampere, GEMM_FORMAT_F16, "tile block_m=16 block_n=48 num_warps=3 num_stages=2"},
               {&ampere, GEMM_FORMAT_BF16, "tile block_m=64 block_n=64 block_k=48 num_warps=1"}};
  struct nvrtc nvrtc;
  struct error error;
  if (nvrtc_open(NULL, &nvrtc, &error) != STATUS_OK)
    skip();
  nvrtc_close(&nvrtc);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct tile_table table = table_of(cases[i].device, NULL);
    struct kernel_problem problem = problem_of(cases[i].device, cases[i].format);
    struct variant variant = parse(cases[i].text);
    struct tile_plan plan;
    if (tile_plan(&problem, &variant, &plan, &error) != STATUS_OK ||
        tile_build(&table, &variant, &plan, &error) != STATUS_OK)
      fail_msg("%s: %s", cases[i].text, error.text);
    /* From the file alone: there is no such compiler. */
    table.nvrtc = "/nowhere/libnvrtc.so";
    assert_int_equal(tile_can_build(&table, &variant, &plan, &error), STATUS_OK);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_without_a_compiler, folder_make, folder_remove),
      cmocka_unit_test_setup_teardown(test_what_can_run_compiles, folder_make, folder_remove),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
