#include "run.h"

#include "../exec/sequence.h"
#include "../families/call.h"
#include "../families/select.h"
#include "../families/table.h"
#include "gather.h"
#include "sum.h"

enum { TILE_LEAST = 1 }; /* rows of the smallest tiles that a kernel asks for */
/* More pairs than this go at a time nowhere: a grid's second dimension ends there. */
enum { PAIRS_MOST = 65535, BEHIND = EXPERTS_TILE_ANY /* rows that may be read behind the last pair: a tile's */ };

/* ---- steps: a product is a sequence of one */

static uint32_t step_count(const struct backend_job *job) {
  return job->steps ? job->step_count : 1;
}

static struct backend_step step_at(const struct backend_job *job, uint32_t i) {
  if (job->steps)
    return job->steps[i];
  return (struct backend_step){.weight = job->weight,
                               .y_type = job->y_type,
                               .bias_type = job->bias_type,
                               .bias = job->bias,
                               .variant = job->variant};
}

static bool activates(const struct backend_step *step) {
  return step->gated || step->activation != GEMM_ACTIVATION_NONE;
}

static int64_t columns_of(const struct backend_step *step) {
  return step->gated ? step->weight->weight.n / 2 : step->weight->weight.n;
}

int64_t experts_columns(const struct backend_job *job) {
  struct backend_step last = step_at(job, step_count(job) - 1);
  return columns_of(&last);
}

int64_t experts_y_rows(const struct backend_job *job) {
  return job->experts->sum ? 1 : job->experts->top;
}

int64_t experts_x_rows(const struct backend_job *job) {
  return job->experts->x_pairs ? job->experts->top : 1;
}

/* Its product makes y itself, where each pair's row is. */
static bool makes_y(const struct backend_job *job, uint32_t i) {
  struct backend_step step = step_at(job, i);
  return i + 1 == step_count(job) && !activates(&step) && !job->experts->sum;
}

/* ---- places: what a kernel reads and what it writes take turns at two of them. Every kernel waits for the end of the
 * one ahead, so that nobody reads any more what is written over. */

/* Behind the route; of all steps. x: the result of an activation, too. */
struct places {
  uint64_t x, scales[GEMM_STEPS_MOST], y, bytes;
};

static uint64_t aligned(uint64_t bytes) {
  return gemm_round_up(bytes, EXPERTS_ALIGN);
}

static uint64_t larger(uint64_t a, uint64_t b) {
  return a > b ? a : b;
}

static uint64_t padded(int64_t pairs) {
  return gemm_round_up((uint64_t)pairs, 4);
}

/* x of a product, as it reads it, and its scales. */
static uint64_t x_bytes(const struct gemm_weight *weight, const struct layout *layout, int64_t pairs) {
  uint64_t row = gemm_quantizes_x(weight->format) || !layout_keeps_x(weight)
                     ? layout->x_row_bytes
                     : (uint64_t)layout_x_columns(weight, layout) * 4;
  return ((uint64_t)pairs + BEHIND) * row;
}

static uint64_t scale_bytes(const struct gemm_weight *weight, const struct layout *layout, int64_t pairs) {
  uint64_t columns = weight->scale == GEMM_SCALE_BLOCK ? (uint64_t)layout->k / GEMM_GROUP : 1;
  return gemm_quantizes_x(weight->format) ? 4 * columns * padded(pairs) : 0;
}

static struct places places_for(const struct backend_job *job, int64_t rows) {
  int64_t pairs = rows * job->experts->top;
  struct places out = {0};
  uint64_t x_most = 0, y_most = 0;
  /* the fewer rows tiles have, the more there are */
  out.x = aligned(experts_route_bytes(pairs, (int)job->weight->weight.experts, TILE_LEAST));
  for (uint32_t i = 0; i < step_count(job); i++) {
    struct backend_step step = step_at(job, i);
    const struct backend_weight *weight = step.weight;
    uint64_t type_bytes = gemm_type_bytes(step.y_type), x = aligned(x_bytes(&weight->weight, &weight->layout, pairs));
    out.scales[i] = out.x + x;
    x_most = larger(x_most, x + scale_bytes(&weight->weight, &weight->layout, pairs));
    if (!makes_y(job, i))
      y_most = larger(y_most, (uint64_t)(pairs * weight->weight.n) * type_bytes);
    if (i + 1 == step_count(job) && activates(&step))
      x_most = larger(x_most, (uint64_t)(pairs * columns_of(&step)) * type_bytes);
  }
  out.y = out.x + aligned(x_most);
  out.bytes = out.y + aligned(y_most);
  return out;
}

static uint64_t experts_run_bytes(const struct backend_job *job, int64_t rows) {
  return places_for(job, rows).bytes;
}

