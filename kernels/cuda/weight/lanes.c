#include "lanes.h"

#include "../runtime/driver.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <sys/resource.h>

enum { NICE = 10 };

static void lane_close(struct lane *lane) {
  uint8_t *const pinned[] = {lane->pinned_in, lane->pinned_out, lane->pinned_scales};
  uint8_t *const device[] = {lane->in, lane->out, lane->scales};
  if (lane->stream) {
    (void)cudaStreamSynchronize(lane->stream);
    (void)cudaStreamDestroy(lane->stream);
  }
  if (lane->done)
    (void)cudaEventDestroy(lane->done);
  for (int i = 0; i < 3; i++) {
    if (pinned[i])
      (void)cudaFreeHost(pinned[i]);
    if (device[i])
      (void)cudaFree(device[i]);
  }
  *lane = (struct lane){0};
}

static cudaError_t lane_open(struct lane *lane) {
  int least = 0, greatest = 0;
  cudaError_t result = cudaDeviceGetStreamPriorityRange(&least, &greatest);
  if (result == cudaSuccess)
    result = cudaStreamCreateWithPriority(&lane->stream, cudaStreamNonBlocking, least);
  if (result == cudaSuccess)
    result = cudaEventCreateWithFlags(&lane->done, cudaEventDisableTiming | cudaEventBlockingSync);
  uint8_t **const pinned[] = {&lane->pinned_in, &lane->pinned_out, &lane->pinned_scales};
  uint8_t **const device[] = {&lane->in, &lane->out, &lane->scales};
  const size_t bytes[] = {LANE_IN, LANE_OUT, LANE_SCALES};
  for (int i = 0; i < 3 && result == cudaSuccess; i++) {
    result = cudaHostAlloc((void **)pinned[i], bytes[i], cudaHostAllocDefault);
    if (result == cudaSuccess)
      result = cudaMalloc((void **)device[i], bytes[i]);
  }
  return result;
}

/* As many as there is memory for. */
static enum status lanes_open(struct lanes *lanes, struct error *error) {
  cudaError_t result = cudaSuccess;
  while (lanes->count < LANES_MOST && result == cudaSuccess) {
    result = lane_open(&lanes->lane[lanes->count]);
    if (result == cudaSuccess) {
      lanes->count++;
      continue;
    }
    lane_close(&lanes->lane[lanes->count]);
    if (lanes->count > 0 && result == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();
      return STATUS_OK;
    }
  }
  return runtime_check(result, "taking memory for loading weights", error);
}

uint64_t lanes_bytes(const struct lanes *lanes) {
  return (uint64_t)lanes->count * (LANE_IN + LANE_OUT + LANE_SCALES);
}

void lanes_close(struct lanes *lanes) {
  while (lanes->count > 0)
    lane_close(&lanes->lane[--lanes->count]);
}

cudaError_t lane_finish(struct lane *lane, cudaError_t queued) {
  cudaError_t result = cudaEventRecord(lane->done, lane->stream);
  if (result == cudaSuccess)
    result = cudaEventSynchronize(lane->done);
  return queued != cudaSuccess ? queued : result;
}

/* ---- the threads */

struct run {
  int device;
  const struct lanes_job *job;
  pthread_mutex_t mutex; /* guards what follows */
  uint64_t next;
  uint64_t failed; /* slice; UINT64_MAX: none */
  struct error error;
};

struct runner {
  struct run *run;
  struct lane *lane;
  pthread_t thread;
};

/* In order, and none after a failure: those under way are finished, so that the first bad slice is always found. */
static bool take_slice(struct run *run, uint64_t *slice) {
  pthread_mutex_lock(&run->mutex);
  bool more = run->failed == UINT64_MAX && run->next < run->job->slices;
  if (more)
    *slice = run->next++;
  pthread_mutex_unlock(&run->mutex);
  return more;
}

static void note_failure(struct run *run, uint64_t slice, const struct error *error) {
  pthread_mutex_lock(&run->mutex);
  if (slice < run->failed) {
    run->failed = slice;
    run->error = *error;
  }
  pthread_mutex_unlock(&run->mutex);
}

static enum status enter(int device, struct error *error) {
  return runtime_check(cudaSetDevice(device), "using the GPU", error);
}

static void *runner_main(void *argument) {
  const struct runner *runner = argument;
  struct run *run = runner->run;
  struct error error;
  uint64_t slice;
  (void)setpriority(PRIO_PROCESS, 0, NICE); /* of this thread alone; as it was is fine, too */
  if (enter(run->device, &error) != STATUS_OK) {
    note_failure(run, 0, &error);
    return NULL;
  }
  while (take_slice(run, &slice))
    if (run->job->work(run->job->context, runner->lane, slice, &error) != STATUS_OK)
      note_failure(run, slice, &error);
  return NULL;
}

enum status lanes_run(struct lanes *lanes, const struct lanes_job *job, struct error *error) {
  struct run run = {.device = lanes->device, .job = job, .failed = UINT64_MAX};
  struct runner runners[LANES_MOST];
  int started = 0;
  enum status status = enter(lanes->device, error);
  if (status == STATUS_OK && lanes->count < LANES_MOST)
    status = lanes_open(lanes, error);
  if (status != STATUS_OK)
    return status;
  pthread_mutex_init(&run.mutex, NULL);
  for (; started < lanes->count && (uint64_t)started < job->slices; started++) {
    runners[started] = (struct runner){.run = &run, .lane = &lanes->lane[started]};
    if (pthread_create(&runners[started].thread, NULL, runner_main, &runners[started]) != 0)
      break;
  }
  for (int i = 0; i < started; i++)
    pthread_join(runners[i].thread, NULL);
  pthread_mutex_destroy(&run.mutex);
  if (started == 0 && job->slices > 0)
    return error_set(error, STATUS_SYSTEM, "no thread could be started for the load");
  if (run.failed == UINT64_MAX)
    return STATUS_OK;
  *error = run.error;
  return run.error.status;
}
