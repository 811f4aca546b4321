#include "turns.h"

#include "../../../proto/clock.h"

static enum status work(void *context, struct error *error) {
  struct backend_turns *turns = context;
  return cpu_unit_run(&turns->unit, &turns->job, error);
}

/* A thread that waits for its first turn, and memory that it will need. */
static enum status open(struct backend_turns *turns, const struct product_engine *engine, struct error *error) {
  if (turns->pause != NULL) {
    return STATUS_OK;
  }
  enum status status = cpu_pause_create(&turns->pause, error);
  if (status == STATUS_OK) {
    status = cpu_product_open_beside(engine, turns->pause, &turns->unit.engine, error);
  }
  if (status != STATUS_OK) {
    cpu_pause_destroy(turns->pause);
    turns->pause = NULL;
  }
  return status;
}

/* Kernels are the tuner's, which may think otherwise meanwhile. */
static const struct variant *copy_variant(struct backend_turns *turns, uint32_t step, const struct variant *variant) {
  if (variant == NULL) {
    return NULL;
  }
  turns->variants[step] = *variant;
  return &turns->variants[step];
}

static void copy_job(struct backend_turns *turns, const struct backend_job *job) {
  turns->job = *job;
  if (job->steps == NULL) {
    turns->job.variant = copy_variant(turns, 0, job->variant);
    return;
  }
  for (uint32_t i = 0; i < job->step_count; i++) {
    turns->steps[i] = job->steps[i];
    turns->steps[i].variant = copy_variant(turns, i, job->steps[i].variant);
  }
  turns->job.steps = turns->steps;
}

enum status cpu_turns_begin(struct cpu_turns *turns, const struct product_engine *engine, const struct backend_job *job,
                            uint32_t most, struct backend_turns **out, struct error *error) {
  struct backend_turns *free_one = NULL;
  uint32_t taken = 0;
  for (int i = 0; i < CPU_TURNS; i++) {
    struct backend_turns *each = &turns->all[i];
    taken += each->taken;
    /* one that has its memory, before those that have none */
    if (!each->taken && (free_one == NULL || (each->pause != NULL && free_one->pause == NULL))) {
      free_one = each;
    }
  }
  if (free_one == NULL || taken >= most) {
    return error_set(error, STATUS_BUSY, "%u products that take long are under way", taken);
  }
  enum status status = open(free_one, engine, error);
  if (status == STATUS_OK) {
    free_one->taken = true;
    copy_job(free_one, job);
    free_one->took_ns = 0;
    cpu_pause_begin(free_one->pause, work, free_one);
    *out = free_one;
  }
  return status;
}

bool cpu_turns_next(struct backend_turns *turns, uint64_t budget_ns, struct backend_done *done, struct error *error) {
  uint64_t begin = clock_ns();
  enum status status = STATUS_OK;
  bool ended = cpu_pause_go_on(turns->pause, budget_ns, &status, error);
  uint64_t took_ns = clock_ns() - begin;
  turns->took_ns += took_ns;
  *done = (struct backend_done){.tag = turns->job.tag, .status = status, .device_ns = took_ns};
  done->skipped = turns->job.experts != NULL ? turns->unit.experts.skipped : 0;
  turns->taken = !ended;
  if (ended) {
    done->device_ns = turns->took_ns;
  }
  return ended;
}

uint64_t cpu_turns_longest_ns(const struct cpu_turns *turns) {
  uint64_t longest_ns = turns->longest_ns;
  for (int i = 0; i < CPU_TURNS; i++) {
    uint64_t ns = turns->all[i].pause != NULL ? cpu_pause_longest_ns(turns->all[i].pause) : 0;
    longest_ns = ns > longest_ns ? ns : longest_ns;
  }
  return longest_ns;
}

uint64_t cpu_turns_bytes(const struct cpu_turns *turns) {
  uint64_t bytes = 0;
  for (int i = 0; i < CPU_TURNS; i++) {
    bytes += turns->all[i].pause != NULL ? cpu_unit_bytes(&turns->all[i].unit) : 0;
  }
  return bytes;
}

void cpu_turns_rest(struct cpu_turns *turns) {
  turns->longest_ns = cpu_turns_longest_ns(turns);
  for (int i = 0; i < CPU_TURNS; i++) {
    struct backend_turns *each = &turns->all[i];
    if (each->taken || each->pause == NULL) {
      continue;
    }
    cpu_pause_destroy(each->pause);
    cpu_unit_rest(&each->unit);
    cpu_product_close_beside(&each->unit.engine);
    each->pause = NULL;
  }
}
