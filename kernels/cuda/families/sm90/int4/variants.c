#include "variants.h"

#include "../../listing.h"
#include "form.h"

const struct variant_family int4_many_family = {
    .name = "int4_many",
    .count = 3,
    .parameters =
        {
            {"columns", "rows of x a tile: 16, 32, 64 or 128", INT4_MANY_COLUMNS_LEAST, INT4_MANY_COLUMNS_MOST, 16,
             INT4_MANY_COLUMNS_MOST},
            {"split_k", "blocks that share a tile's K; 0: blocks have runs of it", 0, INT2_MANY_SPLIT_MOST, 1, 0},
            {"group", "tiles of x for the same rows of W", 1, 64, 1, 8},
        },
};

bool int4_many_of(const struct variant *variant, struct int2_many_config *out) {
  if (variant == NULL || variant->family != &int4_many_family)
    return false;
  const int32_t *values = variant->values;
  *out = (struct int2_many_config){.columns = values[0], .split_k = values[1], .group = values[2]};
  return true;
}

static struct variant variant_of(const struct int2_many_config *config) {
  return (struct variant){.family = &int4_many_family, .values = {config->columns, config->split_k, config->group}};
}

/* What multiplying by f16 scales rounds does not average out in few columns of y. */
enum { SCALED_ROWS_LEAST = 128 };

enum int4_many_kind int4_many_kind(const struct kernel_problem *problem) {
  int groups = int4_form_of(problem->format, problem->scale).groups;
  enum int4_many_kind kind = int4_many_kind_of(problem->format, problem->x_type, problem->y_type, groups);
  bool few = problem->format == GEMM_FORMAT_INT4 && problem->n < SCALED_ROWS_LEAST;
  return kind == INT4_MANY_SCALED && few ? INT4_MANY_EXACT : kind;
}

static bool takes(const struct kernel_problem *problem) {
  bool four = gemm_is_packed(problem->format) && !gemm_is_int2(problem->format);
  bool x = gemm_quantizes_x(problem->format) || problem->x_type != GEMM_F32;
  return four && problem->tiled && problem->device.capability == 90 && problem->experts == 0 && x &&
         !gemm_scale_facts(problem->scale)->zeros_f16;
}

static bool fits(const struct kernel_problem *problem, const struct variant *variant) {
  struct int2_many_config config;
  struct int2_many_plan plan;
  return int4_many_of(variant, &config) && int4_many_plan_for(&config, int4_many_kind(problem), problem->m, problem->n,
                                                              problem->k, problem->device.multiprocessors, &plan);
}

enum status int4_many_check(struct backend *backend, const struct kernel_problem *problem, struct variant *variant,
                            struct variant *nearest, struct error *error) {
  if (!takes(problem))
    return error_set(error, STATUS_UNSUPPORTED,
                     "family int4_many takes INT4A8, and x of f16 or bf16 with INT4, MXFP4 and NVFP4, in tiles, "
                     "without zero points of f16, on compute capability 9.0");
  if (fits(problem, variant))
    return STATUS_OK;
  return error_set(
      error, STATUS_UNSUPPORTED,
      "columns is 16 (not INT4A8), 32, 64 or 128, and split_k blocks for each tile are no more than the device runs");
}

/* What codes of e2m1 take more than those that the cost model was fitted to, beside the fewest columns: 0.93 to 1.25 of
 * five shapes. */
#define E2M1_NARROW 1.2

bool int4_many_predict(const struct kernel_problem *problem, struct variant *out, double *us) {
  struct int2_many_config config;
  struct int2_many_plan plan;
  int64_t m = problem->m, n = problem->n, k = problem->k;
  int sms = problem->device.multiprocessors;
  enum int4_many_kind kind = int4_many_kind(problem);
  if (!takes(problem) || !int4_many_configure(kind, m, n, k, sms, &config) ||
      !int4_many_plan_for(&config, kind, m, n, k, sms, &plan))
    return false;
  *out = variant_of(&config);
  *us = int4_many_us(&config, kind, &plan);
  if (int4_form_of(problem->format, problem->scale).e2m1 && config.columns == INT4_MANY_COLUMNS_LEAST)
    *us *= E2M1_NARROW;
  return true;
}

static bool same(const struct kernel_problem *problem, const struct variant *left, const struct variant *right) {
  struct int2_many_config a, b;
  if (!int4_many_of(left, &a) || !int4_many_of(right, &b))
    return variant_equal(left, right);
  return int2_many_same(&a, &b, problem->m);
}

static const struct listing_rules rules = {fits, same};

enum { NARROW = 32 /* the least that all formats have */ };

/* Wide tiles that are wider than all rows only for `all`. */
int int4_many_list(struct backend *backend, const struct kernel_problem *problem, bool all, struct variant *out,
                   int count, int most) {
  if (!takes(problem))
    return count;
  for (int columns = INT4_MANY_COLUMNS_LEAST; columns <= INT4_MANY_COLUMNS_MOST; columns *= 2)
    for (int split_k = 0; split_k <= INT2_MANY_SPLIT_MOST; split_k++) {
      struct int2_many_config config = {.columns = columns, .split_k = split_k, .group = 8};
      struct variant variant = variant_of(&config);
      if (all || columns <= NARROW || columns < 2 * problem->m)
        count = listing_add(&rules, problem, &variant, out, count, most);
    }
  return count;
}

int int4_many_neighbours(struct backend *backend, const struct kernel_problem *problem, const struct variant *base,
                         bool all, struct variant *out, int most) {
  static const int32_t groups[] = {1, 2, 4, 8, 16, 32};
  int count = 0;
  for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
    struct variant variant = *base;
    variant.values[2] = groups[i];
    if (!same(problem, &variant, base))
      count = listing_add(&rules, problem, &variant, out, count, most);
  }
  return count;
}
