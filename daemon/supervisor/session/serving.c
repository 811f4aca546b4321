#include "serving.h"

#include "../../log.h"
#include "../context.h"
#include "../weights/reclaim.h"
#include "../workers/fleet.h"
#include "../workers/sleep.h"
#include "session.h"

#include <string.h>

struct message_session_add serving_message(const struct session *session, uint32_t device) {
  return (struct message_session_add){.session = session->id,
                                      .generation = session->arena.generations[device],
                                      .devices = session->arena.devices,
                                      .entries = session->arena.entries,
                                      .arena_bytes = session->arena.bytes,
                                      .user = session->user.uid};
}

void serving_descriptors(const struct session *session, uint32_t device, int fds[SERVING_FDS]) {
  fds[0] = session->arena.memfd;
  fds[1] = session->arena.doorbells[device];
  fds[2] = session->arena.wakeup;
}

enum status serving_give_tensor(const struct session *session, size_t slot, struct worker *worker, worker_done done,
                                void *user, struct error *error) {
  const struct tensor_slot *tensor = &session->tensors.slots[slot];
  uint32_t handle = tensors_handle(&session->tensors, slot);
  if (tensor->kind == 0) {
    struct message_session_tensor body = {.session = session->id, .handle = handle, .bytes = tensor->bytes};
    return worker_ask(worker, COMMAND_session_tensor_add, &body, &tensor->fd, 1, done, user, error);
  }
  struct message_session_ipc body = {
      .session = session->id, .handle = handle, .kind = tensor->kind, .bytes = tensor->bytes};
  memcpy(body.ipc, tensor->ipc, sizeof body.ipc);
  return worker_ask(worker, COMMAND_session_ipc_add, &body, NULL, 0, done, user, error);
}

static void close_arena(struct session *session) {
  for (size_t i = 0; i < session->opened.count; i++)
    if (opened_at(&session->opened, i) != 0)
      reclaim_handle(session->supervisor, session->opened.slots[i].weight);
  opened_free(&session->opened);
  session->account->arena_bytes -= tensors_bytes(&session->tensors);
  tensors_free(&session->tensors, &session->account->closing);
  session->account->arena_bytes -= session->arena.bytes;
  session->account->entries -= (uint64_t)session->arena.entries * session->arena.devices;
  for (uint32_t i = 0; i < session->arena.devices; i++)
    doorbells_remove(session->supervisor->fleet->doorbells[i], session->arena.doorbells[i]);
  arena_close(&session->arena);
  session->arena_leaving = false;
}

static void begin(struct session *session, struct serving_round *round,
                  void (*done)(struct session *session, const struct error *error)) {
  session_hold(session);
  *round = (struct serving_round){.waiting = 1, .done = done};
}

static void keep_error(struct serving_round *round, const struct error *error) {
  if (round->error.status == STATUS_OK)
    round->error = *error;
}

static void count_down(struct session *session, struct serving_round *round) {
  if (--round->waiting > 0)
    return;
  if (round == &session->removing)
    close_arena(session);
  round->done(session, round->error.status == STATUS_OK ? NULL : &round->error);
  session_release(session);
}

static struct serving_question *question_of(struct session *session, uint32_t device) {
  session->questions[device] = (struct serving_question){.session = session, .device = device};
  return &session->questions[device];
}

/* ---- the beginning */

static void on_added(void *user, struct worker_answer *answer) {
  struct serving_question *question = user;
  struct session *session = question->session;
  if (answer->status == STATUS_OK) /* of a session that is leaving, too: its arena stays until the worker lets go */
    arena_worker_ready(&session->arena, question->device);
  else if (answer->status != STATUS_OK && answer->status != STATUS_DEVICE_LOST)
    keep_error(&session->adding, &answer->error);
  count_down(session, &session->adding);
}

static void ask_add(struct session *session, struct worker *worker) {
  struct message_session_add body = serving_message(session, worker->device);
  int fds[SERVING_FDS];
  struct error error;
  serving_descriptors(session, worker->device, fds);
  enum status status = worker_ask(worker, COMMAND_session_add, &body, fds, SERVING_FDS, on_added,
                                  question_of(session, worker->device), &error);
  if (status == STATUS_OK)
    session->adding.waiting++;
  else if (status != STATUS_DEVICE_LOST)
    keep_error(&session->adding, &error);
  else if (worker->failed)
    arena_worker_failed(&session->arena, worker->device);
  else { /* the successor hears of the arena, and must not serve it before it has heard of the handles opened by then */
    arena_worker_lost(&session->arena, worker->device);
    sleep_listen(session->supervisor, &session->arena, worker->device);
  }
}

void serving_add(struct session *session, void (*done)(struct session *session, const struct error *error)) {
  struct fleet *fleet = session->supervisor->fleet;
  begin(session, &session->adding, done);
  for (uint32_t i = 0; i < fleet->count; i++)
    ask_add(session, &fleet->workers[i]);
  count_down(session, &session->adding);
}

/* ---- the end */

static void on_removed(void *user, struct worker_answer *answer) {
  struct serving_question *question = user;
  /* Of a session that the worker could not take it knows nothing: as good. */
  if (answer->status != STATUS_OK && answer->status != STATUS_DEVICE_LOST && answer->status != STATUS_NOT_FOUND)
    log_warning("session %u: worker %u: %s", question->session->id, question->device, answer->error.text);
  count_down(question->session, &question->session->removing);
}

static void ask_remove(struct session *session, struct worker *worker) {
  struct message_session_id body = {.session = session->id};
  struct error error;
  enum status status = worker_ask(worker, COMMAND_session_remove, &body, NULL, 0, on_removed,
                                  question_of(session, worker->device), &error);
  if (status == STATUS_DEVICE_LOST)
    return; /* there is no process that could use the arena */
  session->removing.waiting++;
  if (status != STATUS_OK) /* nobody says when the worker has finished: the arena is never closed under it */
    log_error("session %u: its memory cannot be given back: %s", session->id, error.text);
}

void serving_remove(struct session *session, void (*done)(struct session *session, const struct error *error)) {
  struct fleet *fleet = session->supervisor->fleet;
  if (!session_served(session)) {
    done(session, NULL);
    return;
  }
  session->arena_leaving = true;
  begin(session, &session->removing, done);
  for (uint32_t i = 0; i < fleet->count; i++)
    ask_remove(session, &fleet->workers[i]);
  count_down(session, &session->removing);
}
