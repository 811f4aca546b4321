#include "subject.h"

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

enum status subject_load(struct subject *subject, const struct data_weight *weight, int copies, struct error *error) {
  const struct gemm_weight *shape = &weight->shape;
  struct backend_plan plan;
  struct backend_info info;
  enum status status = subject->ops->weight_plan(subject->backend, shape, &plan, error);
  if (status != STATUS_OK) {
    return status;
  }
  subject->ops->describe(subject->backend, &info);
  uint64_t each = gemm_round_up(plan.bytes, plan.align), bytes = each * (uint64_t)copies;
  subject->weights = calloc((size_t)copies, sizeof(struct backend_weight *));
  subject->copies = 0;
  if (subject->weights == NULL) {
    status = error_set(error, STATUS_NOMEM, "no memory for a weight");
  } else {
    status = subject->ops->slab_create(subject->backend, gemm_round_up(bytes, info.slab_granularity), &subject->slab_fd,
                                       &subject->slab, error);
  }
  for (int i = 0; status == STATUS_OK && i < copies; i++) {
    uint64_t at = each * (uint64_t)i;
    status = subject->ops->weight_store(subject->backend, shape, weight->canonical, subject->slab, at, error);
    if (status == STATUS_OK) {
      status = subject->ops->weight_attach(subject->backend, shape, plan.layout, subject->slab, at,
                                           &subject->weights[i], error);
    }
    subject->copies += status == STATUS_OK;
  }
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

enum status subject_stage(struct subject *subject, const struct data_weight *weight, const struct data_x *x,
                          enum gemm_type y_type, struct error *error) {
  const struct gemm_weight *shape = &weight->shape;
  bool codes = x->type == GEMM_INT8 || x->type == GEMM_E4M3;
  if (!gemm_takes_x(shape->format, x->type) || !gemm_takes_y(shape->format, x->type, y_type)) {
    return error_set(error, STATUS_UNSUPPORTED, "a weight of %s does not take x of %s and y of %s",
                     gemm_format_name(shape->format), gemm_type_name(x->type), gemm_type_name(y_type));
  }
  uint64_t x_row = (uint64_t)x->k * gemm_type_bytes(x->type), y_row = (uint64_t)shape->n * gemm_type_bytes(y_type);
  uint64_t scale_row = codes ? (uint64_t)x->scale_columns * sizeof(float) : 0;
  uint64_t scales_at = gemm_round_up((uint64_t)x->m * x_row, 4096);
  uint64_t y_at = gemm_round_up(scales_at + (uint64_t)x->m * scale_row, 4096);
  uint64_t bias_at = gemm_round_up(y_at + (uint64_t)x->m * y_row, 4096);
  if (bias_at + (uint64_t)shape->n * sizeof(float) > subject->arena_bytes) {
    return error_set(error, STATUS_NOMEM, "the arena has no room for %lld rows", (long long)x->m);
  }
  const uint8_t *from = codes ? x->codes : x->elements;
  for (int64_t i = 0; i < x->m; i++) {
    uint64_t row = (uint64_t)(i % x->rows);
    memcpy(subject->base + (uint64_t)i * x_row, from + row * x_row, x_row);
    if (codes) {
      memcpy(subject->base + scales_at + (uint64_t)i * scale_row, x->scales + row * (uint64_t)x->scale_columns,
             scale_row);
    }
  }
  memset(subject->base + y_at, 0xff, (uint64_t)x->m * y_row); /* NaN in every floating type */
  float *bias = (float *)(void *)(subject->base + bias_at);
  for (int64_t i = 0; i < shape->n && weight->biased; i++) {
    bias[i] = data_bias(i);
  }
  subject->job = (struct backend_job){.arena = subject->arena,
                                      .m = x->m,
                                      .x_type = x->type,
                                      .y_type = y_type,
                                      .x = subject->base,
                                      .x_scale = codes ? subject->base + scales_at : NULL,
                                      .y = subject->base + y_at,
                                      .bias = weight->biased ? bias : NULL,
                                      .bias_type = weight->biased ? GEMM_F32 : GEMM_TYPE_NONE,
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

enum status subject_check(struct subject *subject, const struct data_weight *weight, const struct data_x *x,
                          struct error *error) {
  const struct backend_job *job = &subject->job;
  enum gemm_format format = weight->shape.format;
  const void *rows[DATA_SAMPLES];
  enum status status = subject_run(subject, 0, error);
  for (int i = 0; i < DATA_SAMPLES; i++) {
    rows[i] = (const uint8_t *)job->y + (uint64_t)data_sample(job->m, i) * job->y_stride;
  }
  double most = data_error_most(format, job->y_type);
  double is = status == STATUS_OK ? data_error(weight, x, rows, job->y_type, job->y_type == GEMM_S32) : 0;
  if (status == STATUS_OK && !(is <= most)) {
    return error_set(error, STATUS_INTERNAL, "%s, %lld rows: ours is off by %.2e, more than %.2e",
                     gemm_format_name(format), (long long)job->m, is, most);
  }
  return status;
}
