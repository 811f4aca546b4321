#include "variants.h"

#include "../../listing.h"

enum {
  BEST_MOST = 8, /* of the cost model's guesses: on an H200 the fastest was the first, of 28 products of int2_few */
  FEW_ROWS_MOST = 64, /* of x, that a search has a few of at a time */
};

const struct variant_family int2_few_family = {
    .name = "int2_few",
    .count = 2,
    .parameters =
        {
            {"split_k", "blocks that share K: a power of two", 1, INT2_CUT_SPLIT_MOST, 1, 1},
            {"rows", "of W, for those that share K", INT2_FEW_ROWS, INT2_CUT_BLOCKS_MOST *INT2_BLOCK_ROWS,
             INT2_FEW_ROWS, INT2_BLOCK_ROWS},
        },
};

const struct variant_family int2_many_family = {
    .name = "int2_many",
    .count = 4,
    .parameters =
        {
            {"columns", "rows of x a tile", INT2_MANY_COLUMNS_LEAST, INT2_MANY_COLUMNS_MOST, 8, INT2_MANY_COLUMNS_MOST},
            {"split_k", "blocks that share a tile's K; 0: blocks have runs of it", 0, INT2_MANY_SPLIT_MOST, 1, 0},
            {"group", "tiles of x for the same rows of W", 1, 64, 1, 8},
            {"rows", "of W a tile", INT2_MANY_ROWS_LEAST, INT2_MANY_ROWS_MOST, INT2_MANY_ROWS_STEP,
             INT2_MANY_ROWS_MOST},
        },
};

const struct variant_family int2a8_family = {
    .name = "int2a8",
    .count = 2,
    .parameters =
        {
            {"split_k", "blocks that share K: a power of two", 1, INT2_CUT_SPLIT_MOST, 1, 1},
            {"blocks", "of 64 rows of W, for those that share K", 1, INT2_CUT_BLOCKS_MOST, 1, 1},
        },
};

/* ---- from and to configurations */

bool int2_few_of(const struct variant *variant, enum gemm_type x_type, enum gemm_type y_type, int64_t m,
                 struct int2_few_config *out) {
  if (variant == NULL || variant->family != &int2_few_family)
    return false;
  const int32_t *values = variant->values;
  *out =
      (struct int2_few_config){.columns = int2_few_columns(x_type, y_type, m), .split_k = values[0], .rows = values[1]};
  return true;
}

bool int2_many_of(const struct variant *variant, struct int2_many_config *out) {
  if (variant == NULL || variant->family != &int2_many_family)
    return false;
  const int32_t *values = variant->values;
  *out = (struct int2_many_config){.columns = values[0], .split_k = values[1], .group = values[2], .rows = values[3]};
  return true;
}

bool int2a8_of(const struct variant *variant, int eights, struct int2a8_config *out) {
  if (variant == NULL || variant->family != &int2a8_family)
    return false;
  *out = (struct int2a8_config){.eights = eights, .split_k = variant->values[0], .blocks = variant->values[1]};
  return true;
}

static struct variant variant_of_few(const struct int2_few_config *config) {
  return (struct variant){.family = &int2_few_family, .values = {config->split_k, config->rows}};
}

static struct variant variant_of_many(const struct int2_many_config *config) {
  return (struct variant){.family = &int2_many_family,
                          .values = {config->columns, config->split_k, config->group, config->rows}};
}

static struct variant variant_of_int2a8(const struct int2a8_config *config) {
  return (struct variant){.family = &int2a8_family, .values = {config->split_k, config->blocks}};
}

/* ---- what can run */

/* Other devices have weights in such tiles, too. */
static bool tiled_here(const struct kernel_problem *problem) {
  return gemm_is_int2(problem->format) && problem->tiled && problem->device.capability == 90;
}

static bool power_of_two(int32_t value) {
  return (value & (value - 1)) == 0;
}

static int eights_of(const struct kernel_problem *problem) {
  return problem->m <= 8 ? 1 : problem->m <= 16 ? 2 : 4;
}

/* Of x where int2_many multiplies it. */
static enum gemm_type many_type(const struct kernel_problem *problem) {
  return problem->format == GEMM_FORMAT_INT2A8 ? GEMM_INT8 : problem->x_type;
}

static bool takes_many(const struct kernel_problem *problem) {
  return many_type(problem) != GEMM_F32;
}

/* Whether all rows go at once where nobody says, and with what. */
static bool goes_to_many(const struct kernel_problem *problem, struct int2_many_config *out,
                         struct int2_many_plan *plan) {
  enum gemm_type x_type = many_type(problem), y_type = problem->y_type;
  int sms = problem->device.multiprocessors;
  if (problem->m < int2_many_least(x_type, y_type))
    return false;
  *out = int2_many_configure(x_type, problem->m, problem->n, problem->k, sms);
  if (!int2_many_plan_for(out, x_type, problem->m, problem->n, problem->k, sms, plan))
    return false;
  /* Of few rows only where it has a part of the device that is worth it: int2_few shares K among more blocks. */
  return problem->m >= int2_many_least(x_type, GEMM_F16) || plan->blocks * 8 > sms;
}

