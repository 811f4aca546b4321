#include "lanes.h"

#include "tests/support/system/gpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

static bool on_gpu(const struct lanes *lanes) {
  return !lanes->device.ops->on_cores;
}

static void copy_in(const struct lanes *lanes, uint8_t *to, const void *from, uint64_t bytes) {
  if (on_gpu(lanes))
    assert_true(gpu_copy_in(to, from, bytes));
  else
    memcpy(to, from, bytes);
}

static void copy_out(const struct lanes *lanes, void *to, const uint8_t *from, uint64_t bytes) {
  if (on_gpu(lanes))
    assert_true(gpu_copy_out(to, from, bytes));
  else
    memcpy(to, from, bytes);
}

bool lanes_open(struct lanes *lanes, const struct device *owner, int count, int64_t rows_most) {
  struct backend_config config = {.in_flight = count,
                                  .direct = true,
                                  .rows_most = rows_most,
                                  .threads = 2,
                                  .state_dir = getenv("GEMMD_TEST_STATE")};
  struct error error = {0};
  *lanes = (struct lanes){.device = {.ops = owner->ops, .slab_fd = owner->slab_fd}, .count = count};
  if (on_gpu(lanes) && !gpu_open())
    return false;
  struct device *device = &lanes->device;
  if (device->ops->open(&config, &device->backend, &error) != STATUS_OK)
    fail_msg("open: %s", error.text);
  device->base = mmap(NULL, DEVICE_ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_ptr_not_equal(device->base, MAP_FAILED);
  device_import(device, owner->slab_fd, owner->slab_bytes);
  for (int i = 0; i < count; i++) {
    lanes->memory[i] = on_gpu(lanes) ? gpu_alloc(DEVICE_ARENA_BYTES) : malloc(DEVICE_ARENA_BYTES);
    lanes->streams[i] = on_gpu(lanes) ? gpu_stream_make() : NULL;
    assert_non_null(lanes->memory[i]);
  }
  return true;
}

void lanes_close(struct lanes *lanes) {
  struct device *device = &lanes->device;
  for (int i = 0; i < lanes->count; i++)
    if (on_gpu(lanes))
      gpu_free(lanes->memory[i]);
    else
      free(lanes->memory[i]);
  device->ops->slab_close(device->backend, device->slab);
  device->ops->close(device->backend);
  munmap(device->base, DEVICE_ARENA_BYTES);
}

struct backend_weight *lanes_attach(struct lanes *lanes, const struct oracle_weight *weight, uint64_t offset) {
  struct device *device = &lanes->device;
  struct backend_weight *handle = NULL;
  struct backend_plan plan = {0};
  struct error error = {0};
  if (device->ops->weight_plan(device->backend, &weight->shape, &plan, &error) != STATUS_OK ||
      device->ops->weight_attach(device->backend, &weight->shape, plan.layout, device->slab, offset, &handle, &error) !=
          STATUS_OK)
    fail_msg("attach: %s", error.text);
  return handle;
}

/* Where the lane has what lies at `at` in the image. */
static void *rebase(const struct lanes *lanes, int lane, const void *at) {
  return at == NULL ? NULL : lanes->memory[lane] + ((const uint8_t *)at - lanes->device.base);
}

static uint8_t *image_of(const struct lanes *lanes, int lane, const void *at) {
  return lanes->device.base + ((const uint8_t *)at - lanes->memory[lane]);
}

/* Bytes from the beginning of a lane's memory that a job may touch, its guards counted. */
static uint64_t extent(const struct lanes *lanes, int lane, const struct backend_job *job) {
  return (uint64_t)((const uint8_t *)job->y - lanes->memory[lane]) + (uint64_t)job->m * job->y_stride +
         DEVICE_GUARD_BYTES;
}

static void rebase_steps(struct lanes *lanes, int lane, struct backend_job *job) {
  uint64_t kept_at = DEVICE_ARENA_BYTES - lanes->device.kept;
  copy_in(lanes, lanes->memory[lane] + kept_at, lanes->device.base + kept_at, lanes->device.kept);
  for (uint32_t i = 0; i < job->step_count; i++) {
    lanes->steps[lane][i] = job->steps[i];
    lanes->steps[lane][i].bias = rebase(lanes, lane, job->steps[i].bias);
  }
  job->steps = lanes->steps[lane];
}

struct backend_job lanes_stage(struct lanes *lanes, int lane, const struct device_request *request) {
  struct backend_job job = device_stage(&lanes->device, request);
  job.arena = NULL;
  job.x = rebase(lanes, lane, job.x);
  job.y = rebase(lanes, lane, job.y);
  job.bias = rebase(lanes, lane, job.bias);
  job.x_scale = rebase(lanes, lane, job.x_scale);
  copy_in(lanes, lanes->memory[lane], lanes->device.base, extent(lanes, lane, &job));
  if (job.steps != NULL)
    rebase_steps(lanes, lane, &job);
  return job;
}

void lanes_poison(struct lanes *lanes, int lane, const struct backend_job *job) {
  uint64_t bytes = (uint64_t)job->m * job->y_stride;
  uint8_t *y = image_of(lanes, lane, job->y);
  device_poison(y, bytes);
  copy_in(lanes, job->y, y, bytes);
}

void lanes_enqueue(struct lanes *lanes, int lane, const struct backend_job *job) {
  const struct device *device = &lanes->device;
  struct error error = {0};
  if (device->ops->enqueue(device->backend, lane, job, lanes->streams[lane], &error) != STATUS_OK)
    fail_msg("enqueue: %s", error.text);
}

void *lanes_collect(struct lanes *lanes, int lane, const struct device_request *request,
                    const struct backend_job *job) {
  struct backend_job image = *job;
  if (on_gpu(lanes))
    assert_true(gpu_stream_wait(lanes->streams[lane]));
  copy_out(lanes, lanes->device.base, lanes->memory[lane], extent(lanes, lane, job));
  image.y = image_of(lanes, lane, job->y);
  return device_collect(&lanes->device, request, &image);
}

void *lanes_read(struct lanes *lanes, int lane, const void *at, uint64_t bytes) {
  void *out = malloc(bytes);
  assert_non_null(out);
  if (on_gpu(lanes))
    assert_true(gpu_stream_wait(lanes->streams[lane]));
  copy_out(lanes, out, at, bytes);
  return out;
}

void *lanes_run(struct lanes *lanes, int lane, const struct device_request *request) {
  struct backend_job job = lanes_stage(lanes, lane, request);
  lanes_enqueue(lanes, lane, &job);
  return lanes_collect(lanes, lane, request, &job);
}
