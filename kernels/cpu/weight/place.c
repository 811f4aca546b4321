#include "place.h"

#include <inttypes.h>
#include <stdlib.h>

static enum status check_place(const struct gemm_weight *weight, uint64_t offset, struct cpu_layout *layout,
                               struct error *error) {
  if (offset % GEMM_SECTION != 0) {
    return error_set(error, STATUS_INVALID, "a weight's place must be a multiple of %d, got %" PRIu64, GEMM_SECTION,
                     offset);
  }
  return cpu_layout_compute(weight, layout, error);
}

/* ---- storing */

static enum status store_panels(const struct gemm_weight *weight, const struct cpu_layout *layout,
                                const void *canonical, struct backend_slab *slab, uint64_t offset, uint8_t *panel,
                                struct error *error) {
  uint64_t panel_bytes = (uint64_t)layout->width * layout->column_bytes;
  enum status status = STATUS_OK;
  for (int64_t i = 0; status == STATUS_OK && i < layout->panels; i++) {
    uint64_t bytes = (uint64_t)cpu_layout_width(layout, weight, i) * layout->column_bytes;
    cpu_layout_pack(weight, layout, canonical, i, panel);
    status = cpu_slab_write(slab, offset + (uint64_t)i * panel_bytes, panel, bytes, error);
  }
  if (status == STATUS_OK && layout->scales_bytes > 0) {
    cpu_layout_scales(weight, layout, canonical, panel);
    status = cpu_slab_write(slab, offset + layout->scales_offset, panel, layout->scales_bytes, error);
  }
  if (status == STATUS_OK && layout->canonical.input_bytes > 0) {
    status =
        cpu_slab_write(slab, offset + layout->input_offset, (const uint8_t *)canonical + layout->canonical.input_offset,
                       layout->canonical.input_bytes, error);
  }
  return status;
}

static enum status store_experts(const struct gemm_weight *weight, const struct cpu_layout *layout,
                                 const void *canonical, struct backend_slab *slab, uint64_t offset,
                                 struct error *error) {
  uint64_t panel_bytes = (uint64_t)layout->width * layout->column_bytes;
  uint64_t bytes = panel_bytes > layout->scales_bytes ? panel_bytes : layout->scales_bytes;
  uint8_t *panel = malloc(bytes);
  if (panel == NULL) {
    return error_set(error, STATUS_NOMEM, "no memory for %" PRIu64 " bytes of a weight", bytes);
  }
  enum status status = STATUS_OK;
  const struct gemm_weight one = gemm_expert(weight);
  for (int64_t e = 0; status == STATUS_OK && e < gemm_matrices(weight); e++) {
    struct cpu_layout own;
    const void *from = cpu_layout_expert(layout, e, canonical, &own);
    status = store_panels(&one, &own, from, slab, offset + (uint64_t)e * layout->expert_bytes, panel, error);
  }
  free(panel);
  return status;
}

enum status cpu_place_store(const struct gemm_weight *weight, const void *canonical, struct backend_slab *slab,
                            uint64_t offset, bool large_pages, struct error *error) {
  struct cpu_layout layout;
  enum status status = check_place(weight, offset, &layout, error);
  if (status == STATUS_OK && cpu_slab_read(slab, offset, layout.total_bytes, error) == NULL) {
    status = error->status;
  }
  if (status == STATUS_OK && large_pages) {
    cpu_slab_prepare(slab, offset, layout.total_bytes);
  }
  return status == STATUS_OK ? store_experts(weight, &layout, canonical, slab, offset, error) : status;
}

/* ---- attaching */

static void attach_experts(struct backend_weight *weight) {
  for (int64_t e = 0; e < weight->shape.experts; e++) {
    struct backend_weight *one = &weight->experts[e];
    one->shape = gemm_expert(&weight->shape);
    (void)cpu_layout_expert(&weight->layout, e, NULL, &one->layout);
    one->panels = weight->panels + (uint64_t)e * weight->layout.expert_bytes;
    cpu_weight_inspect(one);
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
