/* Memory and events of a client's own: session_tensor_add, session_ipc_add, session_tensor_remove. */
#include "control_tensor.h"

#include <stdlib.h>

static struct control_tensor *find_tensor(const struct control_session *session, uint32_t handle) {
  struct control_tensor *tensor = NULL;
  LIST_FOREACH (tensor, &session->tensors, link) {
    if (tensor->handle == handle)
      return tensor;
  }
  return NULL;
}

static enum status find_session(struct control *control, struct control_task *task, uint32_t id, uint32_t handle,
                                struct error *error) {
  task->session = idmap_find(&control->sessions, id);
  if (task->session == NULL)
    return error_set(error, STATUS_NOT_FOUND, "session %u is not served", id);
  task->tensor = find_tensor(task->session, handle);
  return STATUS_OK;
}

struct control_tensor *control_tensor_find(struct control *control, uint32_t session, uint32_t handle) {
  const struct control_session *of = idmap_find(&control->sessions, session);
  struct control_tensor *tensor = of != NULL ? find_tensor(of, handle) : NULL;
  return tensor != NULL && !tensor->is_event ? tensor : NULL;
}

static void forget(struct control *control, struct control_tensor *tensor) {
  if (tensor->event.device != NULL)
    control->ops->event_close(control->backend, tensor->event.device);
  if (tensor->engine.memory != NULL)
    control->ops->memory_close(control->backend, tensor->engine.memory);
  LIST_REMOVE(tensor, link);
  free(tensor);
}

void control_tensor_close_all(struct control *control, struct control_session *session) {
  while (!LIST_EMPTY(&session->tensors))
    forget(control, LIST_FIRST(&session->tensors));
}

/* ---- session_tensor_add, session_ipc_add */

static enum status make(struct control *control, struct control_task *task, uint32_t session, uint32_t handle,
                        uint64_t bytes, struct error *error) {
  enum status status = find_session(control, task, session, handle, error);
  if (status != STATUS_OK)
    return status;
  if (task->tensor != NULL)
    return error_set(error, STATUS_EXISTS, "handle %u of session %u stands for something already", handle, session);
  task->tensor = calloc(1, sizeof *task->tensor);
  if (task->tensor == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for an entry of memory");
  task->tensor->handle = handle;
  task->tensor->engine.bytes = bytes;
  LIST_INSERT_HEAD(&task->session->tensors, task->tensor, link);
  return STATUS_OK;
}

static enum status begin_add(struct control *control, struct control_task *task, struct error *error) {
  const struct message_session_tensor *add = &task->request.session_tensor;
  return make(control, task, add->session, add->handle, add->bytes, error);
}

static enum status work_add(struct control *control, struct control_task *task, struct error *error) {
  struct engine_tensor *tensor = &task->tensor->engine;
  void *address = NULL;
  enum status status =
      control->ops->memory_import(control->backend, task->fds[0], tensor->bytes, &tensor->memory, &address, error);
  tensor->address = address;
  return status;
}

static enum status begin_ipc_add(struct control *control, struct control_task *task, struct error *error) {
  const struct message_session_ipc *add = &task->request.session_ipc;
  enum status status = make(control, task, add->session, add->handle, add->bytes, error);
  if (status == STATUS_OK)
    task->tensor->is_event = add->kind == MESSAGE_IPC_EVENT;
  return status;
}

static enum status work_ipc_add(struct control *control, struct control_task *task, struct error *error) {
  const struct backend_ops *ops = control->ops;
  const uint8_t *ipc = task->request.session_ipc.ipc;
  struct engine_tensor *tensor = &task->tensor->engine;
  if (ops->event_open == NULL || ops->memory_open_ipc == NULL)
    return error_set(error, STATUS_UNSUPPORTED, "the %s backend has no CUDA IPC", ops->name);
  if (task->tensor->is_event)
    return ops->event_open(control->backend, ipc, &task->tensor->event.device, error);
  void *address = NULL;
  enum status status = ops->memory_open_ipc(control->backend, ipc, tensor->bytes, &tensor->memory, &address, error);
  tensor->address = address;
  return status;
}

static void post(struct control_task *task, enum engine_verb tensor, enum engine_verb event) {
  task->message.verb = task->tensor->is_event ? event : tensor;
  task->message.session = &task->session->engine;
  task->message.tensor = &task->tensor->engine;
  task->message.event = &task->tensor->event;
  task->message.handle = task->tensor->handle;
}

static void post_add(struct control *control, struct control_task *task) {
  post(task, ENGINE_TENSOR_ADD, ENGINE_EVENT_ADD);
}

static void finish_add(struct control *control, struct control_task *task) {
  if (task->status != STATUS_OK)
    forget(control, task->tensor);
}

/* ---- session_tensor_remove */

static enum status begin_remove(struct control *control, struct control_task *task, struct error *error) {
  const struct message_session_tensor *remove = &task->request.session_tensor;
  enum status status = find_session(control, task, remove->session, remove->handle, error);
  if (status == STATUS_OK && task->tensor == NULL)
    return error_set(error, STATUS_NOT_FOUND, "handle %u stands for nothing", remove->handle);
  return status;
}

static void post_remove(struct control *control, struct control_task *task) {
  post(task, ENGINE_TENSOR_REMOVE, ENGINE_EVENT_REMOVE);
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
    {.command = COMMAND_session_ipc_add,
     .begin = begin_ipc_add,
     .work = work_ipc_add,
     .post = post_add,
     .finish = finish_add},
    {.command = COMMAND_session_tensor_remove, .begin = begin_remove, .post = post_remove, .release = release_remove},
    {.command = 0},
};