/* Whether int2_few is asked for so many rows of x: where int2_many can have them it is never the faster. */
static bool takes_few(const struct kernel_problem *problem) {
  struct int2_many_config many;
  struct int2_many_plan plan;
  return problem->format == GEMM_FORMAT_INT2 && !goes_to_many(problem, &many, &plan);
}

static bool fits(const struct kernel_problem *problem, const struct variant *variant) {
  struct int2_few_config few;
  struct int2_few_plan few_plan;
  struct int2_many_config many;
  struct int2_many_plan many_plan;
  struct int2a8_config config;
  struct int2a8_plan plan;
  if (int2_few_of(variant, problem->x_type, problem->y_type, problem->m, &few))
    return takes_few(problem) && power_of_two(few.split_k) &&
           int2_few_plan_for(&few, problem->n, problem->k, &few_plan);
  if (int2_many_of(variant, &many))
    return takes_many(problem) && int2_many_plan_for(&many, many_type(problem), problem->m, problem->n, problem->k,
                                                     problem->device.multiprocessors, &many_plan);
  return problem->format == GEMM_FORMAT_INT2A8 && int2a8_of(variant, eights_of(problem), &config) &&
         int2a8_plan_for(&config, problem->n, problem->k, &plan);
}

enum status int2_check(struct backend *backend, const struct kernel_problem *problem, struct variant *variant,
                       struct variant *nearest, struct error *error) {
  if (!tiled_here(problem))
    return error_set(error, STATUS_UNSUPPORTED,
                     "family %s takes INT2 of 128 rows or more and INT2A8, on compute capability 9.0",
                     variant->family->name);
  bool codes = problem->format == GEMM_FORMAT_INT2A8, many = variant->family == &int2_many_family;
  if (!many && codes != (variant->family == &int2a8_family))
    return error_set(error, STATUS_UNSUPPORTED, "family %s takes %s weights, not %s", variant->family->name,
                     codes ? "INT2" : "INT2A8", gemm_format_name(problem->format));
  if (many && !takes_many(problem))
    return error_set(error, STATUS_UNSUPPORTED, "family int2_many takes x of f16 or bf16, not of %s",
                     gemm_type_name(problem->x_type));
  if (variant->family == &int2_few_family && !takes_few(problem))
    return error_set(error, STATUS_UNSUPPORTED, "family int2_few takes fewer rows of f16 or bf16 x than %lld",
                     (long long)problem->m);
  /* Not named, as in older files: what there is. */
  while (many && variant->values[3] > INT2_MANY_ROWS_LEAST &&
         !int2_many_has(many_type(problem), variant->values[0], variant->values[3]))
    variant->values[3] -= INT2_MANY_ROWS_STEP;
  if (fits(problem, variant))
    return STATUS_OK;
  return error_set(
      error, STATUS_UNSUPPORTED,
      many
          ? "columns is 16, 24, 32, 48, 64, 96, 104 or 128, for INT2A8 32, 48, 64, 96, 112 or 128, rows is 256, of "
            "fewer "
            "than 32 or more than 64 columns also fewer, and split_k blocks for each tile are no more than the device "
            "runs"
          : "split_k is a power of two and no more than there are tiles of K, its share of x with the sums of W's rows "
            "fits into shared memory, and half a block of 64 rows wants an even number of tiles");
}

/* ---- listing */

/* Kernels that take a few rows at a time, by the cost model, best first. Returns how many, at most `most`. */
static int few_at_a_time(const struct kernel_problem *problem, struct variant *out, int most) {
  struct int2_few_config few[INT2_FEW_CONFIGS];
  struct int2a8_config codes[INT2A8_CONFIGS];
  int64_t n = problem->n, k = problem->k;
  int count = problem->format == GEMM_FORMAT_INT2A8
                  ? int2a8_candidates(eights_of(problem), n, k, problem->device.multiprocessors, codes, most)
                  : int2_few_candidates(int2_few_columns(problem->x_type, problem->y_type, problem->m), n, k,
                                        problem->device.multiprocessors, few, most);
  for (int i = 0; i < count; i++)
    out[i] = problem->format == GEMM_FORMAT_INT2A8 ? variant_of_int2a8(&codes[i]) : variant_of_few(&few[i]);
  return count;
}

bool int2_many_predict(const struct kernel_problem *problem, struct variant *out, double *us) {
  struct int2_many_config config;
  struct int2_many_plan plan;
  if (!tiled_here(problem) || !goes_to_many(problem, &config, &plan))
    return false;
  *out = variant_of_many(&config);
  *us = int2_many_us(&config, many_type(problem), &plan);
  return true;
}

