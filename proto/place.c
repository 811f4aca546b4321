#include "place.h"

int64_t place_signed(uint64_t value) {
  return value > INT64_MAX ? INT64_MAX : (int64_t)value;
}

enum status place_stride(int64_t rows, uint64_t row_bytes, uint32_t element, enum field field, uint64_t *stride,
                         uint64_t *bytes, struct error *error) {
  if (*stride == 0)
    *stride = row_bytes;
  if (*stride < row_bytes)
    return error_field(error, STATUS_INVALID, field, place_signed(*stride), place_signed(row_bytes), INT64_MAX);
  if (*stride % element != 0)
    return error_field(error, STATUS_INVALID, field, place_signed(*stride), element, 0);
  if (__builtin_mul_overflow((uint64_t)rows - 1, *stride, bytes) || __builtin_add_overflow(*bytes, row_bytes, bytes))
    *bytes = UINT64_MAX;
  return STATUS_OK;
}

enum status place_check(uint64_t offset, uint64_t bytes, uint64_t begin, uint64_t end, enum field field,
                        struct error *error) {
  uint64_t room = end > begin ? end - begin : 0;
  if (bytes > room)
    return error_field(error, STATUS_INVALID, FIELD_BYTES, place_signed(bytes), 0, place_signed(room));
  if (offset < begin || offset > end - bytes)
    return error_field(error, STATUS_INVALID, field, place_signed(offset), place_signed(begin),
                       place_signed(end - bytes));
  if (offset % GEMM_ALIGN != 0)
    return error_field(error, STATUS_INVALID, field, place_signed(offset), GEMM_ALIGN, 0);
  return STATUS_OK;
}

bool place_overlap(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes) {
  return a_bytes > 0 && b_bytes > 0 && a < b + b_bytes && b < a + a_bytes;
}

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

enum status place_all(const struct gemm_product *product, uint64_t begin, uint64_t end,
                      const struct gemm_extent *extent, struct error *error) {
  const struct place places[] = {
      {product->y_offset, extent->y_bytes, FIELD_Y_OFFSET, product->y_tensor, product->y_tensor_bytes},
      {product->x_offset, extent->x_bytes, FIELD_X_OFFSET, product->x_tensor, product->x_tensor_bytes},
      {product->bias_offset, extent->bias_bytes, FIELD_BIAS_OFFSET, 0, 0},
      {product->x_scale_offset, extent->x_scale_bytes, FIELD_X_SCALE_OFFSET, 0, 0},
  };
  for (size_t i = 0; i < COUNT(places); i++) {
    const struct place *place = &places[i];
    bool own = place->tensor != 0;
    if (place->bytes == 0)
      continue;
    enum status status =
        place_check(place->offset, place->bytes, own ? 0 : begin, own ? place->tensor_bytes : end, place->field, error);
    if (status != STATUS_OK)
      return status;
  }
  for (size_t i = 1; i < COUNT(places); i++) {
    if (places[i].tensor != places[0].tensor ||
        !place_overlap(places[0].offset, places[0].bytes, places[i].offset, places[i].bytes))
      continue;
    error_field(error, STATUS_INVALID, FIELD_Y_OFFSET, place_signed(product->y_offset), 1, 0);
    gemm_error_compose(error);
    return error->status;
  }
  return STATUS_OK;
}

enum status place_w(const struct gemm_product *product, uint64_t offset, uint64_t bytes, uint64_t begin, uint64_t end,
                    const struct gemm_extent *extent, struct error *error) {
  bool own = product->w_tensor != 0;
  enum status status =
      place_check(offset, bytes, own ? 0 : begin, own ? product->w_tensor_bytes : end, FIELD_W_OFFSET, error);
  if (status == STATUS_OK && product->y_tensor == product->w_tensor &&
      place_overlap(product->y_offset, extent->y_bytes, offset, bytes)) {
    status = error_field(error, STATUS_INVALID, FIELD_W_OFFSET, place_signed(offset), 1, 0);
    gemm_error_compose(error);
  }
  return status;
}
