#include "gather.h"

#include "sequence.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static uint64_t x_row_bytes(const struct backend_job *job) {
  return (uint64_t)job->weight->shape.k * gemm_type_bytes(job->x_type);
}

static uint64_t y_row_bytes(const struct backend_job *job) {
  return (uint64_t)cpu_job_columns(job) * gemm_type_bytes(job->y_type);
}

static uint64_t scale_row_bytes(const struct backend_job *job) {
  return job->x_scale != NULL ? gemm_x_scale_columns(&job->weight->shape) * sizeof(float) : 0;
}

static void copy_rows(void *to, uint64_t to_stride, const void *from, uint64_t from_stride, uint64_t row_bytes,
                      int64_t rows) {
  for (int64_t row = 0; row < rows; row++) {
    memcpy((uint8_t *)to + (uint64_t)row * to_stride, (const uint8_t *)from + (uint64_t)row * from_stride, row_bytes);
  }
}

static enum status reserve(struct gather *gather, uint64_t bytes, struct error *error) {
  if (bytes <= gather->bytes) {
    return STATUS_OK;
  }
  void *memory = aligned_alloc(GEMM_SECTION, gemm_round_up(bytes, GEMM_SECTION));
  if (memory == NULL) {
    return error_set(error, STATUS_NOMEM, "no memory for %" PRIu64 " bytes of gathered rows", bytes);
  }
  free(gather->memory);
  *gather = (struct gather){.memory = memory, .bytes = bytes};
  return STATUS_OK;
}

enum status cpu_gather(struct gather *gather, const struct backend_job *chain, struct backend_job *out,
                       struct error *error) {
  uint64_t x_bytes = x_row_bytes(chain), y_bytes = y_row_bytes(chain), scale_bytes = scale_row_bytes(chain);
  int64_t m = 0;
  for (const struct backend_job *job = chain; job != NULL; job = job->next) {
    m += job->m;
  }
  uint64_t y_offset = gemm_round_up((uint64_t)m * x_bytes, GEMM_SECTION);
  uint64_t scale_offset = y_offset + gemm_round_up((uint64_t)m * y_bytes, GEMM_SECTION);
  enum status status = reserve(gather, scale_offset + (uint64_t)m * scale_bytes, error);
  if (status != STATUS_OK) {
    return status;
  }
  uint8_t *x = gather->memory, *scales = x + scale_offset;
  *out = *chain;
  out->next = NULL;
  out->m = m;
  out->x = x;
  out->y = x + y_offset;
  out->x_scale = chain->x_scale != NULL ? scales : NULL;
  out->x_stride = x_bytes;
  out->y_stride = y_bytes;
  for (const struct backend_job *job = chain; job != NULL; job = job->next) {
    copy_rows(x, x_bytes, job->x, job->x_stride, x_bytes, job->m);
    x += (uint64_t)job->m * x_bytes;
    if (scale_bytes > 0) {
      memcpy(scales, job->x_scale, (uint64_t)job->m * scale_bytes);
      scales += (uint64_t)job->m * scale_bytes;
    }
  }
  return STATUS_OK;
}

void cpu_scatter(const struct backend_job *from, const struct backend_job *chain) {
  const uint8_t *y = from->y;
  for (const struct backend_job *job = chain; job != NULL; job = job->next) {
    copy_rows(job->y, job->y_stride, y, from->y_stride, from->y_stride, job->m);
    y += (uint64_t)job->m * from->y_stride;
  }
}

void cpu_gather_free(struct gather *gather) {
  free(gather->memory);
  *gather = (struct gather){0};
}
