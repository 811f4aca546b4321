/* Tiles set by hand, without a device: which combinations can run, what is said of others and what is offered in their
 * place; and compiled kernels in files. */
#include "kernels/cuda/families/tile/code_cache.h"
#include "kernels/cuda/families/tile/sweep.h"

#include "tests/support/system/folder.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static const struct kernel_device hopper = {
    .capability = 90, .multiprocessors = 132, .shared_most = 227 << 10, .workspace_bytes = 32 << 20};
static const struct kernel_device ampere = {
    .capability = 80, .multiprocessors = 108, .shared_most = 163 << 10, .workspace_bytes = 8 << 20};

static struct kernel_problem problem_of(enum gemm_format format, int64_t m, int64_t n, int64_t k) {
  return (struct kernel_problem){.device = hopper,
                                 .format = format,
                                 .scale = GEMM_SCALE_ROW,
                                 .x_type = GEMM_F16,
                                 .tiled = true,
                                 .m = m,
                                 .n_padded = n,
                                 .k_padded = k};
}

static struct variant parse(const char *text) {
  static const struct variant_family *const families[] = {&variant_plain, &tile_family, NULL};
  struct variant variant;
  struct error error;
  if (variant_parse(families, text, &variant, &error) != STATUS_OK)
    fail_msg("%s: %s", text, error.text);
  return variant;
}

/* ---- what can run */

static void test_parameters_are_the_promised_ones(void **state) {
  static const struct {
    const char *name;
    int low, high, step, fallback;
  } promised[] = {{"block_m", 16, 512, 16, 128}, {"block_n", 16, 512, 16, 128}, {"block_k", 16, 512, 16, 64},
                  {"group_size_m", 1, 64, 1, 8}, {"num_warps", 1, 16, 1, 4},    {"num_stages", 1, 8, 1, 4},
                  {"split_k", 1, 128, 1, 1},     {"split_k_mode", 0, 2, 1, 0}};
  assert_int_equal(tile_family.count, sizeof promised / sizeof *promised);
  for (size_t i = 0; i < tile_family.count; i++) {
    const struct variant_parameter *parameter = &tile_family.parameters[i];
    assert_string_equal(parameter->name, promised[i].name);
    assert_int_equal(parameter->low, promised[i].low);
    assert_int_equal(parameter->high, promised[i].high);
    assert_int_equal(parameter->step, promised[i].step);
    assert_int_equal(parameter->fallback, promised[i].fallback);
  }
}

static void test_a_plan(void **state) {
  struct kernel_problem problem = problem_of(GEMM_FORMAT_INT8, 300, 4096, 1000);
  struct variant variant = parse("tile");
  struct tile_plan plan;
  struct error error;
  assert_int_equal(tile_plan(&problem, &variant, &plan, &error), STATUS_OK);
  assert_int_equal(plan.warps_m, 2);
  assert_int_equal(plan.warps_n, 2);
  assert_int_equal(plan.tiles_m, 3);
  assert_int_equal(plan.tiles_n, 32);
  assert_int_equal(plan.steps, 16);
  assert_int_equal(plan.shared_bytes, 4 * (128 + 128) * (64 + 16));
  assert_int_equal(plan.sums_bytes + plan.turns_bytes, 0);
  variant = parse("tile split_k=4 split_k_mode=1");
  assert_int_equal(tile_plan(&problem, &variant, &plan, &error), STATUS_OK);
  assert_int_equal(plan.sums_bytes, 4 * 300 * 4096 * 4);
  variant = parse("tile split_k=4");
  assert_int_equal(tile_plan(&problem, &variant, &plan, &error), STATUS_OK);
  assert_int_equal(plan.turns_bytes, (3 * 32 + 1) * 4);
  assert_int_equal(plan.sums_bytes, 0); /* they lie where sums of other ways do */
}

