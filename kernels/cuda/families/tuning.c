#include "tuning.h"

#include "../exec/staging.h"
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

int cuda_variants(struct backend *backend, const struct variant_problem *asked, const struct variant *base, bool all,
                  struct variant *out, int most) {
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

int cuda_library_variants(struct backend *backend, const struct variant_problem *asked, bool all, struct variant *out,
                          int most) {
  struct kernel_problem problem;
  struct error ignored;
  if (ask(backend, asked, &problem, &ignored) != STATUS_OK || backend_enter(backend, &ignored) != STATUS_OK)
    return 0;
  return candidates(backend, &problem, true, all, out, 0, most);
}

enum status cuda_variant_check(struct backend *backend, const struct variant_problem *asked, struct variant *variant,
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

void cuda_variant_needs(struct backend *backend, const struct variant_problem *asked, const struct variant *variant,
                        struct backend_needs *out) {
  const struct kernel_family *family = kernel_family_of(variant);
  struct kernel_problem problem;
  struct error ignored;
  *out = (struct backend_needs){.workspace_bytes = 0};
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
