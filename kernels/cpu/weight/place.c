#include "place.h"

#include "../pool.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>

static enum status check_place(const struct gemm_weight *weight, uint64_t offset, struct cpu_layout *layout,
                               struct error *error) {
  if (offset % GEMM_SECTION != 0) {
    return error_set(error, STATUS_INVALID, "a weight's place must be a multiple of %d, got %" PRIu64, GEMM_SECTION,
                     offset);
  }
  return cpu_layout_compute(weight, layout, error);
}

/* ---- storing, by several threads where that is worth it */

enum { THREAD_BYTES = 8 << 20, PREPARED_BYTES = 16 << 20 }; /* a thread more for each; of one turn */

/* Turns of one task, each done by whichever thread comes to it. */
struct storing {
  const struct gemm_weight *weight; /* of one matrix at a time, once threads are at work */
  const struct cpu_layout *layout;
  struct gemm_weight one;
  struct cpu_layout own;
  const void *canonical;
  struct backend_slab *slab;
  uint64_t offset;
  uint8_t *panels; /* [threads][panel_bytes] */
  struct cpu_pool *pool;
  int64_t turns;
  atomic_int_least64_t next;
  atomic_int failed; /* part + 1 of one whose error is below; 0: none */
  struct error errors[CPU_PLACE_THREADS];
};

static uint64_t panel_bytes(const struct cpu_layout *layout) {
  return (uint64_t)layout->width * layout->column_bytes;
}

static bool next_turn(struct storing *storing, int64_t *turn) {
  *turn = atomic_fetch_add(&storing->next, 1);
  return *turn < storing->turns;
}

static enum status run_turns(struct storing *storing, int64_t turns, cpu_task task, struct error *error) {
  int threads = cpu_pool_threads(storing->pool);
  storing->turns = turns;
  atomic_store(&storing->next, 0);
  cpu_pool_run(storing->pool, turns < threads ? (int)turns : threads, task, storing);
  int failed = atomic_load(&storing->failed);
  if (failed == 0) {
    return STATUS_OK;
  }
  *error = storing->errors[failed - 1];
  return error->status;
}

static void store_panels(void *context, int part, int parts) {
  struct storing *storing = context;
  const struct cpu_layout *layout = storing->layout;
  struct error *error = &storing->errors[part];
  uint8_t *panel = storing->panels + (uint64_t)part * panel_bytes(layout);
  for (int64_t i = 0; atomic_load(&storing->failed) == 0 && next_turn(storing, &i);) {
    uint64_t bytes = (uint64_t)cpu_layout_width(layout, storing->weight, i) * layout->column_bytes;
    uint64_t at = storing->offset + (uint64_t)i * panel_bytes(layout);
    cpu_layout_pack(storing->weight, layout, storing->canonical, i, panel);
    if (cpu_slab_write(storing->slab, at, panel, bytes, error) != STATUS_OK) {
      atomic_store(&storing->failed, part + 1);
    }
  }
}

/* Turns begin at multiples of PREPARED_BYTES in the slab, so that none has a large page of another's. */
static void prepare_pages(void *context, int part, int parts) {
  struct storing *storing = context;
  uint64_t offset = storing->offset, end = offset + storing->layout->total_bytes;
  for (int64_t i = 0; next_turn(storing, &i);) {
    uint64_t from = (offset / PREPARED_BYTES + (uint64_t)i) * PREPARED_BYTES, to = from + PREPARED_BYTES;
    from = from > offset ? from : offset;
    cpu_slab_prepare(storing->slab, from, (to < end ? to : end) - from);
  }
}

/* What is beside the codes is little. */
static enum status store_scales(const struct storing *storing, struct error *error) {
  const struct cpu_layout *layout = storing->layout;
  const struct gemm_layout *from = &layout->canonical;
  enum status status = STATUS_OK;
  if (layout->scales_bytes > 0) {
    uint8_t *scales = malloc(layout->scales_bytes);
    if (scales == NULL) {
      return error_set(error, STATUS_NOMEM, "no memory for %" PRIu64 " bytes of a weight", layout->scales_bytes);
    }
    cpu_layout_scales(storing->weight, layout, storing->canonical, scales);
    status =
        cpu_slab_write(storing->slab, storing->offset + layout->scales_offset, scales, layout->scales_bytes, error);
    free(scales);
  }
  if (status == STATUS_OK && from->input_bytes > 0) {
    status = cpu_slab_write(storing->slab, storing->offset + layout->input_offset,
                            (const uint8_t *)storing->canonical + from->input_offset, from->input_bytes, error);
  }
  return status;
}

static enum status store_experts(struct storing *all, struct error *error) {
  enum status status = STATUS_OK;
  const struct gemm_weight *weight = all->weight;
  const struct cpu_layout *layout = all->layout;
  const void *canonical = all->canonical;
  uint64_t offset = all->offset;
  all->one = gemm_expert(weight);
  all->weight = &all->one;
  all->layout = &all->own;
  for (int64_t e = 0; status == STATUS_OK && e < gemm_matrices(weight); e++) {
    all->canonical = cpu_layout_expert(layout, e, canonical, &all->own);
    all->offset = offset + (uint64_t)e * layout->expert_bytes;
    status = run_turns(all, all->own.panels, store_panels, error);
    if (status == STATUS_OK) {
      status = store_scales(all, error);
    }
  }
  return status;
}

