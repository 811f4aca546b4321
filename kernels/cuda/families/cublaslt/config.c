#include "config.h"

#include "../../heuristics/waves.h"

#include <string.h>

const struct variant_family library_family = {
    .name = "cublaslt",
    .library = true,
    .count = 1 + ALGORITHM_ATTRIBUTES,
    .parameters =
        {
            {"way", "0: bare sums and a pass, 1: y itself, 2: scaled f32 and a pass", 0, LIBRARY_WAYS - 1, 1, 0},
            {"algorithm", "number", 0, 1 << 20, 1, 0},
            {"tile", "cublasLtMatmulTile_t", 0, 1 << 20, 1, 0},
            {"stages", "cublasLtMatmulStages_t", 0, 1 << 20, 1, 0},
            {"split_k", "slices of K; -1: as the algorithm has it", -1, 256, 1, 1},
            {"reduction", "of slices; 2: in the type of the sums", 0, 2, 1, 0},
            {"swizzle", "of blocks", 0, 1 << 20, 1, 0},
            {"custom", "option of the algorithm", 0, 1 << 20, 1, 0},
            {"inner", "shape", 0, 65535, 1, 0},
            {"cluster", "shape", 0, 65535, 1, 0},
        },
};

struct variant variant_of_library(int way, const int32_t attributes[ALGORITHM_ATTRIBUTES]) {
  struct variant variant = {.family = &library_family, .values = {way}};
  memcpy(variant.values + 1, attributes, ALGORITHM_ATTRIBUTES * sizeof *attributes);
  return variant;
}

/* Kernels in clusters that cut K into many slices add these up in the operands' type, whatever the reduction scheme
 * says. Measured on an H100, cuBLASLt 13: f16, M = 17, N = 1, K = 105002 in 82 slices, y in f32, is off by 1.2e-3 of
 * what the magnitudes add up to; the same by other algorithms by 2e-5. */
bool library_keeps_sums(enum gemm_format format, const int32_t attributes[ALGORITHM_ATTRIBUTES]) {
  enum { SLICES_MOST = 32 };
  bool clusters = attributes[ALGORITHM_CLUSTER] != 0;
  return !(gemm_is_wide(format) && clusters && attributes[ALGORITHM_SPLIT_K] > SLICES_MOST);
}

/* ---- ways */

enum way { WAY_BARE, WAY_SCALED, WAY_SCALED_F32 };

bool library_way(const struct kernel_problem *problem, int way, struct library_way *out) {
  bool biased = problem->bias_type != GEMM_TYPE_NONE, fp8 = problem->format == GEMM_FORMAT_FP8;
  bool int8 = problem->format == GEMM_FORMAT_INT8, block = problem->scale == GEMM_SCALE_BLOCK;
  if (gemm_is_packed(problem->format) || kernel_problem_cancels(problem))
    return false;
  if (way == WAY_BARE) {
    *out = (struct library_way){.leaves = {.type = int8 ? GEMM_S32 : GEMM_F32}};
    return !block;
  }
  if (int8)
    return false;
  *out = (struct library_way){.scale = !fp8    ? LIBRARY_SCALE_NONE
                                       : block ? LIBRARY_SCALE_BLOCKS
                                               : LIBRARY_SCALE_ROWS,
                              .leaves = {.type = problem->y_type, .scaled = fp8, .biased = biased}};
  if (way == WAY_SCALED)
    return !biased || problem->bias_type == problem->y_type;
  out->leaves.type = GEMM_F32;
  out->leaves.biased = false;
  return way == WAY_SCALED_F32 && (biased || problem->y_type != GEMM_F32);
}

int library_way_first(const struct kernel_problem *problem, int way) {
  struct library_way asked, same;
  (void)library_way(problem, way, &asked);
  for (int i = 0; i < way; i++)
    if (library_way(problem, i, &same) && same.leaves.type == asked.leaves.type &&
        same.leaves.scaled == asked.leaves.scaled && same.leaves.biased == asked.leaves.biased)
      return i;
  return way;
}

/* The library's product with row scales does not cut K up: on an H200, 1280x8192, M = 256, 22.6 us, where bare sums and
 * a pass take 13.9. So those go first where tiles of 128 x 128 leave two thirds of the device idle and K is long. */
