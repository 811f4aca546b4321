#include "variants.h"

#include "int2_variants.h"
#include "staging.h"

#include <stdlib.h>
#include <string.h>

enum { LISTED_MOST = 1024, FEW_MOST = 8, FROM_EACH_WAY = 24 };

/* cuBLASLt: how it is asked, then the algorithm's attributes. */
static const struct variant_family library_family = {
    .name = "cublaslt",
    .library = true,
    .count = 1 + ALGORITHM_ATTRIBUTES,
    .parameters =
        {
            {"way", "0: bare sums and a pass, 1: y itself, 2: scaled f32 and a pass", 0, CHOICE_LIBRARY_WAYS - 1, 1, 0},
            {"algorithm", "number", 0, 1 << 20, 1, 0},
            {"tile", "cublasLtMatmulTile_t", 0, 1 << 20, 1, 0},
            {"stages", "cublasLtMatmulStages_t", 0, 1 << 20, 1, 0},
            {"split_k", "slices of K; -1: as the algorithm has it", -1, 128, 1, 1},
            {"reduction", "of slices; 2: in the type of the sums", 0, 2, 1, 0},
            {"swizzle", "of blocks", 0, 1 << 20, 1, 0},
            {"custom", "option of the algorithm", 0, 1 << 20, 1, 0},
            {"inner", "shape", 0, 65535, 1, 0},
            {"cluster", "shape", 0, 65535, 1, 0},
        },
};

static const struct variant_family hopper_family = {
    .name = "hopper",
    .count = 5,
    .parameters =
        {
            {"columns", "rows of x at a time", 8, 128, 8, 8},
            {"groups", "warpgroups, each 64 rows of W", 1, 3, 1, 1},
            {"rows", "of W in a block", 8, 192, 8, 64},
            {"split_k", "blocks that share K", 1, 8, 1, 1},
            {"ahead", "steps of 256 bytes of K under way", 2, 6, 1, 3},
        },
};

static const struct variant_family few_family = {
    .name = "few",
    .count = 2,
    .parameters =
        {
            {"k_warps", "of 16 that share K", 1, 16, 1, 16},
            {"rows", "of W in a tile", 2, 256, 2, 16},
        },
};

static const struct variant_family many_family = {
    .name = "many",
    .count = 2,
    .parameters =
        {
            {"columns", "rows of W a tile", 128, 256, 128, 256},
            {"group", "tiles of x for the same rows of W", 1, 64, 1, 16},
        },
};

/* Parameters named without a family are those of tiles, where it has them all. */
const struct variant_family *const cuda_families[] = {&variant_plain, &tile_family, &library_family,  &hopper_family,
                                                      &few_family,    &many_family, &int2_few_family, &int2_many_family,
                                                      &int2a8_family, NULL};

/* ---- from and to choices */

static struct hopper_config hopper_of(const struct variant *variant) {
  const int32_t *values = variant->values;
  return (struct hopper_config){
      .columns = values[0], .groups = values[1], .rows = values[2], .split_k = values[3], .ahead = values[4]};
}

static struct variant variant_of_hopper(const struct hopper_config *config) {
  return (struct variant){.family = &hopper_family,
                          .values = {config->columns, config->groups, config->rows, config->split_k, config->ahead}};
}

static struct few_config few_of(const struct variant *variant) {
  return (struct few_config){.k_warps = variant->values[0], .rows = variant->values[1]};
}

static struct variant variant_of_few(const struct few_config *config) {
  return (struct variant){.family = &few_family, .values = {config->k_warps, config->rows}};
}

static struct many_config many_of(const struct variant *variant) {
  return (struct many_config){.columns = variant->values[0], .group = variant->values[1]};
}

static struct variant variant_of_many(const struct many_config *config) {
  return (struct variant){.family = &many_family, .values = {config->columns, config->group}};
}

static struct variant variant_of_library(int way, const int32_t attributes[ALGORITHM_ATTRIBUTES]) {
  struct variant variant = {.family = &library_family, .values = {way}};
  memcpy(variant.values + 1, attributes, ALGORITHM_ATTRIBUTES * sizeof *attributes);
  return variant;
}

