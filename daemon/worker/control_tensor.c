/* Memory of a client's own: session_tensor_add, session_tensor_remove. */
#include "control.h"

#include <stdlib.h>

static struct control_tensor *find_tensor(const struct control_session *session, uint32_t handle) {
  struct control_tensor *tensor = NULL;
  LIST_FOREACH(tensor, &session->tensors, link) {
    if (tensor->handle == handle)
      return tensor;
  }
  return NULL;
}

static enum status find_session(struct control *control, struct control_task *task, struct error *error) {
  uint32_t id = task->request.session_tensor.session;
  task->session = idmap_find(&control->sessions, id);
  if (task->session == NULL)
    return error_set(error, STATUS_NOT_FOUND, "session %u is not served", id);
  task->tensor = find_tensor(task->session, task->request.session_tensor.handle);
  return STATUS_OK;
}

static void forget(struct control *control, struct control_tensor *tensor) {
  control->ops->memory_close(control->backend, tensor->engine.memory);
  LIST_REMOVE(tensor, link);
  free(tensor);
}

void control_tensor_close_all(struct control *control, struct control_session *session) {
  while (!LIST_EMPTY(&session->tensors))
    forget(control, LIST_FIRST(&session->tensors));
}

/* ---- session_tensor_add */

static enum status begin_add(struct control *control, struct control_task *task, struct error *error) {
  const struct message_session_tensor *add = &task->request.session_tensor;
  enum status status = find_session(control, task, error);
  if (status != STATUS_OK)
    return status;
  if (task->tensor != NULL)
    return error_set(error, STATUS_EXISTS, "handle %u of session %u stands for memory already", add->handle,
                     add->session);
  task->tensor = calloc(1, sizeof *task->tensor);
  if (task->tensor == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for an entry of memory");
  task->tensor->handle = add->handle;
  task->tensor->engine.bytes = add->bytes;
  LIST_INSERT_HEAD(&task->session->tensors, task->tensor, link);
  return STATUS_OK;
}

static enum status work_add(struct control *control, struct control_task *task, struct error *error) {
  struct engine_tensor *tensor = &task->tensor->engine;
  void *address = NULL;
  enum status status =
      control->ops->memory_import(control->backend, task->fds[0], tensor->bytes, &tensor->memory, &address, error);
  tensor->address = address;
  return status;
}

static void post(struct control_task *task, enum engine_verb verb) {
  task->message.verb = verb;
  task->message.session = &task->session->engine;
  task->message.tensor = &task->tensor->engine;
  task->message.handle = task->tensor->handle;
}

static void post_add(struct control *control, struct control_task *task) {
  (void)control;
  post(task, ENGINE_TENSOR_ADD);
}

static void finish_add(struct control *control, struct control_task *task) {
  if (task->status != STATUS_OK)
    forget(control, task->tensor);
}

/* ---- session_tensor_remove */

static enum status begin_remove(struct control *control, struct control_task *task, struct error *error) {
  enum status status = find_session(control, task, error);
  if (status == STATUS_OK && task->tensor == NULL)
    return error_set(error, STATUS_NOT_FOUND, "handle %u stands for no memory", task->request.session_tensor.handle);
  return status;
}

static void post_remove(struct control *control, struct control_task *task) {
  (void)control;
  post(task, ENGINE_TENSOR_REMOVE);
}

static void release_remove(struct control *control, struct control_task *task) {
  if (task->status == STATUS_OK)
    forget(control, task->tensor);
}

const struct control_handler control_tensor_handlers[] = {
    {.command = COMMAND_session_tensor_add,
     .begin = begin_add,
     .work = work_add,
     .post = post_add,
     .finish = finish_add},
    {.command = COMMAND_session_tensor_remove, .begin = begin_remove, .post = post_remove, .release = release_remove},
    {.command = 0},
};
