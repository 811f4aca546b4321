#include "submit.h"
#include "../session/control.h"
#include "missing.h"
#include "product.h"
#include "queue.h"
#include "wait.h"

/* The whole product, checked as the daemon will check its parts; only the client sees a split as one. */
static enum status product_translate(const struct gemmd_weight *weight, const gemmd_product *from,
                                     const gemmd_experts *experts, struct ring_submission *out) {
  struct gemmd_session *session = weight->session;
  struct gemm_product product;
  struct gemm_extent extent;
  enum status status = product_offsets(session, from, &product);
  product.n = weight->shape.n;
  product.k = weight->shape.k;
  if (status == STATUS_OK)
    status = product_experts(session, experts, &product);
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

int submit_entry(struct gemmd_session *session, const struct ring_submission *submission,
                 const struct pending_part *parts, uint32_t part_count, uint64_t *ticket) {
  uint32_t resumes = session->resumes;
  if (queues_look(session))
    wait_take_in(session);
  enum status status = parts_ready(session, parts, part_count);
  if (status != STATUS_OK)
    return session_result(status);
  struct request *request = pending_add(&session->pending, submission, parts, part_count);
  if (request == NULL)
    return session_result(error_set(&session->error, STATUS_BUSY, "%u products are in flight or not taken, the most",
                                    session->pending.slots));
  if (session->resumes != resumes)
    missing_fail(session);
  for (uint32_t part = 0; part < part_count; part++)
    if (request->parts[part].open)
      queue_submit(session, request, part);
  *ticket = request->ticket;
  queues_arm(session);
  return GEMMD_OK;
}

enum status submit_ready(struct gemmd_session *session, struct gemmd_weight *weight, struct gemmd_plan *plan) {
  for (;;) {
    enum status status = control_alive(session);
    if (status != STATUS_OK)
      return status;
    status = weight != NULL ? missing_look(weight) : missing_look_plan(plan);
    if (status == STATUS_OK || !session->ended) /* else the daemon was lost meanwhile */
      return status;
  }
}

int submit_product(gemmd_weight *weight, const gemmd_product *product, const gemmd_experts *experts, uint64_t *ticket) {
  struct gemmd_session *session = weight->session;
  struct ring_submission submission;
  *ticket = 0;
  enum status status = submit_ready(session, weight, NULL);
  if (status != STATUS_OK)
    return session_result(status);
  status = product_translate(weight, product, experts, &submission);
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
    return part != NULL ? submit_entry(session, &submission, part, 1, ticket) : session_result(session->error.status);
  }
  if (device != LIMIT_DEVICES)
    return session_result(error_set(&session->error, STATUS_UNSUPPORTED,
                                    "x and y of a weight in parts on several devices must lie in the arena"));
  return submit_entry(session, &submission, weight->parts, weight->part_count, ticket);
}

int gemmd_submit(gemmd_weight *weight, const gemmd_product *product, uint64_t *ticket) {
  return submit_product(weight, product, NULL, ticket);
}

int gemmd_matmul(gemmd_weight *weight, const gemmd_product *product) {
  uint64_t ticket;
  int status = gemmd_submit(weight, product, &ticket);
  return status == GEMMD_OK ? gemmd_wait(weight->session, ticket, -1, NULL) : status;
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
