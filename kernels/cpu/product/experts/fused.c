#include "fused.h"

#include "../../weight/weight.h"
#include "../activate.h"
#include "../sequence.h"

/* Rows of x a panel of W is worth on its way from memory: what panels of experts with other rows are balanced by. */
enum { PANEL_ROWS = 8 };

static bool fits_stage(const struct product_engine *engine, const struct backend_weight *weight, int64_t pairs) {
  return !weight->extreme && pairs <= cpu_stage_room(&weight->experts[0], engine->micro);
}

bool cpu_fused_takes(const struct product_engine *engine, const struct backend_job *job, int64_t pairs) {
  bool takes = engine->pause == NULL && pairs <= FUSED_PAIRS && job->variant == NULL;
  if (job->steps == NULL)
    return takes && fits_stage(engine, job->weight, pairs);
  for (uint32_t i = 0; takes && i < job->step_count; i++)
    takes = job->steps[i].variant == NULL && fits_stage(engine, job->steps[i].weight, pairs);
  return takes;
}

/* Of the widest v. */
static uint64_t half_bytes(const struct backend_job *job, int64_t pairs) {
  uint64_t widest = 0;
  for (uint32_t i = 0; job->steps != NULL && i < job->step_count; i++) {
    uint64_t bytes = (uint64_t)job->steps[i].weight->shape.n * gemm_type_bytes(job->steps[i].y_type);
    widest = bytes > widest ? bytes : widest;
  }
  return gemm_round_up((uint64_t)pairs * widest, GEMM_SECTION);
}

uint64_t cpu_fused_bytes(const struct backend_job *job, int64_t pairs) {
  return 2 * half_bytes(job, pairs);
}

/* The experts that have rows, with what of their panels each thread computes. */
static int64_t groups_make(const struct backend_job *job, const int32_t *begins, struct product_group *out) {
  int64_t count = 0;
  for (int64_t e = 0; e < job->weight->shape.experts; e++)
    if (begins[e + 1] > begins[e])
      out[count++] = (struct product_group){.weight = &job->weight->experts[e],
                                            .bias = job->bias != NULL ? (const uint8_t *)job->bias +
                                                                            (uint64_t)(e * job->weight->shape.n) *
                                                                                gemm_type_bytes(job->bias_type)
                                                                      : NULL,
                                            .begin = begins[e],
                                            .end = begins[e + 1],
                                            .cost = PANEL_ROWS + begins[e + 1] - begins[e]};
  return count;
}

/* One product of all pairs, `job` being over them: dense x and y, and the weight with all experts. */
static enum status multiply(struct product_engine *engine, struct backend_job *job, const int32_t *begins,
                            const int32_t *sources, struct error *error) {
  struct product_group groups[FUSED_PAIRS];
  int64_t count = groups_make(job, begins, groups);
  return count > 0 ? cpu_product_groups(engine, job, groups, count, sources, error) : STATUS_OK;
}

/* Which rows of x the sorted pairs have, from the job's `first` on, or with x_pairs from its first pair on. */
static const void *find_sources(const struct backend_job *job, const struct pairs *pairs, int64_t first,
                                int32_t sources[FUSED_PAIRS]) {
  bool own = job->experts->x_pairs;
  int32_t top = (int32_t)pairs->top;
  for (int32_t i = 0; i < pairs->begins[pairs->experts]; i++)
    sources[i] = own ? pairs->sorted[i] : pairs->sorted[i] / top;
  return (const uint8_t *)job->x + (uint64_t)(own ? first * top : first) * job->x_stride;
}

enum status cpu_fused_run(struct product_engine *engine, const struct backend_job *job, const struct pairs *pairs,
                          int64_t first, void *y, void *memory, struct error *error) {
  struct backend_job one = *job;
  const int32_t *begins = pairs->begins;
  int32_t sources[FUSED_PAIRS];
  int64_t rows = begins[job->weight->shape.experts];
  uint8_t *between = memory, *v = between + half_bytes(job, rows);
  uint32_t count = job->steps != NULL ? job->step_count : 1;
  enum status status = STATUS_OK;
  one.experts = NULL;
  one.steps = NULL;
  one.m = rows;
  one.x = find_sources(job, pairs, first, sources);
  for (uint32_t i = 0; status == STATUS_OK && i < count; i++) {
    const struct backend_step *step = job->steps != NULL ? &job->steps[i] : NULL;
    bool last = i + 1 == count, activates = step != NULL && cpu_step_activates(step);
    if (step != NULL) {
      one.weight = step->weight;
      one.y_type = step->y_type;
      one.bias = step->bias;
      one.bias_type = step->bias_type;
    }
    one.y = last && !activates ? y : v;
    one.y_stride = (uint64_t)one.weight->shape.n * gemm_type_bytes(one.y_type);
    status = multiply(engine, &one, begins, i == 0 ? sources : NULL, error);
    if (status != STATUS_OK || (last && !activates))
      break;
    struct activate_task task = {.v = v,
                                 .out = last ? y : between,
                                 .rows = rows,
                                 .columns = cpu_step_columns(step),
                                 .type = one.y_type,
                                 .activation = step->activation,
                                 .gated = step->gated};
    task.out_stride = (uint64_t)task.columns * gemm_type_bytes(task.type);
    cpu_activate(engine->pool, &task);
    one.x = between;
    one.x_type = one.y_type;
    one.x_stride = task.out_stride;
  }
  return status;
}