static bool idles(const struct kernel_problem *problem) {
  enum { TILE = 128, LONG_K = 4096 };
  int64_t tiles = (problem->n_padded + TILE - 1) / TILE * ((problem->m + TILE - 1) / TILE);
  return 3 * tiles <= problem->device.multiprocessors && problem->k_padded >= LONG_K;
}

/* The rows up to which FP8 with a scale a row goes faster as bare sums and a pass. Measured on an H200: 8192x8192, M =
 * 1 22 us for the bare sums, 39 us for the library's product with row scales; M = 128 25.6 and 24.9, 10240x8192 30.4
 * and 26.8, 57344x8192 145 and 137. */
enum { BARE_ROWS_MOST = 64 };

/* But for those, y itself where the library makes it, else scaled sums and a pass. */
void library_order(const struct kernel_problem *problem, int ways[LIBRARY_WAYS]) {
  static const int bare_first[LIBRARY_WAYS] = {WAY_BARE, WAY_SCALED, WAY_SCALED_F32};
  static const int bare_last[LIBRARY_WAYS] = {WAY_SCALED, WAY_SCALED_F32, WAY_BARE};
  bool fp8 = problem->format == GEMM_FORMAT_FP8;
  bool bare = fp8 && (problem->m <= BARE_ROWS_MOST || idles(problem));
  memcpy(ways, bare ? bare_first : bare_last, sizeof bare_first);
}

struct kernel_sums library_leaves(const struct kernel_problem *problem, const struct variant *variant) {
  struct library_way way = {.scale = LIBRARY_SCALE_NONE};
  (void)library_way(problem, variant->values[0], &way);
  return way.leaves;
}

/* ---- the model */

bool library_has_model(const struct kernel_problem *problem) {
  enum { ROWS = 64 }; /* more than these; up to them other kernels are faster */
  return problem->device.capability == 90 && problem->format == GEMM_FORMAT_FP8 && problem->scale != GEMM_SCALE_BLOCK &&
         problem->m > ROWS && !kernel_problem_cancels(problem) && problem->y_type == GEMM_BF16 &&
         (problem->bias_type == GEMM_TYPE_NONE || problem->bias_type == GEMM_BF16);
}

double library_us(const struct kernel_problem *problem) {
  static const struct wave_prices prices = {3.4, 1.2, 0.302, 0.1};
  /* A tile that goes beyond x costs all others their time, where the device is busy. */
  enum { TILE = 128, GROUP = 16 };
  static const double BUSY = 0.75, BEYOND = 1.25;
  int64_t tiles = (problem->n + TILE - 1) / TILE * ((problem->m + TILE - 1) / TILE);
  int64_t sms = problem->device.multiprocessors;
  bool beyond = problem->m > TILE && problem->m % TILE != 0 && (double)tiles > BUSY * (double)sms;
  return waves_us(&prices, problem, &(struct wave_cut){TILE, 1, GROUP}) * (beyond ? BEYOND : 1);
}

/* Beside fp8_many, where both are nearly equal, the library has thousands of rows, of which it needs less power for the
 * same; that has fewer, because it is a quarter faster with the numbers of rows below those that are multiples of 128,
 * and by 1 to 10 % with 512 and 1024.
 *
 * Where FP8 tensor cores cut sums off is known of Hopper alone; y in bf16 is rounded more coarsely than that. */
bool library_predict(const struct kernel_problem *problem, struct variant *out, double *us) {
  enum { EQUAL_ROWS = 2048 };
  static const double MANY = 0.98, FEWER = 1.06;
  bool cut_off = problem->format == GEMM_FORMAT_FP8 && problem->y_type != GEMM_BF16 && problem->device.capability != 90;
  if (gemm_is_packed(problem->format) || kernel_problem_cancels(problem) || cut_off)
    return false;
  *out = (struct variant){.family = &library_family};
  *us = library_has_model(problem) ? (problem->m <= EQUAL_ROWS ? FEWER : MANY) * library_us(problem) : KERNEL_NO_MODEL;
  return true;
}
