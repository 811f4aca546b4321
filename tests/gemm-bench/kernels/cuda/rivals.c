#include "rivals.h"

#include "kernels/cuda/passes/epilogue.h"
#include "kernels/cuda/passes/quantize.h"
#include "kernels/cuda/runtime/driver.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WORKSPACE = 32 << 20, CANDIDATES = 48, LAUNCHES_MOST = 2000 };

static enum status take(void *out, uint64_t bytes, struct error *error) {
  return runtime_check(cudaMalloc((void **)out, bytes > 0 ? bytes : 16), "taking memory for the library", error);
}

static void give(void *pointer) {
  void **at = pointer;
  if (*at != NULL) {
    (void)cudaFree(*at);
  }
  *at = NULL;
}

enum status rivals_open(struct rivals *rivals, const char *path, struct error *error) {
  *rivals = (struct rivals){0};
  enum status status = library_open(path, WORKSPACE, &rivals->library, error);
  if (status == STATUS_OK) {
    status = runtime_check(cudaStreamCreateWithFlags(&rivals->stream, cudaStreamNonBlocking), "making a stream", error);
  }
  if (status == STATUS_OK) {
    status = take(&rivals->workspace, WORKSPACE, error);
  }
  if (status != STATUS_OK) {
    rivals_close(rivals);
  }
  return status;
}

void rivals_close(struct rivals *rivals) {
  give(&rivals->workspace);
  if (rivals->stream != NULL) {
    (void)cudaStreamDestroy(rivals->stream);
  }
  library_close(&rivals->library);
}

/* ---- W */

struct gemm_weight rivals_weight(const struct gemm_weight *weight) {
  if (!gemm_is_packed(weight->format)) {
    return *weight;
  }
  return (struct gemm_weight){.n = weight->n, .k = weight->k, .format = GEMM_FORMAT_F16, .scale = GEMM_SCALE_NONE};
}

static enum status bias_load(struct rivals *rivals, struct error *error) {
  int64_t n = rivals->weight->shape.n;
  float *bias = calloc((size_t)rivals->n, sizeof(*bias));
  if (bias == NULL) {
    return error_set(error, STATUS_NOMEM, "no memory for a bias");
  }
  for (int64_t i = 0; i < n; i++) {
    bias[i] = data_bias(i);
  }
  uint64_t bytes = (uint64_t)rivals->n * sizeof(*bias);
  enum status status = take(&rivals->bias, bytes, error);
  if (status == STATUS_OK) {
    status = runtime_check(cudaMemcpy(rivals->bias, bias, bytes, cudaMemcpyHostToDevice), "copying a bias", error);
  }
  free(bias);
  return status;
}

enum status rivals_load(struct rivals *rivals, const struct data_weight *weight, int copies, struct error *error) {
  const struct gemm_layout *layout = &weight->layout;
  const uint8_t *scales = weight->canonical + layout->scales_offset;
  rivals->weight = weight;
  rivals->copies = copies;
  rivals->n = (int64_t)gemm_round_up((uint64_t)weight->shape.n, GEMM_ALIGN);
  rivals->each = gemm_round_up((uint64_t)rivals->n * layout->row_bytes, GEMM_SECTION);
  float *scale = calloc((size_t)rivals->n, sizeof(*scale));
  if (scale == NULL) {
    return error_set(error, STATUS_NOMEM, "no memory for scales");
  }
  for (int64_t i = 0; i < weight->shape.n && layout->scale_count > 0; i++) {
    uint64_t at = weight->shape.scale == GEMM_SCALE_ROW ? (uint64_t)i : 0;
    memcpy(scale + i, scales + at * sizeof(*scale), sizeof(*scale));
  }
  uint64_t scale_bytes = (uint64_t)rivals->n * sizeof(*scale);
  enum status status = take(&rivals->w, rivals->each * (uint64_t)copies, error);
  if (status == STATUS_OK) {
    status = take(&rivals->w_scale, scale_bytes, error);
  }
  cudaError_t result = cudaSuccess;
  if (status == STATUS_OK) {
    result = cudaMemset(rivals->w, 0, rivals->each * (uint64_t)copies);
    if (result == cudaSuccess) {
      result = cudaMemcpy(rivals->w_scale, scale, scale_bytes, cudaMemcpyHostToDevice);
    }
  }
  for (int i = 0; status == STATUS_OK && result == cudaSuccess && i < copies; i++) {
    uint8_t *to = rivals->w + rivals->each * (uint64_t)i;
    result = i == 0 ? cudaMemcpy(to, weight->canonical, layout->codes_bytes, cudaMemcpyHostToDevice)
                    : cudaMemcpy(to, rivals->w, layout->codes_bytes, cudaMemcpyDeviceToDevice);
  }
  free(scale);
  status = status == STATUS_OK ? runtime_check(result, "copying a weight", error) : status;
  status = status == STATUS_OK && weight->biased ? bias_load(rivals, error) : status;
  if (status != STATUS_OK) {
    rivals_unload(rivals);
  }
  return status;
}

