#include "eager.h"

#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#define FUNCTIONS(ROW)                                                                                                 \
  ROW(cuInit)                                                                                                          \
  ROW(cuDeviceGet)                                                                                                     \
  ROW(cuDevicePrimaryCtxRetain)                                                                                        \
  ROW(cuCtxSetCurrent)                                                                                                 \
  ROW(cuCtxGetCurrent)                                                                                                 \
  ROW(cuStreamCreate)                                                                                                  \
  ROW(cuStreamSynchronize)                                                                                             \
  ROW(cuStreamGetCtx)                                                                                                  \
  ROW(cuStreamIsCapturing)                                                                                             \
  ROW(cuMemAlloc_v2)                                                                                                   \
  ROW(cuMemcpyHtoD_v2)                                                                                                 \
  ROW(cuModuleLoadData)                                                                                                \
  ROW(cuModuleGetFunction)                                                                                             \
  ROW(cuLaunchKernelEx)

static struct {
#define ROW(name) __typeof__(&name) name;
  FUNCTIONS(ROW)
#undef ROW
} cuda;

static CUstream stream;

static void must(CUresult result, const char *what) {
  if (result != CUDA_SUCCESS)
    eager_give_up(what, "the driver has refused it");
}

/* ---- an empty kernel */

static const char nothing[] = ".version 7.0\n.target sm_80\n.address_size 64\n"
                              ".visible .entry nothing(.param .align 8 .b8 p[256]) { ret; }\n";

static struct {
  CUfunction function;
  CUlaunchAttribute attributes[2];
  CUlaunchConfig config;
  uint64_t parameters[32];
} empty;

static void empty_make(void) {
  CUmodule module;
  must(cuda.cuModuleLoadData(&module, nothing), "cuModuleLoadData");
  must(cuda.cuModuleGetFunction(&empty.function, module, "nothing"), "cuModuleGetFunction");
  empty.attributes[0].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  empty.attributes[0].value.programmaticStreamSerializationAllowed = 1;
  empty.attributes[1].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  empty.attributes[1].value.clusterDim.x = 2;
  empty.attributes[1].value.clusterDim.y = empty.attributes[1].value.clusterDim.z = 1;
  empty.config = (CUlaunchConfig){.gridDimX = 132,
                                  .gridDimY = 1,
                                  .gridDimZ = 1,
                                  .blockDimX = 128,
                                  .blockDimY = 1,
                                  .blockDimZ = 1,
                                  .hStream = stream,
                                  .attrs = empty.attributes,
                                  .numAttrs = 1};
}

void gpu_launch(int i) {
  void *values[] = {empty.parameters};
  empty.parameters[0] = (uint64_t)i;
  must(cuda.cuLaunchKernelEx(&empty.config, empty.function, values, NULL), "cuLaunchKernelEx");
}

/* ---- opening */

void gpu_open(void) {
  CUdevice device;
  CUcontext context;
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == NULL)
    eager_give_up("libcuda.so.1", dlerror());
#define ROW(name)                                                                                                      \
  if ((*(void **)&cuda.name = dlsym(driver, #name)) == NULL)                                                           \
    eager_give_up(#name, "not found");
  FUNCTIONS(ROW)
#undef ROW
  must(cuda.cuInit(0), "cuInit");
  must(cuda.cuDeviceGet(&device, 0), "cuDeviceGet");
  must(cuda.cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  must(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent");
  must(cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  empty_make();
}

void *gpu_stream(void) {
  return stream;
}

void gpu_wait(void) {
  must(cuda.cuStreamSynchronize(stream), "cuStreamSynchronize");
}

void *gpu_take(size_t bytes) {
  CUdeviceptr memory;
  uint16_t *values = malloc(bytes);
  if (values == NULL)
    eager_give_up("a tensor", "no memory");
  for (size_t i = 0; i < bytes / 2; i++)
    values[i] = (uint16_t)((i * 2654435761u >> 9 & 0x807f) | 0x3f00); /* +-0.5..1 */
  must(cuda.cuMemAlloc_v2(&memory, bytes), "cuMemAlloc");
  must(cuda.cuMemcpyHtoD_v2(memory, values, bytes), "cuMemcpyHtoD");
  free(values);
  return (void *)(uintptr_t)memory;
}

/* ---- parts */

static void launch_once(void *attributes, int i) {
  empty.config.numAttrs = *(const unsigned *)attributes;
  gpu_launch(i);
}

static void current_once(void *context, int i) {
  CUcontext now;
  (void)context;
  (void)i;
  must(cuda.cuCtxGetCurrent(&now), "cuCtxGetCurrent");
}

static void capturing_once(void *context, int i) {
  CUstreamCaptureStatus status;
  (void)context;
  (void)i;
  must(cuda.cuStreamIsCapturing(stream, &status), "cuStreamIsCapturing");
}

static void context_once(void *context, int i) {
  CUcontext of;
  (void)context;
  (void)i;
  must(cuda.cuStreamGetCtx(stream, &of), "cuStreamGetCtx");
}

static void print(const char *what, void (*once)(void *, int), void *context) {
  printf("%-28s %8.2f\n", what, eager_time(&(struct call){once, context}));
}

void gpu_print(void) {
  print("launch", launch_once, &(unsigned){0});
  print("launch, dependent, cluster", launch_once, &(unsigned){2});
  print("launch, dependent", launch_once, &(unsigned){1});
  print("cuCtxGetCurrent", current_once, NULL);
  print("cuStreamIsCapturing", capturing_once, NULL);
  print("cuStreamGetCtx", context_once, NULL);
}
