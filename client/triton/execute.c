/* The requests that Triton gives at a time: their rows go into the arena one after the other, are computed together, in
 * as many products as the arena asks for, and go back each to its own response. A request that is wrong, cancelled or
 * late gets an error; the others do not notice. */
#include "../../proto/clock.h"
#include "gemmd_triton.h"

#include <stdlib.h>
#include <string.h>

struct item {
  TRITONBACKEND_Request *request;
  TRITONBACKEND_Response *response;
  TRITONBACKEND_Input *input;
  failure error;            /* owned; goes into the response */
  uint64_t rows, done;      /* `done` of them are in y */
  uint32_t buffers, buffer; /* where the next bytes of x are */
  uint64_t buffer_offset;
  uint8_t *y;
  int64_t y_gpu;        /* y lies in its memory; -1: in the host's */
  uint64_t deadline_ns; /* UINT64_MAX: none */
};

struct run {
  struct instance *instance;
  struct item *items;
  uint32_t count;
};

/* ---- one request */

/* Shape and place of x, and room for y in a response. */
static failure item_prepare(const struct run *run, struct item *item) {
  const struct instance *instance = run->instance;
  const int64_t *shape;
  int64_t y_shape[16];
  uint32_t dims;
  uint64_t bytes, limit_us = 0;
  enum TRITONSERVER_memorytype_enum memory = TRITONSERVER_MEMORY_CPU;
  int64_t memory_id = 0;
  TRITONBACKEND_Output *output;
  void *y;

  failure error = TRITONBACKEND_RequestInput(item->request, instance->model->x_name, &item->input);
  if (error == NULL)
    error = TRITONBACKEND_InputProperties(item->input, NULL, NULL, &shape, &dims, &bytes, &item->buffers);
  if (error == NULL)
    error = TRITONBACKEND_InferenceRequestTimeoutMicroseconds(item->request, &limit_us);
  if (error != NULL)
    return error;
  if (dims < 1 || dims > 16 || shape[dims - 1] != instance->k)
    return error_make(TRITONSERVER_ERROR_INVALID_ARG, "%s must end in %lld columns, got %lld", instance->model->x_name,
                      (long long)instance->k, dims > 0 ? (long long)shape[dims - 1] : 0);
  if (bytes % instance->x_row != 0)
    return error_make(TRITONSERVER_ERROR_INVALID_ARG, "%s has %llu bytes, which are no whole rows of %zu",
                      instance->model->x_name, (unsigned long long)bytes, instance->x_row);
  item->rows = bytes / instance->x_row;
  item->deadline_ns = limit_us > 0 ? clock_ns() + limit_us * 1000 : UINT64_MAX;
  memcpy(y_shape, shape, dims * sizeof *shape);
  y_shape[dims - 1] = instance->n;
  error = TRITONBACKEND_ResponseOutput(item->response, &output, instance->model->y_name, instance->model->y_type,
                                       y_shape, dims);
  if (error == NULL)
    error = TRITONBACKEND_OutputBuffer(output, &y, item->rows * instance->y_row, &memory, &memory_id);
  item->y = y;
  item->y_gpu = memory == TRITONSERVER_MEMORY_GPU ? memory_id : -1;
  return error;
}

/* Cancelled by its client, or past its time limit. */
static failure item_unwanted(const struct item *item) {
  bool cancelled = false;
  failure error = TRITONBACKEND_RequestIsCancelled(item->request, &cancelled);
  if (error == NULL && cancelled)
    error = error_make(TRITONSERVER_ERROR_CANCELLED, "the request was cancelled");
  if (error == NULL && clock_ns() > item->deadline_ns)
    error = error_make(TRITONSERVER_ERROR_UNAVAILABLE, "the request's time limit has passed");
  return error;
}

/* The next `bytes` of x, from however many pieces the server has them in. */
static failure item_copy_x(struct item *item, uint8_t *to, uint64_t bytes) {
  while (bytes > 0) {
    const void *from;
    uint64_t size;
    enum TRITONSERVER_memorytype_enum memory = TRITONSERVER_MEMORY_CPU;
    int64_t memory_id = 0;
    if (item->buffer == item->buffers)
      return error_make(TRITONSERVER_ERROR_INVALID_ARG, "an input is shorter than its shape");
    failure error = TRITONBACKEND_InputBuffer(item->input, item->buffer, &from, &size, &memory, &memory_id);
    if (error != NULL)
      return error;
    uint64_t left = size - item->buffer_offset, piece = left < bytes ? left : bytes;
    const uint8_t *begin = (const uint8_t *)from + item->buffer_offset;
    if (memory != TRITONSERVER_MEMORY_GPU)
      memcpy(to, begin, piece);
    else if ((error = device_copy(to, begin, piece, memory_id)) != NULL)
      return error;
    to += piece;
    bytes -= piece;
    item->buffer_offset += piece;
    if (item->buffer_offset == size) {
      item->buffer++;
      item->buffer_offset = 0;
    }
  }
  return NULL;
}

/* ---- all of them */

static bool nobody_waits(void *user) {
  const struct run *run = user;
  bool wanted = false;
  for (uint32_t i = 0; i < run->count; i++) {
    struct item *item = &run->items[i];
    if (item->error == NULL)
      item->error = item_unwanted(item);
    wanted = wanted || item->error == NULL;
  }
  return !wanted;
}

/* Rows of a request that lie together in one product. */
struct part {
  struct item *item;
  uint64_t rows;
};

