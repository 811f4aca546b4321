#include "function.h"

#include "launch_kernel.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdatomic.h>

static _Thread_local int device_now;

void launch_on(int device) {
  device_now = device;
}

/* What a kernel may take of shared memory on a device, where that is more than any may, is said once, and again when it
 * needs more than ever: the call costs as much as a launch's tenth, and what a kernel that is held back needs must stay
 * allowed. */
struct known {
  _Atomic uintptr_t key; /* 0: free */
  _Atomic uint32_t bytes;
  _Atomic(CUfunction) function; /* NULL: not asked for yet */
};

/* The kernel's, or a free one that becomes its; NULL: there is none. */
static struct known *known_find(const void *kernel) {
  enum { KERNELS = 1024, DEVICE_SHIFT = 56 };
  static struct known table[KERNELS];
  uintptr_t key = (uintptr_t)kernel ^ (uintptr_t)device_now << DEVICE_SHIFT;
  for (uintptr_t i = 0, first = key / 16; i < KERNELS; i++) {
    struct known *at = &table[(first + i) % KERNELS];
    uintptr_t found = atomic_load_explicit(&at->key, memory_order_acquire);
    if (found == 0 && atomic_compare_exchange_strong(&at->key, &found, key))
      return at;
    if (found == key)
      return at;
  }
  return NULL;
}

static cudaError_t allow(struct known *known, const void *kernel, uint32_t bytes) {
  static pthread_mutex_t raising = PTHREAD_MUTEX_INITIALIZER;
  enum { ANY = 32 << 10 };
  if (bytes <= ANY || (known && atomic_load_explicit(&known->bytes, memory_order_acquire) >= bytes))
    return cudaSuccess;
  pthread_mutex_lock(&raising); /* so that a smaller number does not come last */
  cudaError_t result = cudaSuccess;
  if (!known || atomic_load_explicit(&known->bytes, memory_order_relaxed) < bytes)
    result = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
  if (result == cudaSuccess && known && atomic_load_explicit(&known->bytes, memory_order_relaxed) < bytes)
    atomic_store_explicit(&known->bytes, bytes, memory_order_release);
  pthread_mutex_unlock(&raising);
  return result;
}

int function_allow(const void *kernel, uint32_t shared_bytes) {
  return (int)allow(known_find(kernel), kernel, shared_bytes);
}

int function_find(const void *kernel, uint32_t shared_bytes, CUfunction *out) {
  struct known *known = known_find(kernel);
  cudaError_t result = allow(known, kernel, shared_bytes);
  *out = known ? atomic_load_explicit(&known->function, memory_order_acquire) : NULL;
  if (result != cudaSuccess || *out)
    return (int)result;
  result = cudaGetFuncBySymbol(out, kernel);
  if (result == cudaSuccess && known)
    atomic_store_explicit(&known->function, *out, memory_order_release);
  return (int)result;
}
