#include "tensor_map.h"

enum { BOX_BYTES = 128 };

static _Thread_local uint64_t made;

uint64_t tensor_maps_made(void) {
  return made;
}

enum status tensor_map_make(const struct driver *driver, const void *rows, int64_t count, int64_t k, int64_t stride,
                            int box_rows, CUtensorMap *out, struct error *error) {
  const cuuint64_t sizes[2] = {(cuuint64_t)k, (cuuint64_t)count}, strides[1] = {(cuuint64_t)stride};
  const cuuint32_t box[2] = {BOX_BYTES, (cuuint32_t)box_rows}, every[2] = {1, 1};
  made++;
  CUresult result =
      driver->cuTensorMapEncodeTiled(out, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, (void *)(uintptr_t)rows, sizes, strides,
                                     box, every, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                     CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return driver_check(driver, result, "describing a matrix to the copy engine", error);
}
