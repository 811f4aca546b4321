#include "operand.h"

#include <stdlib.h>
#include <string.h>

static bool make_room(uint8_t **memory, uint64_t *have, uint64_t bytes) {
  if (bytes <= *have) {
    return true;
  }
  free(*memory);
  *memory = malloc(bytes);
  *have = *memory != NULL ? bytes : 0;
  return *memory != NULL;
}

/* Rows behind each other, as the canonical form has them. */
static const uint8_t *make_dense(struct operand *operand, const struct backend_operand *from,
                                 const struct gemm_layout *layout) {
  uint64_t row_bytes = (uint64_t)from->shape.k * 2;
  if (from->stride == layout->row_bytes) {
    return from->w;
  }
  if (!make_room(&operand->canonical, &operand->canonical_bytes, layout->codes_bytes)) {
    return NULL;
  }
  for (uint64_t row = 0; row < (uint64_t)from->shape.n; row++) {
    uint8_t *to = operand->canonical + row * layout->row_bytes;
    memcpy(to, (const uint8_t *)from->w + row * from->stride, row_bytes);
    memset(to + row_bytes, 0, layout->row_bytes - row_bytes);
  }
  return operand->canonical;
}

enum status cpu_operand_pack(struct operand *operand, const struct backend_operand *from, struct error *error) {
  struct backend_weight made = {.shape = from->shape};
  if (!gemm_is_wide(from->shape.format)) {
    return error_field(error, STATUS_UNSUPPORTED, FIELD_FORMAT, from->shape.format, 1, 0);
  }
  enum status status = cpu_layout_compute(&from->shape, &made.layout, error);
  if (status != STATUS_OK) {
    return status;
  }
  const uint8_t *dense = make_dense(operand, from, &made.layout.canonical);
  if (dense == NULL || !make_room(&operand->panels, &operand->panel_bytes, made.layout.total_bytes)) {
    return error_set(error, STATUS_NOMEM, "no memory for W of %llu bytes", (unsigned long long)made.layout.total_bytes);
  }
  uint64_t panel_bytes = (uint64_t)made.layout.width * made.layout.column_bytes;
  for (int64_t i = 0; i < made.layout.panels; i++) {
    cpu_layout_pack(&from->shape, &made.layout, dense, i, operand->panels + (uint64_t)i * panel_bytes);
  }
  made.panels = operand->panels;
  cpu_weight_inspect(&made);
  operand->weight = made;
  return STATUS_OK;
}

void cpu_operand_free(struct operand *operand) {
  free(operand->panels);
  free(operand->canonical);
}
