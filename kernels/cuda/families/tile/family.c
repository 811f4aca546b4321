#include "../../launch/launch_kernel.h"
#include "../call.h"
#include "../table.h"
#include "sweep.h"

#include <string.h>

/* Compiled at run time: it is served with where it was set by hand, or has won. */
static bool predict(const struct kernel_problem *problem, struct variant *out, double *us) {
  return false;
}

/* Where there is nothing to compile with, or nowhere to keep it, none. */
static int sweep(struct backend *backend, const struct kernel_problem *problem, bool all, struct variant *out,
                 int most) {
  return tile_compiles(&backend->tiles) ? tile_sweep(problem, all, out, most) : 0;
}

static int neighbours(struct backend *backend, const struct kernel_problem *problem, const struct variant *base,
                      bool all, struct variant *out, int most) {
  return tile_splits(problem, base, all, out, most);
}

static enum status check(struct backend *backend, const struct kernel_problem *problem, struct variant *variant,
                         struct variant *nearest, struct error *error) {
  struct tile_table *tiles = &backend->tiles;
  const struct tile_code *code = NULL;
  struct tile_plan plan;
  struct variant close;
  memset(variant->ready, 0, sizeof variant->ready);
  enum status status = tile_plan(problem, variant, &plan, error);
  if (status != STATUS_OK) {
    if (nearest && tile_nearest(problem, variant, &close))
      *nearest = close;
    return status;
  }
  status = tile_can_build(tiles, variant, &plan, error);
  if (status == STATUS_OK)
    status = tile_load(tiles, variant, &plan, &code, error);
  variant->ready[0] = (uint64_t)(uintptr_t)code;
  return status;
}

static void needs(struct backend *backend, const struct kernel_problem *problem, const struct variant *variant,
                  struct backend_needs *out) {
  struct tile_plan plan;
  struct error ignored;
  if (tile_plan(problem, variant, &plan, &ignored) != STATUS_OK)
    return;
  out->workspace_bytes = plan.sums_bytes > 0 ? plan.sums_offset + plan.sums_bytes : plan.turns_bytes;
  out->filling = (uint32_t)tile_split_filling(problem, variant);
}

static enum status build(struct backend *backend, const struct kernel_problem *problem, const struct variant *variant,
                         struct error *error) {
  struct tile_plan plan;
  enum status status = tile_plan(problem, variant, &plan, error);
  return status == STATUS_OK ? tile_build(&backend->tiles, variant, &plan, error) : status;
}

static enum tile_type type_of(enum gemm_type type) {
  switch (type) {
  case GEMM_F32:
    return TILE_F32;
  case GEMM_F16:
    return TILE_F16;
  case GEMM_BF16:
    return TILE_BF16;
  case GEMM_S32:
    return TILE_S32;
  default:
    return TILE_NONE;
  }
}

/* Slices' sums of the same place lie with those of other families, where there are any; sums of their own and turns in
 * the workspace. */
static struct tile_params params_of(const struct kernel_call *call, const struct kernel_problem *problem,
                                    const int32_t *values, const struct tile_plan *plan) {
  bool scales = problem->y_type != GEMM_S32 && problem->scale != GEMM_SCALE_NONE;
  uint8_t *workspace = call->workspace;
  return (struct tile_params){
      .x = call->x,
      .w = call->weight->codes,
      .x_stride = (long long)call->x_stride,
      .w_stride = (long long)call->weight->layout.row_bytes,
      .m = (int)call->m,
      .n = (int)problem->n,
      .row_bytes = (int)kernel_call_x_bytes(call),
      .steps = (int)plan->steps,
      .w_scale = scales && !problem->tiled ? (const float *)(const void *)call->weight->scales : NULL,
      .x_scale = scales ? call->x_scale : NULL,
      .bias = call->bias,
      .bias_type = type_of(call->bias_type),
      .y_type = type_of(call->y_type),
      .y = call->y,
      .y_stride = (long long)call->y_stride,
      .tiles_m = (int)plan->tiles_m,
      .tiles_n = (int)plan->tiles_n,
      .group_size_m = values[TILE_GROUP_SIZE_M],
      .split_k = values[TILE_SPLIT_K],
      .split_k_mode = values[TILE_SPLIT_K_MODE],
      .sums = plan->sums_bytes > 0 ? workspace + plan->sums_offset : call->sums,
      .sums_stride = problem->n_padded,
      .turns = (int *)(void *)workspace,
  };
}

static enum status launch(struct backend *backend, const struct kernel_call *call, const struct variant *variant,
                          struct error *error) {
  const struct tile_code *code = (const struct tile_code *)(uintptr_t)variant->ready[0];
  struct kernel_problem problem = kernel_call_problem(backend, call);
  struct tile_plan plan;
  if (!code)
    return error_set(error, STATUS_UNSUPPORTED, "the kernel has not been compiled");
  enum status status = tile_plan(&problem, variant, &plan, error);
  if (status != STATUS_OK)
    return status;
  struct tile_params params = params_of(call, &problem, variant->values, &plan);
  launch_flush(call->stream);
  return tile_launch(&backend->tiles, code, &plan, &params, call->stream, error);
}

const struct kernel_family tile_kernels = {
    .variants = &tile_family,
    .predict = predict,
    .sweep = sweep,
    .neighbours = neighbours,
    .check = check,
    .needs = needs,
    .build = build,
    .launch = launch,
};
