/* A layer of an engine with gemmd's weights: borrowed, computed in this process, and on a GPU recorded as a CUDA graph
 * and replayed. Nothing of CUDA is needed to build it.
 *
 *   cc layer.c -lgemmclient-direct -lgemmclient -ldl
 *   ./a.out WEIGHT [ADDRESS]
 *
 * What comes out is compared with what gemmd itself computes for the same x. */
#include <dlfcn.h>
#include <gemmclient.h>
#include <gemmclient_direct.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 4, REPLAYS = 3 };

static void give_up(const char *what, const char *why) {
  fprintf(stderr, "%s: %s\n", what, why);
  exit(1);
}

/* ---- the GPU as an engine has it: here the driver's own functions, opened at run time */

static struct {
  int (*cuInit)(unsigned);
  int (*cuDevicePrimaryCtxRetain)(void **, int);
  int (*cuCtxSetCurrent)(void *);
  int (*cuStreamCreate)(void **, unsigned);
  int (*cuStreamSynchronize)(void *);
  int (*cuMemAlloc_v2)(unsigned long long *, size_t);
  int (*cuMemFree_v2)(unsigned long long);
  int (*cuMemcpyHtoD_v2)(unsigned long long, const void *, size_t);
  int (*cuMemcpyDtoH_v2)(void *, unsigned long long, size_t);
  int (*cuStreamBeginCapture_v2)(void *, int);
  int (*cuStreamEndCapture)(void *, void **);
  int (*cuGraphInstantiateWithFlags)(void **, void *, unsigned long long);
  int (*cuGraphLaunch)(void *, void *);
  int (*cuGraphExecDestroy)(void *);
  int (*cuGraphDestroy)(void *);
} cuda;

static void *stream; /* NULL on a CPU */

