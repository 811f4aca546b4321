/* tune_list, tune_trials, tune_run, tune_forget, tune_import, tune_pin: the workers' tuners, asked on behalf of
 * clients. */
#include "../context.h"
#include "../weights/pins.h"
#include "../workers/fleet.h"
#include "cmd.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A request that one worker answers with the very reply. */
struct forwarded {
  struct session *session;
  uint32_t id;
  const struct message_type *reply;
  bool search; /* the account counts it */
};

static void on_forwarded(void *user, struct worker_answer *answer) {
  struct forwarded *forwarded = user;
  struct session *session = forwarded->session;
  if (forwarded->search)
    session->account->searches--;
  if (answer->status == STATUS_OK)
    session_reply(session, forwarded->id, forwarded->reply, answer->body, NULL, 0);
  else
    session_fail(session, forwarded->id, &answer->error);
  session_continue(session);
  free(forwarded);
}

static enum status forward(struct session *session, struct call *call, uint32_t device, enum command command,
                           const void *body) {
  struct fleet *fleet = session->supervisor->fleet;
  if (device >= fleet->count)
    return error_field(&call->error, STATUS_INVALID, FIELD_DEVICE, device, 0, (int64_t)fleet->count - 1);
  struct forwarded *forwarded = malloc(sizeof *forwarded);
  if (forwarded == NULL)
    return error_set(&call->error, STATUS_NOMEM, "no memory for the request");
  *forwarded = (struct forwarded){.session = session,
                                  .id = call->id,
                                  .reply = command_find(command)->reply,
                                  .search = command == COMMAND_weight_tune};
  enum status status =
      worker_ask(&fleet->workers[device], command, body, NULL, 0, on_forwarded, forwarded, &call->error);
  if (status == STATUS_OK)
    session_wait(session);
  else
    free(forwarded);
  return status;
}

enum status cmd_tune_list(struct session *session, struct call *call) {
  const struct message_tune_list_request *request = call->body;
  return forward(session, call, request->device, COMMAND_tune_list, request);
}

enum status cmd_tune_trials(struct session *session, struct call *call) {
  const struct message_tune_trials_request *request = call->body;
  return forward(session, call, request->device, COMMAND_tune_trials, request);
}

enum status cmd_tune_forget(struct session *session, struct call *call) {
  const struct message_tune_forget_request *request = call->body;
  return forward(session, call, request->device, COMMAND_tune_forget, request);
}

enum status cmd_tune_import(struct session *session, struct call *call) {
  const struct message_tune_import_request *request = call->body;
  return forward(session, call, request->device, COMMAND_tune_import, request);
}

enum { EFFORT_MOST = 100 }; /* products and samples of a candidate that a search may be asked for */

/* What a search takes of a device is its owner's to give: others search for weights of their own, among the best
 * guesses. */
static enum status may_search(const struct session *session, const struct message_tune_run_request *request,
                              const struct catalog_name *name, struct error *error) {
  if (request->warmup > EFFORT_MOST)
    return error_set(error, STATUS_INVALID, "warmup must be 0..%d, got %u", EFFORT_MOST, request->warmup);
  if (request->iterations > EFFORT_MOST)
    return error_set(error, STATUS_INVALID, "iterations must be 0..%d, got %u", EFFORT_MOST, request->iterations);
  if (session->user.admin)
    return STATUS_OK;
  if (name->owner != session->user.uid)
    return error_set(error, STATUS_PERMISSION, "to tune \"%.128s\" takes its owner or an admin", request->name);
  if (request->all)
    return error_set(error, STATUS_PERMISSION, "an exhaustive search takes an admin");
  return STATUS_OK;
}

enum status cmd_tune_run(struct session *session, struct call *call) {
  const struct message_tune_run_request *request = call->body;
  const struct catalog_name *name;
  if (catalog_look_up(&session->supervisor->catalog, request->name, session->user, &name, &call->error) != STATUS_OK ||
      may_search(session, request, name, &call->error) != STATUS_OK ||
      user_add_search(session->account, &call->error) != STATUS_OK)
    return call->error.status;
  struct message_weight_tune ask = {.weight = name->weight->id,
                                    .m = request->m,
                                    .x_type = request->x_type,
                                    .y_type = request->y_type,
                                    .bias_type = request->bias_type,
                                    .all = request->all,
                                    .warmup = request->warmup,
                                    .iterations = request->iterations};
  memcpy(ask.kernel, request->kernel, sizeof ask.kernel);
  enum status status = forward(session, call, name->weight->parts[0].device, COMMAND_weight_tune, &ask);
  session->account->searches -= status != STATUS_OK;
  return status;
}

/* ---- tune_pin */

