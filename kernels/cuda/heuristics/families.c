#include "families.h"

#include "../families/sm90/int2/variants.h"
#include "variants.h"

#include <string.h>

/* cuBLASLt: how it is asked, then the algorithm's attributes. */
const struct variant_family library_family = {
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

const struct variant_family hopper_family = {
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

const struct variant_family few_family = {
    .name = "few",
    .count = 2,
    .parameters =
        {
            {"k_warps", "of 16 that share K", 1, 16, 1, 16},
            {"rows", "of W in a tile", 2, 256, 2, 16},
        },
};

const struct variant_family many_family = {
    .name = "many",
    .count = 2,
    .parameters =
        {
            {"columns", "rows of W a tile", 128, 256, 128, 256},
            {"group", "tiles of x for the same rows of W", 1, 64, 1, 16},
        },
};

const struct variant_family fp8_many_family = {
    .name = "fp8_many",
    .count = 3,
    .parameters =
        {
            {"rows", "of W in a tile, which has 128 of x", 128, 256, 128, 128},
            {"split_k", "blocks that share K", 1, FP8_MANY_SPLIT_MOST, 1, 1},
            {"group", "tiles of x for the same rows of W", 1, 64, 1, 16},
        },
};

/* Parameters named without a family are those of tiles, where it has them all. */
const struct variant_family *const cuda_families[] = {
    &variant_plain,   &tile_family,     &library_family,   &hopper_family, &few_family, &many_family,
    &fp8_many_family, &int2_few_family, &int2_many_family, &int2a8_family, NULL};

/* ---- from and to choices */

struct hopper_config hopper_of(const struct variant *variant) {
  const int32_t *values = variant->values;
  return (struct hopper_config){
      .columns = values[0], .groups = values[1], .rows = values[2], .split_k = values[3], .ahead = values[4]};
}

struct variant variant_of_hopper(const struct hopper_config *config) {
  return (struct variant){.family = &hopper_family,
                          .values = {config->columns, config->groups, config->rows, config->split_k, config->ahead}};
}

struct few_config few_of(const struct variant *variant) {
  return (struct few_config){.k_warps = variant->values[0], .rows = variant->values[1]};
}

struct variant variant_of_few(const struct few_config *config) {
  return (struct variant){.family = &few_family, .values = {config->k_warps, config->rows}};
}

struct many_config many_of(const struct variant *variant) {
  return (struct many_config){.columns = variant->values[0], .group = variant->values[1]};
}

struct variant variant_of_many(const struct many_config *config) {
  return (struct variant){.family = &many_family, .values = {config->columns, config->group}};
}

struct fp8_many_config fp8_many_of(const struct variant *variant) {
  return (struct fp8_many_config){
      .rows = variant->values[0], .split_k = variant->values[1], .group = variant->values[2]};
}

struct variant variant_of_fp8_many(const struct fp8_many_config *config) {
  return (struct variant){.family = &fp8_many_family, .values = {config->rows, config->split_k, config->group}};
}

struct variant variant_of_library(int way, const int32_t attributes[ALGORITHM_ATTRIBUTES]) {
  struct variant variant = {.family = &library_family, .values = {way}};
  memcpy(variant.values + 1, attributes, ALGORITHM_ATTRIBUTES * sizeof *attributes);
  return variant;
}

bool variant_is_int2(const struct variant *variant) {
  return variant->family == &int2_few_family || variant->family == &int2_many_family ||
         variant->family == &int2a8_family;
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
    /* A product that comes in several goes has fewer rows in each. */
    const struct hopper_product go = {.format = request->weight->format, .m = request->m, .y_type = request->y_type};
    return many_takes(&go);
  }
  if (variant->family == &fp8_many_family) {
    *out = (struct choice){.way = CHOICE_FP8_MANY, .scaled = true, .biased = true, .d_type = request->y_type};
    out->fp8_many = fp8_many_of(variant);
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
