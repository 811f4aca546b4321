#include "config.h"

#include <stddef.h>

enum { STEPS_LEAST = 8 /* of K that a slice is worth */ };

const struct variant_family tensors_family = {
    .name = "tensors",
    .count = 1,
    .parameters = {{"slices", "of K", 1, TENSORS_SLICES_MOST, 1, 1}},
};

const struct variant_family tensors_wide_family = {
    .name = "tensors_wide",
    .count = 3,
    .parameters =
        {
            {"columns", "rows of W a tile: 64, 128 or 256", 64, 256, 64, 64},
            {"cluster", "blocks that share copies of W", 1, 2, 1, 1},
            {"slices", "of K", 1, TENSORS_SLICES_MOST, 1, 1},
        },
};

bool tensors_is_variant(const struct variant *variant) {
  return variant && (variant->family == &tensors_family || variant->family == &tensors_wide_family);
}

int tensors_vector(int align) {
  return align >= 16 ? 8 : align >= 8 ? 4 : align >= 4 ? 2 : 1;
}

bool tensors_pay(const struct tensors_problem *problem) {
  enum { LONG_K = 8192, SHARE = 4 };
  int64_t tiles = (problem->m + 127) / 128 * ((problem->n + 127) / 128);
  return problem->k >= LONG_K && SHARE * tiles <= problem->device.multiprocessors && problem->device.capability >= 80;
}

static bool takes_wide(const struct tensors_problem *problem) {
  return problem->device.capability == 90 && problem->align >= WIDE_ALIGN;
}

static int64_t tiles_of(const struct tensors_problem *problem, const struct tensors_config *config) {
  int64_t rows = config->wide ? TENSORS_ROW_PAD : GENERAL_TILE,
          columns = config->wide ? config->tile.columns : GENERAL_TILE;
  return (problem->m + rows - 1) / rows * ((problem->n + columns - 1) / columns);
}

static int64_t steps_of(const struct tensors_problem *problem, const struct tensors_config *config) {
  int64_t step = config->wide ? WIDE_STEP : GENERAL_STEP;
  return (problem->k + step - 1) / step;
}

static int slices_most(const struct tensors_problem *problem, const struct tensors_config *config) {
  int64_t steps = steps_of(problem, config);
  return steps < TENSORS_SLICES_MOST ? (int)steps : TENSORS_SLICES_MOST;
}

int tensors_filling(const struct tensors_problem *problem, const struct tensors_config *config) {
  int resident = config->wide ? 1 : 4;
  int64_t fill = (int64_t)problem->device.multiprocessors * resident / tiles_of(problem, config);
  int most = slices_most(problem, config);
  return fill < 1 ? 1 : fill < most ? (int)fill : most;
}

static struct variant variant_of(const struct tensors_config *config) {
  if (!config->wide)
    return (struct variant){.family = &tensors_family, .values = {config->slices}};
  return (struct variant){.family = &tensors_wide_family,
                          .values = {config->tile.columns, config->tile.cluster, config->slices}};
}

static bool tile_fits(const struct tensors_problem *problem, const struct wide_config *tile) {
  bool whole = tensors_padded_columns(problem->n) % tile->columns == 0;
  bool pairs = tile->columns >= 128 && tensors_padded_rows(problem->m) / TENSORS_ROW_PAD % 2 == 0;
  return (tile->columns == 64 || tile->columns == 128 || tile->columns == 256) && whole &&
         (tile->cluster == 1 || pairs);
}

/* Narrow tiles leave more blocks, each with more of its ring in flight, and cost the sums of fewer slices: as measured
 * on an H200, 64 columns are within 3 % of the best up to 256 x 256. Where tiles alone fill the device, wide ones read
 * less. */
