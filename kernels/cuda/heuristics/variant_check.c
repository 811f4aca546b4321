#include "variants.h"

#include "families.h"
#include "question.h"

#include <string.h>

static enum status check_hopper(struct backend *backend, const struct question *question, const struct variant *variant,
                                struct variant *nearest, struct error *error) {
  struct hopper_config config = hopper_of(variant);
  struct hopper_product product;
  int multiprocessors;
  if (!choice_hopper(backend->choices, &question->request, &product, &multiprocessors))
    return error_set(error, STATUS_UNSUPPORTED,
                     "family hopper takes INT8 and FP8 of 128 rows or more, on compute capability 9.0");
  if (hopper_config_valid(&config, product.scale))
    return STATUS_OK;
  if (nearest) {
    struct hopper_config close = hopper_configure(&product, multiprocessors);
    *nearest = variant_of_hopper(&close);
  }
  return error_set(error, STATUS_UNSUPPORTED,
                   "there is no such kernel, or it needs %d KiB of shared memory where a block has 227",
                   hopper_shared_bytes(&config, product.scale) / 1024);
}

static enum status check_few(struct backend *backend, const struct question *question, const struct variant *variant,
                             struct variant *nearest, struct error *error) {
  struct few_config config = few_of(variant);
  struct hopper_product product;
  int multiprocessors;
  if (!choice_few(backend->choices, &question->request, &product, &multiprocessors))
    return error_set(error, STATUS_UNSUPPORTED,
                     "family few takes INT8, and FP8 on compute capability 9.0, with one scale or one a row and up to "
                     "%d rows of x that fit into shared memory",
                     FEW_COLUMNS_MOST);
  if (few_config_valid(&config))
    return STATUS_OK;
  if (nearest) {
    struct few_config close = few_configure(&product, multiprocessors);
    *nearest = variant_of_few(&close);
  }
  return error_set(error, STATUS_UNSUPPORTED, "k_warps is a power of two, rows an even number up to %d / k_warps",
                   FEW_ROWS * FEW_WARPS);
}

static enum status check_many(struct backend *backend, const struct question *question, struct error *error) {
  struct many_config config;
  double busy;
  if (choice_many(backend->choices, &question->request, &config, &busy))
    return STATUS_OK;
  return error_set(error, STATUS_UNSUPPORTED,
                   "family many takes INT8, more than 128 rows of x, and y of f32, f16 or bf16, on compute capability "
                   "9.0");
}

static enum status check_fp8_many(struct backend *backend, const struct question *question,
                                  const struct variant *variant, struct variant *nearest, struct error *error) {
  struct hopper_product product;
  int multiprocessors;
  struct fp8_many_config config = fp8_many_of(variant);
  struct fp8_many_plan plan;
  double us;
  if (!choice_fp8_many(backend->choices, &question->request, &product, &multiprocessors))
    return error_set(error, STATUS_UNSUPPORTED,
                     "family fp8_many takes FP8 with one scale or one a row, 128 rows of W or more, and more than 64 "
                     "rows of x, on compute capability 9.0");
  if (fp8_many_plan_for(&config, &product, multiprocessors, &plan))
    return STATUS_OK;
  if (nearest) {
    config = fp8_many_configure(&product, multiprocessors, &us);
    *nearest = variant_of_fp8_many(&config);
  }
  return error_set(error, STATUS_UNSUPPORTED,
                   "no such kernel for this product: 256 rows take bf16 y and no split_k, split_k clusters that the "
                   "device holds at once");
}

/* Where nothing can be compiled, what is built in stands in. */
static enum status check_tile(struct backend *backend, const struct question *question, struct variant *variant,
                              struct variant *nearest, struct error *error) {
  struct tile_table *tiles = &backend->tiles;
  struct tile_problem problem = question_tile(question);
  const struct tile_code *code = NULL;
  struct tile_plan plan;
  memset(variant->ready, 0, sizeof variant->ready);
  enum status status = tile_plan(&tiles->device, &problem, variant, &plan, error);
  if (status != STATUS_OK) {
    if (nearest && !tile_nearest(&tiles->device, &problem, variant, nearest))
      *nearest = question_own(backend, question);
    return status;
  }
  status = tile_can_build(tiles, variant, &plan, error);
  if (status == STATUS_OK)
    status = tile_load(tiles, variant, &plan, &code, error);
  if (status == STATUS_UNSUPPORTED && nearest)
    *nearest = question_own(backend, question);
  variant->ready[0] = (uint64_t)(uintptr_t)code;
  return status;
}

bool cuda_variant_foreign(const struct variant *variant) {
  return variant->family == &tile_family;
}

enum status cuda_variant_build(struct backend *backend, const struct variant_problem *problem,
                               const struct variant *variant, struct error *error) {
  struct question question;
  struct tile_plan plan;
  enum status status = question_ask(backend, problem, &question, error);
  if (status != STATUS_OK || variant->family != &tile_family)
    return status;
  struct tile_problem tile = question_tile(&question);
  status = tile_plan(&backend->tiles.device, &tile, variant, &plan, error);
  return status == STATUS_OK ? tile_build(&backend->tiles, variant, &plan, error) : status;
}

/* INT2 in tiles has kernels of its own, in rows of codes none that could be chosen. */
static enum status check_int2(struct backend *backend, const struct question *question, const struct variant *variant,
                              struct variant *nearest, struct error *error) {
  struct int2_problem problem = question_int2(backend, question);
  enum status status = STATUS_UNSUPPORTED;
  if (variant_is_int2(variant) && layout_is_tiled(&question->layout))
    status = int2_check(&problem, variant, error);
  else
    (void)error_set(error, status, "%s has %s here", gemm_format_name(problem.format),
                    layout_is_tiled(&question->layout) ? "kernels of families int2_few, int2_many, int2a8 and tile"
                                                       : "the backend's own kernel alone");
  if (status != STATUS_OK && nearest)
    *nearest = question_own(backend, question);
  return status;
}

enum status cuda_variant_check(struct backend *backend, const struct variant_problem *problem, struct variant *variant,
                               struct variant *nearest, struct error *error) {
  struct question question;
  struct choice choice;
  enum status status = question_ask(backend, problem, &question, error);
  if (status == STATUS_OK)
    status = backend_enter(backend, error);
  if (status != STATUS_OK || variant->family == &variant_plain)
    return status;
  if (variant->family == &tile_family)
    return check_tile(backend, &question, variant, nearest, error);
  if (gemm_is_int2(problem->weight.format) || variant_is_int2(variant))
    return check_int2(backend, &question, variant, nearest, error);
  if (variant->family == &hopper_family)
    return check_hopper(backend, &question, variant, nearest, error);
  if (variant->family == &few_family)
    return check_few(backend, &question, variant, nearest, error);
  if (variant->family == &many_family)
    return check_many(backend, &question, error);
  if (variant->family == &fp8_many_family)
    return check_fp8_many(backend, &question, variant, nearest, error);
  if (!choice_library_way(&question.request, variant->values[0], &choice))
    return error_set(error, STATUS_UNSUPPORTED, "cuBLASLt is not asked for this product in way %d",
                     (int)variant->values[0]);
  struct library_product product = question_product(&question, &choice);
  cublasLtMatmulAlgo_t algorithm;
  status = library_algorithm(&backend->library, &product, variant->values + 1, &algorithm, error);
  if (status == STATUS_OK)
    memcpy(variant->ready, &algorithm, sizeof variant->ready);
  return status;
}
