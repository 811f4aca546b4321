#include "tuning.h"

#include "../exec/staging.h"
#include "../tensors/config.h"
#include "select.h"
#include "table.h"

/* UNSUPPORTED where no weight of this shape is stored. */
static enum status ask(const struct backend *backend, const struct variant_problem *asked, struct kernel_problem *out,
                       struct error *error) {
  const struct gemm_weight *weight = &asked->weight;
  struct layout layout;
  enum status status =
      layout_compute(weight, layout_choose(weight, backend->gpu.capability, backend->gpu.places), &layout, error);
  if (status != STATUS_OK)
    return status;
  *out = (struct kernel_problem){
      .device = backend->gpu,
      .format = weight->format,
      .scale = weight->scale,
      .tiled = layout_is_tiled(&layout),
      .n = weight->n,
      .k = weight->k,
      .experts = weight->experts,
      .top = asked->top,
      .n_padded = layout.n,
      .k_padded = layout.k,
      .m = staging_pad(weight, asked->top > 0 ? asked->m * asked->top : asked->m),
      .x_type = asked->x_type,
      .y_type = asked->y_type,
      .bias_type = asked->bias_type,
  };
  return STATUS_OK;
}

static int neighbours(struct backend *backend, const struct variant_problem *asked, const struct variant *base,
                      bool all, struct variant *out, int most) {
  const struct kernel_family *family = kernel_family_of(base);
  struct kernel_problem problem;
  struct error ignored;
  if (!family || !family->neighbours || ask(backend, asked, &problem, &ignored) != STATUS_OK)
    return 0;
  return family->neighbours(backend, &problem, base, all, out, most);
}

/* Of families with a few candidates, then of those with many; another thread asks libraries. */
static int candidates(struct backend *backend, const struct kernel_problem *problem, bool library, bool all,
                      struct variant *out, int count, int most) {
  for (int last = 0; last < 2; last++)
    for (int i = 0; kernel_families[i]; i++) {
      const struct kernel_family *family = kernel_families[i];
      if (family->experts == (problem->experts > 0) && family->candidates && family->variants->library == library &&
          family->lists_last == (last == 1))
        count = family->candidates(backend, problem, all, out, count, most);
    }
  return count;
}

static int stored_variants(struct backend *backend, const struct variant_problem *asked, const struct variant *base,
                           bool all, struct variant *out, int most) {
  struct kernel_problem problem;
  struct error ignored;
  if (base)
    return neighbours(backend, asked, base, all, out, most);
  out[0] = variant_default(asked->weight.experts > 0 ? &pairs_family : &variant_plain);
  if (ask(backend, asked, &problem, &ignored) != STATUS_OK || backend_enter(backend, &ignored) != STATUS_OK)
    return 1;
  out[0] = selector_find(backend->selector, backend, &problem, false);
  /* Where nothing else is served with, nothing else keeps the numerics contract. */
  return out[0].family == &variant_plain ? 1 : candidates(backend, &problem, false, all, out, 1, most);
}

/* ---- products of two tensors: by kernels of their own, and where both lie by rows by those of stored weights, too */

/* Kernels compiled at run time need a weight to be tried with in a process of their own. */
static bool tries_stored(const struct variant_problem *asked) {
  return !asked->tensors.x_turned && !asked->tensors.w_turned;
}

static struct tensors_problem tensors_problem_of(const struct backend *backend, const struct variant_problem *asked) {
  return (struct tensors_problem){
      .device = backend->gpu, .m = asked->m, .n = asked->weight.n, .k = asked->weight.k, .align = asked->tensors.align};
}

static int drop_foreign(struct variant *list, int from, int count) {
  int kept = from;
  for (int i = from; i < count; i++)
    if (!cuda_variant_foreign(&list[i]))
      list[kept++] = list[i];
  return kept;
}

int cuda_variants(struct backend *backend, const struct variant_problem *asked, const struct variant *base, bool all,
                  struct variant *out, int most) {
  if (!asked->tensors.given)
    return stored_variants(backend, asked, base, all, out, most);
  if (base)
    return tensors_is_variant(base) ? 0 : drop_foreign(out, 0, neighbours(backend, asked, base, all, out, most));
  struct tensors_problem problem = tensors_problem_of(backend, asked);
  bool own = !tries_stored(asked) || tensors_pay(&problem);
  int count = own ? tensors_list(&problem, all, out, most) : 0;
  if (tries_stored(asked) && count < most)
    count = drop_foreign(out, count, count + stored_variants(backend, asked, NULL, all, out + count, most - count));
  if (!own)
    count += tensors_list(&problem, all, out + count, most - count);
  return count;
}

