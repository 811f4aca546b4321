#include "gpu.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { COPY_MOST = 65536 };

typedef unsigned long long pointer;

static struct {
  int (*cuInit)(unsigned);
  int (*cuDevicePrimaryCtxRetain)(void **, int);
  int (*cuCtxSetCurrent)(void *);
  int (*cuCtxGetCurrent)(void **);
  int (*cuStreamCreate)(void **, unsigned);
  int (*cuMemAlloc_v2)(pointer *, size_t);
  int (*cuMemFree_v2)(pointer);
  int (*cuMemAllocHost_v2)(void **, size_t);
  int (*cuMemcpyHtoD_v2)(pointer, const void *, size_t);
  int (*cuMemcpyDtoH_v2)(void *, pointer, size_t);
  int (*cuMemcpyHtoDAsync_v2)(pointer, const void *, size_t, void *);
  int (*cuLaunchHostFunc)(void *, void (*)(void *), void *);
  int (*cuStreamSynchronize)(void *);
  int (*cuStreamBeginCapture_v2)(void *, int);
  int (*cuStreamEndCapture)(void *, void **);
  int (*cuGraphInstantiateWithFlags)(void **, void *, unsigned long long);
  int (*cuGraphDestroy)(void *);
  int (*cuGraphLaunch)(void *, void *);
  int (*cuGraphExecDestroy)(void *);
} driver;

static void *stream, *pinned;
static atomic_bool holds;

static bool good(int result, const char *doing) {
  if (result != 0)
    fprintf(stderr, "%s: CUDA error %d\n", doing, result);
  return result == 0;
}

static bool find(void *library, const char *name, void *slot) {
  void *function = dlsym(library, name);
  memcpy(slot, &function, sizeof function);
  return function != NULL;
}

bool gpu_open(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW), *context = NULL;
  if (library == NULL)
    return false;
#define FIND(function) find(library, #function, &driver.function)
  bool all = FIND(cuInit) && FIND(cuDevicePrimaryCtxRetain) && FIND(cuCtxSetCurrent) && FIND(cuStreamCreate) &&
             FIND(cuMemAlloc_v2) && FIND(cuMemFree_v2) && FIND(cuMemAllocHost_v2) && FIND(cuMemcpyHtoD_v2) &&
             FIND(cuMemcpyDtoH_v2) && FIND(cuMemcpyHtoDAsync_v2) && FIND(cuLaunchHostFunc) && FIND(cuCtxGetCurrent) &&
             FIND(cuStreamSynchronize) && FIND(cuStreamBeginCapture_v2) && FIND(cuStreamEndCapture) &&
             FIND(cuGraphInstantiateWithFlags) && FIND(cuGraphDestroy) && FIND(cuGraphLaunch) &&
             FIND(cuGraphExecDestroy);
#undef FIND
  return all && good(driver.cuInit(0), "cuInit") &&
         good(driver.cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain") &&
         good(driver.cuCtxSetCurrent(context), "cuCtxSetCurrent") &&
         good(driver.cuStreamCreate(&stream, 1), "cuStreamCreate") &&
         good(driver.cuMemAllocHost_v2(&pinned, COPY_MOST), "cuMemAllocHost");
}

void *gpu_stream(void) {
  return stream;
}

void *gpu_stream_make(void) {
  void *made = NULL;
  return good(driver.cuStreamCreate(&made, 1), "cuStreamCreate") ? made : NULL;
}

bool gpu_stream_wait(void *of) {
  return good(driver.cuStreamSynchronize(of), "cuStreamSynchronize");
}

bool gpu_capture_begin(void *of) {
  return good(driver.cuStreamBeginCapture_v2(of, 0), "cuStreamBeginCapture");
}

void *gpu_capture_end(void *of) {
  void *graph = NULL, *made = NULL;
  if (!good(driver.cuStreamEndCapture(of, &graph), "cuStreamEndCapture"))
    return NULL;
  bool done = good(driver.cuGraphInstantiateWithFlags(&made, graph, 0), "cuGraphInstantiate");
  (void)driver.cuGraphDestroy(graph);
  return done ? made : NULL;
}

bool gpu_graph_launch(void *graph, void *of) {
  return good(driver.cuGraphLaunch(graph, of), "cuGraphLaunch");
}

void gpu_graph_drop(void *graph) {
  (void)good(driver.cuGraphExecDestroy(graph), "cuGraphExecDestroy");
}

void *gpu_current(void) {
  void *context = NULL;
  return good(driver.cuCtxGetCurrent(&context), "cuCtxGetCurrent") ? context : NULL;
}

bool gpu_make_current(void *context) {
  return good(driver.cuCtxSetCurrent(context), "cuCtxSetCurrent");
}

void *gpu_alloc(size_t bytes) {
  pointer memory = 0;
  return good(driver.cuMemAlloc_v2(&memory, bytes), "cuMemAlloc") ? (void *)(uintptr_t)memory : NULL;
}

void gpu_free(void *memory) {
  (void)good(driver.cuMemFree_v2((uintptr_t)memory), "cuMemFree");
}

/* What comes from memory that is not pinned may still be under way when the copy returns. The context as a whole cannot
 * be waited for while another thread captures, as the one that warms cuBLASLt up does. */
bool gpu_copy_in(void *device, const void *host, size_t bytes) {
  return good(driver.cuMemcpyHtoD_v2((uintptr_t)device, host, bytes), "cuMemcpyHtoD") &&
         good(driver.cuStreamSynchronize(NULL), "cuStreamSynchronize");
}

bool gpu_copy_out(void *host, const void *device, size_t bytes) {
  return good(driver.cuMemcpyDtoH_v2(host, (uintptr_t)device, bytes), "cuMemcpyDtoH");
}

static void wait_for_go(void *unused) {
  while (atomic_load(&holds))
    sched_yield();
}

bool gpu_hold_and_copy(void *device, const void *host, size_t bytes) {
  if (bytes > COPY_MOST)
    return false;
  memcpy(pinned, host, bytes);
  atomic_store(&holds, true);
  return good(driver.cuLaunchHostFunc(stream, wait_for_go, NULL), "cuLaunchHostFunc") &&
         good(driver.cuMemcpyHtoDAsync_v2((uintptr_t)device, pinned, bytes, stream), "cuMemcpyHtoDAsync");
}

void gpu_go_on(void) {
  atomic_store(&holds, false);
}