/* Codes of W stay codes in shared memory; slices that take turns keep their sums in the workspace. */
static void test_a_plan_for_two_bits(void **state) {
  struct kernel_problem problem = problem_of(GEMM_FORMAT_INT2, 300, 4096, 1024);
  struct variant variant = parse("tile block_m=64 block_n=64 block_k=256 num_stages=3 split_k=2");
  struct tile_plan plan;
  struct error error;
  assert_int_equal(tile_plan(&problem, &variant, &plan, &error), STATUS_OK);
  assert_int_equal(plan.element, 4);
  assert_int_equal(plan.shared_bytes, 3 * (64 * (512 + 16) + 4 * 2 * 544));
  assert_int_equal(plan.turns_bytes, (5 * 64 + 1) * 4);
  assert_true(plan.sums_offset >= plan.turns_bytes && plan.sums_offset % 256 == 0);
  assert_int_equal(plan.sums_bytes, 300 * 4096 * 4);
  problem.x_type = GEMM_BF16;
  assert_int_equal(tile_plan(&problem, &variant, &plan, &error), STATUS_OK);
  assert_int_equal(plan.element, 5);
  problem.format = GEMM_FORMAT_INT2A8;
  assert_int_equal(tile_plan(&problem, &variant, &plan, &error), STATUS_OK);
  assert_int_equal(plan.element, 6);
  assert_int_equal(plan.shared_bytes, 3 * (64 * (256 + 16) + 4 * 2 * 544));
}

/* Refused, with a reason that contains `why`; what is offered can run, and is `nearest`. */
static void refuse(const struct kernel_device *device, struct kernel_problem problem, const char *text, const char *why,
                   const char *nearest) {
  char offered[VARIANT_TEXT_BYTES];
  problem.device = *device;
  struct variant variant = parse(text), near;
  struct tile_plan plan;
  struct error error;
  if (tile_plan(&problem, &variant, &plan, &error) != STATUS_UNSUPPORTED || strstr(error.text, why) == NULL)
    fail_msg("%s: \"%s\" is looked for in \"%s\"", text, why, error.text);
  assert_true(tile_nearest(&problem, &variant, &near));
  assert_int_equal(tile_plan(&problem, &near, &plan, &error), STATUS_OK);
  struct variant should = parse(nearest);
  if (!variant_equal(&near, &should))
    fail_msg("%s: offered %s in place of %s", text, variant_text(&near, offered), nearest);
}

static void test_what_cannot_run_has_a_reason_and_a_neighbour(void **state) {
  struct kernel_problem int8 = problem_of(GEMM_FORMAT_INT8, 256, 4096, 4096);
  struct kernel_problem f16 = problem_of(GEMM_FORMAT_F16, 256, 4096, 4096);
  struct kernel_problem fp8 = problem_of(GEMM_FORMAT_FP8, 256, 4096, 4096);
  refuse(&hopper, int8, "tile block_k=16", "block_k 16: an instruction takes 32 elements of int8", "tile block_k=32");
  refuse(&hopper, int8, "tile num_warps=5", "num_warps 5 cannot share a tile of 128 x 128", "tile num_warps=4");
  refuse(&hopper, int8, "tile block_m=256", "takes about 320 registers a thread of 4 warps, there are 255",
         "tile block_m=160");
  refuse(&hopper, fp8, "tile", "registers a thread", "tile block_m=64");
  refuse(&hopper, f16, "tile num_stages=8",
         "num_stages 8 of this tile take 294912 bytes of shared memory, a block has 232448",
         "tile num_stages=8 block_k=48");
  refuse(&ampere, f16, "tile num_stages=5", "a block has 166912", "tile num_stages=4");
  refuse(&hopper, problem_of(GEMM_FORMAT_F16, 256, 4096, 100), "tile split_k=3",
         "split_k 3: K 100 has 2 steps of block_k 64", "tile split_k=3 block_k=48");
  refuse(&hopper, problem_of(GEMM_FORMAT_INT8, 1024, 4096, 4096), "tile split_k=4 split_k_mode=1",
         "split_k 4: sums of slices take 65536 KiB, the workspace has 32768", "tile split_k=2 split_k_mode=1");
  refuse(&hopper, problem_of(GEMM_FORMAT_INT2, 256, 4096, 4096), "tile num_warps=8 num_stages=3",
         "block_k 64: a scale is of 128 elements of int2", "tile num_warps=8 num_stages=3 block_k=128");
}

