#include "../session/session.h"

#include <string.h>

enum status session_offset(struct gemmd_session *session, const void *tensor, const char *what, uint64_t *offset) {
  /* Compared as numbers: the pointer may be into anything. */
  uintptr_t base = (uintptr_t)session->arena, address = (uintptr_t)tensor;
  if (tensor == NULL)
    return error_set(&session->error, STATUS_INVALID, "%s must not be NULL", what);
  if (address < base || address - base < session->tensor_offset || address - base >= session->arena_bytes)
    return error_set(&session->error, STATUS_INVALID, "%s must lie in the session's arena (gemmd_alloc)", what);
  *offset = address - base;
  return STATUS_OK;
}

void weight_name_error(const struct gemmd_weight *weight, struct error *error) {
  (void)error_set(error, error->status, "%s (weight \"%s\")", error->text, weight->info.name);
}

static bool needs_x_scale(const gemmd_product *product) {
  return (product->x_type == GEMMD_INT8 || product->x_type == GEMMD_E4M3) && product->y_type != GEMMD_S32;
}

static uint64_t deadline_of(const gemmd_product *product) {
  return product->deadline_us == 0 ? 0 : (uint64_t)clock_now() + (uint64_t)product->deadline_us * 1000;
}

enum status tensor_offset(struct gemmd_session *session, const void *pointer, const char *what, uint64_t *offset,
                          uint32_t *handle, uint64_t *bytes) {
  const struct gemmd_memory *tensor = tensor_find(session, pointer);
  struct tensor_place place;
  if (tensor == NULL)
    return session_offset(session, pointer, what, offset);
  tensor_place(tensor, pointer, &place);
  *offset = place.offset;
  *handle = place.handle;
  *bytes = place.bytes;
  return STATUS_OK;
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
    status = session_offset(session, from->bias, "bias", &out->bias_offset);
  }
  if (status == STATUS_OK && needs_x_scale(from))
    status = session_offset(session, from->x_scale, "x scale", &out->x_scale_offset);
  return status;
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
}

/* The whole product, checked as the daemon will check its parts; only the client sees a split as one. */
static enum status product_translate(const struct gemmd_weight *weight, const gemmd_product *from,
                                     struct ring_submission *out) {
  struct gemmd_session *session = weight->session;
  struct gemm_product product;
  struct gemm_extent extent;
  enum status status = product_offsets(session, from, &product);
  product.n = weight->shape.n;
  product.k = weight->shape.k;
  if (status == STATUS_OK)
    status = gemm_product_check(&product, &weight->shape, session->tensor_offset, session->arena_bytes, &extent,
                                &session->error);
  if (status == STATUS_OK)
    product_submission(from, &product, &extent, out);
  return status;
}

const struct pending_part *parts_choose(struct gemmd_session *session, const struct pending_part *parts,
                                        uint32_t part_count, uint32_t device) {
  const struct queue *queues = session->queues;
  const struct pending_part *best = NULL;
  for (uint32_t i = 0; i < part_count; i++) {
    if (device != LIMIT_DEVICES && parts[i].device != device)
      continue;
    const struct queue *queue = &queues[parts[i].device], *least = best != NULL ? &queues[best->device] : queue;
    bool serves = !queue_failed(queue), least_serves = !queue_failed(least);
    if (best == NULL || (serves != least_serves ? serves : queue->in_flight < least->in_flight))
      best = &parts[i];
  }
  if (best == NULL)
    (void)error_set(&session->error, STATUS_UNSUPPORTED,
                    "x, y or the event is on device %u, which does not hold the weights", device);
  return best;
}

/* The devices serve and have room for one more. */
static enum status parts_ready(struct gemmd_session *session, const struct pending_part *parts, uint32_t part_count) {
  for (uint32_t i = 0; i < part_count; i++) {
    const struct queue *queue = &session->queues[parts[i].device];
    if (queue_failed(queue))
      return error_set(&session->error, STATUS_DEVICE_LOST, "device %u has failed; gemmd starts it again after a while",
                       parts[i].device);
    uint32_t same_device = 0;
    for (uint32_t j = 0; j <= i; j++)
      same_device += parts[j].device == parts[i].device;
    if (same_device > ring_client_room(&queue->ring))
      return error_set(&session->error, STATUS_BUSY, "all %u entries of device %u are in flight", session->entries,
                       parts[i].device);
  }
  return STATUS_OK;
}

int session_submit(struct gemmd_session *session, const struct ring_submission *submission,
                   const struct pending_part *parts, uint32_t part_count, uint64_t *ticket) {
  if (queues_look(session))
    queues_take_in(session);
  enum status status = parts_ready(session, parts, part_count);
  if (status != STATUS_OK)
    return session_result(status);
  struct request *request = pending_add(&session->pending, submission, parts, part_count);
  if (request == NULL)
    return session_result(error_set(&session->error, STATUS_BUSY, "%u products are in flight or not taken, the most",
                                    session->pending.slots));
  for (uint32_t part = 0; part < part_count; part++)
    queue_submit(session, request, part);
  *ticket = request->ticket;
  session_arm(session);
  return GEMMD_OK;
}

int gemmd_submit(gemmd_weight *weight, const gemmd_product *product, uint64_t *ticket) {
  struct gemmd_session *session = weight->session;
  struct ring_submission submission;
  *ticket = 0;
  enum status status = session_alive(session);
  if (status != STATUS_OK)
    return session_result(status);
  status = product_translate(weight, product, &submission);
  if (status != STATUS_OK) {
    weight_name_error(weight, &session->error);
    return session_result(status);
  }
  uint32_t device;
  status = product_device(session, product, &device);
  if (status != STATUS_OK)
    return session_result(status);
  if (weight->placement != PLACEMENT_SPLIT) {
    const struct pending_part *part = parts_choose(session, weight->parts, weight->part_count, device);
    return part != NULL ? session_submit(session, &submission, part, 1, ticket) : session_result(session->error.status);
  }
  if (device != LIMIT_DEVICES)
    return session_result(error_set(&session->error, STATUS_UNSUPPORTED,
                                    "x and y of a weight in parts on several devices must lie in the arena"));
  return session_submit(session, &submission, weight->parts, weight->part_count, ticket);
}

int gemmd_cancel(gemmd_session *session, uint64_t ticket) {
  struct request *request = pending_find(&session->pending, ticket);
  if (request == NULL)
    return session_result(error_set(&session->error, STATUS_INVALID, "ticket %llu names no product in flight",
                                    (unsigned long long)ticket));
  for (uint32_t part = 0; part < request->part_count; part++)
    if (request->parts[part].open && !queue_cancel(session, request, part))
      return session_result(
          error_set(&session->error, STATUS_BUSY, "the ring of device %u is full", request->parts[part].device));
  return GEMMD_OK;
}