void rivals_unload(struct rivals *rivals) {
  give(&rivals->w);
  give(&rivals->w_scale);
  give(&rivals->bias);
}

/* ---- x */

static enum status x_take(struct rivals *rivals, const struct data_x *x, struct error *error) {
  bool given = x->type == GEMM_INT8 || x->type == GEMM_E4M3, quantizes = x->codes != NULL;
  uint64_t element = gemm_type_bytes(given ? GEMM_F32 : x->type), row = (uint64_t)x->k * element;
  uint64_t code_row = rivals->weight->layout.row_bytes, m = (uint64_t)x->m;
  uint64_t code_bytes = (uint64_t)x->k * (quantizes ? 1 : element);
  const uint8_t *codes = quantizes ? x->codes : x->elements;
  enum status status = take(&rivals->x, m * row, error);
  status = status == STATUS_OK ? take(&rivals->codes, m * code_row, error) : status;
  status = status == STATUS_OK ? take(&rivals->x_scale, m * sizeof(float), error) : status;
  status = status == STATUS_OK ? take(&rivals->d, m * (uint64_t)rivals->n * 4, error) : status;
  status = status == STATUS_OK ? take(&rivals->y, m * (uint64_t)rivals->n * 4, error) : status;
  cudaError_t result = status == STATUS_OK ? cudaMemset(rivals->codes, 0, m * code_row) : cudaSuccess;
  for (int64_t i = 0; status == STATUS_OK && result == cudaSuccess && i < x->m; i += x->rows) {
    uint64_t rows = (uint64_t)(x->m - i < x->rows ? x->m - i : x->rows), at = (uint64_t)i;
    result = cudaMemcpy((uint8_t *)rivals->x + at * row, x->elements, rows * row, cudaMemcpyHostToDevice);
    if (result == cudaSuccess) {
      result = cudaMemcpy2D((uint8_t *)rivals->codes + at * code_row, code_row, codes, code_bytes, code_bytes, rows,
                            cudaMemcpyHostToDevice);
    }
    if (result == cudaSuccess && quantizes) {
      result = cudaMemcpy(rivals->x_scale + at, x->scales, rows * sizeof(float), cudaMemcpyHostToDevice);
    }
  }
  return status == STATUS_OK ? runtime_check(result, "copying x", error) : status;
}

/* ---- launches */

static struct library_product product_of(const struct rivals *rivals, const struct rival *rival, int copy) {
  const struct gemm_weight *shape = &rivals->weight->shape;
  uint64_t bytes = shape->format == GEMM_FORMAT_F16 || shape->format == GEMM_FORMAT_BF16 ? 2 : 1;
  return (struct library_product){.format = shape->format,
                                  .n = rivals->n,
                                  .k = (int64_t)(rivals->weight->layout.row_bytes / bytes),
                                  .m = rivals->m,
                                  .w = rivals->w + rivals->each * (uint64_t)copy,
                                  .x = rivals->codes,
                                  .w_scale = rivals->w_scale,
                                  .x_scale = rivals->x_scale,
                                  .scale = rival->scale,
                                  .d_type = rival->d_type,
                                  .d = rivals->d};
}

struct one {
  struct rivals *rivals;
  struct rival *rival;
};

static enum status queue(void *what, int i, struct error *error) {
  const struct one *one = what;
  struct rivals *rivals = one->rivals;
  const struct rival *rival = one->rival;
  struct library_product product = product_of(rivals, rival, i % rivals->copies);
  enum status status = STATUS_OK;
  if (rival->quantizes) {
    int64_t k = rivals->weight->shape.k;
    const struct quantize_pass rows = {.x = rivals->x,
                                       .x_type = rivals->x_type,
                                       .x_stride = k * (int64_t)gemm_type_bytes(rivals->x_type),
                                       .rows = rivals->m,
                                       .k = k,
                                       .k_padded = product.k,
                                       .e4m3 = product.format == GEMM_FORMAT_FP8,
                                       .codes = rivals->codes,
                                       .scales = rivals->x_scale};
    status = runtime_check(launch_quantize_rows(rivals->stream, &rows), "quantizing x", error);
  }
  if (status == STATUS_OK) {
    status = library_run(&rivals->library, &product, &rival->algorithm, rivals->workspace, rivals->stream, error);
  }
  if (status != STATUS_OK || !rival->passes) {
    return status;
  }
  struct epilogue pass = {.sums = rivals->d,
                          .integers = rival->d_type == GEMM_S32,
                          .sums_stride = rivals->n,
                          .w_scale = rivals->w_scale,
                          .x_scale = rivals->x_scale,
                          .bias = rivals->bias,
                          .bias_type = rivals->bias != NULL ? GEMM_F32 : GEMM_TYPE_NONE,
                          .y = rivals->y,
                          .y_type = rivals->y_type,
                          .y_stride = (uint64_t)rivals->n * gemm_type_bytes(rivals->y_type),
                          .m = rivals->m,
                          .n = rivals->n};
  return runtime_check(launch_epilogue(rivals->stream, &pass), "finishing a product", error);
}

