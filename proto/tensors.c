#include "tensors.h"

#include "limits.h"
#include "place.h"

/* A tensor of `batch` matrices of so many lines; *step is made explicit, *bytes are those of all. `apart`: no matrix
 * may overlap the next. */
static enum status check_batch(int64_t batch, uint32_t element, bool apart, enum field field, uint64_t *step,
                               uint64_t *bytes, struct error *error) {
  if (batch == 1) {
    *step = 0;
    return STATUS_OK;
  }
  uint64_t one = *bytes, all;
  *step = *step == 0 ? one : *step;
  if (*step % element != 0)
    return error_field(error, STATUS_INVALID, field, place_signed(*step), element, 0);
  if (apart && *step < one)
    return error_field(error, STATUS_INVALID, field, place_signed(*step), place_signed(one), INT64_MAX);
  if (__builtin_mul_overflow((uint64_t)batch - 1, *step, &all) || __builtin_add_overflow(all, one, bytes))
    *bytes = UINT64_MAX;
  return STATUS_OK;
}

static enum status check_sizes(const struct gemm_product *product, struct tensors_form *form, struct error *error) {
  struct gemm_weight weight;
  enum status status = gemm_tensor_weight(product, &weight, error);
  if (status == STATUS_OK)
    status = gemm_weight_check(&weight, error);
  if (status != STATUS_OK)
    return status;
  form->batch = form->batch == 0 ? 1 : form->batch;
  if (product->m < 1 || product->m > LIMIT_M)
    return error_field(error, STATUS_INVALID, FIELD_M, product->m, 1, LIMIT_M);
  if (form->batch < 1 || form->batch > TENSORS_BATCH_MOST)
    return error_set(error, STATUS_INVALID, "a batch has 1..%d products, got %lld", (int)TENSORS_BATCH_MOST,
                     (long long)form->batch);
  if (form->batch > 1 && product->bias_type != GEMM_TYPE_NONE)
    return error_set(error, STATUS_UNSUPPORTED, "products of a batch have no bias");
  status = STATUS_OK;
  if (!gemm_takes_y(weight.format, product->x_type, product->y_type))
    status = error_field(error, STATUS_UNSUPPORTED, FIELD_Y_TYPE, product->y_type, 1, 0);
  else if (product->bias_type != GEMM_TYPE_NONE && product->bias_type != GEMM_F32 && product->bias_type != GEMM_F16 &&
           product->bias_type != GEMM_BF16)
    status = error_field(error, STATUS_UNSUPPORTED, FIELD_BIAS_TYPE, product->bias_type, 1, 0);
  if (status != STATUS_OK)
    gemm_error_compose(error);
  return status;
}

struct range {
  uint32_t tensor; /* 0: the arena */
  uint64_t tensor_bytes, offset, bytes;
  enum field field;
};

/* All lie where they may, and y, the first, apart from the others. */
static enum status check_ranges(const struct range *ranges, int count, uint64_t begin, uint64_t end,
                                struct error *error) {
  const struct range *y = &ranges[0];
  for (int i = 0; i < count; i++) {
    const struct range *range = &ranges[i];
    bool own = range->tensor != 0;
    enum status status = range->bytes == 0 ? STATUS_OK
                                           : place_check(range->offset, range->bytes, own ? 0 : begin,
                                                         own ? range->tensor_bytes : end, range->field, error);
    if (status != STATUS_OK)
      return status;
  }
  for (int i = 1; i < count; i++) {
    if (ranges[i].tensor != y->tensor || !place_overlap(y->offset, y->bytes, ranges[i].offset, ranges[i].bytes))
      continue;
    bool w = ranges[i].field == FIELD_W_OFFSET;
    const struct range *named = w ? &ranges[i] : y;
    error_field(error, STATUS_INVALID, named->field, place_signed(named->offset), 1, 0);
    gemm_error_compose(error);
    return error->status;
  }
  return STATUS_OK;
}

enum status tensors_check(const struct gemm_product *product, struct tensors_form *form, uint64_t w_offset,
                          uint64_t *w_stride, uint64_t tensors_begin, uint64_t arena_bytes, struct gemm_extent *out,
                          struct error *error) {
  uint64_t w_bytes = 0;
  if (!form->x_turned && !form->w_turned && form->batch <= 1) {
    form->batch = 1;
    form->x_step = form->w_step = form->y_step = 0;
    return gemm_tensors_check(product, w_offset, w_stride, tensors_begin, arena_bytes, out, error);
  }
  enum status status = check_sizes(product, form, error);
  if (status != STATUS_OK)
    return status;
  uint32_t y_element = gemm_type_bytes(product->y_type);
  int64_t x_lines = form->x_turned ? product->k : product->m, w_lines = form->w_turned ? product->k : product->n;
  struct gemm_extent extent = {.x_stride = product->x_stride,
                               .y_stride = product->y_stride,
                               .x_row_bytes = (uint64_t)(form->x_turned ? product->m : product->k) * 2,
                               .y_row_bytes = (uint64_t)product->n * y_element,
                               .bias_bytes = (uint64_t)product->n * gemm_type_bytes(product->bias_type)};
  uint64_t w_row_bytes = (uint64_t)(form->w_turned ? product->n : product->k) * 2;
  if ((status = place_stride(x_lines, extent.x_row_bytes, 2, FIELD_X_STRIDE, &extent.x_stride, &extent.x_bytes,
                             error)) != STATUS_OK ||
      (status = place_stride(product->m, extent.y_row_bytes, y_element, FIELD_Y_STRIDE, &extent.y_stride,
                             &extent.y_bytes, error)) != STATUS_OK ||
      (status = place_stride(w_lines, w_row_bytes, 2, FIELD_W_STRIDE, w_stride, &w_bytes, error)) != STATUS_OK ||
      (status = check_batch(form->batch, 2, false, FIELD_X_STRIDE, &form->x_step, &extent.x_bytes, error)) !=
          STATUS_OK ||
      (status = check_batch(form->batch, 2, false, FIELD_W_STRIDE, &form->w_step, &w_bytes, error)) != STATUS_OK ||
      (status = check_batch(form->batch, y_element, true, FIELD_Y_STRIDE, &form->y_step, &extent.y_bytes, error)) !=
          STATUS_OK)
    return status;
  const struct range ranges[] = {
      {product->y_tensor, product->y_tensor_bytes, product->y_offset, extent.y_bytes, FIELD_Y_OFFSET},
      {product->x_tensor, product->x_tensor_bytes, product->x_offset, extent.x_bytes, FIELD_X_OFFSET},
      {0, 0, product->bias_offset, extent.bias_bytes, FIELD_BIAS_OFFSET},
      {product->w_tensor, product->w_tensor_bytes, w_offset, w_bytes, FIELD_W_OFFSET}};
  *out = extent;
  return check_ranges(ranges, sizeof ranges / sizeof *ranges, tensors_begin, arena_bytes, error);
}
