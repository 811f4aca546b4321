#include "subject.h"

#include "proto/number.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum status subject_open(struct subject *subject, const struct backend_ops *ops, const struct backend_config *config,
                         uint64_t arena_bytes, struct error *error) {
  *subject = (struct subject){.ops = ops, .arena_bytes = arena_bytes, .slab_fd = -1};
  subject->base = mmap(NULL, arena_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (subject->base == MAP_FAILED) {
    return error_set(error, STATUS_NOMEM, "no memory for an arena of %llu bytes", (unsigned long long)arena_bytes);
  }
  memset(subject->base, 0, arena_bytes);
  enum status status = ops->open(config, &subject->backend, error);
  if (status == STATUS_OK) {
    status = ops->arena_register(subject->backend, subject->base, arena_bytes, &subject->arena, error);
  }
  if (status != STATUS_OK) {
    subject_close(subject);
  }
  return status;
}

void subject_close(struct subject *subject) {
  if (subject->arena != NULL) {
    subject->ops->arena_unregister(subject->backend, subject->arena);
  }
  if (subject->backend != NULL) {
    subject->ops->close(subject->backend);
  }
  munmap(subject->base, subject->arena_bytes);
}

static uint64_t random_next(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return *state >> 33;
}

/* Any bytes are codes, but that e4m3 has a NaN and f16 and bf16 should be ordinary numbers. */
static uint8_t *make_canonical(const struct gemm_weight *shape, const struct gemm_layout *layout) {
  uint8_t *canonical = calloc(1, layout->total_bytes);
  uint64_t state = 1;
  if (canonical == NULL) {
    return NULL;
  }
  for (uint64_t i = 0; i < layout->codes_bytes; i++) {
    canonical[i] = (uint8_t)random_next(&state);
    canonical[i] = shape->format == GEMM_FORMAT_FP8 && (canonical[i] & 0x7f) == 0x7f ? 0 : canonical[i];
    bool top = i % 2 == 1 && (shape->format == GEMM_FORMAT_F16 || shape->format == GEMM_FORMAT_BF16);
    canonical[i] = top ? (uint8_t)((canonical[i] & 0x80) | 0x3c) : canonical[i];
  }
  for (uint64_t i = 0; i < layout->scale_count; i++) {
    float scale = 0x1p-8f;
    uint16_t half = number_to_f16(scale);
    uint8_t *to = canonical + layout->scales_offset;
    memcpy(to + i * (gemm_is_int2(shape->format) ? 2 : 4), gemm_is_int2(shape->format) ? (void *)&half : &scale,
           gemm_is_int2(shape->format) ? 2 : 4);
  }
  return canonical;
}

enum status subject_load(struct subject *subject, const struct gemm_weight *shape, int copies, struct error *error) {
  struct gemm_layout layout;
  struct backend_plan plan;
  struct backend_info info;
  enum status status = gemm_layout_compute(shape, &layout, error);
  if (status != STATUS_OK || (status = subject->ops->weight_plan(subject->backend, shape, &plan, error)) != STATUS_OK) {
    return status;
  }
  subject->ops->describe(subject->backend, &info);
  uint64_t each = gemm_round_up(plan.bytes, plan.align), bytes = each * (uint64_t)copies;
  uint8_t *canonical = make_canonical(shape, &layout);
  subject->weights = calloc((size_t)copies, sizeof(struct backend_weight *));
  subject->copies = 0;
  if (canonical == NULL || subject->weights == NULL) {
    status = error_set(error, STATUS_NOMEM, "no memory for a weight");
  } else {
    status = subject->ops->slab_create(subject->backend, gemm_round_up(bytes, info.slab_granularity), &subject->slab_fd,
                                       &subject->slab, error);
  }
  for (int i = 0; status == STATUS_OK && i < copies; i++) {
    uint64_t at = each * (uint64_t)i;
    status = subject->ops->weight_store(subject->backend, shape, canonical, subject->slab, at, error);
    if (status == STATUS_OK) {
      status = subject->ops->weight_attach(subject->backend, shape, plan.layout, subject->slab, at,
                                           &subject->weights[i], error);
    }
    subject->copies += status == STATUS_OK;
  }
  free(canonical);
  if (status != STATUS_OK) {
    subject_unload(subject);
  }
  return status;
}

void subject_unload(struct subject *subject) {
  for (int i = 0; i < subject->copies; i++) {
    subject->ops->weight_detach(subject->backend, subject->weights[i]);
  }
  free(subject->weights);
  subject->weights = NULL;
  subject->copies = 0;
  if (subject->slab != NULL) {
    subject->ops->slab_close(subject->backend, subject->slab);
    close(subject->slab_fd);
  }
  subject->slab = NULL;
  subject->slab_fd = -1;
}

enum status subject_stage(struct subject *subject, const struct gemm_weight *shape, int64_t m, struct error *error) {
  enum gemm_type type = shape->format == GEMM_FORMAT_F16    ? GEMM_F16
                        : shape->format == GEMM_FORMAT_BF16 ? GEMM_BF16
                                                            : GEMM_F32;
  uint64_t x_row = (uint64_t)shape->k * gemm_type_bytes(type), y_row = (uint64_t)shape->n * sizeof(float);
  uint64_t y_at = gemm_round_up((uint64_t)m * x_row, 4096), state = 2;
  if (y_at + (uint64_t)m * y_row > subject->arena_bytes) {
    return error_set(error, STATUS_NOMEM, "the arena has no room for %lld rows", (long long)m);
  }
  for (int64_t i = 0; i < m * shape->k; i++) {
    float value = (float)((int64_t)(random_next(&state) % 2001) - 1000) / 500;
    if (type == GEMM_F32) {
      ((float *)subject->base)[i] = value;
    } else {
      ((uint16_t *)subject->base)[i] = type == GEMM_F16 ? number_to_f16(value) : number_to_bf16(value);
    }
  }
  subject->job = (struct backend_job){.arena = subject->arena,
                                      .m = m,
                                      .x_type = type,
                                      .y_type = GEMM_F32,
                                      .x = subject->base,
                                      .y = subject->base + y_at,
                                      .x_stride = x_row,
                                      .y_stride = y_row};
  return STATUS_OK;
}

enum status subject_run(struct subject *subject, int copy, struct error *error) {
  struct backend_done done;
  subject->job.weight = subject->weights[copy];
  enum status status = subject->ops->submit(subject->backend, &subject->job, error);
  if (status != STATUS_OK) {
    return status;
  }
  while (subject->ops->poll(subject->backend, &done, 1) == 0) {
  }
  return done.status == STATUS_OK ? STATUS_OK : error_set(error, done.status, "a product ended with an error");
}
