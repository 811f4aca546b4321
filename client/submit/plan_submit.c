#include "plan_submit.h"

#include "plan.h"
#include "product.h"
#include "submit.h"

int submit_plan(gemmd_plan *plan, const gemmd_product *product, const gemmd_experts *experts, uint64_t *ticket) {
  struct gemmd_session *session = plan->session;
  struct gemm_product call;
  struct gemm_extent extent;
  struct ring_submission submission;
  *ticket = 0;
  enum status status = submit_ready(session, NULL, plan);
  if (status != STATUS_OK)
    return session_result(status);
  status = product_offsets(session, product, &call);
  call.k = plan->steps[0].weight.k;
  call.n = plan_step_columns(&plan->steps[plan->count - 1]);
  if (status == STATUS_OK)
    status = product_experts(session, experts, &call);
  if (status == STATUS_OK)
    status = plan_call_check(plan->steps, plan->count, &call, session->tensor_offset, session->arena_bytes, &extent,
                             &session->error);
  if (status != STATUS_OK)
    return session_result(status);
  uint32_t device;
  status = product_device(session, product, &device);
  const struct pending_part *part =
      status == STATUS_OK ? parts_choose(session, plan->places, plan->place_count, device) : NULL;
  if (part == NULL)
    return session_result(session->error.status);
  product_submission(product, &call, &extent, &submission);
  submission.opcode = experts != NULL ? RING_OP_EXPERTS : RING_OP_PLAN;
  submission.steps = plan->count;
  submission.plan_offset = (uint64_t)((uint8_t *)plan->descriptions[part - plan->places] - session->arena);
  return submit_entry(session, &submission, part, 1, ticket);
}

int gemmd_plan_submit(gemmd_plan *plan, const gemmd_product *product, uint64_t *ticket) {
  return submit_plan(plan, product, NULL, ticket);
}

int gemmd_plan_run(gemmd_plan *plan, const gemmd_product *product) {
  uint64_t ticket;
  int status = gemmd_plan_submit(plan, product, &ticket);
  return status == GEMMD_OK ? gemmd_wait(plan->session, ticket, -1, NULL) : status;
}