static void test_what_has_no_neighbour(void **state) {
  struct variant variant = parse("tile"), near;
  struct kernel_problem int2 = problem_of(GEMM_FORMAT_INT2, 1, 64, 64), fp8 = problem_of(GEMM_FORMAT_FP8, 1, 64, 64);
  struct tile_plan plan;
  struct error error;
  int2.tiled = false;
  assert_int_equal(tile_plan(&int2, &variant, &plan, &error), STATUS_UNSUPPORTED);
  assert_non_null(strstr(error.text, "INT2 of 128 rows or more"));
  assert_false(tile_nearest(&int2, &variant, &near));
  int2.tiled = true;
  int2.x_type = GEMM_F32;
  assert_int_equal(tile_plan(&int2, &variant, &plan, &error), STATUS_UNSUPPORTED);
  assert_non_null(strstr(error.text, "x of f16 or bf16 with INT2 weights, not of f32"));
  fp8.device = ampere;
  assert_int_equal(tile_plan(&fp8, &variant, &plan, &error), STATUS_UNSUPPORTED);
  assert_non_null(strstr(error.text, "8.9, this device has 8.0"));
  fp8.device = hopper;
  fp8.scale = GEMM_SCALE_BLOCK;
  assert_int_equal(tile_plan(&fp8, &variant, &plan, &error), STATUS_UNSUPPORTED);
  assert_non_null(strstr(error.text, "not with blocks"));
}

static void test_more_blocks_than_a_launch(void **state) {
  struct kernel_problem problem = problem_of(GEMM_FORMAT_INT8, 16384, 1 << 24, 4096);
  struct variant variant = parse("tile block_m=16 block_n=16 block_k=32 num_warps=1 split_k=128");
  struct tile_plan plan;
  struct error error;
  problem.device.workspace_bytes = UINT64_MAX;
  assert_int_equal(tile_plan(&problem, &variant, &plan, &error), STATUS_UNSUPPORTED);
  assert_non_null(strstr(error.text, "more blocks than a launch"));
}

/* ---- slices */

static void test_slices_fill_the_device(void **state) {
  struct kernel_problem tall = problem_of(GEMM_FORMAT_F16, 128, 128, 25088);
  struct kernel_problem wide = problem_of(GEMM_FORMAT_F16, 4096, 57344, 8192);
  struct kernel_problem shallow = problem_of(GEMM_FORMAT_F16, 128, 128, 128);
  struct variant variant = parse("tile");
  assert_int_equal(tile_split_filling(&tall, &variant), 128); /* 132 processors, one tile, at most 128 */
  assert_int_equal(tile_split_filling(&wide, &variant), 1);
  assert_int_equal(tile_split_filling(&shallow, &variant), 2); /* as many as there are steps */
}

static void test_a_sweep_has_every_count_in_every_mode(void **state) {
  struct kernel_problem tall = problem_of(GEMM_FORMAT_F16, 128, 128, 25088);
  struct variant variant = parse("tile"), out[512];
  assert_int_equal(tile_splits(&tall, &variant, true, out, 512), 1 + 127 * 3);
  int few = tile_splits(&tall, &variant, false, out, 512);
  assert_true(few > 3 && few < 20);
  for (int i = 1; i < few; i++)
    assert_true(out[i].values[TILE_SPLIT_K] > 1);
}

/* ---- the sweep of tiles */

static const struct kernel_problem *swept_problem(size_t i) {
  static struct kernel_problem problem;
  static const enum gemm_format formats[] = {GEMM_FORMAT_INT8, GEMM_FORMAT_FP8, GEMM_FORMAT_F16, GEMM_FORMAT_BF16};
  static const int64_t sizes[][3] = {{1, 4096, 4096},   {16, 14336, 4096},   {256, 4096, 4096},
                                     {128, 128, 25088}, {4096, 57344, 8192}, {300, 96, 64}};
  enum { FORMATS = sizeof formats / sizeof *formats, SIZES = sizeof sizes / sizeof *sizes };
  if (i == (size_t)2 * FORMATS * SIZES)
    return NULL;
  problem =
      problem_of(formats[i % FORMATS], sizes[i / 2 / FORMATS][0], sizes[i / 2 / FORMATS][1], sizes[i / 2 / FORMATS][2]);
  problem.device = i / FORMATS % 2 == 1 && problem.format != GEMM_FORMAT_FP8 ? ampere : hopper;
  return &problem;
}

static bool in(const struct variant *list, int count, const struct variant *variant) {
  for (int i = 0; i < count; i++)
    if (variant_equal(&list[i], variant))
      return true;
  return false;
}

