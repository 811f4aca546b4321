/* What clients ask of the tuner: tune_list, tune_trials, tune_forget, tune_import, weight_tune, weight_pin;
 * weight_seen, which tells it of products that clients compute themselves, worker_quiet, when these leave it the
 * device, and worker_follow, of the worker before. The engine's thread answers, so that the tuner needs no lock. */
#include "control_tune.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum status make(struct control_task *task, enum tune_verb verb, struct error *error) {
  task->tune = calloc(1, sizeof *task->tune);
  if (task->tune == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for a request to the tuner");
  task->tune->verb = verb;
  return STATUS_OK;
}

static void post(struct control *control, struct control_task *task) {
  task->message.verb = ENGINE_TUNE;
  task->message.tune = task->tune;
}

/* ---- tune_list */

static enum status begin_list(struct control *control, struct control_task *task, struct error *error) {
  enum status status = make(task, TUNE_LIST, error);
  if (status == STATUS_OK)
    task->tune->from = task->request.tune_list.from;
  return status;
}

static void finish_list(struct control *control, struct control_task *task) {
  struct message_tune_list_reply *reply = &task->reply.tune_list;
  reply->next = task->tune->next;
  reply->shapes_count = task->tune->count;
  for (uint32_t i = 0; i < task->tune->count; i++) {
    const struct tune_shape *from = &task->tune->page[i];
    struct message_tune_shape *to = &reply->shapes[i];
    *to = (struct message_tune_shape){.serves = from->serves,
                                      .confirmed = from->confirmed,
                                      .tuning = from->tuning,
                                      .calls = from->calls,
                                      .device_ns = from->device_ns,
                                      .own_ns = from->own_ns,
                                      .tuned_ns = from->tuned_ns,
                                      .library_ns = from->library_ns,
                                      .roof_ns = from->roof_ns};
    snprintf(to->shape, sizeof to->shape, "%.127s", from->shape);
    snprintf(to->kernel, sizeof to->kernel, "%s", from->kernel);
    snprintf(to->state, sizeof to->state, "%s", from->state);
    snprintf(to->why, sizeof to->why, "%s", from->why);
  }
}

/* ---- tune_trials */

static enum status begin_trials(struct control *control, struct control_task *task, struct error *error) {
  enum status status = make(task, TUNE_TRIALS, error);
  if (status != STATUS_OK)
    return status;
  task->tune->from = task->request.tune_trials.from;
  task->tune->search = task->request.tune_trials.search;
  return STATUS_OK;
}

static uint32_t spread_ppm(double spread) {
  return (uint32_t)(spread < 1000 ? spread * 1e6 : 1e9);
}

static void finish_trials(struct control *control, struct control_task *task) {
  static const char *const states[] = {"timed", "untried", "refused", "failed", "wrong"};
  struct message_tune_trials_reply *reply = &task->reply.tune_trials;
  const struct tune_request *request = task->tune;
  reply->search = request->search;
  reply->roof_ns = request->roof_ns;
  reply->total = request->total;
  reply->next = request->next;
  reply->trials_count = request->count;
  snprintf(reply->shape, sizeof reply->shape, "%.127s", request->shape);
  for (uint32_t i = 0; i < request->count; i++) {
    const struct tune_row *from = &request->trials[i];
    struct message_tune_trial *to = &reply->trials[i];
    *to = (struct message_tune_trial){.ns = from->ns,
                                      .spread_ppm = spread_ppm(from->spread),
                                      .samples = from->samples,
                                      .error = from->error < 0     ? UINT64_MAX
                                               : from->error < 1e6 ? (uint64_t)(from->error * 1e12)
                                                                   : (uint64_t)1e18,
                                      .workspace = from->needs.workspace_bytes,
                                      .filling = from->needs.filling,
                                      .own = from->own,
                                      .incumbent = from->incumbent,
                                      .winner = from->winner,
                                      .library_first = from->library_first,
                                      .hand = from->hand};
    variant_text(&from->variant, to->kernel);
    snprintf(to->state, sizeof to->state, "%s", states[from->outcome]);
    snprintf(to->why, sizeof to->why, "%s", from->why);
  }
}

