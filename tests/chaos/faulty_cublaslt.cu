// cuBLASLt with kernels that fail: the library that a test's gemmd is told to open. All of it is the real one (it is
// linked with it, and dlsym finds the rest there), but when the file that $GEMMD_FAULTY names is there, the next
// product takes it, and starts a kernel of its own first that does what is written in it: "nowhere" writes to an
// address that nothing is mapped at, "weight" writes into W, "forever" does not end.
#include "faulty.h"

#include <cublasLt.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <stdint.h>

__global__ void write_word(volatile uint32_t *to) {
  *to = 0x12345678;
}

__global__ void run_forever(volatile uint32_t *word) {
  while (*word != 0xfeedface)
    ;
}

static void fail(const char *how, const void *weight, cudaStream_t stream) {
  void *word = const_cast<void *>(weight);
  if (strcmp(how, "nowhere") == 0)
    write_word<<<1, 1, 0, stream>>>(reinterpret_cast<uint32_t *>(0x7000));
  else if (strcmp(how, "weight") == 0)
    write_word<<<1, 1, 0, stream>>>(static_cast<uint32_t *>(word));
  else
    run_forever<<<1, 1, 0, stream>>>(static_cast<uint32_t *>(word));
  fprintf(stderr, "faulty cuBLASLt: a kernel that fails (%s): %s\n", how, cudaGetErrorString(cudaGetLastError()));
}

extern "C" __attribute__((visibility("default"))) cublasStatus_t
cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,
               cublasLtMatrixLayout_t a_desc, const void *b, cublasLtMatrixLayout_t b_desc, const void *beta,
               const void *c, cublasLtMatrixLayout_t c_desc, void *d, cublasLtMatrixLayout_t d_desc,
               const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_bytes, cudaStream_t stream) {
  static decltype(&cublasLtMatmul) real =
      reinterpret_cast<decltype(&cublasLtMatmul)>(dlsym(dlopen("libcublasLt.so.13", RTLD_LAZY), "cublasLtMatmul"));
  char how[FAULTY_WORD];
  cudaStreamCaptureStatus captured = cudaStreamCaptureStatusNone; /* it is loaded, and never runs */
  (void)cudaStreamIsCapturing(stream, &captured);
  if (captured == cudaStreamCaptureStatusNone && faulty_take(nullptr, how))
    fail(how, a, stream);
  return real(handle, desc, alpha, a, a_desc, b, b_desc, beta, c, c_desc, d, d_desc, algo, workspace, workspace_bytes,
              stream);
}
