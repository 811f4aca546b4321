#include "missing.h"
#include "../weight/again.h"

void handles_rename(struct gemmd_session *session) {
  for (uint32_t slot = 0; slot < session->pending.slots; slot++) {
    struct request *request = &session->pending.requests[slot];
    for (uint32_t part = 0; request->ticket != 0 && part < request->part_count; part++)
      if (request->submission.opcode != RING_OP_TENSORS) /* also of those that have ended: an error names its weight */
        request->parts[part].handle =
            weight_next_handle(session, request->parts[part].device, request->parts[part].handle);
  }
  plans_rename_handles(session);
  struct gemmd_weight *weight;
  LIST_FOREACH (weight, &session->weights, link)
    for (uint32_t i = 0; i < weight->part_count; i++)
      weight->parts[i].handle = weight->next_handles[i];
}

/* The first weight that is missing of what a part asks for; NULL: none. */
static const struct gemmd_weight *lacks(const struct gemmd_session *session, const struct request *request,
                                        const struct pending_part *part) {
  const struct ring_submission *submission = &request->submission;
  const struct gemmd_weight *weight;
  const struct gemmd_plan *plan;
  if (submission->opcode == RING_OP_TENSORS)
    return NULL;
  if (submission->steps == 0) {
    weight = weight_find(session, part->device, part->handle);
    return weight != NULL && weight->missing ? weight : NULL;
  }
  LIST_FOREACH (plan, &session->plans, link)
    for (uint32_t i = 0; i < plan->place_count; i++)
      for (uint32_t step = 0; step < plan->count; step++) {
        weight = weight_find(session, part->device, plan->descriptions[i][step].weight);
        if ((uint64_t)((uint8_t *)plan->descriptions[i] - session->arena) == submission->plan_offset &&
            weight != NULL && weight->missing)
          return weight;
      }
  return NULL;
}

void missing_fail(struct gemmd_session *session) {
  struct error error = {.status = STATUS_OK};
  for (uint32_t slot = 0; slot < session->pending.slots; slot++) {
    struct request *request = &session->pending.requests[slot];
    for (uint32_t part = 0; request->ticket != 0 && part < request->part_count; part++) {
      const struct gemmd_weight *weight = lacks(session, request, &request->parts[part]);
      if (!request->parts[part].open || weight == NULL)
        continue;
      (void)error_set(&error, STATUS_NOT_FOUND, "gemmd was lost, and the next one has no weight \"%.128s\"",
                      weight->info.name);
      pending_fail(&session->pending, request, part, &error);
    }
  }
}

enum status missing_look(struct gemmd_weight *weight) {
  if (!weight->missing)
    return STATUS_OK;
  enum status status = weight_open_again(weight);
  if (status != STATUS_OK)
    return status;
  struct gemmd_weight *other;
  LIST_FOREACH (other, &weight->session->weights, link)
    for (uint32_t i = 0; other != weight && i < other->part_count; i++)
      other->next_handles[i] = other->parts[i].handle;
  handles_rename(weight->session);
  return STATUS_OK;
}

enum status missing_look_plan(struct gemmd_plan *plan) {
  enum status status = STATUS_OK;
  for (uint32_t i = 0; status == STATUS_OK && i < plan->count; i++) {
    struct gemmd_weight *weight = weight_find(plan->session, plan->places[0].device, plan->descriptions[0][i].weight);
    status = weight != NULL ? missing_look(weight) : STATUS_OK; /* closed: the worker says so */
  }
  return status;
}
