#include "warm.h"

#include <cuda_runtime_api.h>
#include <signal.h>
#include <sys/prctl.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Of operands, and of what the library makes of them. */
static const struct {
  enum gemm_format format;
  enum gemm_type d_type;
} pairs[] = {
    {GEMM_FORMAT_F16, GEMM_F16},  {GEMM_FORMAT_F16, GEMM_F32},  {GEMM_FORMAT_BF16, GEMM_BF16},
    {GEMM_FORMAT_BF16, GEMM_F32}, {GEMM_FORMAT_FP8, GEMM_BF16}, {GEMM_FORMAT_FP8, GEMM_F16},
    {GEMM_FORMAT_FP8, GEMM_F32},  {GEMM_FORMAT_INT8, GEMM_S32},
};

/* So many rows of so many sizes lead to nearly all kernels that it chooses. Those asked for first are of the usual
 * ones, so that the tables are there first; columns that are no multiple of 8 have tables of their own. */
static const int64_t rows[] = {1, 16, 256, 2048, 64, 4, 8, 32, 128, 512, 1024, 4096, 16384};
static const struct {
  int64_t n, k;
} sizes[] = {{8192, 8192}, {52, 1 << 20}, {9, 1 << 20}, {1024, 1024}, {16, 1 << 20},
             {256, 65536}, {4096, 16},    {1024, 128},  {16, 1024},   {8192, 1024}};

static struct library_product product_of(const struct library *library, size_t pair, size_t size, int64_t m) {
  void *anywhere = (void *)(uintptr_t)library->anywhere;
  return (struct library_product){
      .format = pairs[pair].format,
      .m = m,
      .n = sizes[size].n,
      .k = sizes[size].k,
      .w = anywhere,
      .x = anywhere,
      .w_scale = anywhere,
      .x_scale = anywhere,
      .scale = pairs[pair].format == GEMM_FORMAT_FP8 ? LIBRARY_SCALE_ROWS : LIBRARY_SCALE_NONE,
      .d_type = pairs[pair].d_type,
      .d = anywhere,
  };
}

/* A product that is captured loads its kernel and never runs. */
static void load(struct library *library, const struct library_product *product, cudaStream_t stream) {
  cublasLtMatmulAlgo_t algorithm;
  struct error ignored;
  cudaGraph_t graph = NULL;
  if (library_find(library, product, &algorithm, &ignored) != STATUS_OK)
    return;
  if (cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) != cudaSuccess)
    return;
  enum status status =
      library_run(library, product, &algorithm, (void *)(uintptr_t)library->anywhere, stream, &ignored);
  if (cudaStreamEndCapture(stream, &graph) == cudaSuccess && status == STATUS_OK)
    (void)cudaGraphDestroy(graph);
}

static void *run(void *argument) {
  struct library_warmer *warmer = argument;
  cudaStream_t stream;
  prctl(PR_SET_NAME, "warmer");
  if (cudaSetDevice(warmer->device) != cudaSuccess ||
      cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess) {
    (void)cudaGetLastError();
    return NULL;
  }
  for (size_t i = 0; i < COUNT(rows) * COUNT(sizes) * COUNT(pairs) && !warmer->stop; i++) {
    size_t pair = i % COUNT(pairs), size = i / COUNT(pairs) % COUNT(sizes), row = i / COUNT(pairs) / COUNT(sizes);
    struct library_product product = product_of(&warmer->library, pair, size, rows[row]);
    load(&warmer->library, &product, stream);
  }
  (void)cudaStreamDestroy(stream);
  (void)cudaGetLastError();
  return NULL;
}

/* Signals are other threads'. */
void library_warm_begin(const char *path, const struct library *like, int device, struct library_warmer *out) {
  sigset_t all, before;
  struct error ignored;
  out->device = device;
  if (library_open(path, like->workspace_bytes, &out->library, &ignored) != STATUS_OK)
    return;
  out->library.anywhere = like->anywhere;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  out->started = pthread_create(&out->thread, NULL, run, out) == 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void library_warm_end(struct library_warmer *warmer) {
  warmer->stop = true;
  if (warmer->started)
    pthread_join(warmer->thread, NULL);
  warmer->started = false;
  library_close(&warmer->library);
}
