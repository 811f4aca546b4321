/* One MUL_MAT: in this process, or by gemmd's worker: rows into the arena, product, rows out, in pieces of what a slot
 * holds. */
#include "gemmd_ggml.h"

#include <stdio.h>
#include <string.h>

struct job {
  gemmd_weight *weight;
  enum gemmd_type x_type;
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
  if (job->x_type == GEMMD_F32)
    memcpy(place, x, piece->rows * job->k * sizeof *x);
  else
    rows_convert(x, place, (int64_t)(piece->rows * job->k), job->x_type);
  gemmd_product product = {
      .m = (uint32_t)piece->rows, .x = place, .x_type = job->x_type, .y = device->slots[slot].y, .y_type = GEMMD_F32};
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

static int compute(struct device *device, const struct open_weight *weight, struct ggml_tensor *node) {
  const struct ggml_tensor *w = node->src[0], *x = node->src[1];
  struct job job = {.weight = weight->weight,
                    .x_type = type_x(w->type),
                    .x = x->data,
                    .y = node->data,
                    .n = (size_t)w->ne[1],
                    .k = (size_t)w->ne[0],
                    .rows = (size_t)ggml_nrows(x)};
  return weight->direct != NULL ? direct_compute(device, weight, x, node) : job_run(device, &job);
}

int product_compute(struct device *device, struct ggml_tensor *node) {
  const struct ggml_tensor *w = node->src[0];
  const struct open_weight *weight = weight_get(device, w);
  if (weight == NULL)
    return GEMMD_INVALID;
  int status = compute(device, weight, node);
  if (status == GEMMD_NOT_FOUND) { /* gemmd has been started anew, without it: its values are here */
    weight = weight_hand_again(device, w);
    if (weight == NULL)
      return status;
    status = compute(device, weight, node);
  }
  if (status != GEMMD_OK)
    fprintf(stderr, "gemmd: %s: %s\n", w->name,
            weight->direct != NULL ? gemmd_direct_error() : gemmd_error(device->session));
  return status;
}
