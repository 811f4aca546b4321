#include "measured.h"

static void drop(struct measured *measured, struct measured_one *one) {
  if (one->graph) {
    (void)cudaGraphExecDestroy(one->graph);
    atomic_fetch_sub_explicit(&measured->graphs, 1, memory_order_relaxed);
  }
  *one = (struct measured_one){.graph = NULL};
}

void measured_close(struct backend *backend) {
  for (int i = 0; i < MEASURED_MOST; i++)
    drop(&backend->measured, &backend->measured.each[i]);
}

static struct variant_problem problem_of(const struct backend_job *job) {
  return (struct variant_problem){.weight = job->weight->weight,
                                  .m = job->m,
                                  .x_type = job->x_type,
                                  .y_type = job->y_type,
                                  .bias_type = job->bias ? job->bias_type : GEMM_TYPE_NONE};
}

/* The kernel's own; else that which was not used for longest, empty. */
static struct measured_one *place_for(struct measured *measured, const struct variant *variant,
                                      const struct backend_timing *timing) {
  struct measured_one *oldest = &measured->each[0];
  for (int i = 0; i < MEASURED_MOST; i++) {
    struct measured_one *one = &measured->each[i];
    if (one->graph && variant_equal(&one->variant, variant) && one->launches == timing->launches &&
        one->quantize == timing->quantize && one->dependent == timing->dependent)
      return one;
    oldest = one->used_at < oldest->used_at ? one : oldest;
  }
  drop(measured, oldest);
  return oldest;
}

/* To the same kernels in the same order, wherever operands and what is needed beside them lie now. */
static bool turned(cudaGraphExec_t graph, cudaGraph_t captured) {
  cudaGraphExecUpdateResultInfo info;
  if (cudaGraphExecUpdate(graph, captured, &info) == cudaSuccess)
    return true;
  (void)cudaGetLastError();
  return false;
}

enum status measured_graph(struct backend *backend, const struct backend_job *job, const struct backend_timing *timing,
                           cudaGraph_t captured, cudaGraphExec_t *out, struct error *error) {
  struct measured *measured = &backend->measured;
  const struct variant_problem problem = problem_of(job);
  const struct variant variant = job->variant ? *job->variant : (struct variant){.family = NULL};
  if (!variant_problem_equal(&measured->problem, &problem))
    measured_close(backend);
  measured->problem = problem;
  struct measured_one *one = place_for(measured, &variant, timing);
  one->used_at = ++measured->clock;
  if (one->graph && turned(one->graph, captured)) {
    *out = one->graph;
    return STATUS_OK;
  }
  drop(measured, one);
  enum status status = runtime_check(cudaGraphInstantiate(out, captured, 0), "capturing a product", error);
  if (status != STATUS_OK)
    return status;
  atomic_fetch_add_explicit(&measured->graphs, 1, memory_order_relaxed);
  *one = (struct measured_one){.variant = variant,
                               .launches = timing->launches,
                               .quantize = timing->quantize,
                               .dependent = timing->dependent,
                               .graph = *out,
                               .used_at = measured->clock};
  return STATUS_OK;
}

bool measured_keeps(const struct backend *backend, cudaGraphExec_t graph) {
  for (int i = 0; i < MEASURED_MOST; i++)
    if (backend->measured.each[i].graph == graph)
      return true;
  return false;
}
