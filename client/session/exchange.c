#include "exchange.h"
#include "../weight/borrowed.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static void call_abandon(struct gemmd_session *session, uint32_t id, enum command command) {
  if (session->abandoned_count == SESSION_ABANDONED) {
    (void)session_end(session, STATUS_TIMEOUT, "%d calls are without an answer", SESSION_ABANDONED);
    return;
  }
  session->abandoned[session->abandoned_count++] = (struct abandoned){.id = id, .command = command};
}

/* What was opened when nobody waited for it any more goes back. The request for that takes the id over, which is free
 * again, and is abandoned from the start; false where there is none. Where the socket is full the handle stays until
 * the session ends; a daemon that has just answered reads what is there. */
static bool give_back(struct gemmd_session *session, struct abandoned *late, struct message_body body) {
  union {
    struct message_weight_info weight;
    struct message_weight_borrowed borrowed;
    struct message_tensor_handle tensor;
  } opened;
  struct message_weight_close parts;
  struct message_weight_return borrow;
  struct message_head head = {.kind = MESSAGE_REQUEST, .id = late->id};
  const void *request = &opened.tensor;
  struct error before = session->error, error;
  size_t length;
  if (late->command != COMMAND_weight_open && late->command != COMMAND_weight_borrow &&
      late->command != COMMAND_tensor_open && late->command != COMMAND_ipc_open)
    return false;
  if (message_decode_body(body, command_find(late->command)->reply, &opened, &error) != STATUS_OK)
    return false;
  head.code = COMMAND_tensor_close;
  if (late->command == COMMAND_weight_open) {
    head.code = COMMAND_weight_close;
    parts.parts_count = opened.weight.parts_count;
    memcpy(parts.parts, opened.weight.parts, sizeof parts.parts);
    request = &parts;
  } else if (late->command == COMMAND_weight_borrow) {
    head.code = COMMAND_weight_return;
    borrow.borrow = opened.borrowed.borrow;
    request = &borrow;
  }
  late->command = (enum command)head.code;
  enum status status = message_encode(&head, command_find(head.code)->request, request, session->packet,
                                      sizeof session->packet, &length, &error);
  if (status == STATUS_OK)
    status = packet_send(session, length, NULL, 0, 0);
  session->error = before; /* that of the caller's own call */
  return status == STATUS_OK;
}

bool exchange_late(struct gemmd_session *session, const struct message_head *head, struct message_body body) {
  for (uint32_t i = 0; i < session->abandoned_count; i++) {
    struct abandoned *late = &session->abandoned[i];
    if (late->id != head->id)
      continue;
    if (head->code != STATUS_OK || !give_back(session, late, body))
      *late = session->abandoned[--session->abandoned_count];
    return true;
  }
  return false;
}

static void take_event(struct gemmd_session *session, const struct call *call, const struct message_head *head,
                       struct message_body body) {
  struct message_weight_progress progress;
  struct message_weight_withdrawn withdrawn;
  struct error error;
  if (head->code == EVENT_weight_withdrawn &&
      message_decode_body(body, &message_weight_withdrawn_type, &withdrawn, &error) == STATUS_OK)
    borrowed_withdraw(session, &withdrawn);
  /* Unknown events are from a later version, and nothing that a session depends on. */
  if (head->code == EVENT_weight_progress && call != NULL && call->progress != NULL &&
      message_decode_body(body, &message_weight_progress_type, &progress, &error) == STATUS_OK &&
      progress.request == session->calls)
    call->progress(call->user, progress.done, progress.total);
}

enum status exchange_reply(struct gemmd_session *session, const struct call *call, const struct message_head *head,
                           struct message_body body, struct packet *packet) {
  const struct command_info *command = command_find(call->command);
  struct error error;
  if (head->code != STATUS_OK) {
    packet_close(packet);
    message_decode_failure(head->code, body, &session->error);
    if (session->error.status == STATUS_OK || session->error.text[0] == '\0')
      return session_end(session, STATUS_PROTOCOL, "a failure came without a reason");
    return session->error.status;
  }
  if (call->reply_fds_came != NULL) {
    *call->reply_fds_came = packet->fd_count;
  } else if (packet->cut) {
    packet_close(packet);
    return session_end(session, STATUS_PROTOCOL, "a message came with more bytes or descriptors than can be taken");
  } else if (packet->fd_count != call->reply_fd_count) {
    size_t came = packet->fd_count;
    packet_close(packet);
    return session_end(session, STATUS_PROTOCOL, "the answer to %s must bring %zu descriptors, got %zu", command->name,
                       call->reply_fd_count, came);
  }
  if (message_decode_body(body, command->reply, call->reply, &error) != STATUS_OK) {
    if (call->reply_fds_came != NULL)
      *call->reply_fds_came = 0;
    packet_close(packet);
    return session_end(session, STATUS_PROTOCOL, "%s", error.text);
  }
  if (call->reply_fds != NULL)
    memcpy(call->reply_fds, packet->fds, packet->fd_count * sizeof packet->fds[0]);
  return STATUS_OK;
}