#define DO(call)                                                                                                       \
  do {                                                                                                                 \
    if ((call) != 0)                                                                                                   \
      give_up(#call, "failed");                                                                                        \
  } while (0)

static void gpu_open(void) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context = NULL;
  if (driver == NULL)
    give_up("libcuda.so.1", dlerror());
#define FIND(name)                                                                                                     \
  if ((*(void **)&cuda.name = dlsym(driver, #name)) == NULL)                                                           \
  give_up(#name, "not found")
  FIND(cuInit);
  FIND(cuDevicePrimaryCtxRetain);
  FIND(cuCtxSetCurrent);
  FIND(cuStreamCreate);
  FIND(cuStreamSynchronize);
  FIND(cuMemAlloc_v2);
  FIND(cuMemFree_v2);
  FIND(cuMemcpyHtoD_v2);
  FIND(cuMemcpyDtoH_v2);
  FIND(cuStreamBeginCapture_v2);
  FIND(cuStreamEndCapture);
  FIND(cuGraphInstantiateWithFlags);
  FIND(cuGraphLaunch);
  FIND(cuGraphExecDestroy);
  FIND(cuGraphDestroy);
  DO(cuda.cuInit(0));
  DO(cuda.cuDevicePrimaryCtxRetain(&context, 0));
  DO(cuda.cuCtxSetCurrent(context));
  DO(cuda.cuStreamCreate(&stream, 0)); /* in order with copies, which the default stream does */
}

static float *take(size_t bytes) {
  unsigned long long memory = 0;
  if (stream == NULL)
    return aligned_alloc(64, (bytes + 63) / 64 * 64);
  DO(cuda.cuMemAlloc_v2(&memory, bytes));
  return (float *)(size_t)memory;
}

static void give(float *memory) {
  if (stream == NULL)
    free(memory);
  else
    DO(cuda.cuMemFree_v2((size_t)memory));
}

static void put(float *to, const float *from, size_t bytes) {
  if (stream == NULL)
    memcpy(to, from, bytes);
  else
    DO(cuda.cuMemcpyHtoD_v2((size_t)to, from, bytes));
}

static void get(float *to, const float *from, size_t bytes) {
  if (stream == NULL)
    memcpy(to, from, bytes);
  else
    DO(cuda.cuMemcpyDtoH_v2(to, (size_t)from, bytes));
}

/* ---- the layer */

static void matmul(gemmd_direct_weight *weight, const gemmd_direct_product *product) {
  if (gemmd_direct_matmul(weight, product, stream) != GEMMD_OK)
    give_up("gemmd_direct_matmul", gemmd_direct_error());
}

/* Records the product once, and launches the record as often as there is work. */
static void *record(gemmd_direct_weight *weight, const gemmd_direct_product *product) {
  void *graph = NULL, *executable = NULL;
  DO(cuda.cuStreamBeginCapture_v2(stream, 0));
  matmul(weight, product);
  DO(cuda.cuStreamEndCapture(stream, &graph));
  DO(cuda.cuGraphInstantiateWithFlags(&executable, graph, 0));
  DO(cuda.cuGraphDestroy(graph));
  return executable;
}

static double difference(const float *a, const float *b, size_t count) {
  double apart = 0, size = 0;
  for (size_t i = 0; i < count; i++) {
    apart += pow((double)a[i] - (double)b[i], 2);
    size += pow((double)b[i], 2);
  }
  return sqrt(apart / (size > 0 ? size : 1));
}

/* y of gemmd itself, by x and y in the arena. */
static double compare(gemmd_session *session, gemmd_weight *served, const float *x, const float *y, int64_t n,
                      int64_t k) {
  size_t x_bytes = (size_t)(ROWS * k) * sizeof *x, y_bytes = (size_t)(ROWS * n) * sizeof *y;
  float *own_x = gemmd_alloc(session, x_bytes), *own_y = gemmd_alloc(session, y_bytes);
  if (own_x == NULL || own_y == NULL)
    give_up("gemmd_alloc", gemmd_error(session));
  memcpy(own_x, x, x_bytes);
  gemmd_product product = {.m = ROWS, .x = own_x, .x_type = GEMMD_F32, .y = own_y, .y_type = GEMMD_F32};
  if (gemmd_matmul(served, &product) != GEMMD_OK)
    give_up("gemmd_matmul", gemmd_error(session));
  double result = difference(y, own_y, (size_t)(ROWS * n));
  gemmd_free(session, own_x);
  gemmd_free(session, own_y);
  return result;
}

/* As an engine's loop: new x, the same layer. */
static bool run(gemmd_session *session, gemmd_direct_weight *weight, gemmd_weight *served) {
  const gemmd_weight_info *info = gemmd_direct_get_info(weight);
  size_t x_bytes = (size_t)(ROWS * info->k) * sizeof(float), y_bytes = (size_t)(ROWS * info->n) * sizeof(float);
  float *x = take(x_bytes), *y = take(y_bytes), *host_x = malloc(x_bytes), *host_y = malloc(y_bytes);
  gemmd_direct_product product = {
      .bytes = sizeof product, .m = ROWS, .x = x, .x_type = GEMMD_F32, .y = y, .y_type = GEMMD_F32};
  void *graph = stream != NULL ? record(weight, &product) : NULL;
  bool right = true;
  for (int i = 0; i < REPLAYS; i++) {
    for (int64_t j = 0; j < ROWS * info->k; j++)
      host_x[j] = (float)((j * 7 + i) % 13 - 6);
    put(x, host_x, x_bytes);
    if (graph == NULL)
      matmul(weight, &product);
    else
      DO(cuda.cuGraphLaunch(graph, stream) || cuda.cuStreamSynchronize(stream));
    get(host_y, y, y_bytes);
    double off = compare(session, served, host_x, host_y, info->n, info->k);
    printf("%s: y[0] = %g, y[%lld] = %g; off by %.1e\n", graph ? "replayed" : "computed", (double)host_y[0],
           (long long)(ROWS * info->n - 1), (double)host_y[ROWS * info->n - 1], off);
    right = right && off < 1e-3;
  }
  if (graph != NULL)
    DO(cuda.cuGraphExecDestroy(graph));
  free(host_x);
  free(host_y);
  give(x);
  give(y);
  return right;
}

int main(int count, char **arguments) {
  gemmd_session *session = NULL;
  gemmd_direct *direct = NULL;
  gemmd_direct_weight *weight = NULL;
  gemmd_weight *served = NULL;
  gemmd_daemon_info info;
  if (count < 2)
    give_up("usage", "layer WEIGHT [ADDRESS]");
  if (gemmd_connect(&session, count > 2 ? arguments[2] : NULL, NULL) != GEMMD_OK ||
      gemmd_daemon_status(session, &info) != GEMMD_OK || gemmd_weight_open(session, arguments[1], &served) != GEMMD_OK)
    give_up(arguments[1], gemmd_error(session));
  if (strcmp(info.backend, "cuda") == 0)
    gpu_open();
  gemmd_direct_options options = {.bytes = sizeof options, .ordinal = -1, .lanes = 1, .rows_most = ROWS};
  if (gemmd_direct_open(session, &options, &direct) != GEMMD_OK ||
      gemmd_direct_borrow(direct, arguments[1], &weight) != GEMMD_OK)
    give_up(arguments[1], gemmd_direct_error());
  bool right = run(session, weight, served);
  /* BUSY until the driver has let go of the graph */
  while (gemmd_direct_close(direct) == GEMMD_BUSY) {
  }
  gemmd_disconnect(session);
  return right ? 0 : 1;
}