struct pinning {
  struct session *session; /* waits */
  uint32_t id, waiting, weights;
  char pattern[LIMIT_NAME_BYTES], kernel[LIMIT_NAME_BYTES];
  struct error error; /* the first failure; status OK: none */
};

static bool matches(const struct catalog *catalog, const struct catalog_weight *weight, const char *pattern) {
  for (size_t i = 0; i < catalog->name_count; i++)
    if (catalog->names[i].weight == weight && fnmatch(pattern, catalog->names[i].text, 0) == 0)
      return true;
  return false;
}

/* What matches goes back to what it had before, where a worker refused. */
static void restore(struct supervisor *supervisor, const struct pinning *pinning);

static void count_down(struct pinning *pinning) {
  if (--pinning->waiting > 0)
    return;
  struct session *session = pinning->session;
  struct supervisor *supervisor = session->supervisor;
  struct message_tune_count reply = {.count = pinning->weights};
  if (pinning->error.status == STATUS_OK)
    pinning->error.status = pins_set(supervisor->pins, pinning->pattern, pinning->kernel, &pinning->error);
  if (pinning->error.status == STATUS_OK) {
    session_reply(session, pinning->id, &message_tune_count_type, &reply, NULL, 0);
  } else {
    restore(supervisor, pinning);
    session_fail(session, pinning->id, &pinning->error);
  }
  session_continue(session);
  free(pinning);
}

static void on_pinned(void *user, struct worker_answer *answer) {
  struct pinning *pinning = user;
  /* A worker that died meanwhile, or a weight that went, is no reason against the kernel. */
  if (answer->status != STATUS_OK && answer->status != STATUS_DEVICE_LOST && answer->status != STATUS_NOT_FOUND &&
      pinning->error.status == STATUS_OK)
    pinning->error = answer->error;
  count_down(pinning);
}

static void on_restored(void *user, struct worker_answer *answer) {}

/* Asks all workers that hold a weight which matches; `kernel` NULL: each weight's own, by the pins. */
static void ask_all(struct supervisor *supervisor, const char *pattern, const char *kernel, struct pinning *pinning) {
  const struct catalog *catalog = &supervisor->catalog;
  for (size_t i = 0; i < catalog->weight_count; i++) {
    const struct catalog_weight *weight = catalog->weights[i];
    if (!matches(catalog, weight, pattern))
      continue;
    struct message_weight_pin body = {.weight = weight->id};
    snprintf(body.kernel, sizeof body.kernel, "%s",
             kernel != NULL ? kernel : pins_find(supervisor->pins, catalog, weight));
    if (pinning != NULL)
      pinning->weights++;
    for (uint32_t p = 0; p < weight->part_count; p++) {
      struct worker *worker = &supervisor->fleet->workers[weight->parts[p].device];
      struct error error;
      if (worker_ask(worker, COMMAND_weight_pin, &body, NULL, 0, pinning != NULL ? on_pinned : on_restored, pinning,
                     &error) == STATUS_OK &&
          pinning != NULL)
        pinning->waiting++;
    }
  }
}

static void restore(struct supervisor *supervisor, const struct pinning *pinning) {
  ask_all(supervisor, pinning->pattern, NULL, NULL);
}

/* Nothing matches yet: a kernel that no backend has would be found out when a weight comes that does. */
static void ask_any(struct supervisor *supervisor, struct pinning *pinning) {
  struct message_weight_pin body = {.weight = 0};
  struct error error;
  memcpy(body.kernel, pinning->kernel, sizeof body.kernel);
  for (uint32_t i = 0; i < supervisor->fleet->count; i++)
    if (worker_usable(&supervisor->fleet->workers[i]) &&
        worker_ask(&supervisor->fleet->workers[i], COMMAND_weight_pin, &body, NULL, 0, on_pinned, pinning, &error) ==
            STATUS_OK) {
      pinning->waiting++;
      return;
    }
}

enum status cmd_tune_pin(struct session *session, struct call *call) {
  const struct message_tune_pin_request *request = call->body;
  if (request->pattern[0] == '\0')
    return error_set(&call->error, STATUS_INVALID, "the pattern of weights is empty");
  struct pinning *pinning = calloc(1, sizeof *pinning);
  if (pinning == NULL)
    return error_set(&call->error, STATUS_NOMEM, "no memory for the request");
  pinning->session = session;
  pinning->id = call->id;
  pinning->waiting = 1;
  memcpy(pinning->pattern, request->pattern, sizeof pinning->pattern);
  memcpy(pinning->kernel, request->kernel, sizeof pinning->kernel);
  session_wait(session);
  ask_all(session->supervisor, pinning->pattern, pinning->kernel, pinning);
  if (pinning->weights == 0 && pinning->kernel[0] != '\0')
    ask_any(session->supervisor, pinning);
  count_down(pinning);
  return STATUS_OK;
}