/* Judges one record. *answered: it was the answer to `call`, whose status is returned. */
static enum status take_packet(struct gemmd_session *session, const struct call *call, struct packet *packet,
                               bool *answered) {
  struct message_head head;
  struct message_body body;
  struct error error;
  *answered = false;
  if (message_decode_head(session->packet, packet->length, &head, &body, &error) != STATUS_OK) {
    packet_close(packet);
    return session_end(session, STATUS_PROTOCOL, "%s", error.text);
  }
  if (head.kind == MESSAGE_REPLY && call != NULL && head.id == session->calls) {
    *answered = true;
    return exchange_reply(session, call, &head, body, packet);
  }
  packet_close(packet);
  if (packet->cut && head.kind != MESSAGE_REPLY)
    return session_end(session, STATUS_PROTOCOL, "a message came with more bytes or descriptors than can be taken");
  if (head.kind == MESSAGE_EVENT)
    take_event(session, call, &head, body);
  else if (head.kind != MESSAGE_REPLY || !exchange_late(session, &head, body))
    return session_end(session, STATUS_PROTOCOL, "message %" PRIu32 " of kind %d answers nothing", head.id,
                       (int)head.kind);
  return STATUS_OK;
}

static enum status call_wait(struct gemmd_session *session, const struct call *call, int64_t deadline) {
  for (;;) {
    struct packet packet;
    bool answered;
    enum status status = packet_receive(session, &packet);
    if (status == STATUS_OK) {
      status = take_packet(session, call, &packet, &answered);
      if (status != STATUS_OK || answered)
        return status;
      continue;
    }
    if (status != STATUS_BUSY)
      return status;
    struct pollfd readable = {.fd = session->socket, .events = POLLIN};
    int ready = clock_poll(&readable, 1, deadline);
    if (ready < 0)
      return session_end(session, STATUS_SYSTEM, "poll: %s", strerror(errno));
    if (ready == 0) {
      call_abandon(session, session->calls, call->command);
      return error_set(&session->error, STATUS_TIMEOUT, "no answer to %s within %" PRId64 " ms",
                       command_find(call->command)->name, session->timeout_ns / CLOCK_NS_PER_MS);
    }
  }
}

enum status exchange_send(struct gemmd_session *session, const struct call *call, uint32_t id, int64_t deadline) {
  struct message_head head = {.kind = MESSAGE_REQUEST, .id = id, .code = call->command};
  int fds[LIMIT_MESSAGE_FDS];
  size_t count = 0, length;
  if (call->fd >= 0)
    fds[count++] = call->fd;
  for (size_t i = 0; i < call->more_fd_count && count < LIMIT_MESSAGE_FDS; i++)
    fds[count++] = call->more_fds[i];
  enum status status = message_encode(&head, command_find(call->command)->request, call->request, session->packet,
                                      sizeof session->packet, &length, &session->error);
  return status == STATUS_OK ? packet_send(session, length, fds, count, deadline) : status;
}

static enum status call_exchange(struct gemmd_session *session, const struct call *call) {
  int64_t deadline = clock_deadline(call->patient ? -1 : session->timeout_ns);
  enum status status = exchange_send(session, call, ++session->calls, deadline);
  return status == STATUS_OK ? call_wait(session, call, deadline) : status;
}

enum status exchange_call(struct gemmd_session *session, const struct call *call) {
  if (session->ended)
    return session_gone(session);
  if (session->calling)
    return error_set(&session->error, STATUS_WRONG_STATE, "a call of this session is under way");
  session->calling = true;
  enum status status = call_exchange(session, call);
  session->calling = false;
  return status;
}

/* Between the progress of a load and its answer: what comes is the call's to take, but for the end. */
static void look_for_the_end(struct gemmd_session *session) {
  struct pollfd end = {.fd = session->socket};
  if (!session->ended && clock_poll(&end, 1, 0) > 0)
    (void)session_end(session, STATUS_DISCONNECTED, "the daemon has closed the connection");
}

bool exchange_look(struct gemmd_session *session) {
  struct packet packet;
  bool answered, any = false;
  if (session->calling) {
    look_for_the_end(session);
    return false;
  }
  while (!session->ended && packet_receive(session, &packet) == STATUS_OK) {
    (void)take_packet(session, NULL, &packet, &answered);
    any = true;
  }
  return any;
}
