/* Host time of one eager gemmd_direct_matmul, beside what it is made of and cublasLtMatmul's own.
 *
 *   gemm-eager ADDRESS [N K]        of a gemmd with a GPU, from which this user may borrow
 *
 * Times are microseconds of the calling thread for one call: medians of batches that the device's queue holds; between
 * them the device is waited for. x and y are bf16. "new": they lie elsewhere in every call, as an engine's allocator
 * may have it. "launches": as many empty kernels as a product has, launched by turns with it; "beyond": what a product
 * takes more than these, which is this library's own part. Built where the CUDA toolkit is; opens the driver and
 * cuBLASLt at run time. */
#include "eager.h"

#include <gemmclient.h>
#include <gemmclient_direct.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 200, BATCHES = 41, TENSORS = 8, ROWS_MOST = 64 };

_Noreturn void eager_give_up(const char *what, const char *why) {
  fprintf(stderr, "gemm-eager: %s: %s\n", what, why);
  exit(1);
}

/* ---- the clock */

static int by_size(const void *left, const void *right) {
  double a = *(const double *)left, b = *(const double *)right;
  return (a > b) - (a < b);
}

static double now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static double batch_us(const struct call *call) {
  double begin = now_us();
  for (int i = 0; i < BATCH; i++)
    call->once(call->context, i);
  double us = (now_us() - begin) / BATCH;
  gpu_wait();
  return us;
}

static double median(double times[BATCHES]) {
  qsort(times, BATCHES, sizeof *times, by_size);
  return times[BATCHES / 2];
}

void eager_times(const struct call *calls, int count, double *us) {
  double times[EAGER_CALLS_MOST][BATCHES];
  for (int batch = 0; batch < BATCHES; batch++)
    for (int i = 0; i < count; i++)
      times[i][batch] = batch_us(&calls[i]);
  for (int i = 0; i < count; i++)
    us[i] = median(times[i]);
}

double eager_time(const struct call *call) {
  double us;
  eager_times(call, 1, &us);
  return us;
}

/* ---- gemmd */

static const struct {
  const char *name;
  enum gemmd_format format;
} formats[] = {{"fp8", GEMMD_FORMAT_FP8}, {"int8", GEMMD_FORMAT_INT8}, {"int2", GEMMD_FORMAT_INT2}};
static const int64_t rows[] = {1, 16, 64};
enum { FORMATS = sizeof formats / sizeof *formats, ROWS = sizeof rows / sizeof *rows };

struct layer {
  gemmd_direct_weight *weight;
  gemmd_direct_product product;
  void *x[TENSORS], *y[TENSORS];
};

static void layer_at(struct layer *layer, int at) {
  layer->product.x = layer->x[at];
  layer->product.y = layer->y[at];
  if (gemmd_direct_matmul(layer->weight, &layer->product, gpu_stream()) != GEMMD_OK)
    eager_give_up("gemmd_direct_matmul", gemmd_direct_error());
}

static void same(void *layer, int i) {
  (void)i;
  layer_at(layer, 0);
}

static void moved(void *layer, int i) {
  layer_at(layer, i % TENSORS);
}

static void one_launch(void *unused, int i) {
  (void)unused;
  gpu_launch(i);
}

static void two_launches(void *unused, int i) {
  one_launch(unused, i);
  one_launch(unused, i);
}

static void print_times(struct layer *layer, int format, int64_t m) {
  bool quantizes = formats[format].format != GEMMD_FORMAT_INT2;
  const struct call calls[] = {{same, layer}, {moved, layer}, {quantizes ? two_launches : one_launch, NULL}};
  double us[3];
  layer->product.m = m;
  eager_times(calls, 3, us);
  printf("%-5s M=%-20lld %8.2f %8.2f %8.2f %8.2f\n", formats[format].name, (long long)m, us[0], us[1], us[2],
         us[1] - us[2]);
}