/* ---- the search */

static int launches_for(const struct rivals *rivals, double turn_us, double us) {
  double wanted = turn_us / (us > 0.5 ? us : 0.5);
  return wanted > LAUNCHES_MOST ? LAUNCHES_MOST : wanted > rivals->copies ? (int)wanted : rivals->copies;
}

/* How long an algorithm takes; 0 where it does not run. */
static double attempt(struct rivals *rivals, struct rival *rival, const int32_t *attributes, int launches) {
  struct library_product product = product_of(rivals, rival, 0);
  struct one one = {rivals, rival};
  struct replay replay = {0};
  struct error ignored;
  double us = 0, again = 0;
  if (library_algorithm(&rivals->library, &product, attributes, &rival->algorithm, &ignored) != STATUS_OK) {
    return 0;
  }
  if (replay_make(rivals->stream, launches, queue, &one, &replay, &ignored) == STATUS_OK &&
      replay_time(&replay, rivals->stream, &us, &ignored) == STATUS_OK &&
      replay_time(&replay, rivals->stream, &again, &ignored) == STATUS_OK) {
    us = again < us ? again : us;
  }
  replay_free(&replay);
  return us;
}

static enum status keep(struct rivals *rivals, struct rival *rival, const int32_t *attributes, double turn_us,
                        double us, struct replay *out, struct error *error) {
  struct library_product product = product_of(rivals, rival, 0);
  struct one one = {rivals, rival};
  enum status status = library_algorithm(&rivals->library, &product, attributes, &rival->algorithm, error);
  if (status == STATUS_OK) {
    status = replay_make(rivals->stream, launches_for(rivals, turn_us, us), queue, &one, out, error);
  }
  return status;
}

static enum status search(struct rivals *rivals, struct rival *rival, double turn_us, struct error *error) {
  int32_t(*listed)[ALGORITHM_ATTRIBUTES] = calloc(CANDIDATES, sizeof(*listed));
  struct library_product product = product_of(rivals, rival, 0);
  int count = listed != NULL ? library_list(&rivals->library, &product, false, listed, CANDIDATES) : 0, best = -1;
  double best_us = 0;
  for (int i = 0; i < count; i++) {
    int launches = launches_for(rivals, turn_us / 2, best >= 0 ? best_us : turn_us);
    double us = attempt(rivals, rival, listed[i], launches);
    rival->first_us = i == 0 ? us : rival->first_us;
    if (us > 0 && (best < 0 || us < best_us)) {
      best = i;
      best_us = us;
    }
  }
  enum status status = STATUS_OK;
  if (best < 0) {
    status = error_set(error, STATUS_UNSUPPORTED, "cuBLASLt has no %s product of this size", rival->name);
  }
  if (status == STATUS_OK && best > 0 && rival->first_us > 0) {
    status = keep(rivals, rival, listed[0], turn_us, rival->first_us, &rival->first, error);
  }
  if (status == STATUS_OK) {
    status = keep(rivals, rival, listed[best], turn_us, best_us, &rival->best, error);
  }
  free(listed);
  return status;
}

/* The tensor cores' own error, which the library leaves as it is. */
#define FP8_ERROR_MOST 1e-3