/* No more threads than are worth it; one where others cannot be started. */
static enum status start_threads(int threads, uint64_t bytes, struct cpu_pool **out, struct error *error) {
  uint64_t worth = bytes / THREAD_BYTES + 1;
  int most = threads < CPU_PLACE_THREADS ? threads : CPU_PLACE_THREADS;
  most = worth < (uint64_t)most ? (int)worth : most;
  if (most > 1 && cpu_pool_create(most, NULL, out, error) == STATUS_OK) {
    return STATUS_OK;
  }
  return cpu_pool_create(1, NULL, out, error);
}

static enum status store(struct storing *storing, int threads, bool large_pages, struct error *error) {
  uint64_t bytes = storing->layout->total_bytes, panel = panel_bytes(storing->layout);
  enum status status = start_threads(threads, bytes, &storing->pool, error);
  if (status != STATUS_OK) {
    return status;
  }
  threads = cpu_pool_threads(storing->pool);
  storing->panels = malloc((uint64_t)threads * panel);
  if (storing->panels == NULL) {
    status = error_set(error, STATUS_NOMEM, "no memory for %d panels of %" PRIu64 " bytes", threads, panel);
  }
  if (status == STATUS_OK && large_pages) {
    uint64_t last = (storing->offset + bytes - 1) / PREPARED_BYTES;
    status = run_turns(storing, (int64_t)(last - storing->offset / PREPARED_BYTES + 1), prepare_pages, error);
  }
  if (status == STATUS_OK) {
    status = store_experts(storing, error);
  }
  free(storing->panels);
  cpu_pool_destroy(storing->pool);
  return status;
}

enum status cpu_place_store(const struct gemm_weight *weight, const void *canonical, struct backend_slab *slab,
                            uint64_t offset, bool large_pages, int threads, struct error *error) {
  struct cpu_layout layout;
  struct storing storing = {
      .weight = weight, .layout = &layout, .canonical = canonical, .slab = slab, .offset = offset};
  enum status status = check_place(weight, offset, &layout, error);
  if (status == STATUS_OK && cpu_slab_read(slab, offset, layout.total_bytes, error) == NULL) {
    status = error->status;
  }
  return status == STATUS_OK ? store(&storing, threads, large_pages, error) : status;
}

/* ---- attaching */

static void attach_experts(struct backend_weight *weight) {
  for (int64_t e = 0; e < weight->shape.experts; e++) {
    struct backend_weight *one = &weight->experts[e];
    one->shape = gemm_expert(&weight->shape);
    (void)cpu_layout_expert(&weight->layout, e, NULL, &one->layout);
    one->panels = weight->panels + (uint64_t)e * weight->layout.expert_bytes;
    cpu_weight_inspect(one);
    weight->extreme |= one->extreme;
  }
}

static enum status make(const struct gemm_weight *weight, uint64_t offset, struct backend_weight **out,
                        struct error *error) {
  struct backend_weight *made = calloc(1, sizeof(*made));
  *out = made;
  if (made == NULL) {
    return error_set(error, STATUS_NOMEM, "no memory to attach a weight");
  }
  made->shape = *weight;
  enum status status = check_place(weight, offset, &made->layout, error);
  if (status == STATUS_OK && weight->experts > 0) {
    made->experts = calloc((size_t)weight->experts, sizeof(*made->experts));
    status = made->experts != NULL ? STATUS_OK : error_set(error, STATUS_NOMEM, "no memory to attach a weight");
  }
  return status;
}

enum status cpu_place_attach(const struct gemm_weight *weight, struct backend_slab *slab, uint64_t offset,
                             bool large_pages, struct backend_weight **out, struct error *error) {
  struct backend_weight *made;
  enum status status = make(weight, offset, &made, error);
  if (status == STATUS_OK) {
    made->panels = cpu_slab_read(slab, offset, made->layout.total_bytes, error);
    status = made->panels != NULL ? STATUS_OK : error->status;
  }
  if (status != STATUS_OK) {
    cpu_place_detach(made);
    return status;
  }
  cpu_slab_touch(slab, offset, made->layout.total_bytes, large_pages);
  if (weight->experts > 0) {
    attach_experts(made);
  } else {
    cpu_weight_inspect(made);
  }
  *out = made;
  return STATUS_OK;
}

void cpu_place_detach(struct backend_weight *weight) {
  if (weight != NULL) {
    free(weight->experts);
    free(weight);
  }
}

void cpu_place_read(const struct backend_weight *weight, uint8_t *canonical) {
  if (weight->experts == NULL) {
    cpu_weight_canonical(weight, canonical);
  }
  for (int64_t e = 0; e < weight->shape.experts; e++) {
    struct backend_weight one = weight->experts[e];
    cpu_weight_canonical(&one, canonical + (uint64_t)e * one.layout.canonical.codes_bytes);
  }
}
