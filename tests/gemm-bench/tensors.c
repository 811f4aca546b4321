#include "tensors.h"

#include <dlfcn.h>
#include <string.h>

enum { ALIGN = 512 };

typedef unsigned long long pointer;

static struct {
  int (*cuInit)(unsigned);
  int (*cuDevicePrimaryCtxRetain)(void **, int);
  int (*cuCtxSetCurrent)(void *);
  int (*cuMemcpyHtoD_v2)(pointer, const void *, size_t);
  int (*cuMemcpyDtoH_v2)(void *, pointer, size_t);
  int (*cuCtxSynchronize)(void);
} driver;

static bool find(void *library, const char *name, void *slot) {
  void *function = dlsym(library, name);
  memcpy(slot, &function, sizeof function); /* a function's address is no object's to the language */
  return function != NULL;
}

static bool open_driver(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *context = NULL;
#define FIND(function) find(library, #function, &driver.function)
  return library != NULL && FIND(cuInit) && FIND(cuDevicePrimaryCtxRetain) && FIND(cuCtxSetCurrent) &&
         FIND(cuMemcpyHtoD_v2) && FIND(cuMemcpyDtoH_v2) && FIND(cuCtxSynchronize) && driver.cuInit(0) == 0 &&
         driver.cuDevicePrimaryCtxRetain(&context, 0) == 0 && driver.cuCtxSetCurrent(context) == 0;
#undef FIND
}

size_t tensors_bytes(size_t bytes) {
  return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

enum tool_exit tensors_open(const struct tool_call *call, gemmd_session *session, size_t bytes, struct tensors *out) {
  *out = (struct tensors){.session = session};
  if (bytes == 0)
    return TOOL_OK;
  if (!open_driver())
    return tool_cannot(call, GEMMD_UNSUPPORTED, "no tensors on a GPU: the CUDA driver does not start here");
  if (gemmd_cuda_alloc(session, 0, 0, bytes, &out->memory) != GEMMD_OK)
    return tool_cannot(call, GEMMD_UNSUPPORTED, "no tensors on a GPU: %s", gemmd_cuda_error());
  return TOOL_OK;
}

void tensors_close(struct tensors *tensors) {
  (void)gemmd_cuda_free(tensors->memory);
  tensors->memory = NULL;
}

void *tensors_take(struct tensors *tensors, size_t bytes) {
  if (tensors->memory == NULL)
    return gemmd_alloc(tensors->session, bytes);
  uint8_t *tensor = (uint8_t *)gemmd_cuda_address(tensors->memory) + tensors->used;
  tensors->used += tensors_bytes(bytes);
  return tensor;
}

/* What comes from memory that is not pinned may still be under way when the copy returns. */
bool tensors_write(const struct tensors *tensors, void *tensor, const void *from, size_t bytes) {
  if (tensors->memory != NULL)
    return driver.cuMemcpyHtoD_v2((uintptr_t)tensor, from, bytes) == 0 && driver.cuCtxSynchronize() == 0;
  memcpy(tensor, from, bytes);
  return true;
}

bool tensors_read(const struct tensors *tensors, void *to, const void *tensor, size_t bytes) {
  if (tensors->memory != NULL)
    return driver.cuMemcpyDtoH_v2(to, (uintptr_t)tensor, bytes) == 0;
  memcpy(to, tensor, bytes);
  return true;
}
