/* weight_open, weight_close: handles that stand for the parts of a weight in one session. */
#include "../context.h"
#include "../weights/reclaim.h"
#include "../workers/fleet.h"
#include "cmd.h"

#include <stdlib.h>

/* A request to the workers of all parts. */
struct opening {
  struct session *session; /* waits */
  uint32_t id, waiting;
  struct error error; /* the first failure; status OK: none */
  void (*finish)(struct opening *opening);
  struct message_weight_info info; /* for the reply of weight_open; its parts are what is worked on */
};

static struct opening *begin(struct session *session, struct call *call, void (*finish)(struct opening *opening)) {
  struct opening *opening = calloc(1, sizeof *opening);
  if (opening == NULL) {
    (void)error_set(&call->error, STATUS_NOMEM, "no memory for the request");
    return NULL;
  }
  opening->session = session;
  opening->id = call->id;
  opening->waiting = 1;
  opening->finish = finish;
  session_wait(session);
  return opening;
}

static void count_down(struct opening *opening) {
  if (--opening->waiting == 0)
    opening->finish(opening);
}

/* A worker that died is no failure: its successor is told of the handles that there are then and are not closing. */
static void keep_error(struct opening *opening, enum status status, const struct error *error) {
  if (status != STATUS_OK && status != STATUS_DEVICE_LOST && opening->error.status == STATUS_OK)
    opening->error = *error;
}

static void on_answer(void *user, struct worker_answer *answer) {
  struct opening *opening = user;
  keep_error(opening, answer->status, &answer->error);
  count_down(opening);
}

static void ask_all(struct opening *opening, enum command command) {
  struct session *session = opening->session;
  for (uint32_t i = 0; command == COMMAND_session_weight_remove && i < opening->info.parts_count; i++)
    opened_close(&session->opened, opening->info.parts[i].handle);
  for (uint32_t i = 0; i < opening->info.parts_count; i++) {
    const struct message_weight_part *part = &opening->info.parts[i];
    const struct opened_slot *slot = opened_find(&session->opened, part->handle);
    struct message_session_weight body = {.session = session->id, .handle = part->handle, .weight = slot->weight->id};
    struct error error;
    enum status status = worker_ask(&session->supervisor->fleet->workers[part->device], command, &body, NULL, 0,
                                    on_answer, opening, &error);
    opening->waiting += status == STATUS_OK;
    keep_error(opening, status, &error);
  }
  count_down(opening);
}

/* The workers have forgotten the handles, or were never told. */
static void drop_handles(struct opening *opening) {
  struct session *session = opening->session;
  for (uint32_t i = 0; i < opening->info.parts_count; i++) {
    const struct opened_slot *slot = opened_find(&session->opened, opening->info.parts[i].handle);
    if (slot == NULL)
      continue; /* the session has ended, and given them back */
    struct catalog_weight *weight = slot->weight;
    opened_remove(&session->opened, opening->info.parts[i].handle);
    reclaim_handle(session->supervisor, weight);
  }
}

static void end(struct opening *opening) {
  struct session *session = opening->session;
  free(opening);
  session_continue(session);
}

/* ---- weight_open */

static void finish_undo(struct opening *opening) {
  drop_handles(opening);
  session_fail(opening->session, opening->id, &opening->error);
  end(opening);
}

static void finish_open(struct opening *opening) {
  struct session *session = opening->session;
  if (opening->error.status != STATUS_OK && !session->ending) {
    opening->waiting = 1;
    opening->finish = finish_undo;
    ask_all(opening, COMMAND_session_weight_remove);
    return;
  }
  session_reply(session, opening->id, &message_weight_info_type, &opening->info, NULL, 0);
  end(opening);
}

static enum status take_handles(struct session *session, struct catalog_weight *weight,
                                struct message_weight_info *info, struct error *error) {
  for (uint32_t i = 0; i < info->parts_count; i++) {
    enum status status = opened_add(&session->opened, weight, info->parts[i].device, &info->parts[i].handle, error);
    if (status != STATUS_OK) {
      info->parts_count = i;
      return status;
    }
    weight->handles++;
  }
  return STATUS_OK;
}

enum status cmd_weight_open(struct session *session, struct call *call) {
  const struct message_weight_name *request = call->body;
  const struct catalog_name *name;
  if (catalog_look_up(&session->supervisor->catalog, request->name, session->user, &name, &call->error) != STATUS_OK)
    return call->error.status;
  struct opening *opening = begin(session, call, finish_open);
  if (opening == NULL)
    return call->error.status;
  catalog_describe(name, &opening->info);
  if (take_handles(session, name->weight, &opening->info, &opening->error) != STATUS_OK)
    finish_undo(opening);
  else
    ask_all(opening, COMMAND_session_weight_add);
  return STATUS_OK;
}

/* ---- weight_close */

static void finish_close(struct opening *opening) {
  drop_handles(opening);
  struct message_empty reply = {.reserved = 0};
  session_reply(opening->session, opening->id, &message_empty_type, &reply, NULL, 0);
  end(opening);
}

static enum status check_close(const struct session *session, const struct message_weight_close *request,
                               struct error *error) {
  for (uint32_t i = 0; i < request->parts_count; i++) {
    const struct message_weight_part *part = &request->parts[i];
    const struct opened_slot *slot = opened_find(&session->opened, part->handle);
    if (slot == NULL || slot->device != part->device)
      return error_set(error, STATUS_NOT_FOUND, "handle %u stands for nothing on device %u", part->handle,
                       part->device);
    for (uint32_t before = 0; before < i; before++)
      if (request->parts[before].handle == part->handle)
        return error_set(error, STATUS_INVALID, "handle %u is given back twice", part->handle);
  }
  return STATUS_OK;
}

enum status cmd_weight_close(struct session *session, struct call *call) {
  const struct message_weight_close *request = call->body;
  if (check_close(session, request, &call->error) != STATUS_OK)
    return call->error.status;
  struct opening *opening = begin(session, call, finish_close);
  if (opening == NULL)
    return call->error.status;
  opening->info.parts_count = request->parts_count;
  for (uint32_t i = 0; i < request->parts_count; i++)
    opening->info.parts[i] = request->parts[i];
  ask_all(opening, COMMAND_session_weight_remove);
  return STATUS_OK;
}
