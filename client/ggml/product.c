/* One MUL_MAT: rows into the arena, product, rows out, in pieces of what a slot holds. */
#include "gemmd_ggml.h"

#include <string.h>

struct job {
  gemmd_weight *weight;
  bool half; /* the weight takes f16 rows */
  const float *x;
  float *y;
  size_t n, k, rows;
};

/* Rows in flight in a slot. */
struct piece {
  uint64_t ticket; /* 0: none */
  size_t begin, rows;
};

static size_t rows_at_a_time(const struct job *job) {
  size_t row = (job->n > job->k ? job->n : job->k) * sizeof(float);
  return SLOT_BYTES / row;
}

static int piece_submit(struct device *device, const struct job *job, unsigned slot, struct piece *piece) {
  const float *x = job->x + piece->begin * job->k;
  void *place = device->slots[slot].x;
  if (job->half)
    ggml_fp32_to_fp16_row(x, place, (int64_t)(piece->rows * job->k));
  else
    memcpy(place, x, piece->rows * job->k * sizeof *x);
  gemmd_product product = {.m = (uint32_t)piece->rows,
                           .x = place,
                           .x_type = job->half ? GEMMD_F16 : GEMMD_F32,
                           .y = device->slots[slot].y,
                           .y_type = GEMMD_F32};
  return gemmd_submit(job->weight, &product, &piece->ticket);
}

static int piece_finish(struct device *device, const struct job *job, unsigned slot, struct piece *piece) {
  if (piece->ticket == 0)
    return GEMMD_OK;
  int status = gemmd_wait(device->session, piece->ticket, -1, NULL);
  piece->ticket = 0;
  if (status == GEMMD_OK)
    memcpy(job->y + piece->begin * job->n, device->slots[slot].y, piece->rows * job->n * sizeof *job->y);
  return status;
}

static int job_run(struct device *device, const struct job *job) {
  struct piece pieces[SLOTS] = {{0}};
  size_t most = rows_at_a_time(job);
  unsigned slot = 0;
  int status = GEMMD_OK;
  for (size_t begin = 0; begin < job->rows && status == GEMMD_OK; begin += most, slot = (slot + 1) % SLOTS) {
    status = piece_finish(device, job, slot, &pieces[slot]);
    pieces[slot].begin = begin;
    pieces[slot].rows = job->rows - begin < most ? job->rows - begin : most;
    if (status == GEMMD_OK)
      status = piece_submit(device, job, slot, &pieces[slot]);
  }
  /* Also after a failure: nothing may be in flight when the slots are used again. */
  for (unsigned i = 0; i < SLOTS; i++) {
    unsigned next = (slot + i) % SLOTS;
    int finished = piece_finish(device, job, next, &pieces[next]);
    status = status != GEMMD_OK ? status : finished;
  }
  return status;
}

int product_compute(struct device *device, struct ggml_tensor *node) {
  const struct ggml_tensor *w = node->src[0], *x = node->src[1];
  struct job job = {.half = w->type == GGML_TYPE_F16,
                    .x = x->data,
                    .y = node->data,
                    .n = (size_t)w->ne[1],
                    .k = (size_t)w->ne[0],
                    .rows = (size_t)(x->ne[1] * x->ne[2] * x->ne[3])};
  job.weight = weight_get(device, w);
  return job.weight != NULL ? job_run(device, &job) : GEMMD_INVALID;
}