static enum status gate(struct rivals *rivals, struct rival *rival, const struct data_x *x, struct error *error) {
  enum gemm_type type = rival->passes ? rivals->y_type : rival->d_type;
  const uint8_t *from = rival->passes ? rivals->y : rivals->d;
  uint64_t row = (uint64_t)rivals->n * gemm_type_bytes(type), bytes = (uint64_t)rivals->m * row;
  struct one one = {rivals, rival};
  uint8_t *y = malloc(DATA_SAMPLES * row);
  const void *rows[DATA_SAMPLES];
  if (y == NULL) {
    return error_set(error, STATUS_NOMEM, "no memory to check the library");
  }
  cudaError_t result = cudaMemsetAsync((void *)(uintptr_t)from, 0xff, bytes, rivals->stream);
  enum status status = runtime_check(result, "checking the library", error);
  status = status == STATUS_OK ? queue(&one, 0, error) : status;
  for (int i = 0; i < DATA_SAMPLES && status == STATUS_OK; i++) {
    rows[i] = y + (uint64_t)i * row;
    result = cudaMemcpyAsync(y + (uint64_t)i * row, from + (uint64_t)data_sample(rivals->m, i) * row, row,
                             cudaMemcpyDeviceToHost, rivals->stream);
    result = result == cudaSuccess ? cudaStreamSynchronize(rivals->stream) : result;
    status = runtime_check(result, "checking the library", error);
  }
  bool bare = !rival->passes && rival->scale == LIBRARY_SCALE_NONE;
  bool fp8 = rivals->weight->shape.format == GEMM_FORMAT_FP8;
  double most = fmax(data_error_most(rivals->weight->shape.format, type), fp8 ? FP8_ERROR_MOST : 0);
  double is = status == STATUS_OK ? data_error(rivals->weight, x, rows, type, bare) : 0;
  free(y);
  if (status == STATUS_OK && !(is <= most)) {
    return error_set(error, STATUS_INTERNAL, "cuBLASLt (%s) is off by %.2e, more than %.2e", rival->name, is, most);
  }
  return status;
}

/* What can be asked for these types. A bias is added by our pass: the library takes none of f32 to 16-bit y. */
static void list(struct rivals *rivals, const struct data_x *x) {
  const struct gemm_weight *shape = &rivals->weight->shape;
  bool quantizes = x->codes != NULL && x->type != GEMM_INT8 && x->type != GEMM_E4M3;
  enum gemm_type y = rivals->y_type;
  rivals->count = 0;
  if (shape->scale == GEMM_SCALE_BLOCK) {
    return;
  }
  if (shape->format == GEMM_FORMAT_INT8) {
    rivals->rivals[rivals->count++] = (struct rival){.name = "s32", .d_type = GEMM_S32};
    if (y != GEMM_S32) {
      rivals->rivals[rivals->count++] = (struct rival){
          .name = quantizes ? "q+s32+pass" : "s32+pass", .d_type = GEMM_S32, .quantizes = quantizes, .passes = true};
    }
  } else if (shape->format == GEMM_FORMAT_FP8) {
    if (rivals->bias == NULL) {
      rivals->rivals[rivals->count++] =
          (struct rival){.name = quantizes ? "q+one" : "one", .d_type = y, .quantizes = quantizes};
      rivals->rivals[rivals->count++] = (struct rival){
          .name = quantizes ? "q+rows" : "rows", .scale = LIBRARY_SCALE_ROWS, .d_type = y, .quantizes = quantizes};
    }
    rivals->rivals[rivals->count++] = (struct rival){
        .name = quantizes ? "q+f32+pass" : "f32+pass", .d_type = GEMM_F32, .quantizes = quantizes, .passes = true};
  } else if (rivals->bias == NULL) {
    rivals->rivals[rivals->count++] =
        (struct rival){.name = shape->format == GEMM_FORMAT_F16 ? "f16" : "bf16", .d_type = y};
  }
}

enum status rivals_stage(struct rivals *rivals, const struct data_x *x, enum gemm_type y_type, double turn_us,
                         struct error *error) {
  rivals->m = x->m;
  rivals->x_type = x->type;
  rivals->y_type = y_type;
  list(rivals, x);
  enum status status = x_take(rivals, x, error);
  for (int i = 0; i < rivals->count && status == STATUS_OK; i++) {
    status = search(rivals, &rivals->rivals[i], turn_us, error);
    if (status == STATUS_OK) {
      status = gate(rivals, &rivals->rivals[i], x, error);
    } else if (status == STATUS_UNSUPPORTED) { /* then it is no rival */
      rivals->rivals[i--] = rivals->rivals[--rivals->count];
      status = STATUS_OK;
    }
  }
  if (status != STATUS_OK) {
    rivals_unstage(rivals);
  }
  return status;
}

void rivals_unstage(struct rivals *rivals) {
  for (int i = 0; i < rivals->count; i++) {
    replay_free(&rivals->rivals[i].first);
    replay_free(&rivals->rivals[i].best);
  }
  rivals->count = 0;
  give(&rivals->x);
  give(&rivals->codes);
  give(&rivals->x_scale);
  give(&rivals->d);
  give(&rivals->y);
}
