#include "variants.h"

#include "families.h"
#include "question.h"

#include <stdlib.h>

enum { LISTED_MOST = 1024, FEW_MOST = 8, FROM_EACH_WAY = 24 };

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

static int add_fp8_many(struct backend *backend, const struct question *question, struct variant *out, int count,
                        int most) {
  struct fp8_many_config configs[FP8_MANY_ALL];
  struct hopper_product product;
  int multiprocessors;
  if (!choice_fp8_many(backend->choices, &question->request, &product, &multiprocessors))
    return count;
  int found = fp8_many_candidates(&product, multiprocessors, configs);
  for (int i = 0; i < found && count < most; i++)
    out[count++] = variant_of_fp8_many(&configs[i]);
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
  if ((base->family != &tile_family && !variant_is_int2(base)) ||
      question_ask(backend, problem, &question, &ignored) != STATUS_OK)
    return 0;
  struct int2_problem int2 = question_int2(backend, &question);
  if (variant_is_int2(base))
    return int2_near(&int2, base, out, most);
  struct tile_problem tile = question_tile(&question);
  return tile_splits(&backend->tiles.device, &tile, base, all, out, most);
}

int cuda_variants(struct backend *backend, const struct variant_problem *problem, const struct variant *base, bool all,
                  struct variant *out, int most) {
  struct question question;
  struct error ignored;
  if (base)
    return refine(backend, problem, base, all, out, most);
  if (question_ask(backend, problem, &question, &ignored) != STATUS_OK ||
      backend_enter(backend, &ignored) != STATUS_OK) {
    out[0] = variant_default(&variant_plain);
    return 1;
  }
  out[0] = question_own(backend, &question);
  struct int2_problem int2 = question_int2(backend, &question);
  if (gemm_is_int2(int2.format) && layout_is_tiled(&question.layout))
    return int2_variants(&int2, all, out, most);
  if (out[0].family == &variant_plain)
    return 1;
  int count = add_few(backend, &question, all, out, 1, most);
  count = add_many(backend, &question, out, count, most);
  count = add_fp8_many(backend, &question, out, count, most);
  return add_hopper(backend, &question, all, out, count, most);
}

int cuda_library_variants(struct backend *backend, const struct variant_problem *problem, bool all, struct variant *out,
                          int most) {
  struct question question;
  struct choice choice;
  struct error ignored;
  int count = 0;
  if (gemm_is_int2(problem->weight.format) || question_ask(backend, problem, &question, &ignored) != STATUS_OK ||
      backend_enter(backend, &ignored) != STATUS_OK)
    return 0;
  int32_t(*listed)[ALGORITHM_ATTRIBUTES] = malloc(LISTED_MOST * sizeof *listed);
  for (int way = 0; way < CHOICE_LIBRARY_WAYS && listed; way++) {
    if (!choice_library_way(&question.request, way, &choice))
      continue;
    struct library_product product = question_product(&question, &choice);
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
