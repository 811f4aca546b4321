#include "product.h"
#include "../memory/arena.h"
#include "../memory/tensor.h"

static bool needs_x_scale(const gemmd_product *product) {
  return (product->x_type == GEMMD_INT8 || product->x_type == GEMMD_E4M3) && product->y_type != GEMMD_S32;
}

static uint64_t deadline_of(const gemmd_product *product) {
  return product->deadline_us == 0 ? 0 : (uint64_t)clock_now() + (uint64_t)product->deadline_us * 1000;
}

enum status product_device(struct gemmd_session *session, const gemmd_product *product, uint32_t *device) {
  const struct {
    const void *pointer;
    const char *what;
  } tensors[] = {{product->x, "x"}, {product->y, "y"}};
  const char *first = "the event";
  *device = LIMIT_DEVICES;
  if (product->after != NULL)
    (void)event_handle(product->after, device);
  for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
    const struct gemmd_memory *tensor = tensor_find(session, tensors[i].pointer);
    struct tensor_place place;
    if (tensor == NULL)
      continue;
    tensor_place(tensor, tensors[i].pointer, &place);
    if (*device != LIMIT_DEVICES && *device != place.device)
      return error_set(&session->error, STATUS_INVALID, "%s is on device %u and %s on device %u", first, *device,
                       tensors[i].what, place.device);
    *device = place.device;
    first = tensors[i].what;
  }
  return STATUS_OK;
}

enum status product_offsets(struct gemmd_session *session, const gemmd_product *from, struct gemm_product *out) {
  *out = (struct gemm_product){.m = from->m,
                               .x_type = (enum gemm_type)from->x_type,
                               .y_type = (enum gemm_type)from->y_type,
                               .x_stride = from->x_stride,
                               .y_stride = from->y_stride};
  if ((unsigned)from->priority >= RING_PRIORITIES)
    return error_field(&session->error, STATUS_INVALID, FIELD_PRIORITY, (int64_t)from->priority, 0,
                       RING_PRIORITIES - 1);
  enum status status = tensor_offset(session, from->x, "x", &out->x_offset, &out->x_tensor, &out->x_tensor_bytes);
  if (status == STATUS_OK)
    status = tensor_offset(session, from->y, "y", &out->y_offset, &out->y_tensor, &out->y_tensor_bytes);
  if (status == STATUS_OK && from->bias != NULL) {
    out->bias_type = (enum gemm_type)from->bias_type;
    if (out->bias_type == GEMM_TYPE_NONE)
      return error_set(&session->error, STATUS_INVALID, "bias type must be that of bias, got none");
    status = arena_offset(session, from->bias, "bias", &out->bias_offset);
  }
  if (status == STATUS_OK && needs_x_scale(from))
    status = arena_offset(session, from->x_scale, "x scale", &out->x_scale_offset);
  return status;
}

static enum status beside_x(struct gemmd_session *session, const void *pointer, const char *what,
                            const struct gemm_product *product, uint64_t *offset) {
  uint32_t handle = 0;
  uint64_t bytes;
  enum status status = tensor_offset(session, pointer, what, offset, &handle, &bytes);
  if (status == STATUS_OK && handle != product->x_tensor)
    return error_set(&session->error, STATUS_INVALID, "%s must lie where x lies", what);
  return status;
}

enum status product_experts(struct gemmd_session *session, const gemmd_experts *experts, struct gemm_product *out) {
  if (experts == NULL)
    return STATUS_OK;
  struct gemm_choice *choice = &out->choice;
  *choice = (struct gemm_choice){
      .top = experts->top, .x_pairs = experts->x_pairs, .sum = experts->sum, .routed = experts->routing != NULL};
  if (experts->top == 0)
    return error_field(&session->error, STATUS_INVALID, FIELD_TOP, 0, 1, LIMIT_EXPERTS);
  enum status status = beside_x(session, experts->ids, "ids", out, &choice->ids_offset);
  return status == STATUS_OK && choice->routed
             ? beside_x(session, experts->routing, "routing", out, &choice->routing_offset)
             : status;
}

void product_submission(const gemmd_product *from, const struct gemm_product *product, const struct gemm_extent *extent,
                        struct ring_submission *out) {
  uint32_t device;
  *out = (struct ring_submission){.opcode = RING_OP_PRODUCT,
                                  .event = from->after != NULL ? event_handle(from->after, &device) : 0,
                                  .x_type = (uint8_t)product->x_type,
                                  .y_type = (uint8_t)product->y_type,
                                  .bias_type = (uint8_t)product->bias_type,
                                  .priority = (uint8_t)from->priority,
                                  .deadline_ns = deadline_of(from),
                                  .m = from->m,
                                  .n = (uint32_t)product->n,
                                  .k = (uint32_t)product->k,
                                  .x_offset = product->x_offset,
                                  .y_offset = product->y_offset,
                                  .x_stride = extent->x_stride,
                                  .y_stride = extent->y_stride,
                                  .bias_offset = product->bias_offset,
                                  .x_scale_offset = product->x_scale_offset,
                                  .x_tensor = product->x_tensor,
                                  .y_tensor = product->y_tensor};
  const struct gemm_choice *choice = &product->choice;
  if (choice->top == 0)
    return;
  out->opcode = RING_OP_EXPERTS;
  out->choice = (struct ring_choice){
      .top = (uint32_t)choice->top, .x_pairs = choice->x_pairs, .sum = choice->sum, .routed = choice->routed};
  out->ids_offset = choice->ids_offset;
  out->routing_offset = choice->routing_offset;
}
