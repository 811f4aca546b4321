/* Products in this process, on the threads that ggml's CPU backend computes with: both ask the same OpenMP, whose
 * threads spin between the operations of a graph, and others would wait for a core. */
#include "gemmd_ggml.h"

#include <omp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_MOST = 512, ALIGNMENT = 64, ALIGNED = 16 };

static void parallel(void *context, int parts, void (*part)(void *task, int part, int parts), void *task) {
#pragma omp parallel num_threads(parts)
  part(task, omp_get_thread_num(), parts);
}

/* As many as OpenMP gives, which has limits of its own. */
static int threads_of(int wanted) {
  int got = 1;
#pragma omp parallel num_threads(wanted > 0 ? wanted : omp_get_num_procs())
#pragma omp single
  got = omp_get_num_threads();
  return got;
}

void direct_open(struct device *device) {
  if (device->direct_tried)
    return;
  device->direct_tried = true;
  gemmd_direct_options options = {.bytes = sizeof options,
                                  .ordinal = -1,
                                  .lanes = 1,
                                  .rows_most = ROWS_MOST,
                                  .threads = threads_of(device->threads),
                                  .parallel = parallel};
  gemmd_daemon_info *info = malloc(sizeof *info);
  /* On a GPU rows are in the wrong memory for products of this process. */
  if (info != NULL && gemmd_daemon_status(device->session, info) == GEMMD_OK && strcmp(info->backend, "cpu") == 0 &&
      gemmd_direct_open(device->session, &options, &device->direct) != GEMMD_OK)
    device->direct = NULL;
  free(info);
}

static void *scratch_get(struct scratch *scratch, size_t bytes) {
  if (scratch->bytes < bytes) {
    free(scratch->data);
    bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    scratch->data = aligned_alloc(ALIGNMENT, bytes);
    scratch->bytes = scratch->data != NULL ? bytes : 0;
  }
  return scratch->data;
}

static bool aligned(const void *pointer) {
  return (uintptr_t)pointer % ALIGNED == 0;
}

/* x as the weight takes it. Several products of a graph in a row have the same x. */
static const void *rows_of(struct device *device, const struct ggml_tensor *x, enum gemmd_type type) {
  size_t count = (size_t)ggml_nelements(x);
  if (type == GEMMD_F32 && aligned(x->data))
    return x->data;
  if (device->x_source == x && device->x_type == type)
    return device->x.data;
  device->x_source = NULL;
  void *rows = scratch_get(&device->x, count * (type == GEMMD_F32 ? 4 : 2));
  if (rows == NULL)
    return NULL;
  if (type == GEMMD_F32)
    memcpy(rows, x->data, count * sizeof(float));
  else
    rows_convert(x->data, rows, (int64_t)count, type);
  device->x_source = x;
  device->x_type = type;
  return rows;
}

int direct_compute(struct device *device, const struct open_weight *weight, const struct ggml_tensor *x,
                   struct ggml_tensor *y) {
  enum gemmd_type type = type_x(weight->type);
  int64_t n = y->ne[0], k = x->ne[0], rows = ggml_nrows(x);
  size_t element = type == GEMMD_F32 ? 4 : 2;
  const uint8_t *from = rows_of(device, x, type);
  float *to = aligned(y->data) && n % (ALIGNED / 4) == 0 ? y->data : scratch_get(&device->y, ggml_nbytes(y));
  int status = from != NULL && to != NULL ? GEMMD_OK : GEMMD_NOMEM;
  for (int64_t row = 0; row < rows && status == GEMMD_OK; row += ROWS_MOST) {
    gemmd_direct_product product = {.bytes = sizeof product,
                                    .m = rows - row < ROWS_MOST ? rows - row : ROWS_MOST,
                                    .x = from + (size_t)(row * k) * element,
                                    .x_type = type,
                                    .y = to + row * n,
                                    .y_type = GEMMD_F32};
    status = gemmd_direct_matmul(weight->direct, &product, NULL);
  }
  if (status == GEMMD_OK && to != y->data)
    memcpy(y->data, to, ggml_nbytes(y));
  return status;
}