/* Where int2_many can have them it is never the faster. Each go of as many rows as it takes is as long as the first. */
bool int2_few_predict(const struct kernel_problem *problem, struct variant *out, double *us) {
  struct int2_few_config config;
  struct int2_few_plan plan;
  int columns = int2_few_columns(problem->x_type, problem->y_type, problem->m), sms = problem->device.multiprocessors;
  if (!tiled_here(problem) || !takes_few(problem) ||
      int2_few_candidates(columns, problem->n, problem->k, sms, &config, 1) < 1 ||
      !int2_few_plan_for(&config, problem->n, problem->k, &plan))
    return false;
  int64_t most = int2_few_rows_most(problem->x_type, problem->y_type);
  *out = variant_of_few(&config);
  *us = (double)((problem->m + most - 1) / most) * int2_few_us(&config, &plan, sms);
  return true;
}

bool int2a8_predict(const struct kernel_problem *problem, struct variant *out, double *us) {
  struct int2_many_config many;
  struct int2_many_plan many_plan;
  struct int2a8_config config;
  struct int2a8_plan plan;
  int eights = eights_of(problem), sms = problem->device.multiprocessors;
  if (!tiled_here(problem) || problem->format != GEMM_FORMAT_INT2A8 || goes_to_many(problem, &many, &many_plan) ||
      int2a8_candidates(eights, problem->n, problem->k, sms, &config, 1) < 1 ||
      !int2a8_plan_for(&config, problem->n, problem->k, &plan))
    return false;
  *out = variant_of_int2a8(&config);
  *us = (double)((problem->m + 8 * eights - 1) / (8 * eights)) * int2a8_us(&config, &plan, sms);
  return true;
}

static bool same(const struct kernel_problem *problem, const struct variant *left, const struct variant *right) {
  struct int2_many_config a, b;
  if (!int2_many_of(left, &a) || !int2_many_of(right, &b))
    return variant_equal(left, right);
  return int2_many_same(&a, &b, problem->m);
}

static const struct listing_rules rules = {fits, same};

/* Those that take a few rows at a time; a search has a few such goes at most. */
static int list_few(const struct kernel_problem *problem, bool all, struct variant *out, int count, int most) {
  struct variant list[INT2_FEW_CONFIGS];
  if (problem->m > FEW_ROWS_MOST)
    return count;
  int found = few_at_a_time(problem, list, all ? INT2_FEW_CONFIGS : BEST_MOST);
  for (int i = 0; i < found; i++)
    count = listing_add(&rules, problem, &list[i], out, count, most);
  return count;
}

int int2_few_list(struct backend *backend, const struct kernel_problem *problem, bool all, struct variant *out,
                  int count, int most) {
  return tiled_here(problem) && problem->format == GEMM_FORMAT_INT2 ? list_few(problem, all, out, count, most) : count;
}

int int2a8_list(struct backend *backend, const struct kernel_problem *problem, bool all, struct variant *out, int count,
                int most) {
  return tiled_here(problem) && problem->format == GEMM_FORMAT_INT2A8 ? list_few(problem, all, out, count, most)
                                                                      : count;
}

/* Tiles of one size, with every split. */
static int list_tiles(const struct kernel_problem *problem, bool all, int columns, int rows, struct variant *out,
                      int count, int most) {
  static const int groups[] = {8, 1, 2, 4, 16, 32};
  for (int split_k = 0; split_k <= INT2_MANY_SPLIT_MOST; split_k++)
    for (size_t i = 0; i < (all ? sizeof groups / sizeof *groups : 1); i++) {
      struct int2_many_config config = {.columns = columns, .split_k = split_k, .group = groups[i], .rows = rows};
      struct variant variant = variant_of_many(&config);
      count = listing_add(&rules, problem, &variant, out, count, most);
    }
  return count;
}

/* Every width of tiles, wider than what holds all rows or much narrower only for `all`, with every split; which order
 * tiles go in matters little. */
int int2_many_list(struct backend *backend, const struct kernel_problem *problem, bool all, struct variant *out,
                   int count, int most) {
  if (!tiled_here(problem) || !takes_many(problem))
    return count;
  enum { NARROWEST = 3 /* times as narrow as the widest */ };
  const int *columns = int2_many_columns(many_type(problem));
  int widest = 0; /* the narrowest that holds all rows */
  for (int i = 0; columns[i] > 0 && widest < problem->m; i++)
    widest = columns[i];
  for (; *columns > 0; columns++) {
    if (!all && (*columns > widest || *columns >= 2 * problem->m || NARROWEST * *columns < widest))
      continue;
    for (int rows = INT2_MANY_ROWS_MOST; rows >= INT2_MANY_ROWS_LEAST; rows -= INT2_MANY_ROWS_STEP)
      if (int2_many_has(many_type(problem), *columns, rows))
        count = list_tiles(problem, all, *columns, rows, out, count, most);
  }
  return count;
}

int int2_neighbours(struct backend *backend, const struct kernel_problem *problem, const struct variant *base, bool all,
                    struct variant *out, int most) {
  return listing_neighbours(&rules, problem, base, out, most);
}