bool cuda_variant_choice(const struct variant *variant, const struct choice_request *request, struct choice *out) {
  if (!variant || !variant->family || gemm_is_int2(request->weight->format))
    return false;
  if (variant->family == &variant_plain) {
    *out = choice_plain(request);
    return true;
  }
  if (variant->family == &hopper_family) {
    *out = (struct choice){.way = CHOICE_HOPPER, .scaled = true, .biased = true, .d_type = request->y_type};
    out->hopper = hopper_of(variant);
    return true;
  }
  if (variant->family == &few_family) {
    *out = (struct choice){.way = CHOICE_FEW, .scaled = true, .biased = true, .d_type = request->y_type};
    out->few = few_of(variant);
    return true;
  }
  if (variant->family == &many_family) {
    *out = (struct choice){.way = CHOICE_MANY, .scaled = true, .biased = true, .d_type = request->y_type};
    out->many = many_of(variant);
    return true;
  }
  if (variant->family == &tile_family) {
    *out =
        (struct choice){.way = CHOICE_TILE, .scaled = true, .biased = true, .d_type = request->y_type, .tile = variant};
    return variant->ready[0] != 0;
  }
  _Static_assert(sizeof out->algorithm == sizeof variant->ready, "what variant_check leaves behind");
  (void)choice_library_way(request, variant->values[0], out);
  memcpy(&out->algorithm, variant->ready, sizeof out->algorithm);
  return true;
}

/* ---- requests */

struct question {
  struct layout layout;
  enum gemm_type x_type;
  int64_t m; /* not padded */
  struct choice_request request;
  struct library_product operands;
};

/* Any device memory will do as operands: the library looks at the alignment alone. */
static enum status ask(struct backend *backend, const struct variant_problem *problem, struct question *out,
                       struct error *error) {
  enum status status =
      layout_compute(&problem->weight, layout_choose(&problem->weight, backend->capability), &out->layout, error);
  if (status != STATUS_OK)
    return status;
  out->x_type = problem->x_type;
  out->m = problem->m;
  void *anywhere = (void *)(uintptr_t)backend->slots[0].workspace.address;
  out->request = (struct choice_request){.weight = &problem->weight,
                                         .n = out->layout.n,
                                         .k = out->layout.k,
                                         .m = staging_pad(&problem->weight, problem->m),
                                         .y_type = problem->y_type,
                                         .bias_type = problem->bias_type};
  out->operands = (struct library_product){.format = problem->weight.format,
                                           .n = out->layout.n,
                                           .k = out->layout.k,
                                           .m = out->request.m,
                                           .w = anywhere,
                                           .x = anywhere,
                                           .w_scale = anywhere,
                                           .x_scale = anywhere,
                                           .d = anywhere,
                                           .bias = anywhere};
  return STATUS_OK;
}

static struct library_product product_of(const struct question *question, const struct choice *choice) {
  struct library_product product = question->operands;
  product.scale = choice->scale;
  product.d_type = choice->d_type;
  product.bias_type = choice->biased ? question->request.bias_type : GEMM_TYPE_NONE;
  return product;
}

/* ---- checking */

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

static struct tile_problem tile_problem_of(const struct question *question) {
  return (struct tile_problem){.format = question->request.weight->format,
                               .scale = question->request.weight->scale,
                               .x_type = question->x_type,
                               .tiled = layout_is_tiled(&question->layout),
                               .m = question->request.m,
                               .n = question->layout.n,
                               .k = question->layout.k};
}

static struct int2_problem int2_problem_of(const struct backend *backend, const struct question *question) {
  const struct gemm_weight *weight = question->request.weight;
  return (struct int2_problem){.format = weight->format,
                               .x_type = question->x_type,
                               .m = question->m,
                               .n = weight->n,
                               .k = weight->k,
                               .sms = backend->multiprocessors};
}

static bool of_int2(const struct variant *variant) {
  return variant->family == &int2_few_family || variant->family == &int2_many_family ||
         variant->family == &int2a8_family;
}

static struct variant own_choice(struct backend *backend, const struct question *question);

/* Where nothing can be compiled, what is built in stands in. */
static enum status check_tile(struct backend *backend, const struct question *question, struct variant *variant,
                              struct variant *nearest, struct error *error) {
  struct tile_table *tiles = &backend->tiles;
  struct tile_problem problem = tile_problem_of(question);
  const struct tile_code *code = NULL;
  struct tile_plan plan;
  memset(variant->ready, 0, sizeof variant->ready);
  enum status status = tile_plan(&tiles->device, &problem, variant, &plan, error);
  if (status != STATUS_OK) {
    if (nearest && !tile_nearest(&tiles->device, &problem, variant, nearest))
      *nearest = own_choice(backend, question);
    return status;
  }
  status = tile_can_build(tiles, variant, &plan, error);
  if (status == STATUS_OK)
    status = tile_load(tiles, variant, &plan, &code, error);
  if (status == STATUS_UNSUPPORTED && nearest)
    *nearest = own_choice(backend, question);
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
  enum status status = ask(backend, problem, &question, error);
  if (status != STATUS_OK || variant->family != &tile_family)
    return status;
  struct tile_problem tile = tile_problem_of(&question);
  status = tile_plan(&backend->tiles.device, &tile, variant, &plan, error);
  return status == STATUS_OK ? tile_build(&backend->tiles, variant, &plan, error) : status;
}

