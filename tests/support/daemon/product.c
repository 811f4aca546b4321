#include "product.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POISON = 0xfd }; /* 0xfdfd... is finite in every type, and nothing that these products come near */

static size_t row_stride(int64_t elements, int64_t extra, enum gemm_type type) {
  return (size_t)(elements + extra) * gemm_type_bytes(type);
}

static void copy_rows(void *to, size_t stride, const void *from, size_t row_bytes, int64_t rows) {
  for (int64_t row = 0; row < rows; row++)
    memcpy((char *)to + (size_t)row * stride, (const char *)from + (size_t)row * row_bytes, row_bytes);
}

static bool make_reference(struct product *out, const double *bias) {
  const struct product_request *request = &out->request;
  bool raw = request->y_type == GEMM_S32;
  double *values = oracle_x_seen(&out->x, request->weight, raw);
  out->reference = raw ? oracle_product_raw(values, request->m, request->weight)
                       : oracle_product(values, request->m, request->weight, bias);
  free(values);
  return out->reference != NULL;
}

bool product_make(struct product *out, gemmd_session *session, const struct product_request *request) {
  const struct gemm_weight *shape = &request->weight->shape;
  int64_t columns = shape->scale == GEMM_SCALE_BLOCK ? (shape->k + 127) / 128 : 1;
  size_t x_stride = row_stride(shape->k, request->x_extra, request->x_type);
  size_t y_stride = row_stride(shape->n, request->y_extra, request->y_type);
  *out = (struct product){.request = *request};
  oracle_x_make(&out->x, request->m, shape->k, request->x_type, columns, request->seed);
  out->product = (gemmd_product){.m = (uint32_t)request->m,
                                 .x = gemmd_alloc(session, x_stride * (size_t)request->m),
                                 .x_type = (enum gemmd_type)request->x_type,
                                 .y = gemmd_alloc(session, y_stride * (size_t)request->m),
                                 .y_type = (enum gemmd_type)request->y_type,
                                 .x_stride = request->x_extra ? x_stride : 0,
                                 .y_stride = request->y_extra ? y_stride : 0};
  if (request->bias_type != GEMM_TYPE_NONE)
    out->bias = gemmd_alloc(session, (size_t)shape->n * sizeof(float));
  if (out->x.scales != NULL)
    out->x_scale = gemmd_alloc(session, (size_t)(request->m * columns) * sizeof(float));
  if (out->product.x == NULL || out->product.y == NULL || (request->bias_type != GEMM_TYPE_NONE && out->bias == NULL) ||
      (out->x.scales != NULL && out->x_scale == NULL)) {
    fprintf(stderr, "product: %s\n", gemmd_error(session));
    product_free(out, session);
    return false;
  }
  copy_rows((void *)out->product.x, x_stride, out->x.data, row_stride(shape->k, 0, request->x_type), request->m);
  memset(out->product.y, POISON, y_stride * (size_t)request->m);
  double *bias = NULL;
  if (out->bias != NULL) {
    bias = oracle_bias_make(shape->n, request->bias_type, out->bias, request->seed + 1);
    out->product.bias = out->bias;
    out->product.bias_type = (enum gemmd_type)request->bias_type;
  }
  if (out->x_scale != NULL) {
    memcpy(out->x_scale, out->x.scales, (size_t)(request->m * columns) * sizeof(float));
    out->product.x_scale = out->x_scale;
  }
  bool made = make_reference(out, bias);
  free(bias);
  return made;
}

static bool still_poisoned(const uint8_t *bytes, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (bytes[i] != POISON)
      return false;
  return true;
}

bool product_right(const struct product *product) {
  const struct product_request *request = &product->request;
  const struct gemm_weight *shape = &request->weight->shape;
  size_t row_bytes = row_stride(shape->n, 0, request->y_type);
  size_t stride = row_stride(shape->n, request->y_extra, request->y_type);
  for (int64_t row = 0; row < request->m; row++) {
    const uint8_t *y = (const uint8_t *)product->product.y + (size_t)row * stride;
    const double *reference = product->reference + row * shape->n;
    double error = oracle_row_error(shape->format, reference, y, request->y_type, shape->n);
    if (error <= oracle_row_gate(shape, request->y_type, reference) &&
        still_poisoned(y + row_bytes, stride - row_bytes))
      continue;
    fprintf(stderr, "%s weight %lld x %lld, scale %s, m %lld, x %s, y %s, bias %s, seed %llu: row %lld: error %g\n",
            gemm_format_name(shape->format), (long long)shape->n, (long long)shape->k, gemm_scale_name(shape->scale),
            (long long)request->m, gemm_type_name(request->x_type), gemm_type_name(request->y_type),
            gemm_type_name(request->bias_type), (unsigned long long)request->seed, (long long)row, error);
    return false;
  }
  return true;
}

void product_free(struct product *product, gemmd_session *session) {
  gemmd_free(session, (void *)product->product.x);
  gemmd_free(session, product->product.y);
  gemmd_free(session, product->bias);
  gemmd_free(session, product->x_scale);
  oracle_x_free(&product->x);
  free(product->reference);
  *product = (struct product){.ticket = 0};
}

bool product_run(gemmd_session *session, gemmd_weight *weight, const struct product_request *request) {
  struct product product;
  if (!product_make(&product, session, request))
    return false;
  int status = gemmd_matmul(weight, &product.product);
  if (status != GEMMD_OK)
    fprintf(stderr, "product: %s: %s\n", gemmd_status_name(status), gemmd_error(session));
  bool right = status == GEMMD_OK && product_right(&product);
  product_free(&product, session);
  return right;
}