/* ---- tune_forget, tune_import */

static enum status begin_forget(struct control *control, struct control_task *task, struct error *error) {
  enum status status = make(task, TUNE_FORGET, error);
  if (status == STATUS_OK)
    memcpy(task->tune->text, task->request.tune_forget.pattern, sizeof task->tune->text);
  return status;
}

static void finish_count(struct control *control, struct control_task *task) {
  task->reply.tune_count = (struct message_tune_count){.count = task->tune->count};
}

static enum status begin_import(struct control *control, struct control_task *task, struct error *error) {
  enum status status = make(task, TUNE_IMPORT, error);
  if (status != STATUS_OK)
    return status;
  memcpy(task->tune->text, task->request.tune_import.kernel, sizeof task->tune->text);
  snprintf(task->tune->shape, sizeof task->tune->shape, "%s", task->request.tune_import.shape);
  return STATUS_OK;
}

/* ---- weight_tune, weight_pin */

static enum status find_weight(struct control *control, struct control_task *task, uint32_t id, struct error *error) {
  struct control_weight *weight = idmap_find(&control->weights, id);
  if (weight == NULL || weight->detaching)
    return error_set(error, STATUS_NOT_FOUND, "weight %u is not attached", id);
  task->tune->weight = &weight->engine;
  return STATUS_OK;
}

static enum status check_types(const struct gemm_weight *weight, const struct message_weight_tune *ask,
                               struct error *error) {
  enum gemm_type x_type = (enum gemm_type)ask->x_type, y_type = (enum gemm_type)ask->y_type;
  bool bias = ask->bias_type == GEMM_TYPE_NONE || ask->bias_type == GEMM_F32 || ask->bias_type == GEMM_F16 ||
              ask->bias_type == GEMM_BF16;
  if (ask->m < 1 || ask->m > LIMIT_M)
    return error_field(error, STATUS_INVALID, FIELD_M, ask->m, 1, LIMIT_M);
  if (!gemm_takes_x(weight->format, x_type))
    return error_field(error, STATUS_UNSUPPORTED, FIELD_X_TYPE, ask->x_type, 1, 0);
  if (!gemm_takes_y(weight->format, x_type, y_type))
    return error_field(error, STATUS_UNSUPPORTED, FIELD_Y_TYPE, ask->y_type, 1, 0);
  if (!bias || (ask->bias_type != GEMM_TYPE_NONE && y_type == GEMM_S32))
    return error_set(error, STATUS_UNSUPPORTED, "bias of type %s does not go with y of type %s",
                     gemm_type_name((enum gemm_type)ask->bias_type), gemm_type_name(y_type));
  return STATUS_OK;
}

static enum status begin_tune(struct control *control, struct control_task *task, struct error *error) {
  const struct message_weight_tune *request = &task->request.weight_tune;
  enum status status = make(task, TUNE_ASK, error);
  if (status == STATUS_OK)
    status = find_weight(control, task, request->weight, error);
  if (status == STATUS_OK)
    status = check_types(&task->tune->weight->shape, request, error);
  if (status != STATUS_OK)
    return status;
  task->tune->problem = (struct variant_problem){.m = request->m,
                                                 .x_type = (enum gemm_type)request->x_type,
                                                 .y_type = (enum gemm_type)request->y_type,
                                                 .bias_type = (enum gemm_type)request->bias_type};
  task->tune->all = request->all;
  task->tune->warmup = request->warmup;
  task->tune->iterations = request->iterations;
  memcpy(task->tune->text, request->kernel, sizeof task->tune->text);
  return STATUS_OK;
}