/* INT2 in tiles has kernels of its own, in rows of codes none that could be chosen. */
static enum status check_int2(struct backend *backend, const struct question *question, const struct variant *variant,
                              struct variant *nearest, struct error *error) {
  struct int2_problem problem = int2_problem_of(backend, question);
  enum status status = STATUS_UNSUPPORTED;
  if (of_int2(variant) && layout_is_tiled(&question->layout))
    status = int2_check(&problem, variant, error);
  else
    (void)error_set(error, status, "%s has %s here", gemm_format_name(problem.format),
                    layout_is_tiled(&question->layout) ? "kernels of families int2_few, int2_many, int2a8 and tile"
                                                       : "the backend's own kernel alone");
  if (status != STATUS_OK && nearest)
    *nearest = own_choice(backend, question);
  return status;
}

enum status cuda_variant_check(struct backend *backend, const struct variant_problem *problem, struct variant *variant,
                               struct variant *nearest, struct error *error) {
  struct question question;
  struct choice choice;
  enum status status = ask(backend, problem, &question, error);
  if (status == STATUS_OK)
    status = backend_enter(backend, error);
  if (status != STATUS_OK || variant->family == &variant_plain)
    return status;
  if (variant->family == &tile_family)
    return check_tile(backend, &question, variant, nearest, error);
  if (gemm_is_int2(problem->weight.format) || of_int2(variant))
    return check_int2(backend, &question, variant, nearest, error);
  if (variant->family == &hopper_family)
    return check_hopper(backend, &question, variant, nearest, error);
  if (variant->family == &few_family)
    return check_few(backend, &question, variant, nearest, error);
  if (variant->family == &many_family)
    return check_many(backend, &question, error);
  if (!choice_library_way(&question.request, variant->values[0], &choice))
    return error_set(error, STATUS_UNSUPPORTED, "cuBLASLt is not asked for this product in way %d",
                     (int)variant->values[0]);
  struct library_product product = product_of(&question, &choice);
  cublasLtMatmulAlgo_t algorithm;
  status = library_algorithm(&backend->library, &product, variant->values + 1, &algorithm, error);
  if (status == STATUS_OK)
    memcpy(variant->ready, &algorithm, sizeof variant->ready);
  return status;
}

/* ---- listing */

/* What the backend chooses by itself. */
static struct variant own_choice(struct backend *backend, const struct question *question) {
  struct int2_problem int2 = int2_problem_of(backend, question);
  if (gemm_is_int2(int2.format))
    return layout_is_tiled(&question->layout) ? int2_own(&int2) : variant_default(&variant_plain);
  struct choice choice =
      choice_find(backend->choices, &backend->library, &question->request, &question->operands, false);
  struct choice way;
  int32_t attributes[ALGORITHM_ATTRIBUTES];
  if (choice.way == CHOICE_HOPPER)
    return variant_of_hopper(&choice.hopper);
  if (choice.way == CHOICE_FEW)
    return variant_of_few(&choice.few);
  if (choice.way == CHOICE_MANY)
    return variant_of_many(&choice.many);
  if (choice.way == CHOICE_PLAIN)
    return variant_default(&variant_plain);
  int number = 0;
  while (!choice_library_way(&question->request, number, &way) || way.d_type != choice.d_type ||
         way.scaled != choice.scaled || way.biased != choice.biased)
    number++;
  library_attributes(&backend->library, &choice.algorithm, attributes);
  return variant_of_library(number, attributes);
}

static int add_hopper(struct backend *backend, const struct question *question, bool all, struct variant *out,
                      int count, int most) {
  struct hopper_config configs[LISTED_MOST];
  struct hopper_product product;
  int multiprocessors, room = most - count < LISTED_MOST ? most - count : LISTED_MOST;
  if (room == 0 || !choice_hopper(backend->choices, &question->request, &product, &multiprocessors))
    return count;
  int found = hopper_candidates(&product, multiprocessors, all, configs, room);
  for (int i = 0; i < found; i++)
    out[count++] = variant_of_hopper(&configs[i]);
  return count;
}

static int add_few(struct backend *backend, const struct question *question, bool all, struct variant *out, int count,
                   int most) {
  struct few_config configs[LISTED_MOST];
  struct hopper_product product;
  int multiprocessors, room = most - count < LISTED_MOST ? most - count : LISTED_MOST;
  if (room == 0 || !choice_few(backend->choices, &question->request, &product, &multiprocessors))
    return count;
  int found = few_candidates(&product, multiprocessors, configs, !all && room > FEW_MOST ? FEW_MOST : room);
  for (int i = 0; i < found; i++)
    out[count++] = variant_of_few(&configs[i]);
  return count;
}

