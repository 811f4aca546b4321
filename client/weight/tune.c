#include "../session/argument.h"
#include "../session/control.h"
#include "info.h"

static void shape_convert(const struct message_tune_shape *from, gemmd_tune_shape *to) {
  *to = (gemmd_tune_shape){.serves = from->serves,
                           .confirmed = from->confirmed,
                           .tuning = from->tuning,
                           .calls = from->calls,
                           .device_ns = from->device_ns,
                           .own_ns = from->own_ns,
                           .tuned_ns = from->tuned_ns,
                           .library_ns = from->library_ns,
                           .roof_ns = from->roof_ns};
  COPY_TEXT(to->shape, from->shape);
  COPY_TEXT(to->kernel, from->kernel);
  COPY_TEXT(to->state, from->state);
  COPY_TEXT(to->why, from->why);
}

int gemmd_tune_list(gemmd_session *session, uint32_t device, bool (*each)(void *user, const gemmd_tune_shape *shape),
                    void *user) {
  struct message_tune_list_request request = {.device = device};
  struct message_tune_list_reply reply = {.next = 0};
  struct call call = {.command = COMMAND_tune_list, .request = &request, .reply = &reply, .fd = -1};
  do {
    enum status status = control_call(session, &call);
    if (status != STATUS_OK)
      return session_result(status);
    if (reply.next != 0 && reply.next <= request.from)
      return session_result(session_end(session, STATUS_PROTOCOL, "the list of shapes goes round"));
    for (uint32_t i = 0; i < reply.shapes_count; i++) {
      gemmd_tune_shape shape;
      shape_convert(&reply.shapes[i], &shape);
      if (!each(user, &shape))
        return GEMMD_OK;
    }
    request.from = reply.next;
  } while (request.from != 0);
  return GEMMD_OK;
}

/* A kernel's text, which may be absent. */
static enum status kernel_copy(struct gemmd_session *session, char *to, size_t bytes, const char *kernel) {
  return kernel == NULL ? STATUS_OK : text_copy(session, to, bytes, kernel, "kernel");
}

int gemmd_tune(gemmd_session *session, const gemmd_tune_request *ask, gemmd_tune_report *report) {
  gemmd_tune_search search = {.warmup = 0};
  return gemmd_tune_measured(session, ask, &search, report);
}

int gemmd_tune_measured(gemmd_session *session, const gemmd_tune_request *ask, gemmd_tune_search *search,
                        gemmd_tune_report *report) {
  struct message_tune_run_request request = {.m = ask->m,
                                             .x_type = (uint32_t)ask->x_type,
                                             .y_type = (uint32_t)ask->y_type,
                                             .bias_type = (uint32_t)ask->bias_type,
                                             .all = ask->exhaustive,
                                             .warmup = search->warmup,
                                             .iterations = search->iterations};
  struct message_tune_run_reply reply = {.checked = 0};
  struct call call = {.command = COMMAND_tune_run, .request = &request, .reply = &reply, .fd = -1, .patient = true};
  enum status status = text_copy(session, request.name, sizeof request.name, ask->weight, "weight");
  if (status == STATUS_OK)
    status = kernel_copy(session, request.kernel, sizeof request.kernel, ask->kernel);
  if (status == STATUS_OK)
    status = control_call(session, &call);
  if (status != STATUS_OK)
    return session_result(status);
  *report = (gemmd_tune_report){.count = reply.results_count,
                                .checked = reply.checked,
                                .wrong = reply.wrong,
                                .timed = reply.timed,
                                .spent_ns = reply.spent_ns,
                                .roof_ns = reply.roof_ns,
                                .library_first_ns = reply.library_first_ns,
                                .library_ns = reply.library_ns};
  search->device = reply.device;
  search->number = reply.search;
  COPY_TEXT(report->shape, reply.shape);
  COPY_TEXT(report->kernel, reply.kernel);
  COPY_TEXT(report->why, reply.why);
  for (uint32_t i = 0; i < reply.results_count; i++) {
    const struct message_tune_result *from = &reply.results[i];
    report->results[i] = (gemmd_tune_result){.ns = from->ns,
                                             .spread = from->spread_ppm / 1e6,
                                             .samples = from->samples,
                                             .own = from->own,
                                             .hand = from->hand};
    COPY_TEXT(report->results[i].kernel, from->kernel);
  }
  return GEMMD_OK;
}

