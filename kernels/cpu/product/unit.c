#include "unit.h"

#include "../variants.h"
#include "cost.h"
#include "plain.h"

static enum status run_product(void *context, const struct backend_job *job, struct error *error) {
  struct product_engine *engine = context;
  bool asked = job->variant != NULL && job->variant->family == &variant_plain;
  if (asked || job->weight->extreme) {
    int64_t first = 0, count = job->weight->shape.n;
    if (asked) {
      variant_plain_columns(job->variant, count, &first, &count);
    }
    int threads = cpu_product_plain_threads(engine, job, count);
    return cpu_plain_run(engine->pool, threads, engine->pause, job, first, count, error);
  }
  struct product_way way = job->variant != NULL && job->variant->family != NULL
                               ? cpu_variant_way(engine, job->variant)
                               : cpu_product_way(engine, &job->weight->shape, job->m);
  way.threads = cpu_product_threads(engine, &way, job);
  return cpu_product_run(engine, &way, job, error);
}

static enum status run_alone(struct cpu_unit *unit, const struct backend_job *job, struct error *error) {
  if (job->steps == NULL) {
    return run_product(&unit->engine, job, error);
  }
  const struct sequence_device device = {.engine = &unit->engine, .run = run_product};
  return cpu_sequence_run(&unit->sequence, &device, job, error);
}

static enum status run_gathered(struct cpu_unit *unit, const struct backend_job *chain, struct error *error) {
  struct backend_job job;
  enum status status = cpu_gather(&unit->gather, chain, &job, error);
  if (status == STATUS_OK) {
    status = run_alone(unit, &job, error);
  }
  if (status == STATUS_OK) {
    cpu_scatter(&job, chain);
  }
  return status;
}

static enum status run_operand(struct cpu_unit *unit, const struct backend_job *job, struct error *error) {
  const struct operand_device device = {.context = &unit->engine, .run = run_product, .engine = &unit->engine};
  struct backend_job own = *job;
  /* A copy of W in the library's own order would be for this one product. */
  if (own.variant != NULL && own.variant->family == &cpu_family_onednn) {
    own.variant = NULL;
  }
  return cpu_operand_run(&unit->operand, &device, &own, error);
}

static enum status run_dense(void *context, const struct backend_job *job, struct error *error) {
  return run_alone(context, job, error);
}

static enum status run_experts(struct cpu_unit *unit, const struct backend_job *job, struct error *error) {
  const struct experts_device device = {.context = unit, .run = run_dense, .engine = &unit->engine};
  return cpu_experts_run(&unit->experts, &device, job, error);
}

enum status cpu_unit_run(struct cpu_unit *unit, const struct backend_job *job, struct error *error) {
  return job->operand != NULL   ? run_operand(unit, job, error)
         : job->experts != NULL ? run_experts(unit, job, error)
         : job->next != NULL    ? run_gathered(unit, job, error)
                                : run_alone(unit, job, error);
}

/* ---- how long */

static uint64_t weight_ns(const struct gemm_weight *shape, int64_t m, bool packed) {
  uint64_t elements = (uint64_t)(shape->n * shape->k);
  uint64_t ns = cost_product_ns(m, elements, elements) + cost_stage_ns(m, shape->k);
  return packed ? ns + cost_stage_ns(shape->n, shape->k) : ns;
}

/* Every expert that may be hit is, by as many rows as any other. */
static uint64_t job_weight_ns(const struct backend_job *job, const struct gemm_weight *shape, int64_t m) {
  if (job->experts == NULL) {
    return weight_ns(shape, m, false);
  }
  int64_t pairs = m * job->experts->top, hit = pairs < shape->experts ? pairs : shape->experts;
  return hit > 0 ? (uint64_t)hit * weight_ns(shape, (pairs + hit - 1) / hit, false) : 0;
}

uint64_t cpu_unit_predict_ns(const struct cpu_unit *unit, const struct backend_job *job) {
  int64_t m = 0;
  uint64_t ns = 0;
  for (const struct backend_job *each = job; each != NULL; each = each->next) {
    m += each->m;
  }
  if (job->operand != NULL) {
    uint64_t batch = job->operand->form.batch > 1 ? (uint64_t)job->operand->form.batch : 1;
    return batch * weight_ns(&job->operand->shape, m, true);
  }
  for (uint32_t i = 0; job->steps != NULL && i < job->step_count; i++) {
    ns += job_weight_ns(job, &job->steps[i].weight->shape, m);
  }
  return job->steps != NULL ? ns : job_weight_ns(job, &job->weight->shape, m);
}

/* ---- memory */

uint64_t cpu_unit_bytes(const struct cpu_unit *unit) {
  return cpu_product_bytes(&unit->engine) + unit->gather.bytes + unit->sequence.bytes + unit->operand.panel_bytes +
         unit->operand.sum_bytes + unit->operand.x_turned_bytes + unit->operand.w_turned_bytes + unit->experts.bytes;
}

void cpu_unit_rest(struct cpu_unit *unit) {
  cpu_product_rest(&unit->engine);
  cpu_gather_free(&unit->gather);
  cpu_sequence_free(&unit->sequence);
  cpu_operand_free(&unit->operand);
  cpu_experts_free(&unit->experts);
}
