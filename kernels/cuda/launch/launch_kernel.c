#include "launch_kernel.h"

#include "function.h"
#include "launches.h"
#include "record.h"

#include <cuda_runtime_api.h>

int launch_now(void *stream, const struct launch *launch, void **values) {
  const uint32_t *cluster = launch->cluster;
  cudaLaunchAttribute attributes[3] = {0};
  cudaLaunchConfig_t config = {
      .gridDim = {launch->grid[0], launch->grid[1], launch->grid[2]},
      .blockDim = {launch->block[0], launch->block[1], launch->block[2]},
      .dynamicSmemBytes = launch->shared_bytes,
      .stream = stream,
      .attrs = attributes,
  };
  if (cluster[0] > 0) {
    cudaLaunchAttribute *attribute = &attributes[config.numAttrs++];
    attribute->id = cudaLaunchAttributeClusterDimension;
    attribute->val.clusterDim.x = cluster[0];
    attribute->val.clusterDim.y = cluster[1];
    attribute->val.clusterDim.z = cluster[2];
  }
  if (launch->dependent) {
    cudaLaunchAttribute *attribute = &attributes[config.numAttrs++];
    attribute->id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute->val.programmaticStreamSerializationAllowed = 1;
  }
  if (launch->cooperative) {
    cudaLaunchAttribute *attribute = &attributes[config.numAttrs++];
    attribute->id = cudaLaunchAttributeCooperative;
    attribute->val.cooperative = 1;
  }
  return (int)cudaLaunchKernelExC(&config, launch->function, values);
}

/* What this thread holds: launchers know a stream, not the slot that has it. */
static _Thread_local struct launches *holding;

void launch_hold_in(struct launches *launches) {
  holding = launches;
}

int launch_kernel(void *stream, const struct launch *launch, void **values) {
  if (record_now())
    return record_launch(stream, launch, values);
  int allowed = function_allow(launch->function, launch->shared_bytes);
  if (allowed != 0)
    return allowed;
  if (!holding || holding->stream != stream)
    return launch_now(stream, launch, values);
  launches_add(holding, launch, values);
  return 0;
}

void launch_flush(void *stream) {
  record_spoil();
  if (holding && holding->stream == stream)
    launches_start(holding);
}
