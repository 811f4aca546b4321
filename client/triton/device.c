/* Tensors that lie in a GPU's memory, which clients share by Triton's CUDA shared memory: copied to the arena and back
 * by the NVIDIA driver, which is opened when the first one comes. */
#include "gemmd_triton.h"

#include <dlfcn.h>
#include <pthread.h>

enum { DEVICES = 64, STREAM_NON_BLOCKING = 1 };

/* Of the driver's interface, with its own layouts. */
typedef int driver_result; /* 0: success */
typedef void *driver_context, *driver_stream;

static struct {
  const char *missing; /* why none of these can be called; NULL: they can */
  driver_result (*cuInit)(unsigned);
  driver_result (*cuDeviceGet)(int *, int);
  driver_result (*cuDevicePrimaryCtxRetain)(driver_context *, int);
  driver_result (*cuCtxPushCurrent_v2)(driver_context);
  driver_result (*cuCtxPopCurrent_v2)(driver_context *);
  driver_result (*cuStreamCreate)(driver_stream *, unsigned);
  driver_result (*cuMemcpyAsync)(uintptr_t to, uintptr_t from, size_t, driver_stream);
  driver_result (*cuStreamSynchronize)(driver_stream);
} driver;

/* The primary context, which the server and its other backends use, too, and a stream of this backend's own, so that
 * nothing waits for their work. Both last as long as the process. */
struct gpu {
  driver_context context;
  driver_stream stream;
};
static struct gpu gpus[DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t opened = PTHREAD_ONCE_INIT;

static void open_driver(void) {
  static const char *const names[] = {
      "cuInit",         "cuDeviceGet",   "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2",
      "cuStreamCreate", "cuMemcpyAsync", "cuStreamSynchronize"};
  void **const places[] = {(void **)&driver.cuInit,
                           (void **)&driver.cuDeviceGet,
                           (void **)&driver.cuDevicePrimaryCtxRetain,
                           (void **)&driver.cuCtxPushCurrent_v2,
                           (void **)&driver.cuCtxPopCurrent_v2,
                           (void **)&driver.cuStreamCreate,
                           (void **)&driver.cuMemcpyAsync,
                           (void **)&driver.cuStreamSynchronize};
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  driver.missing = library == NULL ? "libcuda.so.1" : NULL;
  for (size_t i = 0; i < sizeof names / sizeof *names && driver.missing == NULL; i++)
    if ((*places[i] = dlsym(library, names[i])) == NULL)
      driver.missing = names[i];
  if (driver.missing == NULL && driver.cuInit(0) != 0)
    driver.missing = "a GPU";
}

static driver_result gpu_open(struct gpu *gpu, int ordinal) {
  driver_context before;
  int device;
  driver_result result = gpu->context != NULL ? 0 : driver.cuDeviceGet(&device, ordinal);
  if (result == 0 && gpu->context == NULL)
    result = driver.cuDevicePrimaryCtxRetain(&gpu->context, device);
  if (result == 0 && gpu->stream == NULL) {
    result = driver.cuCtxPushCurrent_v2(gpu->context);
    if (result == 0) {
      result = driver.cuStreamCreate(&gpu->stream, STREAM_NON_BLOCKING);
      (void)driver.cuCtxPopCurrent_v2(&before);
    }
  }
  return result;
}

failure device_copy(void *to, const void *from, uint64_t bytes, int64_t ordinal) {
  driver_context before;
  (void)pthread_once(&opened, open_driver);
  if (driver.missing != NULL)
    return error_make(TRITONSERVER_ERROR_UNSUPPORTED, "a tensor lies in GPU memory, and there is no %s",
                      driver.missing);
  if (ordinal < 0 || ordinal >= DEVICES)
    return error_make(TRITONSERVER_ERROR_INVALID_ARG, "a tensor lies in the memory of GPU %lld", (long long)ordinal);
  struct gpu *gpu = &gpus[ordinal];
  pthread_mutex_lock(&lock);
  driver_result result = gpu_open(gpu, (int)ordinal);
  pthread_mutex_unlock(&lock);
  if (result == 0)
    result = driver.cuCtxPushCurrent_v2(gpu->context);
  if (result == 0) {
    result = driver.cuMemcpyAsync((uintptr_t)to, (uintptr_t)from, bytes, gpu->stream);
    if (result == 0)
      result = driver.cuStreamSynchronize(gpu->stream);
    (void)driver.cuCtxPopCurrent_v2(&before);
  }
  return result == 0 ? NULL
                     : error_make(TRITONSERVER_ERROR_INTERNAL, "copying a tensor of GPU %lld: error %d of the driver",
                                  (long long)ordinal, result);
}