/* Every one can run, none comes twice, and no more than the device's room is filled by slices. */
static void test_a_sweep_can_run(void **state) {
  const struct kernel_problem *problem;
  for (size_t i = 0; (problem = swept_problem(i)) != NULL; i++) {
    struct variant list[TILE_SWEEP_ALL + 1];
    struct tile_plan plan;
    struct error error;
    for (int all = 0; all < 2; all++) {
      int count = tile_sweep(problem, all, list, TILE_SWEEP_ALL + 1);
      assert_in_range(count, 4, all ? TILE_SWEEP_ALL : TILE_SWEEP);
      for (int j = 0; j < count; j++) {
        assert_int_equal(tile_plan(problem, &list[j], &plan, &error), STATUS_OK);
        assert_false(in(list, j, &list[j]));
        int64_t slices = list[j].values[TILE_SPLIT_K], room = 132 * tile_resident(problem, &list[j]);
        assert_true(slices == 1 || plan.tiles_m * plan.tiles_n * slices <= room);
      }
    }
  }
}

/* The tile of manual configurations, or the nearest that can run, is always there, and ahead. */
static void test_a_sweep_has_the_manual_tile(void **state) {
  const struct kernel_problem *problem;
  struct variant manual = parse("tile block_m=128 block_n=128 block_k=64 group_size_m=8 num_warps=4 num_stages=4");
  for (size_t i = 0; (problem = swept_problem(i)) != NULL; i++) {
    struct variant list[TILE_SWEEP], first = manual;
    struct tile_plan plan;
    struct error error;
    for (int most = 1; most <= TILE_SWEEP; most++) {
      assert_in_range(tile_sweep(problem, false, list, most), 1, most);
      if (tile_plan(problem, &manual, &plan, &error) != STATUS_OK)
        assert_true(tile_nearest(problem, &manual, &first));
      assert_true(variant_equal(&list[0], &first));
    }
  }
}

/* Of tiles of which half would be empty only the manual one; best guess first, alternatives behind other tiles. */
static void test_a_sweep_is_pruned_and_in_order(void **state) {
  struct kernel_problem problem = problem_of(GEMM_FORMAT_F16, 16, 4096, 4096);
  struct variant list[TILE_SWEEP], manual = parse("tile");
  int count = tile_sweep(&problem, false, list, TILE_SWEEP), first = 0, tiles = 0;
  while (first < count && list[first].values[TILE_BLOCK_M] == 128) {
    manual.values[TILE_SPLIT_K] = list[first].values[TILE_SPLIT_K];
    manual.values[TILE_SPLIT_K_MODE] = list[first].values[TILE_SPLIT_K_MODE];
    assert_true(variant_equal(&list[first++], &manual));
  }
  assert_in_range(first, 1, 2);
  for (int i = first; i < count; i++)
    assert_int_equal(list[i].values[TILE_BLOCK_M], 16);
  for (int i = first + 1; i < count && tile_us(&problem, &list[i]) >= tile_us(&problem, &list[i - 1]); i++)
    tiles++;
  assert_in_range(tiles, 3, 8);
  problem = problem_of(GEMM_FORMAT_INT2, 16, 4096, 4096);
  assert_int_equal(tile_sweep(&problem, true, list, TILE_SWEEP), 0);
}

/* What an H200 took for one tile of F16, by slices of K and by mode (NOTES.md): the model puts them in the right order
 * because it is not far off. */
static void test_the_model_is_near_what_was_measured(void **state) {
  static const struct {
    int slices;
    double serial, parallel;
  } measured[] = {{1, 152.8, 152.8}, {8, 35.4, 23.0},   {17, 43.0, 17.3}, {25, 55.4, 15.3},
                  {33, 70.0, 15.0},  {50, 106.5, 20.2}, {66, 143.2, 19.8}};
  struct kernel_problem problem = problem_of(GEMM_FORMAT_F16, 16, 1024, 16384);
  struct variant variant = parse("tile block_m=16 block_n=64 block_k=64");
  for (size_t i = 0; i < sizeof measured / sizeof *measured; i++) {
    variant.values[TILE_SPLIT_K] = measured[i].slices;
    variant.values[TILE_SPLIT_K_MODE] = TILE_SERIAL;
    double serial = tile_us(&problem, &variant) / measured[i].serial;
    variant.values[TILE_SPLIT_K_MODE] = TILE_PARALLEL;
    double parallel = tile_us(&problem, &variant) / measured[i].parallel;
    assert_true(serial > 0.8 && serial < 1.25);
    assert_true(parallel > 0.8 && parallel < 1.25);
  }
}