struct variant tensors_default(const struct tensors_problem *problem) {
  struct tensors_config config = {.wide = takes_wide(problem), .tile = {.columns = 64, .cluster = 1}, .slices = 1};
  for (int columns = 256; config.wide && columns > 64; columns /= 2) {
    struct tensors_config wider = config;
    wider.tile.columns = columns;
    if (tile_fits(problem, &wider.tile) && tiles_of(problem, &wider) >= problem->device.multiprocessors) {
      config = wider;
      break;
    }
  }
  int64_t worth = steps_of(problem, &config) / STEPS_LEAST;
  config.slices = tensors_filling(problem, &config);
  config.slices = worth < 1 ? 1 : config.slices < worth ? config.slices : (int)worth;
  return variant_of(&config);
}

static enum status refuse(const struct tensors_problem *problem, struct variant *nearest, struct error *error,
                          const char *why, int value) {
  if (nearest)
    *nearest = tensors_default(problem);
  return error_set(error, STATUS_UNSUPPORTED, why, value);
}

enum status tensors_config(const struct tensors_problem *problem, const struct variant *variant,
                           struct tensors_config *out, struct variant *nearest, struct error *error) {
  *out = (struct tensors_config){.wide = variant->family == &tensors_wide_family, .slices = variant->values[0]};
  if (out->wide) {
    out->tile = (struct wide_config){.columns = variant->values[0], .cluster = variant->values[1]};
    out->slices = variant->values[2];
  }
  if (out->wide && !takes_wide(problem))
    return refuse(problem, nearest, error,
                  "family tensors_wide takes compute capability 9.0, and x, W and their strides aligned to 16 bytes, "
                  "not to %d",
                  problem->align);
  if (problem->device.capability < 80)
    return refuse(problem, nearest, error, "family tensors takes compute capability 8.0 and newer, not %d",
                  problem->device.capability);
  if (out->wide && !tile_fits(problem, &out->tile))
    return refuse(problem, nearest, error, "tiles of %d columns in such clusters do not divide y", out->tile.columns);
  int most = slices_most(problem, out);
  if (out->slices <= most)
    return STATUS_OK;
  if (nearest) {
    struct tensors_config fewer = *out;
    fewer.slices = most;
    *nearest = variant_of(&fewer);
  }
  return error_set(error, STATUS_UNSUPPORTED, "K of %lld has %d steps, which make no %d slices", (long long)problem->k,
                   most, out->slices);
}

/* ---- listing */

struct list {
  const struct tensors_problem *problem;
  struct variant *out;
  int count, most;
};

static void add(struct list *list, const struct tensors_config *config) {
  struct variant variant = variant_of(config);
  for (int i = 0; i < list->count; i++)
    if (variant_equal(&list->out[i], &variant))
      return;
  if (list->count < list->most && config->slices >= 1 && config->slices <= slices_most(list->problem, config))
    list->out[list->count++] = variant;
}

/* Counts near the one that fills the device once, that first. */
static void add_slices(struct list *list, struct tensors_config config, bool all) {
  static const double parts[] = {1, 0.75, 0.5, 0.375, 0.25, 0.1875, 2};
  int fill = tensors_filling(list->problem, &config);
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    config.slices = (int)(parts[i] * fill + 0.5);
    add(list, &config);
  }
  for (config.slices = 1; all && config.slices <= TENSORS_SLICES_MOST; config.slices += config.slices < 16 ? 1 : 8)
    add(list, &config);
}

int tensors_list(const struct tensors_problem *problem, bool all, struct variant *out, int most) {
  struct list list = {.problem = problem, .out = out, .most = most};
  if (problem->device.capability < 80)
    return 0;
  if (most > 0)
    out[list.count++] = tensors_default(problem);
  for (int columns = 64; takes_wide(problem) && columns <= 256; columns *= 2)
    for (int cluster = 1; cluster <= 2; cluster++) {
      struct tensors_config config = {.wide = true, .tile = {.columns = columns, .cluster = cluster}};
      if (tile_fits(problem, &config.tile))
        add_slices(&list, config, all);
    }
  if (!takes_wide(problem) || all)
    add_slices(&list, (struct tensors_config){.wide = false}, all);
  return list.count;
}
