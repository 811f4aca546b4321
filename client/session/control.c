#include "session.h"

#include "../../proto/wire/rights.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

/* A received record, its bytes in session->packet. */
struct packet {
  size_t length;
  int fds[LIMIT_MESSAGE_FDS];
  size_t fd_count;
  bool cut; /* more descriptors were sent: this process had no room for them */
};

enum status session_end(struct gemmd_session *session, enum status status, const char *format, ...) {
  char text[ERROR_TEXT_BYTES];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  (void)error_set(&session->error, status, "%s", text);
  if (!session->ended) {
    session->ended = true;
    session->end = session->error;
    shutdown(session->socket, SHUT_RDWR);
  }
  return status;
}

enum status session_gone(struct gemmd_session *session) {
  return error_set(&session->error, STATUS_DISCONNECTED, "the session has ended: %s", session->end.text);
}

/* ---- records */

static void packet_close(struct packet *packet) {
  for (size_t i = 0; i < packet->fd_count; i++)
    close(packet->fds[i]);
  packet->fd_count = 0;
}

/* BUSY where no record waits, with the session's error untouched. */
static enum status packet_receive(struct gemmd_session *session, struct packet *packet) {
  union rights rights;
  struct iovec part = {.iov_base = session->packet, .iov_len = sizeof session->packet};
  struct msghdr header;
  ssize_t length;
  packet->fd_count = 0;
  /* ECONNRESET says once that the daemon left something unread when it closed; what it had sent may still be read. */
  do {
    header = (struct msghdr){.msg_iov = &part, .msg_iovlen = 1};
    rights_expect(&rights, &header);
    length = recvmsg(session->socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (length < 0 && (errno == EINTR || errno == ECONNRESET));
  if (length < 0) {
    if (errno == EAGAIN)
      return STATUS_BUSY;
    return session_end(session, STATUS_SYSTEM, "recvmsg: %s", strerror(errno));
  }
  packet->fd_count = rights_take(&header, packet->fds);
  packet->length = (size_t)length;
  packet->cut = (header.msg_flags & MSG_CTRUNC) != 0;
  if (header.msg_flags & MSG_TRUNC) {
    packet_close(packet);
    return session_end(session, STATUS_PROTOCOL, "a message came with more bytes or descriptors than can be taken");
  }
  if (length == 0) {
    packet_close(packet);
    return session_end(session, STATUS_DISCONNECTED, "the daemon has closed the connection");
  }
  return STATUS_OK;
}

/* TIMEOUT leaves the session as it is. A daemon that has closed may have said why, so that is no error here. */
static enum status packet_send(struct gemmd_session *session, size_t length, const int *fds, size_t fd_count,
                               int64_t deadline) {
  union rights rights;
  struct iovec part = {.iov_base = session->packet, .iov_len = length};
  struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
  rights_put(&rights, &header, fds, fd_count);
  while (sendmsg(session->socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    struct pollfd writable = {.fd = session->socket, .events = POLLOUT};
    if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN)
      return STATUS_OK;
    if (errno == EBADF)
      return error_set(&session->error, STATUS_BAD_DESCRIPTOR, "descriptor %d is not open", fd_count > 0 ? fds[0] : -1);
    if (errno != EINTR && errno != EAGAIN)
      return error_set(&session->error, STATUS_SYSTEM, "sendmsg: %s", strerror(errno));
    if (errno == EAGAIN && clock_poll(&writable, 1, deadline) == 0)
      return error_set(&session->error, STATUS_TIMEOUT, "the daemon takes no messages");
  }
  return STATUS_OK;
}

/* ---- answers */

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

/* False where nobody has asked for it. */
static bool take_late_reply(struct gemmd_session *session, const struct message_head *head, struct message_body body) {
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

static enum status take_reply(struct gemmd_session *session, const struct call *call, const struct message_head *head,
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
    return take_reply(session, call, &head, body, packet);
  }
  packet_close(packet);
  if (packet->cut && head.kind != MESSAGE_REPLY)
    return session_end(session, STATUS_PROTOCOL, "a message came with more bytes or descriptors than can be taken");
  if (head.kind == MESSAGE_EVENT)
    take_event(session, call, &head, body);
  else if (head.kind != MESSAGE_REPLY || !take_late_reply(session, &head, body))
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

static enum status call_send(struct gemmd_session *session, const struct call *call, uint32_t id, int64_t deadline) {
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
  enum status status = call_send(session, call, ++session->calls, deadline);
  return status == STATUS_OK ? call_wait(session, call, deadline) : status;
}

enum status control_call(struct gemmd_session *session, const struct call *call) {
  if (session->ended && !session_resume(session))
    return session_gone(session);
  if (session->calling)
    return error_set(&session->error, STATUS_WRONG_STATE, "a call of this session is under way");
  for (;;) {
    session->calling = true;
    enum status status = call_exchange(session, call);
    session->calling = false;
    if (!session->ended || !session_resume(session))
      return status;
    if (call->once)
      return error_set(&session->error, STATUS_DISCONNECTED,
                       "the daemon was lost during %s, and another one found; whether it was done is not known",
                       command_find(call->command)->name);
  }
}

/* ---- several calls under way */

struct slot {
  struct call call;
  uint32_t id; /* 0: free */
};

static void slots_fill(struct gemmd_session *session, const struct calls *calls, struct slot *slots) {
  for (unsigned i = 0; i < calls->width; i++) {
    while (slots[i].id == 0 && !session->ended && calls->next(calls->user, i, &slots[i].call)) {
      slots[i].id = ++session->calls;
      enum status status = call_send(session, &slots[i].call, slots[i].id, -1);
      if (status == STATUS_OK)
        break;
      slots[i].id = 0;
      calls->done(calls->user, i, status);
    }
  }
}

static struct slot *slot_of(struct slot *slots, unsigned width, uint32_t id) {
  for (unsigned i = 0; id != 0 && i < width; i++)
    if (slots[i].id == id)
      return &slots[i];
  return NULL;
}

static void slot_progress(struct slot *slots, unsigned width, struct message_body body) {
  struct message_weight_progress progress;
  struct error error;
  if (message_decode_body(body, &message_weight_progress_type, &progress, &error) != STATUS_OK)
    return;
  const struct slot *slot = slot_of(slots, width, progress.request);
  if (slot != NULL && slot->call.progress != NULL)
    slot->call.progress(slot->call.user, progress.done, progress.total);
}

/* Judges the record that has come. */
static void slots_take(struct gemmd_session *session, const struct calls *calls, struct slot *slots,
                       struct packet *packet) {
  struct message_head head;
  struct message_body body;
  struct error error;
  struct slot *slot = NULL;
  enum status status = message_decode_head(session->packet, packet->length, &head, &body, &error);
  if (status == STATUS_OK && head.kind == MESSAGE_REPLY)
    slot = slot_of(slots, calls->width, head.id);
  if (slot != NULL) {
    status = take_reply(session, &slot->call, &head, body, packet);
    slot->id = 0;
    calls->done(calls->user, (unsigned)(slot - slots), status);
    return;
  }
  packet_close(packet);
  if (status != STATUS_OK)
    (void)session_end(session, STATUS_PROTOCOL, "%s", error.text);
  else if (head.kind == MESSAGE_EVENT && head.code == EVENT_weight_progress)
    slot_progress(slots, calls->width, body);
  else if (head.kind != MESSAGE_EVENT && !take_late_reply(session, &head, body))
    (void)session_end(session, STATUS_PROTOCOL, "message %" PRIu32 " of kind %d answers nothing", head.id,
                      (int)head.kind);
}

static bool slots_busy(const struct slot *slots, unsigned width) {
  for (unsigned i = 0; i < width; i++)
    if (slots[i].id != 0)
      return true;
  return false;
}

enum status control_calls(struct gemmd_session *session, const struct calls *calls) {
  struct slot slots[CALLS_WIDTH] = {{.id = 0}};
  struct packet packet;
  if (session->ended && !session_resume(session))
    return session_gone(session);
  if (session->calling)
    return error_set(&session->error, STATUS_WRONG_STATE, "a call of this session is under way");
  session->calling = true;
  for (slots_fill(session, calls, slots); slots_busy(slots, calls->width) && !session->ended;
       slots_fill(session, calls, slots)) {
    enum status status = packet_receive(session, &packet);
    struct pollfd readable = {.fd = session->socket, .events = POLLIN};
    if (status == STATUS_OK)
      slots_take(session, calls, slots, &packet);
    else if (status == STATUS_BUSY && clock_poll(&readable, 1, -1) < 0)
      (void)session_end(session, STATUS_SYSTEM, "poll: %s", strerror(errno));
  }
  session->calling = false;
  return session->ended ? session_gone(session) : STATUS_OK;
}

/* Between the progress of a load and its answer: what comes is the call's to take, but for the end. */
static void look_for_the_end(struct gemmd_session *session) {
  struct pollfd end = {.fd = session->socket};
  if (!session->ended && clock_poll(&end, 1, 0) > 0)
    (void)session_end(session, STATUS_DISCONNECTED, "the daemon has closed the connection");
}

bool control_look(struct gemmd_session *session) {
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

enum status session_alive(struct gemmd_session *session) {
  bool failed = false;
  for (uint32_t device = 0; device < session->devices; device++)
    failed |= session->queues[device].open && queue_failed(&session->queues[device]);
  if (failed)
    (void)control_look(session);
  return session->ended && !session_resume(session) ? session_gone(session) : STATUS_OK;
}
