#include "inprocess.h"

#ifdef GEMMD_CUDA

#include "kernels/cuda/families/sm90/hopper/launch.h"
#include "kernels/cuda/passes/quantize.h"
#include "kernels/cuda/runtime/driver.h"
#include "kernels/cuda/weight/layout.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

enum { LAUNCHES = 64, REPLAYS = 8 };

struct inprocess_obvious {
  struct inprocess_request request;
  struct layout layout;
  cudaStream_t stream;
  void *x_host, *y_host; /* pinned */
  uint8_t *w, *x, *codes, *y;
  float *scales;
  uint64_t x_bytes, y_bytes;
  struct hopper_product product;
  struct hopper_config config;
  struct kernel_problem problem;
};

static cudaError_t take_memory(struct inprocess_obvious *own) {
  uint64_t m = (uint64_t)own->request.m;
  cudaError_t result = cudaStreamCreateWithFlags(&own->stream, cudaStreamNonBlocking);
  result = result ? result : cudaHostAlloc(&own->x_host, own->x_bytes, cudaHostAllocDefault);
  result = result ? result : cudaHostAlloc(&own->y_host, own->y_bytes, cudaHostAllocDefault);
  result = result ? result : cudaMalloc((void **)&own->w, own->layout.total_bytes);
  result = result ? result : cudaMalloc((void **)&own->x, own->x_bytes);
  result = result ? result : cudaMalloc((void **)&own->codes, m * own->layout.row_bytes);
  result = result ? result : cudaMalloc((void **)&own->scales, m * sizeof(float));
  return result ? result : cudaMalloc((void **)&own->y, own->y_bytes);
}

static enum status fill_weight(struct inprocess_obvious *own, struct error *error) {
  void *stored = malloc(own->layout.total_bytes);
  if (stored == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for the weight");
  layout_fill(&own->request.steps[0].shape, &own->layout, own->request.steps[0].canonical, 0, stored,
              own->layout.total_bytes);
  cudaError_t result = cudaMemcpy(own->w, stored, own->layout.total_bytes, cudaMemcpyHostToDevice);
  free(stored);
  return runtime_check(result, "copying the weight", error);
}

static void configure(struct inprocess_obvious *own, int multiprocessors) {
  const struct inprocess_request *request = &own->request;
  own->product = (struct hopper_product){
      .format = request->steps[0].shape.format,
      .scale = request->steps[0].shape.scale,
      .m = request->m,
      .n = request->steps[0].shape.n,
      .k = own->layout.k,
      .w = own->w,
      .x = own->codes,
      .w_stride = (int64_t)own->layout.row_bytes,
      .x_stride = (int64_t)own->layout.row_bytes,
      .w_scale = (const float *)(const void *)(own->w + own->layout.scales_offset),
      .x_scale = own->scales,
      .w_scale_stride = (int64_t)own->layout.scale_row_bytes / 4,
      .x_scale_stride = request->m,
      .y = own->y,
      .y_type = request->y_type,
      .y_stride = (uint64_t)request->steps[0].shape.n * gemm_type_bytes(request->y_type),
  };
  own->problem = (struct kernel_problem){.device = {.capability = 90, .multiprocessors = multiprocessors},
                                         .format = own->product.format,
                                         .scale = own->product.scale,
                                         .m = request->m,
                                         .n = own->product.n,
                                         .k_padded = own->layout.k,
                                         .y_type = request->y_type};
  own->config = hopper_configure(&own->problem);
}

/* `dependent`: behind a kernel of ours, whose end it need not wait for to begin. */
static cudaError_t multiply(const struct inprocess_obvious *own, bool dependent) {
  const struct hopper_start start = hopper_start_of(&own->config, &own->problem, dependent);
  return hopper_launch(own->stream, &own->config, &own->product, &start);
}

static bool supported(const struct inprocess_request *request, int major) {
  bool codes = request->steps[0].shape.format == GEMM_FORMAT_INT8 || request->steps[0].shape.format == GEMM_FORMAT_FP8;
  bool real = request->x_type == GEMM_F32 || request->x_type == GEMM_F16 || request->x_type == GEMM_BF16;
  return major == 9 && codes && real && request->steps[0].shape.scale != GEMM_SCALE_BLOCK &&
         request->m <= HOPPER_COLUMNS_MOST;
}

enum status obvious_open(const struct inprocess_request *request, struct inprocess_obvious **out, struct error *error) {
  int major = 0, multiprocessors = 0;
  cudaError_t result = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
  result = result ? result : cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0);
  enum status status = runtime_check(result, "looking at the GPU", error);
  if (status != STATUS_OK)
    return status;
  if (!supported(request, major))
    return error_set(error, STATUS_UNSUPPORTED, "compared are INT8 and FP8 with row scales, on Hopper");
  struct inprocess_obvious *own = calloc(1, sizeof *own);
  if (own == NULL)
    return error_set(error, STATUS_NOMEM, "no memory");
  own->request = *request;
  own->x_bytes = (uint64_t)(request->m * request->steps[0].shape.k) * gemm_type_bytes(request->x_type);
  own->y_bytes = (uint64_t)(request->m * request->steps[0].shape.n) * gemm_type_bytes(request->y_type);
  status = layout_compute(&request->steps[0].shape, LAYOUT_ROWS, &own->layout, error);
  if (status == STATUS_OK)
    status = runtime_check(take_memory(own), "taking memory", error);
  if (status == STATUS_OK)
    status = fill_weight(own, error);
  if (status != STATUS_OK) {
    obvious_close(own);
    return status;
  }
  memcpy(own->x_host, request->x, own->x_bytes);
  configure(own, multiprocessors);
  *out = own;
  return STATUS_OK;
}

