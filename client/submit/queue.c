#include "queue.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static void ring_doorbell(const struct queue *queue) {
  uint64_t one = 1;
  /* A full counter has rung the bell already. */
  while (write(queue->doorbell, &one, sizeof one) < 0 && errno == EINTR)
    continue;
}

enum status queue_open(struct gemmd_session *session, uint32_t device, call_function *how) {
  struct queue *queue = &session->queues[device];
  struct message_queue_open request = {.device = device}, reply = {.device = 0};
  int doorbell = -1;
  if (queue->open)
    return STATUS_OK;
  struct call call = {.command = COMMAND_queue_open,
                      .request = &request,
                      .reply = &reply,
                      .fd = -1,
                      .reply_fds = &doorbell,
                      .reply_fd_count = 1};
  enum status status = how(session, &call);
  if (status != STATUS_OK)
    return status;
  ring_client_init(&queue->ring, session->arena, session->entries, device);
  queue->doorbell = doorbell;
  queue->open = true;
  return STATUS_OK;
}

void queue_close(struct queue *queue) {
  if (queue->open)
    close(queue->doorbell);
  queue->open = false;
}

bool queue_failed(const struct queue *queue) {
  return ring_client_worker_state(&queue->ring) == RING_WORKER_FAILED;
}

void queue_submit(struct gemmd_session *session, struct request *request, uint32_t part) {
  struct queue *queue = &session->queues[request->parts[part].device];
  struct ring_submission submission;
  bool wake;
  request_submission(request, part, &submission);
  request->parts[part].number = queue->ring.submission_tail;
  if (!ring_client_submit(&queue->ring, &submission, &wake))
    return;
  queue->in_flight++;
  if (wake)
    ring_doorbell(queue);
}

bool queue_cancel(struct gemmd_session *session, const struct request *request, uint32_t part) {
  struct queue *queue = &session->queues[request->parts[part].device];
  bool wake;
  if (!ring_client_cancel(&queue->ring, request_tag(request, part), &wake))
    return false;
  if (wake)
    ring_doorbell(queue);
  return true;
}

static bool queue_look(const struct queue *queue) {
  return ring_client_ready(&queue->ring) || ring_client_replaced(&queue->ring) ||
         (queue->in_flight > 0 && queue_failed(queue));
}

bool queues_look(const struct gemmd_session *session) {
  for (uint32_t device = 0; device < session->devices; device++)
    if (session->queues[device].open && queue_look(&session->queues[device]))
      return true;
  return false;
}

static void take_completions(struct gemmd_session *session, uint32_t device) {
  struct queue *queue = &session->queues[device];
  struct ring_completion completion;
  while (!session->ended && ring_client_take(&queue->ring, &completion)) {
    struct request *request;
    uint32_t part;
    if (!pending_part(&session->pending, completion.tag, device, &request, &part)) {
      (void)session_end(session, STATUS_PROTOCOL, "device %u has answered a request that nobody made", device);
      return;
    }
    queue->in_flight--;
    pending_complete(&session->pending, request, part, &completion);
  }
}

/* Calls `each` for every part that waits for `device`, or for any device where that is LIMIT_DEVICES. */
static void each_open_part(struct gemmd_session *session, uint32_t device,
                           void (*each)(struct gemmd_session *, struct request *, uint32_t part)) {
  for (uint32_t slot = 0; slot < session->pending.slots; slot++) {
    struct request *request = &session->pending.requests[slot];
    for (uint32_t part = 0; request->ticket != 0 && part < request->part_count; part++)
      if (request->parts[part].open && (device == LIMIT_DEVICES || request->parts[part].device == device))
        each(session, request, part);
  }
}

static void fail_lost(struct gemmd_session *session, struct request *request, uint32_t part) {
  struct error error = {.status = STATUS_OK};
  (void)error_set(&error, STATUS_DEVICE_LOST, "device %u was lost under this request", request->parts[part].device);
  pending_fail(&session->pending, request, part, &error);
}

/* What was asked for when there was no worker is not lost with the one that died. */
static void note_loss(struct gemmd_session *session, struct request *request, uint32_t part) {
  struct pending_part *piece = &request->parts[part];
  piece->losses += ring_client_taken(&session->queues[piece->device].ring, piece->number);
}

/* What is added to y cannot be computed twice. */
static bool adds(const struct request *request) {
  return request->submission.opcode == RING_OP_TENSORS && (request->submission.form.flags & RING_ADD) != 0;
}

static void submit_again(struct gemmd_session *session, struct request *request, uint32_t part) {
  if (request->parts[part].losses > (adds(request) ? 0 : 1))
    fail_lost(session, request, part);
  else
    queue_submit(session, request, part);
}

static void queue_take_in(struct gemmd_session *session, uint32_t device) {
  struct queue *queue = &session->queues[device];
  /* Looked at before the rings: what a lost worker has published was published before its loss was. */
  bool replaced = ring_client_replaced(&queue->ring), failed = queue_failed(queue);
  take_completions(session, device);
  if (session->ended)
    return;
  if (replaced) {
    each_open_part(session, device, note_loss);
    ring_client_reset(&queue->ring);
    queue->in_flight = 0;
    each_open_part(session, device, submit_again);
  } else if (failed && queue->in_flight > 0) {
    queue->in_flight = 0;
    each_open_part(session, device, fail_lost);
  }
}

void queues_collect(struct gemmd_session *session) {
  for (uint32_t device = 0; device < session->devices; device++)
    if (session->queues[device].open && !session->ended)
      queue_take_in(session, device);
}

static void fail_ended(struct gemmd_session *session, struct request *request, uint32_t part) {
  pending_fail(&session->pending, request, part, &session->end);
}

void queues_fail(struct gemmd_session *session) {
  each_open_part(session, LIMIT_DEVICES, fail_ended);
}

void queues_salvage(struct gemmd_session *session) {
  for (uint32_t device = 0; device < session->devices; device++)
    if (session->queues[device].open)
      take_completions(session, device);
}

/* The lost daemon's worker may have begun whatever was in its rings, also after it was last looked at. */
static void submit_part(struct gemmd_session *session, struct request *request, uint32_t part) {
  if (adds(request))
    fail_lost(session, request, part);
  else
    queue_submit(session, request, part);
}

void queues_submit_all(struct gemmd_session *session) {
  each_open_part(session, LIMIT_DEVICES, submit_part);
}

bool queues_sleep(struct gemmd_session *session) {
  for (uint32_t device = 0; device < session->devices; device++) {
    struct queue *queue = &session->queues[device];
    if (queue->open && queue->in_flight > 0 && (!ring_client_sleep(&queue->ring) || queue_failed(queue))) {
      queues_awake(session);
      return false;
    }
  }
  return true;
}

void queues_awake(struct gemmd_session *session) {
  for (uint32_t device = 0; device < session->devices; device++)
    if (session->queues[device].open)
      ring_client_awake(&session->queues[device].ring);
}

void queues_arm(struct gemmd_session *session) {
  uint64_t one = 1;
  if (!session->event_loop || session->ended || queues_sleep(session))
    return;
  /* Something is there already, so nobody else will write. */
  if (write(session->wakeup, &one, sizeof one) < 0 && errno != EAGAIN)
    (void)session_end(session, STATUS_SYSTEM, "writing an eventfd: %s", strerror(errno));
}
