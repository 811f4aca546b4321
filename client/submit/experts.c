/* Products and plans over experts. */
#include "../weight/handle.h"
#include "plan.h"
#include "plan_submit.h"
#include "submit.h"

int gemmd_experts_submit(gemmd_weight *weight, const gemmd_product *product, const gemmd_experts *experts,
                         uint64_t *ticket) {
  return submit_product(weight, product, experts, ticket);
}

int gemmd_experts_matmul(gemmd_weight *weight, const gemmd_product *product, const gemmd_experts *experts,
                         gemmd_result *result) {
  uint64_t ticket;
  int status = gemmd_experts_submit(weight, product, experts, &ticket);
  return status == GEMMD_OK ? gemmd_wait(weight->session, ticket, -1, result) : status;
}

int gemmd_experts_plan_submit(gemmd_plan *plan, const gemmd_product *product, const gemmd_experts *experts,
                              uint64_t *ticket) {
  return submit_plan(plan, product, experts, ticket);
}

int gemmd_experts_plan_run(gemmd_plan *plan, const gemmd_product *product, const gemmd_experts *experts,
                           gemmd_result *result) {
  uint64_t ticket;
  int status = gemmd_experts_plan_submit(plan, product, experts, &ticket);
  return status == GEMMD_OK ? gemmd_wait(plan->session, ticket, -1, result) : status;
}