static int add_many(struct backend *backend, const struct question *question, struct variant *out, int count,
                    int most) {
  static const int groups[] = {4, 8, 16, 32};
  struct many_config config;
  double busy;
  if (!choice_many(backend->choices, &question->request, &config, &busy))
    return count;
  for (config.columns = 128; config.columns <= 256; config.columns *= 2)
    for (size_t i = 0; i < sizeof groups / sizeof *groups && count < most; i++) {
      config.group = groups[i];
      out[count++] = variant_of_many(&config);
    }
  return count;
}

/* Slices of K and the order of blocks, for an algorithm of the library that is good already. */
static int refine_library(const struct variant *base, struct variant *out, int most) {
  static const int slices[] = {2, 3, 4, 6, 8, 12, 16};
  int count = 0;
  for (size_t i = 0; i < sizeof slices / sizeof *slices && count < most; i++) {
    out[count] = *base;
    out[count].values[1 + ALGORITHM_SPLIT_K] = slices[i];
    out[count++].values[1 + ALGORITHM_REDUCTION] = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  }
  if (count < most) {
    out[count] = *base;
    out[count++].values[1 + ALGORITHM_SWIZZLE] = !base->values[1 + ALGORITHM_SWIZZLE];
  }
  return count;
}

static int refine_hopper(const struct variant_problem *problem, const struct variant *base, struct variant *out,
                         int most) {
  struct hopper_config config = hopper_of(base), near[HOPPER_NEAR];
  int found = hopper_near(&config, problem->weight.scale, near), count = 0;
  for (; count < found && count < most; count++)
    out[count] = variant_of_hopper(&near[count]);
  return count;
}

static int refine(struct backend *backend, const struct variant_problem *problem, const struct variant *base, bool all,
                  struct variant *out, int most) {
  struct question question;
  struct error ignored;
  if (base->family == &library_family)
    return refine_library(base, out, most);
  if (base->family == &hopper_family)
    return refine_hopper(problem, base, out, most);
  if ((base->family != &tile_family && !of_int2(base)) || ask(backend, problem, &question, &ignored) != STATUS_OK)
    return 0;
  struct int2_problem int2 = int2_problem_of(backend, &question);
  if (of_int2(base))
    return int2_near(&int2, base, out, most);
  struct tile_problem tile = tile_problem_of(&question);
  return tile_splits(&backend->tiles.device, &tile, base, all, out, most);
}

int cuda_variants(struct backend *backend, const struct variant_problem *problem, const struct variant *base, bool all,
                  struct variant *out, int most) {
  struct question question;
  struct error ignored;
  if (base)
    return refine(backend, problem, base, all, out, most);
  if (ask(backend, problem, &question, &ignored) != STATUS_OK || backend_enter(backend, &ignored) != STATUS_OK) {
    out[0] = variant_default(&variant_plain);
    return 1;
  }
  out[0] = own_choice(backend, &question);
  struct int2_problem int2 = int2_problem_of(backend, &question);
  if (gemm_is_int2(int2.format) && layout_is_tiled(&question.layout))
    return int2_variants(&int2, all, out, most);
  if (out[0].family == &variant_plain)
    return 1;
  int count = add_few(backend, &question, all, out, 1, most);
  count = add_many(backend, &question, out, count, most);
  return add_hopper(backend, &question, all, out, count, most);
}

int cuda_library_variants(struct backend *backend, const struct variant_problem *problem, bool all, struct variant *out,
                          int most) {
  struct question question;
  struct choice choice;
  struct error ignored;
  int count = 0;
  if (gemm_is_int2(problem->weight.format) || ask(backend, problem, &question, &ignored) != STATUS_OK ||
      backend_enter(backend, &ignored) != STATUS_OK)
    return 0;
  int32_t(*listed)[ALGORITHM_ATTRIBUTES] = malloc(LISTED_MOST * sizeof *listed);
  for (int way = 0; way < CHOICE_LIBRARY_WAYS && listed; way++) {
    if (!choice_library_way(&question.request, way, &choice))
      continue;
    struct library_product product = product_of(&question, &choice);
    int room = most - count < LISTED_MOST ? most - count : LISTED_MOST;
    if (!all && room > FROM_EACH_WAY)
      room = FROM_EACH_WAY;
    int found = library_list(&backend->catalog, &product, all, listed, room);
    for (int i = 0; i < found; i++)
      out[count++] = variant_of_library(way, listed[i]);
  }
  free(listed);
  return count;
}