/* ---- files */

/* The only file in the folder. */
static const char *only_file(void) {
  static char path[128];
  char command[128];
  snprintf(command, sizeof command, "ls -d %s/*", folder);
  FILE *pipe = popen(command, "r");
  assert_non_null(pipe);
  assert_non_null(fgets(path, sizeof path, pipe));
  path[strcspn(path, "\n")] = '\0';
  assert_int_equal(fgetc(pipe), EOF); /* no temporary one is left */
  pclose(pipe);
  return path;
}

static void test_code_is_kept(void **state) {
  static const char code[] = "not \0 really code\n\n\n";
  void *got = NULL;
  size_t bytes = 0;
  struct error error;
  assert_false(code_cache_load(folder, "key", &got, &bytes));
  assert_int_equal(code_cache_save(folder, "key", code, sizeof code, &error), STATUS_OK);
  assert_true(code_cache_load(folder, "key", &got, &bytes));
  assert_int_equal(bytes, sizeof code);
  assert_memory_equal(got, code, sizeof code);
  free(got);
  assert_false(code_cache_load(folder, "another key", &got, &bytes));
  assert_int_equal(code_cache_save(folder, "two\nlines", code, sizeof code, &error), STATUS_INVALID);
  assert_int_equal(code_cache_save("/dev/null/folder", "key", code, sizeof code, &error), STATUS_SYSTEM);
}

static void test_damaged_code_is_a_miss(void **state) {
  static const char code[] = "0123456789abcdef";
  void *got;
  size_t bytes;
  struct stat stat;
  struct error error;
  for (int damage = 0; damage < 4; damage++) {
    assert_int_equal(code_cache_save(folder, "key", code, sizeof code, &error), STATUS_OK);
    const char *path = only_file();
    int fd = open(path, O_RDWR);
    assert_int_equal(fstat(fd, &stat), 0);
    if (damage == 0)
      assert_int_equal(ftruncate(fd, stat.st_size - 1), 0);
    if (damage == 1)
      assert_int_equal(pwrite(fd, "x", 1, stat.st_size - 3), 1);
    if (damage == 2)
      assert_int_equal(pwrite(fd, "kez", 3, strlen("gemmd kernel 1\n")), 3);
    if (damage == 3)
      assert_int_equal(ftruncate(fd, 0), 0);
    close(fd);
    assert_false(code_cache_load(folder, "key", &got, &bytes));
  }
  assert_int_equal(unlink(only_file()), 0);
}

static void test_a_link_is_not_followed(void **state) {
  void *got;
  size_t bytes;
  struct error error;
  char moved[160];
  assert_int_equal(code_cache_save(folder, "key", "code", 4, &error), STATUS_OK);
  const char *path = only_file();
  snprintf(moved, sizeof moved, "%s.moved", path);
  assert_int_equal(rename(path, moved), 0);
  assert_int_equal(symlink(moved, path), 0);
  assert_false(code_cache_load(folder, "key", &got, &bytes));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_parameters_are_the_promised_ones),
      cmocka_unit_test(test_a_plan),
      cmocka_unit_test(test_a_plan_for_two_bits),
      cmocka_unit_test(test_what_cannot_run_has_a_reason_and_a_neighbour),
      cmocka_unit_test(test_what_has_no_neighbour),
      cmocka_unit_test(test_more_blocks_than_a_launch),
      cmocka_unit_test(test_slices_fill_the_device),
      cmocka_unit_test(test_a_sweep_has_every_count_in_every_mode),
      cmocka_unit_test(test_a_sweep_can_run),
      cmocka_unit_test(test_a_sweep_has_the_manual_tile),
      cmocka_unit_test(test_a_sweep_is_pruned_and_in_order),
      cmocka_unit_test(test_the_model_is_near_what_was_measured),
      cmocka_unit_test_setup_teardown(test_code_is_kept, folder_make, folder_remove),
      cmocka_unit_test_setup_teardown(test_damaged_code_is_a_miss, folder_make, folder_remove),
      cmocka_unit_test_setup_teardown(test_a_link_is_not_followed, folder_make, folder_remove),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
