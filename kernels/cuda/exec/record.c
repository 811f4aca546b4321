#include "record.h"

#include "function.h"

#include <string.h>

static _Thread_local struct record *now;

void record_begin(struct record *record, const struct driver *driver) {
  record->driver = driver;
  record->count = 0;
  record->used = 0;
  record->spoiled = false;
  now = record;
}

void record_end(void) {
  now = NULL;
}

bool record_now(void) {
  return now != NULL;
}

void record_spoil(void) {
  if (now)
    now->spoiled = true;
}

static void configure(struct recorded *to, const struct launch *launch) {
  const uint32_t *grid = launch->grid, *block = launch->block, *cluster = launch->cluster;
  unsigned count = 0;
  memset(to->attributes, 0, sizeof to->attributes);
  if (cluster[0] > 0) {
    CUlaunchAttribute *attribute = &to->attributes[count++];
    attribute->id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attribute->value.clusterDim.x = cluster[0];
    attribute->value.clusterDim.y = cluster[1];
    attribute->value.clusterDim.z = cluster[2];
  }
  if (launch->dependent) {
    CUlaunchAttribute *attribute = &to->attributes[count++];
    attribute->id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute->value.programmaticStreamSerializationAllowed = 1;
  }
  if (launch->cooperative) {
    CUlaunchAttribute *attribute = &to->attributes[count++];
    attribute->id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    attribute->value.cooperative = 1;
  }
  to->config = (CUlaunchConfig){.gridDimX = grid[0],
                                .gridDimY = grid[1],
                                .gridDimZ = grid[2],
                                .blockDimX = block[0],
                                .blockDimY = block[1],
                                .blockDimZ = block[2],
                                .sharedMemBytes = launch->shared_bytes,
                                .attrs = to->attributes,
                                .numAttrs = count};
}

/* False where there is no room. */
static bool keep(struct record *record, const struct recorded *made, const struct launch *launch, void **values) {
  uint32_t used = record->used;
  if (record->count == RECORD_LAUNCHES)
    return false;
  struct recorded *to = &record->launches[record->count];
  *to = *made;
  to->config.attrs = to->attributes;
  to->value_count = launch->parameter_count;
  for (uint32_t i = 0; i < launch->parameter_count; i++) {
    uint32_t bytes = launch->parameter_bytes[i], room = (bytes + LAUNCH_ALIGN - 1) / LAUNCH_ALIGN * LAUNCH_ALIGN;
    if (room > RECORD_BYTES - used)
      return false;
    uint8_t *copy = record->bytes + used;
    memcpy(copy, values[i], bytes);
    memset(copy + bytes, 0, room - bytes);
    to->values[i] = copy;
    used += room;
  }
  record->used = used;
  record->count++;
  return true;
}

int record_launch(void *stream, const struct launch *launch, void **values) {
  struct recorded made;
  int result = function_find(launch->function, launch->shared_bytes, &made.function);
  if (result != 0)
    return result;
  configure(&made, launch);
  made.config.hStream = stream;
  result = (int)now->driver->cuLaunchKernelEx(&made.config, made.function, values, NULL);
  if (!keep(now, &made, launch, values))
    now->spoiled = true;
  return result;
}

void record_copy(struct record *to, const struct record *from) {
  *to = *from;
  for (int i = 0; i < to->count; i++) {
    struct recorded *launch = &to->launches[i];
    launch->config.attrs = launch->attributes;
    for (unsigned j = 0; j < launch->value_count; j++)
      launch->values[j] = to->bytes + ((const uint8_t *)from->launches[i].values[j] - from->bytes);
  }
}

static bool same_size(const CUlaunchConfig *a, const CUlaunchConfig *b) {
  return a->gridDimX == b->gridDimX && a->gridDimY == b->gridDimY && a->gridDimZ == b->gridDimZ &&
         a->blockDimX == b->blockDimX && a->blockDimY == b->blockDimY && a->blockDimZ == b->blockDimZ &&
         a->sharedMemBytes == b->sharedMemBytes && a->numAttrs == b->numAttrs;
}

bool record_equal(const struct record *a, const struct record *b) {
  if (a->count != b->count || a->used != b->used || memcmp(a->bytes, b->bytes, a->used) != 0)
    return false;
  for (int i = 0; i < a->count; i++)
    if (a->launches[i].function != b->launches[i].function ||
        !same_size(&a->launches[i].config, &b->launches[i].config) ||
        memcmp(a->launches[i].attributes, b->launches[i].attributes, sizeof a->launches[i].attributes) != 0)
      return false;
  return true;
}

CUresult record_run(struct record *record, CUstream stream) {
  CUresult result = CUDA_SUCCESS;
  for (int i = 0; i < record->count && result == CUDA_SUCCESS; i++) {
    struct recorded *launch = &record->launches[i];
    launch->config.hStream = stream;
    result = record->driver->cuLaunchKernelEx(&launch->config, launch->function, launch->values, NULL);
  }
  return result;
}
