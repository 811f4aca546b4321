/* Sessions and their handles: session_add, session_remove, session_weight_add, session_weight_remove. */
#include "control_session.h"

#include "../../memfd.h"
#include "control_tensor.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static void free_session(struct control_session *session) {
  engine_session_close(&session->engine);
  if (session->engine.base != NULL)
    munmap(session->engine.base, session->engine.arena_bytes);
  if (session->engine.doorbell >= 0)
    close(session->engine.doorbell);
  if (session->engine.wakeup >= 0)
    close(session->engine.wakeup);
  free(session);
}

/* ---- session_add */

/* Sizes come from the message and are checked by arithmetic; nothing is read from the arena. */
static enum status open_session(struct control *control, struct control_task *task, struct control_session *session,
                                struct error *error) {
  const struct message_session_add *add = &task->request.session_add;
  uint32_t queues = (uint32_t)control->device + 1;
  uint32_t devices = add->devices > queues ? add->devices : queues;
  enum status status = ring_check(devices, add->entries, add->arena_bytes, error);
  if (status == STATUS_OK)
    status = memfd_check(task->fds[0], add->arena_bytes, false, error);
  if (status != STATUS_OK)
    return status;
  session->engine.base = memfd_map(task->fds[0], add->arena_bytes, true, error);
  if (session->engine.base == NULL)
    return error->status;
  session->engine.arena_bytes = add->arena_bytes;
  session->engine.doorbell = task->fds[1];
  session->engine.wakeup = task->fds[2];
  session->engine.user = add->user;
  task->fds[1] = task->fds[2] = -1;
  status =
      engine_session_open(&session->engine, add->entries, devices, (uint32_t)control->device, add->generation, error);
  return status == STATUS_OK ? idmap_add(&control->sessions, add->session, session, error) : status;
}

static enum status begin_add(struct control *control, struct control_task *task, struct error *error) {
  struct control_session *session = calloc(1, sizeof *session);
  if (session == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for a session's entry");
  session->id = task->request.session_add.session;
  session->engine.doorbell = session->engine.wakeup = -1;
  enum status status = open_session(control, task, session, error);
  if (status != STATUS_OK)
    free_session(session);
  else
    task->session = session;
  return status;
}

static enum status work_add(struct control *control, struct control_task *task, struct error *error) {
  struct engine_session *session = &task->session->engine;
  return control->ops->arena_register(control->backend, session->base, session->arena_bytes, &session->arena, error);
}

static void post_add(struct control *control, struct control_task *task) {
  task->message.verb = ENGINE_SESSION_ADD;
  task->message.session = &task->session->engine;
}

static void release_add(struct control *control, struct control_task *task) {
  if (task->status != STATUS_OK)
    control->ops->arena_unregister(control->backend, task->session->engine.arena);
}

static void finish_add(struct control *control, struct control_task *task) {
  if (task->status == STATUS_OK)
    return;
  idmap_remove(&control->sessions, task->session->id);
  free_session(task->session);
}

/* ---- session_remove */

static enum status find_session(struct control *control, struct control_task *task, uint32_t id, struct error *error) {
  task->session = idmap_find(&control->sessions, id);
  if (task->session == NULL)
    return error_set(error, STATUS_NOT_FOUND, "session %u is not served", id);
  return STATUS_OK;
}

/* From here on the number stands for nothing; the session itself waits for the device. */
static enum status begin_remove(struct control *control, struct control_task *task, struct error *error) {
  uint32_t id = task->request.session_id.session;
  enum status status = find_session(control, task, id, error);
  if (status == STATUS_OK)
    idmap_remove(&control->sessions, id);
  return status;
}

static void post_remove(struct control *control, struct control_task *task) {
  task->message.verb = ENGINE_SESSION_REMOVE;
  task->message.session = &task->session->engine;
}

static void release_remove(struct control *control, struct control_task *task) {
  control_tensor_close_all(control, task->session);
  control->ops->arena_unregister(control->backend, task->session->engine.arena);
}

static void finish_remove(struct control *control, struct control_task *task) {
  free_session(task->session);
}

/* ---- handles */

static enum status begin_weight_add(struct control *control, struct control_task *task, struct error *error) {
  const struct message_session_weight *ask = &task->request.session_weight;
  enum status status = find_session(control, task, ask->session, error);
  if (status != STATUS_OK)
    return status;
  task->weight = idmap_find(&control->weights, ask->weight);
  if (task->weight == NULL || task->weight->detaching)
    return error_set(error, STATUS_NOT_FOUND, "weight %u is not attached", ask->weight);
  return STATUS_OK;
}

static enum status begin_weight_remove(struct control *control, struct control_task *task, struct error *error) {
  return find_session(control, task, task->request.session_weight.session, error);
}

static void post_handle(struct control_task *task, enum engine_verb verb) {
  task->message.verb = verb;
  task->message.session = &task->session->engine;
  task->message.weight = task->weight != NULL ? &task->weight->engine : NULL;
  task->message.handle = task->request.session_weight.handle;
}

static void post_weight_add(struct control *control, struct control_task *task) {
  post_handle(task, ENGINE_HANDLE_ADD);
}

static void post_weight_remove(struct control *control, struct control_task *task) {
  post_handle(task, ENGINE_HANDLE_REMOVE);
}

void control_session_close_all(struct control *control) {
  uint32_t id;
  for (struct control_session *session; (session = idmap_any(&control->sessions, &id)) != NULL;) {
    idmap_remove(&control->sessions, id);
    control_tensor_close_all(control, session);
    control->ops->arena_unregister(control->backend, session->engine.arena);
    free_session(session);
  }
  idmap_close(&control->sessions);
}

const struct control_handler control_session_handlers[] = {
    {.command = COMMAND_session_add,
     .begin = begin_add,
     .work = work_add,
     .post = post_add,
     .release = release_add,
     .finish = finish_add},
    {.command = COMMAND_session_remove,
     .overtaken = true,
     .begin = begin_remove,
     .post = post_remove,
     .release = release_remove,
     .finish = finish_remove},
    {.command = COMMAND_session_weight_add, .begin = begin_weight_add, .post = post_weight_add},
    {.command = COMMAND_session_weight_remove, .begin = begin_weight_remove, .post = post_weight_remove},
    {.command = 0},
};