/* A file of one f32 tensor. */
static int file_of(int64_t n, int64_t k) {
  char header[128];
  uint64_t count = (uint64_t)(n * k), bytes = count * sizeof(float);
  int length = snprintf(header + 8, sizeof header - 8,
                        "{\"w\":{\"dtype\":\"F32\",\"shape\":[%lld,%lld],\"data_offsets\":[0,%llu]}}", (long long)n,
                        (long long)k, (unsigned long long)bytes);
  memcpy(header, &(uint64_t){(uint64_t)length}, 8);
  int fd = memfd_create("gemm-eager", 0);
  float *values = malloc(bytes);
  if (fd < 0 || values == NULL)
    eager_give_up("a weight", "no memory");
  for (uint64_t i = 0; i < count; i++)
    values[i] = (float)(i * 2654435761u >> 7 & 255) / 128 - 1;
  FILE *file = fdopen(dup(fd), "w");
  if (file == NULL || fwrite(header, (size_t)length + 8, 1, file) != 1 || fwrite(values, bytes, 1, file) != 1 ||
      fclose(file) != 0)
    eager_give_up("a weight", "its file cannot be written");
  free(values);
  return fd;
}

static gemmd_direct_weight *weight_of(gemmd_session *session, gemmd_direct *direct, int fd, int format) {
  gemmd_direct_weight *weight = NULL;
  const gemmd_load load = {
      .name = formats[format].name, .tensor = "w", .format = formats[format].format, .replace = true, .device = -1};
  if (gemmd_weight_load(session, fd, &load, NULL) != GEMMD_OK)
    eager_give_up(formats[format].name, gemmd_error(session));
  if (gemmd_direct_borrow(direct, formats[format].name, &weight) != GEMMD_OK)
    eager_give_up(formats[format].name, gemmd_direct_error());
  return weight;
}

static void print_gemmd(gemmd_session *session, gemmd_direct *direct, int64_t n, int64_t k) {
  struct layer layer = {.product = {.bytes = sizeof layer.product, .x_type = GEMMD_BF16, .y_type = GEMMD_BF16}};
  for (int i = 0; i < TENSORS; i++) {
    layer.x[i] = gpu_take((size_t)(ROWS_MOST * k) * 2);
    layer.y[i] = gpu_take((size_t)(ROWS_MOST * n) * 2);
  }
  int fd = file_of(n, k);
  printf("%-28s %8s %8s %8s %8s\n", "gemmd_direct_matmul", "same", "new", "launches", "beyond");
  for (int format = 0; format < FORMATS; format++) {
    layer.weight = weight_of(session, direct, fd, format);
    for (int i = 0; i < ROWS; i++)
      print_times(&layer, format, rows[i]);
  }
  close(fd);
}

static void print_library(int64_t n, int64_t k) {
  for (int i = 0; i < ROWS; i++) {
    char what[32];
    double us = library_time(rows[i], n, k);
    snprintf(what, sizeof what, "cublasLtMatmul bf16, M=%lld", (long long)rows[i]);
    if (us >= 0)
      printf("%-28s %8.2f\n", what, us);
    else
      printf("%-28s %8s\n", what, "-");
  }
}

int main(int count, char **arguments) {
  gemmd_session *session = NULL;
  gemmd_direct *direct = NULL;
  if (count != 2 && count != 4)
    eager_give_up("usage", "gemm-eager ADDRESS [N K]");
  int64_t n = count == 4 ? atoll(arguments[2]) : 4096, k = count == 4 ? atoll(arguments[3]) : 4096;
  gpu_open();
  if (gemmd_connect(&session, arguments[1], NULL) != GEMMD_OK)
    eager_give_up(arguments[1], gemmd_error(session));
  const gemmd_direct_options options = {.bytes = sizeof options, .ordinal = 0, .lanes = 1, .rows_most = ROWS_MOST};
  if (gemmd_direct_open(session, &options, &direct) != GEMMD_OK)
    eager_give_up("gemmd_direct_open", gemmd_direct_error());
  printf("us of the host, N=%lld K=%lld\n", (long long)n, (long long)k);
  print_gemmd(session, direct, n, k);
  print_library(n, k);
  gpu_print();
  (void)gemmd_direct_close(direct);
  gemmd_disconnect(session);
  return 0;
}
