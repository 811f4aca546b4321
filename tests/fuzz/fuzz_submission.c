/* A submission as its client writes it: a good one with bytes replaced. What passes the checks lies, every byte of it,
 * in the arena or in the memory that is named for it, and y apart from what is read; a backend uses it without another
 * look. The first byte says whether W is a stored weight, of which format and with experts, or a tensor; plans are
 * fuzz_plan.c's. */
#include "proto/shm/ring.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BEGIN = 8192, END = 1 << 17, MEMORY_BYTES = 1 << 14, WEIGHTS = 6 };

static const struct gemm_weight weights[WEIGHTS] = {
    {.n = 32, .k = 64, .format = GEMM_FORMAT_INT8, .scale = GEMM_SCALE_ROW},
    {.n = 130, .k = 200, .format = GEMM_FORMAT_FP8, .scale = GEMM_SCALE_BLOCK},
    {.n = 7, .k = 33, .format = GEMM_FORMAT_F16, .scale = GEMM_SCALE_NONE},
    {.n = 16, .k = 16, .format = GEMM_FORMAT_BF16, .scale = GEMM_SCALE_NONE},
    {.n = 24, .k = 256, .format = GEMM_FORMAT_INT2, .scale = GEMM_SCALE_GROUP},
    {.n = 24, .k = 256, .format = GEMM_FORMAT_INT2A8, .scale = GEMM_SCALE_ROW},
};

/* Bytes [from, from + bytes) of the memory with this handle, 0 being the arena. */
struct range {
  uint32_t memory;
  uint64_t from, bytes;
};

static void expect_inside(struct range range) {
  uint64_t low = range.memory == 0 ? BEGIN : 0, high = range.memory == 0 ? END : MEMORY_BYTES;
  if (range.from < low || range.from > high || range.bytes > high - range.from)
    abort();
}

static void expect_apart(struct range one, struct range other) {
  if (one.memory == other.memory && other.bytes > 0 && one.from < other.from + other.bytes &&
      other.from < one.from + one.bytes)
    abort();
}

/* Of struct gemm_choice, if there is one: rows of x and of y, and what lies beside x. */
static void check(const struct gemm_product *product, const struct tensors_form *form, const struct gemm_extent *extent,
                  struct range w) {
  const struct gemm_choice *choice = &product->choice;
  const struct range y = {product->y_tensor, product->y_offset, extent->y_bytes};
  const struct range read[] = {{product->x_tensor, product->x_offset, extent->x_bytes},
                               {0, product->bias_offset, extent->bias_bytes},
                               {0, product->x_scale_offset, extent->x_scale_bytes},
                               {product->x_tensor, choice->ids_offset, extent->ids_bytes},
                               {product->x_tensor, choice->routing_offset, extent->routing_bytes},
                               w};
  uint64_t m = (uint64_t)product->m, pairs = m * (uint64_t)choice->top;
  uint64_t x_rows = form->x_turned    ? (uint64_t)product->k
                    : choice->x_pairs ? pairs
                                      : m,
           y_rows = pairs > 0 && !choice->sum ? pairs : m;
  uint64_t more = form->batch > 1 ? (uint64_t)form->batch - 1 : 0;
  uint64_t y_one = (y_rows - 1) * extent->y_stride + extent->y_row_bytes;
  if (product->m < 1 || extent->x_bytes < more * form->x_step + (x_rows - 1) * extent->x_stride + extent->x_row_bytes ||
      extent->y_bytes < more * form->y_step + y_one || (more > 0 && form->y_step < y_one) ||
      extent->ids_bytes != pairs * sizeof(int32_t) || (choice->routed && extent->routing_bytes != extent->ids_bytes))
    abort();
  expect_inside(y);
  for (size_t i = 0; i < sizeof read / sizeof *read; i++)
    if (read[i].bytes > 0) {
      expect_inside(read[i]);
      expect_apart(y, read[i]);
    }
}

static struct ring_submission good(const struct gemm_weight *weight, bool tensors) {
  enum gemm_type x_type = weight->format == GEMM_FORMAT_BF16 ? GEMM_BF16 : GEMM_F16;
  struct ring_submission one = {.opcode = tensors ? RING_OP_TENSORS : RING_OP_PRODUCT,
                                .x_type = (uint8_t)x_type,
                                .y_type = GEMM_F32,
                                .m = 3,
                                .n = (uint32_t)weight->n,
                                .k = (uint32_t)weight->k,
                                .x_offset = BEGIN,
                                .y_offset = BEGIN + 16384,
                                .bias_offset = BEGIN + 32768,
                                .x_scale_offset = BEGIN + 40960};
  if (tensors)
    one.w_offset = BEGIN + 49152;
  return one;
}

static struct ring_submission good_experts(const struct gemm_weight *weight) {
  struct ring_submission one = good(weight, false);
  one.opcode = RING_OP_EXPERTS;
  one.choice = (struct ring_choice){.top = 2, .sum = 1, .routed = 1};
  one.ids_offset = BEGIN + 40960;
  one.routing_offset = BEGIN + 49152;
  return one;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct gemm_product product;
  struct tensors_form form = {.batch = 1};
  struct gemm_extent extent;
  struct error error;
  if (size < 1)
    return 0;
  struct gemm_weight layer = weights[data[0] % WEIGHTS];
  const struct gemm_weight *weight = &layer;
  bool tensors = data[0] / WEIGHTS % 2 == 1, experts = data[0] / WEIGHTS % 4 == 2;
  layer.experts = experts ? 7 : 0;
  struct ring_submission one = experts ? good_experts(weight) : good(weight, tensors);
  for (size_t i = 1; i + 2 <= size; i += 2)
    ((uint8_t *)&one)[data[i] % sizeof one] = data[i + 1];
  if (ring_submission_product(&one, &product, &error) != STATUS_OK)
    return 0;
  product.x_tensor_bytes = product.x_tensor != 0 ? MEMORY_BYTES : 0;
  product.y_tensor_bytes = product.y_tensor != 0 ? MEMORY_BYTES : 0;
  struct range w = {.memory = 0};
  uint64_t stride = one.w_stride;
  if (one.opcode == RING_OP_PRODUCT || one.opcode == RING_OP_EXPERTS) {
    if (gemm_product_check(&product, weight, BEGIN, END, &extent, &error) == STATUS_OK)
      check(&product, &form, &extent, w);
  } else if (one.opcode == RING_OP_TENSORS) {
    if (ring_submission_form(&one, &form, &error) != STATUS_OK ||
        tensors_check(&product, &form, one.w_offset, &stride, BEGIN, END, &extent, &error) != STATUS_OK)
      return 0;
    w.from = one.w_offset;
    uint64_t lines = (uint64_t)(form.w_turned ? product.k : product.n);
    w.bytes = (uint64_t)(form.batch - 1) * form.w_step + (lines - 1) * stride +
              (uint64_t)(form.w_turned ? product.n : product.k) * gemm_type_bytes(product.x_type);
    check(&product, &form, &extent, w);
  }
  return 0;
}