static void trial_convert(const struct message_tune_trial *from, gemmd_tune_trial *to) {
  *to = (gemmd_tune_trial){.ns = from->ns,
                           .spread = from->spread_ppm / 1e6,
                           .samples = from->samples,
                           .error = from->error == UINT64_MAX ? -1 : (double)from->error / 1e12,
                           .workspace = from->workspace,
                           .filling = from->filling,
                           .own = from->own,
                           .incumbent = from->incumbent,
                           .winner = from->winner,
                           .library_first = from->library_first,
                           .hand = from->hand};
  COPY_TEXT(to->kernel, from->kernel);
  COPY_TEXT(to->state, from->state);
  COPY_TEXT(to->why, from->why);
}

int gemmd_tune_trials(gemmd_session *session, gemmd_tune_search *search,
                      bool (*each)(void *user, const gemmd_tune_trial *trial), void *user) {
  struct message_tune_trials_request request = {.device = search->device, .search = search->number};
  struct message_tune_trials_reply reply = {.next = 0};
  struct call call = {.command = COMMAND_tune_trials, .request = &request, .reply = &reply, .fd = -1};
  do {
    enum status status = control_call(session, &call);
    if (status != STATUS_OK)
      return session_result(status);
    if (reply.next != 0 && reply.next <= request.from)
      return session_result(session_end(session, STATUS_PROTOCOL, "the table of a search goes round"));
    request.search = search->number = reply.search; /* further pages are of the same one */
    search->roof_ns = reply.roof_ns;
    search->total = reply.total;
    COPY_TEXT(search->shape, reply.shape);
    for (uint32_t i = 0; i < reply.trials_count; i++) {
      gemmd_tune_trial trial;
      trial_convert(&reply.trials[i], &trial);
      if (!each(user, &trial))
        return GEMMD_OK;
    }
    request.from = reply.next;
  } while (request.from != 0);
  return GEMMD_OK;
}

int gemmd_tune_forget(gemmd_session *session, uint32_t device, const char *pattern, uint32_t *count) {
  struct message_tune_forget_request request = {.device = device};
  struct message_tune_count reply = {.count = 0};
  struct call call = {.command = COMMAND_tune_forget, .request = &request, .reply = &reply, .fd = -1};
  enum status status = text_copy(session, request.pattern, sizeof request.pattern, pattern, "pattern");
  if (status == STATUS_OK)
    status = control_call(session, &call);
  if (status == STATUS_OK && count != NULL)
    *count = reply.count;
  return session_result(status);
}

int gemmd_tune_import(gemmd_session *session, uint32_t device, const char *shape, const char *kernel) {
  struct message_tune_import_request request = {.device = device};
  struct message_empty reply;
  struct call call = {.command = COMMAND_tune_import, .request = &request, .reply = &reply, .fd = -1};
  enum status status = text_copy(session, request.shape, sizeof request.shape, shape, "shape");
  if (status == STATUS_OK)
    status = text_copy(session, request.kernel, sizeof request.kernel, kernel, "kernel");
  if (status == STATUS_OK)
    status = control_call(session, &call);
  return session_result(status);
}

int gemmd_tune_pin(gemmd_session *session, const char *pattern, const char *kernel, uint32_t *weights) {
  struct message_tune_pin_request request = {.pattern = ""};
  struct message_tune_count reply = {.count = 0};
  struct call call = {.command = COMMAND_tune_pin, .request = &request, .reply = &reply, .fd = -1};
  enum status status = text_copy(session, request.pattern, sizeof request.pattern, pattern, "pattern");
  if (status == STATUS_OK)
    status = kernel_copy(session, request.kernel, sizeof request.kernel, kernel);
  if (status == STATUS_OK)
    status = control_call(session, &call);
  if (status == STATUS_OK && weights != NULL)
    *weights = reply.count;
  return session_result(status);
}

int gemmd_tune_propose(gemmd_session *session, const gemmd_borrowed *borrowed, const gemmd_proposal *proposal) {
  struct message_tune_propose request = {.borrow = gemmd_borrowed_number(borrowed),
                                         .m = proposal->m,
                                         .x_type = (uint32_t)proposal->x_type,
                                         .y_type = (uint32_t)proposal->y_type,
                                         .bias_type = (uint32_t)proposal->bias_type};
  struct message_empty reply;
  struct call call = {.command = COMMAND_tune_propose, .request = &request, .reply = &reply, .fd = -1};
  if (strlen(proposal->kernel) >= sizeof request.kernel)
    return session_result(error_set(&session->error, STATUS_INVALID, "the kernel's name has %zu bytes, at most %zu",
                                    strlen(proposal->kernel), sizeof request.kernel - 1));
  strcpy(request.kernel, proposal->kernel);
  return session_result(control_call(session, &call));
}
