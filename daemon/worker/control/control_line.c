/* A command's life: in the line -> begin -> (pool) -> (engine) -> (line again, pool) -> finish. See control_handler. */
#include "control_line.h"

#include "control_send.h"

#include <stdlib.h>
#include <unistd.h>

static void free_task(struct control_task *task) {
  for (size_t i = 0; i < CONTROL_FDS; i++)
    if (task->fds[i] >= 0)
      close(task->fds[i]);
  if (task->reply_fd >= 0)
    close(task->reply_fd);
  free(task->tune);
  free(task);
}

void control_line_lost(struct control *control, const struct error *error) {
  if (control->lost.status == STATUS_OK)
    control->lost = *error;
  uv_stop(control->loop);
}

/* The end of a task: cleans up, answers and forgets it. */
static void finish(struct control *control, struct control_task *task) {
  if (task->handler->finish != NULL)
    task->handler->finish(control, task);
  if (task->status == STATUS_DEVICE_LOST)
    control_line_lost(control, &task->error);
  else if (task->status != STATUS_OK)
    control_send_failure(control, task->id, &task->error);
  else
    control_send_reply(control, task->id, command_find(task->handler->command)->reply, &task->reply, task->reply_fd);
  free_task(task);
}

static void run_work(uv_work_t *work) {
  struct control_task *task = work->data;
  struct tuner *tuner = task->control->tuner;
  tuner_hold(tuner);
  if (task->releasing)
    task->handler->release(task->control, task);
  else
    task->status = task->handler->work(task->control, task, &task->error);
  tuner_release(tuner);
}

static void post(struct control *control, struct control_task *task) {
  control->active = task->handler->overtaken ? NULL : task;
  task->handler->post(control, task);
  engine_post(control->engine, &task->message);
}

/* While closing, what the pool has done for a command that goes on to the engine is undone instead. */
static void abandon(struct control *control, struct control_task *task) {
  (void)error_set(&task->error, STATUS_CANCELLED, "the worker ends");
  task->status = STATUS_CANCELLED;
  if (task->handler->release != NULL)
    task->handler->release(control, task);
  finish(control, task);
}

static void after_work(uv_work_t *work, int cancelled) {
  struct control_task *task = work->data;
  struct control *control = task->control;
  control->active = NULL;
  bool to_post = !task->releasing && task->status == STATUS_OK && task->handler->post != NULL;
  if (!to_post)
    finish(control, task);
  else if (control->closing)
    abandon(control, task);
  else
    post(control, task);
  control_line_advance(control);
}

static void start_work(struct control *control, struct control_task *task) {
  control->active = task;
  task->work.data = task;
  (void)uv_queue_work(control->loop, &task->work, run_work, after_work); /* fails only without a function */
}

static void begin(struct control *control, struct control_task *task) {
  const struct control_handler *handler = task->handler;
  task->status = handler->begin(control, task, &task->error);
  if (task->status != STATUS_OK) {
    control_send_failure(control, task->id, &task->error);
    free_task(task);
  } else if (handler->work != NULL) {
    start_work(control, task);
  } else if (handler->post != NULL) {
    post(control, task);
  } else {
    finish(control, task);
  }
}

void control_line_advance(struct control *control) {
  while (control->active == NULL && control->first != NULL) {
    struct control_task *task = control->first;
    control->first = task->next;
    if (control->first == NULL)
      control->last = NULL;
    if (task->releasing)
      start_work(control, task);
    else if (control->closing)
      free_task(task);
    else
      begin(control, task);
  }
}

void control_line_append(struct control *control, struct control_task *task) {
  task->next = NULL;
  if (control->last != NULL)
    control->last->next = task;
  else
    control->first = task;
  control->last = task;
  control_line_advance(control);
}

/* A release goes before what has not begun: it may be what that waits for. */
static void put_first(struct control *control, struct control_task *task) {
  task->next = control->first;
  control->first = task;
  if (control->last == NULL)
    control->last = task;
}

void control_line_answered(struct control *control, struct control_task *task) {
  if (control->active == task)
    control->active = NULL;
  task->status = task->message.error.status;
  task->error = task->message.error;
  task->releasing = true;
  if (task->handler->release != NULL)
    put_first(control, task);
  else
    finish(control, task);
  control_line_advance(control);
}