static void finish_tune(struct control *control, struct control_task *task) {
  struct message_tune_run_reply *reply = &task->reply.tune_run;
  const struct tune_request *tuned = task->tune;
  char shape[VARIANT_TEXT_BYTES];
  reply->device = (uint32_t)control->device;
  reply->search = tuned->search;
  snprintf(reply->shape, sizeof reply->shape, "%.127s", variant_problem_text(&tuned->problem, shape));
  memcpy(reply->kernel, tuned->kernel, sizeof reply->kernel);
  reply->checked = tuned->checked;
  reply->wrong = tuned->wrong;
  reply->timed = tuned->timed;
  reply->spent_ns = tuned->spent_ns;
  reply->roof_ns = tuned->roof_ns;
  memcpy(reply->why, tuned->why, sizeof reply->why);
  reply->library_first_ns = tuned->library_first_ns;
  reply->library_ns = tuned->library_ns;
  reply->results_count = tuned->count;
  for (uint32_t i = 0; i < tuned->count; i++) {
    const struct tune_result *from = &tuned->results[i];
    struct message_tune_result *to = &reply->results[i];
    *to = (struct message_tune_result){.ns = from->ns,
                                       .spread_ppm = spread_ppm(from->spread),
                                       .samples = from->samples,
                                       .own = from->own,
                                       .hand = from->hand};
    memcpy(to->kernel, from->kernel, sizeof to->kernel);
  }
}

static enum status begin_pin(struct control *control, struct control_task *task, struct error *error) {
  const struct message_weight_pin *request = &task->request.weight_pin;
  enum status status = make(task, TUNE_PIN, error);
  if (status == STATUS_OK && request->weight != 0)
    status = find_weight(control, task, request->weight, error);
  if (status != STATUS_OK)
    return status;
  memcpy(task->tune->text, request->kernel, sizeof task->tune->text);
  return STATUS_OK;
}

/* ---- weight_seen */

static enum status begin_seen(struct control *control, struct control_task *task, struct error *error) {
  const struct message_weight_seen *seen = &task->request.weight_seen;
  const struct message_weight_tune types = {
      .m = seen->m, .x_type = seen->x_type, .y_type = seen->y_type, .bias_type = seen->bias_type};
  enum status status = make(task, TUNE_SEEN, error);
  if (status == STATUS_OK)
    status = find_weight(control, task, seen->weight, error);
  if (status == STATUS_OK)
    status = check_types(&task->tune->weight->shape, &types, error);
  if (status != STATUS_OK)
    return status;
  task->tune->user = seen->user;
  memcpy(task->tune->text, seen->kernel, sizeof task->tune->text);
  task->tune->problem = (struct variant_problem){.m = seen->m,
                                                 .x_type = (enum gemm_type)seen->x_type,
                                                 .y_type = (enum gemm_type)seen->y_type,
                                                 .bias_type = (enum gemm_type)seen->bias_type};
  return STATUS_OK;
}

/* ---- worker_quiet */

static enum status begin_quiet(struct control *control, struct control_task *task, struct error *error) {
  enum status status = make(task, TUNE_ALLOW, error);
  if (status == STATUS_OK)
    task->tune->until_ns = task->request.worker_quiet.until_ns;
  return status;
}

/* ---- worker_follow */

static enum status begin_follow(struct control *control, struct control_task *task, struct error *error) {
  enum status status = make(task, TUNE_FOLLOW, error);
  if (status != STATUS_OK)
    return status;
  task->tune->outside = task->request.worker_follow.outside;
  task->tune->faults = task->request.worker_follow.faults;
  return STATUS_OK;
}

const struct control_handler control_tune_handlers[] = {
    {.command = COMMAND_tune_list, .overtaken = true, .begin = begin_list, .post = post, .finish = finish_list},
    {.command = COMMAND_tune_trials, .overtaken = true, .begin = begin_trials, .post = post, .finish = finish_trials},
    {.command = COMMAND_tune_forget, .overtaken = true, .begin = begin_forget, .post = post, .finish = finish_count},
    {.command = COMMAND_tune_import, .overtaken = true, .begin = begin_import, .post = post},
    {.command = COMMAND_weight_tune, .overtaken = true, .begin = begin_tune, .post = post, .finish = finish_tune},
    {.command = COMMAND_weight_pin, .overtaken = true, .begin = begin_pin, .post = post},
    {.command = COMMAND_weight_seen, .overtaken = true, .begin = begin_seen, .post = post},
    {.command = COMMAND_worker_quiet, .overtaken = true, .begin = begin_quiet, .post = post},
    {.command = COMMAND_worker_follow, .begin = begin_follow, .post = post},
    {.command = 0},
};
