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
  if (offset % PLACE_ALIGN != 0)
    return error_field(error, STATUS_INVALID, field, place_signed(offset), PLACE_ALIGN, 0);
  return STATUS_OK;
}

bool place_overlap(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes) {
  return a_bytes > 0 && b_bytes > 0 && a < b + b_bytes && b < a + a_bytes;
}