/* Fills x with what is left to compute; *parts of it in `part`. */
static uint64_t run_fill(struct run *run, struct part *part, uint32_t *parts) {
  const struct instance *instance = run->instance;
  uint64_t rows = 0;
  *parts = 0;
  for (uint32_t i = 0; i < run->count && rows < instance->model->rows; i++) {
    struct item *item = &run->items[i];
    uint64_t room = instance->model->rows - rows, left = item->rows - item->done;
    uint64_t piece = left < room ? left : room;
    if (item->error != NULL || piece == 0)
      continue;
    item->error = item_copy_x(item, instance->x + rows * instance->x_row, piece * instance->x_row);
    if (item->error != NULL)
      continue;
    part[(*parts)++] = (struct part){.item = item, .rows = piece};
    rows += piece;
  }
  return rows;
}

/* The same failure for all who have none yet. */
static void run_fail(struct run *run, failure error) {
  for (uint32_t i = 0; i < run->count; i++)
    if (run->items[i].error == NULL)
      run->items[i].error = TRITONSERVER_ErrorNew(TRITONSERVER_ErrorCode(error), TRITONSERVER_ErrorMessage(error));
  TRITONSERVER_ErrorDelete(error);
}

static failure item_copy_y(const struct item *item, const uint8_t *from, size_t row, uint64_t rows) {
  uint8_t *to = item->y + item->done * row;
  if (item->y_gpu >= 0)
    return device_copy(to, from, rows * row, item->y_gpu);
  memcpy(to, from, rows * row);
  return NULL;
}

/* All rows of a product, or a failure. */
static failure run_product(struct run *run, uint64_t rows, const struct part *part, uint32_t parts) {
  const struct instance *instance = run->instance;
  failure error = instance_compute(run->instance, (uint32_t)rows, nobody_waits, run);
  const uint8_t *y = instance->y;
  for (uint32_t i = 0; i < parts && error == NULL; i++) {
    struct item *item = part[i].item;
    item->error = item_copy_y(item, y, instance->y_row, part[i].rows);
    y += part[i].rows * instance->y_row;
    item->done += part[i].rows;
  }
  return error;
}

/* What is not complete begins again: another gemmd may have the weight with another content. */
static void run_rewind(struct run *run) {
  for (uint32_t i = 0; i < run->count; i++) {
    struct item *item = &run->items[i];
    if (item->done < item->rows) {
      item->done = item->buffer_offset = 0;
      item->buffer = 0;
    }
  }
}

static void run_compute(struct run *run, struct part *part) {
  struct instance *instance = run->instance;
  uint64_t began_ns = clock_ns();
  uint32_t parts;
  failure error = instance_ready(instance);
  for (uint64_t rows; error == NULL && !nobody_waits(run) && (rows = run_fill(run, part, &parts)) > 0;) {
    error = run_product(run, rows, part, parts);
    if (error != NULL && instance->lost && instance_return(instance, began_ns, nobody_waits, run)) {
      TRITONSERVER_ErrorDelete(error);
      error = NULL;
      run_rewind(run);
    }
  }
  if (error != NULL)
    run_fail(run, error);
}

/* What cannot be reported to anybody is logged. */
static void log_failure(failure error) {
  if (error == NULL)
    return;
  failure second =
      TRITONSERVER_LogMessage(TRITONSERVER_LOG_ERROR, __FILE__, __LINE__, TRITONSERVER_ErrorMessage(error));
  if (second != NULL)
    TRITONSERVER_ErrorDelete(second);
  TRITONSERVER_ErrorDelete(error);
}

static void item_finish(TRITONBACKEND_ModelInstance *of, struct item *item, const uint64_t times[3]) {
  bool good = item->error == NULL;
  uint64_t end = clock_ns();
  log_failure(TRITONBACKEND_ModelInstanceReportStatistics(of, item->request, good, times[0], times[1], times[2], end));
  if (item->response == NULL) {
    log_failure(item->error);
  } else {
    log_failure(TRITONBACKEND_ResponseSend(item->response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, item->error));
    if (!good)
      TRITONSERVER_ErrorDelete(item->error);
  }
  log_failure(TRITONBACKEND_RequestRelease(item->request, TRITONSERVER_REQUEST_RELEASE_ALL));
}

failure instance_execute(TRITONBACKEND_ModelInstance *of, struct instance *instance, TRITONBACKEND_Request **requests,
                         uint32_t count) {
  struct item *items = calloc(count, sizeof *items);
  struct part *part = calloc(count, sizeof *part);
  if (items == NULL || part == NULL) {
    free(items);
    free(part);
    return error_make(TRITONSERVER_ERROR_INTERNAL, "no memory for %u requests", count);
  }
  struct run run = {.instance = instance, .items = items, .count = count};
  uint64_t times[3] = {clock_ns()};
  for (uint32_t i = 0; i < count; i++) {
    items[i].request = requests[i];
    items[i].error = TRITONBACKEND_ResponseNew(&items[i].response, requests[i]);
    if (items[i].error == NULL)
      items[i].error = item_prepare(&run, &items[i]);
  }
  times[1] = clock_ns();
  run_compute(&run, part);
  times[2] = clock_ns();
  for (uint32_t i = 0; i < count; i++)
    item_finish(of, &items[i], times);
  log_failure(TRITONBACKEND_ModelInstanceReportBatchStatistics(of, count, times[0], times[1], times[2], clock_ns()));
  free(items);
  free(part);
  return NULL;
}
