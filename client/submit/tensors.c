/* Products of two tensors. */
#include "../memory/tensor.h"
#include "../session/control.h"
#include "product.h"
#include "queue.h"
#include "submit.h"

/* The entry for the ring, but for device and tag; its `weight` is what W lies in. */
static enum status translate(struct gemmd_session *session, const gemmd_tensor *w, const gemmd_product *from,
                             struct ring_submission *out) {
  struct gemm_product product;
  struct gemm_extent extent;
  uint64_t offset = 0, stride = w->stride;
  enum status status = product_offsets(session, from, &product);
  product.n = w->n;
  product.k = w->k;
  struct tensors_form form = {.x_turned = w->x_turned != 0,
                              .w_turned = w->turned != 0,
                              .add = w->add != 0,
                              .batch = w->batch,
                              .x_step = w->x_batch_stride,
                              .w_step = w->batch_stride,
                              .y_step = w->y_batch_stride};
  if (status == STATUS_OK)
    status = tensor_offset(session, w->data, "W", &offset, &product.w_tensor, &product.w_tensor_bytes);
  if (status == STATUS_OK)
    status = tensors_check(&product, &form, offset, &stride, session->tensor_offset, session->arena_bytes, &extent,
                           &session->error);
  if (status != STATUS_OK)
    return status;
  product_submission(from, &product, &extent, out);
  out->opcode = RING_OP_TENSORS;
  out->weight = product.w_tensor;
  out->w_offset = offset;
  out->w_stride = stride;
  out->form = (struct ring_form){.flags = (uint8_t)((form.x_turned ? RING_X_TURNED : 0) |
                                                    (form.w_turned ? RING_W_TURNED : 0) | (form.add ? RING_ADD : 0)),
                                 .batch = (uint16_t)form.batch};
  if (form.batch == 1)
    return STATUS_OK;
  out->x_step = form.x_step;
  out->w_step = form.w_step;
  out->y_step = form.y_step;
  return STATUS_OK;
}

int gemmd_tensors_submit(gemmd_session *session, const gemmd_tensor *w, const gemmd_product *product,
                         uint64_t *ticket) {
  struct ring_submission submission;
  *ticket = 0;
  enum status status = control_alive(session);
  if (status != STATUS_OK)
    return session_result(status);
  if (w->device >= session->devices)
    status = error_field(&session->error, STATUS_INVALID, FIELD_DEVICE, w->device, 0, session->devices - 1);
  /* Before handles are looked up: it may find the next daemon, whose handles are others. */
  if (status == STATUS_OK)
    status = queue_open(session, w->device, control_call);
  if (status == STATUS_OK)
    status = translate(session, w, product, &submission);
  if (status != STATUS_OK)
    return session_result(status);
  uint32_t device;
  status = product_device(session, product, &device);
  const struct gemmd_memory *own = tensor_find(session, w->data);
  struct tensor_place place = {.device = w->device};
  if (own != NULL)
    tensor_place(own, w->data, &place);
  if (status == STATUS_OK && ((device != LIMIT_DEVICES && device != w->device) || place.device != w->device))
    status = error_set(&session->error, STATUS_INVALID, "%s is on device %u, and device %u is to compute",
                       place.device != w->device ? "W" : "x, y or the event",
                       place.device != w->device ? place.device : device, w->device);
  if (status != STATUS_OK)
    return session_result(status);
  const struct pending_part part = {.device = w->device, .handle = submission.weight, .n_count = w->n, .open = true};
  return submit_entry(session, &submission, &part, 1, ticket);
}

int gemmd_tensors_matmul(gemmd_session *session, const gemmd_tensor *w, const gemmd_product *product) {
  uint64_t ticket;
  int status = gemmd_tensors_submit(session, w, product, &ticket);
  return status == GEMMD_OK ? gemmd_wait(session, ticket, -1, NULL) : status;
}