int cuda_library_variants(struct backend *backend, const struct variant_problem *asked, bool all, struct variant *out,
                          int most) {
  struct kernel_problem problem;
  struct error ignored;
  if ((asked->tensors.given && !tries_stored(asked)) || ask(backend, asked, &problem, &ignored) != STATUS_OK ||
      backend_enter(backend, &ignored) != STATUS_OK)
    return 0;
  return candidates(backend, &problem, true, all, out, 0, most);
}

int cuda_compiled_variants(struct backend *backend, const struct variant_problem *asked, bool all, struct variant *out,
                           int most) {
  struct kernel_problem problem;
  struct error ignored;
  int count = 0;
  if (asked->tensors.given || ask(backend, asked, &problem, &ignored) != STATUS_OK || problem.experts > 0)
    return 0;
  for (int i = 0; kernel_families[i]; i++)
    if (kernel_families[i]->sweep)
      count += kernel_families[i]->sweep(backend, &problem, all, out + count, most - count);
  return count;
}

static enum status check_stored(struct backend *backend, const struct variant_problem *asked, struct variant *variant,
                                struct variant *nearest, struct error *error) {
  const struct kernel_family *family = kernel_family_of(variant);
  struct kernel_problem problem;
  enum status status = ask(backend, asked, &problem, error);
  if (status == STATUS_OK)
    status = backend_enter(backend, error);
  if (status != STATUS_OK)
    return status;
  if (!family || family->experts != (problem.experts > 0))
    return error_set(error, STATUS_UNSUPPORTED, "no kernel of this backend's for such a weight");
  if (nearest)
    nearest->family = NULL;
  if (family->check)
    status = family->check(backend, &problem, variant, nearest, error);
  if (status == STATUS_UNSUPPORTED && nearest && !nearest->family)
    *nearest = selector_find(backend->selector, backend, &problem, false);
  return status;
}

enum status cuda_variant_check(struct backend *backend, const struct variant_problem *asked, struct variant *variant,
                               struct variant *nearest, struct error *error) {
  if (!asked->tensors.given && !tensors_is_variant(variant))
    return check_stored(backend, asked, variant, nearest, error);
  if (!asked->tensors.given)
    return error_set(error, STATUS_UNSUPPORTED, "family %s takes products of two tensors", variant->family->name);
  struct tensors_problem problem = tensors_problem_of(backend, asked);
  struct tensors_config config;
  if (tensors_is_variant(variant))
    return tensors_config(&problem, variant, &config, nearest, error);
  if (variant->family == &variant_plain || (tries_stored(asked) && !cuda_variant_foreign(variant)))
    return check_stored(backend, asked, variant, nearest, error);
  if (nearest)
    *nearest = tensors_default(&problem);
  return error_set(error, STATUS_UNSUPPORTED, "family %s takes no such product of two tensors", variant->family->name);
}

void cuda_variant_needs(struct backend *backend, const struct variant_problem *asked, const struct variant *variant,
                        struct backend_needs *out) {
  const struct kernel_family *family = kernel_family_of(variant);
  struct kernel_problem problem;
  struct error ignored;
  *out = (struct backend_needs){.workspace_bytes = 0};
  if (asked->tensors.given && tensors_is_variant(variant)) {
    struct tensors_problem tensors = tensors_problem_of(backend, asked);
    struct tensors_config config;
    if (tensors_config(&tensors, variant, &config, NULL, &ignored) == STATUS_OK)
      *out = (struct backend_needs){.workspace_bytes = tensors_partial_bytes(tensors.m, tensors.n, config.slices),
                                    .filling = (uint32_t)tensors_filling(&tensors, &config)};
    return;
  }
  if (family && family->needs && ask(backend, asked, &problem, &ignored) == STATUS_OK)
    family->needs(backend, &problem, variant, out);
}

bool cuda_variant_foreign(const struct variant *variant) {
  const struct kernel_family *family = kernel_family_of(variant);
  return family && family->build;
}

enum status cuda_variant_build(struct backend *backend, const struct variant_problem *asked,
                               const struct variant *variant, struct error *error) {
  const struct kernel_family *family = kernel_family_of(variant);
  struct kernel_problem problem;
  enum status status = ask(backend, asked, &problem, error);
  return status == STATUS_OK && family && family->build ? family->build(backend, &problem, variant, error) : status;
}

const struct variant_family *const tuning_families[] = {
#define ROW(kernels, variants) &variants,
    KERNEL_FAMILIES(ROW)
#undef ROW
        & tensors_wide_family,
    &tensors_family, NULL};
