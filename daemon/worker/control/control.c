#include "control.h"

#include "../../log.h"
#include "../tune/tuner_saves.h"
#include "control_line.h"
#include "control_make.h"
#include "control_send.h"
#include "control_session.h"
#include "control_slab.h"
#include "control_tensor.h"
#include "control_tune.h"
#include "control_weight.h"

#include <stdlib.h>
#include <string.h>

enum { RECEIVE_AT_ONCE = 64 };

/* ---- the end */

void control_end(struct control *control) {
  if (control->closing)
    return;
  control->closing = true;
  control_send_drop(control);
  uv_close((uv_handle_t *)&control->poll, NULL);
  uv_unref((uv_handle_t *)&control->async);
  control_line_advance(control);
}

/* ---- from the engine */

static void engine_notifies(void *user, struct engine_message *message) {
  struct control *control = user;
  mailbox_put(&control->mail, message);
  uv_async_send(&control->async);
}

static void session_broken(struct control *control, const struct engine_message *message) {
  const struct control_session *session =
      (const void *)((const char *)message->session - offsetof(struct control_session, engine));
  struct message_session_broken event = {.session = session->id};
  memcpy(event.text, message->error.text, sizeof event.text);
  control_send_event(control, EVENT_session_broken, &message_session_broken_type, &event);
}

static struct control_task *task_of(struct engine_message *message) {
  return (void *)((char *)message - offsetof(struct control_task, message));
}

/* ---- to the disk */

static void save_next(struct control *control);

static void run_save(uv_work_t *work) {
  const struct control *control = work->data;
  tuner_save(control->saving);
}

static void after_save(uv_work_t *work, int cancelled) {
  struct control *control = work->data;
  control->saving = NULL;
  save_next(control);
}

static void save_next(struct control *control) {
  struct engine_message *message = control->saves;
  if (message == NULL || control->saving != NULL)
    return;
  control->saves = message->next;
  control->saving = (void *)((char *)message - offsetof(struct tune_save, message));
  control->save_work.data = control;
  (void)uv_queue_work(control->loop, &control->save_work, run_save, after_save); /* fails only without a function */
}

static void save_later(struct control *control, struct engine_message *message) {
  message->next = NULL;
  *(control->saves != NULL ? &control->saves_last->next : &control->saves) = message;
  control->saves_last = message;
  save_next(control);
}

/* Everybody who launches kernels itself is told by the supervisor. */
static void tell_found(struct control *control, struct engine_message *message) {
  struct tune_found *found = (void *)((char *)message - offsetof(struct tune_found, message));
  const struct published_row *row = &found->row;
  struct message_tuning_found event = {.kind = row->kind, .kernel_ns = row->kernel_ns, .built_in_ns = row->built_in_ns};
  memcpy(event.shape, row->shape, sizeof event.shape);
  memcpy(event.identity, row->identity, sizeof event.identity);
  memcpy(event.kernel, row->kernel, sizeof event.kernel);
  memcpy(event.built_in, row->built_in, sizeof event.built_in);
  if (!control->closing)
    control_send_event(control, EVENT_tuning_found, &message_tuning_found_type, &event);
  free(found);
}

static void read_mail(struct control *control) {
  struct engine_message *message = mailbox_take(&control->mail);
  while (message != NULL) {
    struct engine_message *next = message->next; /* the message goes with its task */
    if (message->verb == ENGINE_SESSION_BROKEN)
      session_broken(control, message);
    else if (message->verb == ENGINE_DEVICE_LOST)
      control_line_lost(control, &message->error);
    else if (message->verb == ENGINE_TUNE_FOUND)
      tell_found(control, message);
    else if (message->verb == ENGINE_TUNE_SAVE)
      save_later(control, message);
    else
      control_line_answered(control, task_of(message));
    message = next;
  }
}

static void on_async(uv_async_t *async) {
  read_mail(async->data);
}

/* ---- from the supervisor */

static const struct control_handler *find_handler(uint32_t command) {
  const struct control_handler *tables[] = {control_slab_handlers,   control_weight_handlers, control_session_handlers,
                                            control_tensor_handlers, control_make_handlers,   control_tune_handlers};
  for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
    for (const struct control_handler *handler = tables[i]; handler->command != 0; handler++)
      if (handler->command == command)
        return handler;
  return NULL;
}

/* Needs no turn in the line: it depends on nothing and changes nothing. */
static void answer_stats(struct control *control, uint32_t id) {
  struct message_worker_stats stats;
  engine_stats(control->engine, &stats);
  if (control->ops->copies != NULL)
    stats.copies = control->ops->copies(control->backend);
  if (control->ops->working != NULL)
    stats.working = control->ops->working(control->backend);
  if (control->ops->longest_ns != NULL)
    stats.longest_ns = control->ops->longest_ns(control->backend);
  stats.tuning = tuner_has_work(control->tuner);
  control_send_reply(control, id, &message_worker_stats_type, &stats, -1);
}