uint64_t experts_weight_bytes(const struct gemm_weight *weight, const struct layout *layout, int64_t pairs) {
  uint64_t columns = (uint64_t)layout_x_columns(weight, layout), side = larger(columns, (uint64_t)weight->n);
  uint64_t x = x_bytes(weight, layout, pairs) + scale_bytes(weight, layout, pairs);
  return experts_route_bytes(pairs, (int)weight->experts, TILE_LEAST) + gemm_ceil_div(x * side, columns) +
         4 * (uint64_t)pairs * side + 8 * EXPERTS_ALIGN;
}

enum status experts_run_rows(const struct backend_job *job, int64_t rows, uint64_t outside, uint64_t bytes,
                             int64_t *out, struct error *error) {
  int64_t most = PAIRS_MOST / job->experts->top, low = 0, high = rows < most ? rows : most;
  while (low < high) {
    int64_t middle = (low + high + 1) / 2;
    if (experts_run_bytes(job, middle) + outside * (uint64_t)middle <= bytes)
      low = middle;
    else
      high = middle - 1;
  }
  if (low == 0)
    return error_set(error, STATUS_NOMEM, "one row of a product over experts takes %llu bytes of the GPU, of %llu",
                     (unsigned long long)(experts_run_bytes(job, 1) + outside), (unsigned long long)bytes);
  *out = staging_go(rows, low);
  return STATUS_OK;
}

/* ---- kernels */

/* What is queued: where everything is, and how far it has come. */
struct course {
  const struct experts_run *run;
  struct places at;
  int64_t pairs;
  uint32_t steps;
  struct kernel_groups groups;
  struct variant variants[GEMM_STEPS_MOST];
  bool hopper;
};

static void *placed(const struct course *course, uint64_t offset) {
  return (void *)(uintptr_t)(course->run->memory + offset);
}

static bool is_last(const struct course *course, uint32_t i) {
  return i + 1 == course->steps;
}

static enum gemm_type x_type_of(const struct backend_job *job, uint32_t i) {
  return i == 0 ? job->x_type : job->steps[i - 1].y_type;
}

static struct kernel_call call_of(const struct course *course, uint32_t i, const struct backend_step *step) {
  const struct experts_run *run = course->run;
  const struct backend_weight *weight = step->weight;
  bool codes = gemm_quantizes_x(weight->weight.format), out = makes_y(run->job, i);
  enum gemm_type x_type = x_type_of(run->job, i);
  uint64_t columns = (uint64_t)layout_x_columns(&weight->weight, &weight->layout);
  return (struct kernel_call){
      .weight = weight,
      .m = course->pairs,
      .m_padded = (int64_t)padded(course->pairs),
      .x_type = x_type,
      .y_type = step->y_type,
      .bias_type = run->bias[i] ? step->bias_type : GEMM_TYPE_NONE,
      .x = placed(course, course->at.x),
      .x_stride = codes ? weight->layout.x_row_bytes : columns * gemm_type_bytes(x_type),
      .x_scale = codes ? placed(course, course->at.scales[i]) : NULL,
      .bias = run->bias[i],
      .y = out ? run->y : placed(course, course->at.y),
      .y_stride = out ? run->y_stride : (uint64_t)weight->weight.n * gemm_type_bytes(step->y_type),
      .workspace = run->workspace,
      .stream = run->stream,
      .groups = &course->groups,
      .follows = course->hopper,
      .in_row = course->hopper,
  };
}

/* Kernels of all steps, and tiles that all of them take. */
static void choose(struct course *course) {
  const struct experts_run *run = course->run;
  course->groups.tile_rows = EXPERTS_TILE_ANY;
  for (uint32_t i = 0; i < course->steps; i++) {
    struct backend_step step = step_at(run->job, i);
    struct kernel_call call = call_of(course, i, &step);
    struct kernel_problem problem = kernel_call_problem(run->backend, &call);
    const struct kernel_family *family = step.variant ? kernel_family_of(step.variant) : NULL;
    course->variants[i] =
        family && family->experts ? *step.variant : selector_find(run->selector, run->backend, &problem, false);
    const struct variant *variant = &course->variants[i];
    if (variant->family->count > 0 && variant->values[0] < course->groups.tile_rows)
      course->groups.tile_rows = variant->values[0];
  }
}

static enum status product(const struct course *course, uint32_t i, const struct backend_step *step,
                           struct error *error) {
  struct kernel_call call = call_of(course, i, step);
  struct kernel_groups groups = course->groups;
  groups.y_sorted = !makes_y(course->run->job, i);
  call.groups = &groups;
  const struct variant *variant = &course->variants[i];
  enum status status = kernel_family_of(variant)->launch(course->run->backend, &call, variant, error);
  if (status != STATUS_UNSUPPORTED)
    return status;
  struct variant simple = variant_default(&pairs_family);
  return pairs_kernels.launch(course->run->backend, &call, &simple, error);
}

/* ---- passes */