static cudaError_t quantize(const struct inprocess_obvious *own) {
  const struct inprocess_request *request = &own->request;
  const struct gemm_weight *shape = &request->steps[0].shape;
  const struct quantize_pass pass = {.x = own->x,
                                     .x_type = request->x_type,
                                     .x_stride = shape->k * (int64_t)gemm_type_bytes(request->x_type),
                                     .rows = request->m,
                                     .k = shape->k,
                                     .k_padded = own->layout.k,
                                     .e4m3 = shape->format == GEMM_FORMAT_FP8,
                                     .codes = own->codes,
                                     .scales = own->scales};
  return launch_quantize_rows(own->stream, &pass);
}

enum status obvious_call(struct inprocess_obvious *own, struct error *error) {
  cudaError_t result = cudaMemcpyAsync(own->x, own->x_host, own->x_bytes, cudaMemcpyHostToDevice, own->stream);
  result = result ? result : quantize(own);
  result = result ? result : multiply(own, true);
  result = result ? result : cudaMemcpyAsync(own->y_host, own->y, own->y_bytes, cudaMemcpyDeviceToHost, own->stream);
  result = result ? result : cudaStreamSynchronize(own->stream);
  return runtime_check(result, "computing", error);
}

/* A graph of LAUNCHES products in a row, replayed. */
static cudaError_t time_graph(struct inprocess_obvious *own, bool with_quantizer, double *ns) {
  cudaGraph_t graph = NULL;
  cudaGraphExec_t runnable = NULL;
  cudaEvent_t begin = NULL, end = NULL;
  float milliseconds = 0;
  cudaError_t result = cudaStreamBeginCapture(own->stream, cudaStreamCaptureModeThreadLocal);
  for (int i = 0; i < LAUNCHES && result == cudaSuccess; i++) {
    result = with_quantizer ? quantize(own) : cudaSuccess;
    result = result ? result : multiply(own, with_quantizer);
  }
  cudaError_t ended = cudaStreamEndCapture(own->stream, &graph);
  result = result ? result : ended;
  result = result ? result : cudaGraphInstantiate(&runnable, graph, 0);
  result = result ? result : cudaEventCreate(&begin);
  result = result ? result : cudaEventCreate(&end);
  result = result ? result : cudaGraphLaunch(runnable, own->stream);
  result = result ? result : cudaEventRecord(begin, own->stream);
  for (int i = 0; i < REPLAYS && result == cudaSuccess; i++)
    result = cudaGraphLaunch(runnable, own->stream);
  result = result ? result : cudaEventRecord(end, own->stream);
  result = result ? result : cudaStreamSynchronize(own->stream);
  result = result ? result : cudaEventElapsedTime(&milliseconds, begin, end);
  *ns = (double)milliseconds * 1e6 / (LAUNCHES * REPLAYS);
  if (begin)
    (void)cudaEventDestroy(begin);
  if (end)
    (void)cudaEventDestroy(end);
  if (runnable)
    (void)cudaGraphExecDestroy(runnable);
  if (graph)
    (void)cudaGraphDestroy(graph);
  return result;
}

enum status obvious_kernel(struct inprocess_obvious *own, double *product_ns, double *both_ns, struct error *error) {
  cudaError_t result = time_graph(own, false, product_ns);
  result = result ? result : time_graph(own, true, both_ns);
  return runtime_check(result, "timing the kernel", error);
}

void obvious_close(struct inprocess_obvious *own) {
  if (own == NULL)
    return;
  if (own->stream)
    (void)cudaStreamDestroy(own->stream);
  (void)cudaFreeHost(own->x_host);
  (void)cudaFreeHost(own->y_host);
  (void)cudaFree(own->w);
  (void)cudaFree(own->x);
  (void)cudaFree(own->codes);
  (void)cudaFree(own->scales);
  (void)cudaFree(own->y);
  free(own);
}

#else

enum status obvious_open(const struct inprocess_request *request, struct inprocess_obvious **out, struct error *error) {
  return error_set(error, STATUS_UNSUPPORTED, "this build has no cuda");
}

enum status obvious_call(struct inprocess_obvious *obvious, struct error *error) {
  return error_set(error, STATUS_UNSUPPORTED, "this build has no cuda");
}

enum status obvious_kernel(struct inprocess_obvious *obvious, double *product_ns, double *both_ns,
                           struct error *error) {
  return error_set(error, STATUS_UNSUPPORTED, "this build has no cuda");
}

void obvious_close(struct inprocess_obvious *obvious) {}

#endif
