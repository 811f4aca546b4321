/* Where the tensors of products lie: rows, strides and offsets in bytes, checked. Pure. */
#ifndef PROTO_PLACE_H
#define PROTO_PLACE_H

#include "gemm.h"

/* An error carries signed numbers; a size or offset above them stays above every range. */
int64_t place_signed(uint64_t value);
/* `rows` rows of `row_bytes` each, *stride apart (0: dense; made explicit), as bytes from first to last; UINT64_MAX
 * where 64 bits do not hold them. */
MUST_CHECK enum status place_stride(int64_t rows, uint64_t row_bytes, uint32_t element, enum field field,
                                    uint64_t *stride, uint64_t *bytes, struct error *error);
/* [offset, offset + bytes) lies in [begin, end), from a multiple of GEMM_ALIGN on. */
MUST_CHECK enum status place_check(uint64_t offset, uint64_t bytes, uint64_t begin, uint64_t end, enum field field,
                                   struct error *error);
/* Two places, where neither is empty. */
bool place_overlap(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes);

struct place {
  uint64_t offset, bytes;
  enum field field;
  uint32_t tensor;
  uint64_t tensor_bytes;
};

/* y, x, bias and x scale of a product lie in the arena's tensors, [begin, end), or in the memory named for them, and y
 * apart from the others; so does W. */
MUST_CHECK enum status place_all(const struct gemm_product *product, uint64_t begin, uint64_t end,
                                 const struct gemm_extent *extent, struct error *error);
MUST_CHECK enum status place_w(const struct gemm_product *product, uint64_t offset, uint64_t bytes, uint64_t begin,
                               uint64_t end, const struct gemm_extent *extent, struct error *error);

#endif