static enum gather_to gathers_to(const struct gemm_weight *weight) {
  if (!gemm_quantizes_x(weight->format))
    return GATHER_AS_IT_IS;
  if (gemm_format_facts(weight->format)->codes == GEMM_INT8)
    return GATHER_INT8;
  return weight->scale == GEMM_SCALE_BLOCK ? GATHER_E4M3_BLOCKS : GATHER_E4M3;
}

static cudaError_t gather(const struct course *course, const struct backend_step *first) {
  const struct experts_run *run = course->run;
  const struct backend_job *job = run->job;
  const struct backend_weight *weight = first->weight;
  const struct gather_pass pass = {
      .route = course->groups.route,
      .ids = run->ids,
      .pairs = course->pairs,
      .top = (int)job->experts->top,
      .experts = (int)weight->weight.experts,
      .tile_rows = course->groups.tile_rows,
      .x = run->x,
      .x_type = job->x_type,
      .x_pairs = job->experts->x_pairs,
      .x_stride = (int64_t)run->x_stride,
      .k = weight->weight.k,
      .k_padded = layout_x_columns(&weight->weight, &weight->layout),
      .to = gathers_to(&weight->weight),
      .out = placed(course, course->at.x),
      .scales = placed(course, course->at.scales[0]),
      .scale_stride = (int64_t)padded(course->pairs),
      .y = makes_y(job, course->steps - 1) ? run->y : NULL,
      .y_stride = (int64_t)run->y_stride,
      .y_bytes = experts_columns(job) * (int64_t)gemm_type_bytes(job->y_type),
      .skipped = run->skipped,
      .dependent = run->early && course->hopper,
  };
  return launch_gather(run->stream, &pass);
}

/* From the product of step i to what the next one reads, or to the result. */
static cudaError_t activate(const struct course *course, uint32_t i, const struct backend_step *step) {
  struct activate_pass pass = {
      .v = placed(course, course->at.y),
      .v_stride = (uint64_t)step->weight->weight.n * gemm_type_bytes(step->y_type),
      .type = step->y_type,
      .m = course->pairs,
      .columns = columns_of(step),
      .activation = step->activation,
      .gated = step->gated,
      .clusters = course->hopper,
      .dependent = course->hopper,
  };
  if (is_last(course, i)) {
    pass.k_padded = pass.columns;
    pass.out = placed(course, course->at.x);
    pass.out_stride = (uint64_t)pass.columns * gemm_type_bytes(step->y_type);
  } else {
    struct backend_step next = step_at(course->run->job, i + 1);
    sequence_reads(next.weight, (int64_t)padded(course->pairs), step->y_type, &pass);
    pass.out = placed(course, course->at.x);
    pass.scales = placed(course, course->at.scales[i + 1]);
  }
  return launch_activate(course->run->stream, &pass);
}

/* y of the sorted rows of the last step: sums, or each pair's own. */
static cudaError_t result(const struct course *course, const struct backend_step *last) {
  const struct experts_run *run = course->run;
  const struct backend_experts *experts = run->job->experts;
  bool activated = activates(last);
  const struct sum_pass pass = {
      .v = placed(course, activated ? course->at.x : course->at.y),
      .v_stride = (uint64_t)columns_of(last) * gemm_type_bytes(last->y_type),
      .place = course->groups.route.place,
      .routing = experts->sum ? run->routing : NULL,
      .m = experts->sum ? run->rows : course->pairs,
      .n = columns_of(last),
      .top = experts->sum ? (int)experts->top : 1,
      .type = last->y_type,
      .y = run->y,
      .y_stride = run->y_stride,
      .dependent = course->hopper,
  };
  return launch_sum(run->stream, &pass);
}

enum status experts_run(const struct experts_run *run, struct error *error) {
  const struct backend_job *job = run->job;
  struct course course = {.run = run,
                          .at = places_for(job, run->rows),
                          .pairs = run->rows * job->experts->top,
                          .steps = step_count(job),
                          .hopper = run->backend->gpu.capability >= 90};
  course.groups = (struct kernel_groups){.ids = run->ids, .top = job->experts->top};
  choose(&course);
  course.groups.route =
      experts_route_at(placed(&course, 0), course.pairs, (int)job->weight->weight.experts, course.groups.tile_rows);
  struct backend_step step = step_at(job, 0);
  enum status status = run->sorted ? STATUS_OK : runtime_check(gather(&course, &step), "sorting rows by expert", error);
  for (uint32_t i = 0; i < course.steps && status == STATUS_OK; i++) {
    step = step_at(job, i);
    status = product(&course, i, &step, error);
    /* a product that nothing is done to is copied by the pass that would */
    if (status == STATUS_OK && (activates(&step) || !is_last(&course, i)))
      status = runtime_check(activate(&course, i, &step), "starting an activation", error);
  }
  if (status == STATUS_OK && !makes_y(job, course.steps - 1))
    status = runtime_check(result(&course, &step), "summing up experts", error);
  return status;
}