static enum status make_task(struct control *control, const struct message_head *head, struct message_body body,
                             struct control_task **out, struct error *error) {
  const struct command_info *info = command_find(head->code);
  const struct control_handler *handler = find_handler(head->code);
  if (head->kind != MESSAGE_REQUEST || info == NULL || handler == NULL)
    return error_set(error, STATUS_PROTOCOL, "a worker takes no message of kind %d and number %u", (int)head->kind,
                     head->code);
  if (control->packet.fd_count != info->fds)
    return error_set(error, STATUS_PROTOCOL, "%s brings %u descriptors, got %zu", info->name, info->fds,
                     control->packet.fd_count);
  struct control_task *task = calloc(1, sizeof *task);
  if (task == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for a command");
  enum status status = message_decode_body(body, info->request, &task->request, error);
  if (status != STATUS_OK) {
    free(task);
    return status;
  }
  task->control = control;
  task->handler = handler;
  task->id = head->id;
  task->reply_fd = -1;
  for (size_t i = 0; i < CONTROL_FDS; i++)
    task->fds[i] = packet_take_fd(&control->packet, i);
  *out = task;
  return STATUS_OK;
}

static void take_packet(struct control *control) {
  struct message_head head;
  struct message_body body;
  struct error error;
  if (message_decode_head(control->packet.bytes, control->packet.length, &head, &body, &error) != STATUS_OK) {
    log_error("from the supervisor: %s", error.text);
    control_end(control);
  } else if (head.kind == MESSAGE_REQUEST && head.code == COMMAND_worker_stats) {
    answer_stats(control, head.id);
  } else {
    struct control_task *task = NULL;
    if (make_task(control, &head, body, &task, &error) == STATUS_OK)
      control_line_append(control, task);
    else
      control_send_failure(control, head.id, &error);
  }
  packet_close(&control->packet);
}

static void receive(struct control *control) {
  for (unsigned i = 0; i < RECEIVE_AT_ONCE && !control->closing; i++) {
    struct error error;
    enum status status = transport_receive(control->socket, &control->packet, &error);
    if (status == STATUS_OK) {
      take_packet(control);
      continue;
    }
    if (status != STATUS_BUSY && status != STATUS_DISCONNECTED)
      log_error("from the supervisor: %s", error.text);
    if (status != STATUS_BUSY)
      control_end(control);
    return;
  }
}

static void on_socket(uv_poll_t *poll, int failure, int events) {
  struct control *control = poll->data;
  if (failure != 0) {
    control_end(control);
    return;
  }
  if (events & UV_WRITABLE)
    control_send_kept(control);
  if (events & (UV_READABLE | UV_DISCONNECT))
    receive(control);
  control->watch(control);
}

static void watch(struct control *control) {
  if (!control->closing)
    uv_poll_start(&control->poll, UV_READABLE | UV_DISCONNECT | (control->unsent != NULL ? UV_WRITABLE : 0), on_socket);
}

/* ---- start and close */

static enum status open_handles(struct control *control, struct error *error) {
  int failure = uv_poll_init(control->loop, &control->poll, control->socket);
  if (failure != 0)
    return error_set(error, STATUS_SYSTEM, "watching the control socket: %s", uv_strerror(failure));
  control->poll.data = control;
  failure = uv_async_init(control->loop, &control->async, on_async);
  if (failure != 0) {
    uv_close((uv_handle_t *)&control->poll, NULL);
    return error_set(error, STATUS_SYSTEM, "waking the control thread: %s", uv_strerror(failure));
  }
  control->async.data = control;
  return STATUS_OK;
}

enum status control_start(struct control *control, const struct control_options *options, struct error *error) {
  control->loop = options->loop;
  control->socket = options->socket;
  control->device = options->device;
  control->ops = options->ops;
  control->backend = options->backend;
  control->watch = watch;
  control->end = control_end;
  enum status status = open_handles(control, error);
  if (status != STATUS_OK)
    return status;
  mailbox_open(&control->mail);
  struct tuner_options tune = options->tune;
  tune.ops = options->ops;
  tune.backend = options->backend;
  tune.device = options->device;
  tune.publish = true;
  tune.notify = engine_notifies;
  tune.user = control;
  status = tuner_open(&tune, &control->tuner, error);
  struct engine_options engine = {.ops = options->ops,
                                  .backend = options->backend,
                                  .tuner = control->tuner,
                                  .in_flight = options->in_flight,
                                  .spin_us = options->spin_us,
                                  .batch_rows = options->batch_rows,
                                  .batch_window_us = options->batch_window_us,
                                  .event_timeout_us = options->event_timeout_us,
                                  .notify = engine_notifies,
                                  .user = control};
  if (status == STATUS_OK)
    status = engine_start(&engine, &control->engine, error);
  if (status != STATUS_OK) {
    tuner_close(control->tuner);
    uv_close((uv_handle_t *)&control->poll, NULL);
    uv_close((uv_handle_t *)&control->async, NULL);
    mailbox_close(&control->mail);
    return status;
  }
  control->watch(control);
  return STATUS_OK;
}

void control_close(struct control *control) {
  engine_stop(control->engine);
  read_mail(control);
  uv_close((uv_handle_t *)&control->async, NULL);
  uv_run(control->loop, UV_RUN_DEFAULT); /* what goes back to the backend on the pool, or to the disk */
  control_session_close_all(control);    /* first sessions, then weights, then slabs */
  control_weight_close_all(control);
  control_slab_close_all(control);
  mailbox_close(&control->mail);
  tuner_close(control->tuner);
}
