#include "calls.h"
#include "resume.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

struct slot {
  struct call call;
  uint32_t id; /* 0: free */
};

static void slots_fill(struct gemmd_session *session, const struct calls *calls, struct slot *slots) {
  for (unsigned i = 0; i < calls->width; i++) {
    while (slots[i].id == 0 && !session->ended && calls->next(calls->user, i, &slots[i].call)) {
      slots[i].id = ++session->calls;
      enum status status = exchange_send(session, &slots[i].call, slots[i].id, clock_deadline(session->timeout_ns));
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
    status = exchange_reply(session, &slot->call, &head, body, packet);
    slot->id = 0;
    calls->done(calls->user, (unsigned)(slot - slots), status);
    return;
  }
  packet_close(packet);
  if (status != STATUS_OK)
    (void)session_end(session, STATUS_PROTOCOL, "%s", error.text);
  else if (head.kind == MESSAGE_EVENT && head.code == EVENT_weight_progress)
    slot_progress(slots, calls->width, body);
  else if (head.kind != MESSAGE_EVENT && !exchange_late(session, &head, body))
    (void)session_end(session, STATUS_PROTOCOL, "message %" PRIu32 " of kind %d answers nothing", head.id,
                      (int)head.kind);
}

static bool slots_busy(const struct slot *slots, unsigned width) {
  for (unsigned i = 0; i < width; i++)
    if (slots[i].id != 0)
      return true;
  return false;
}

enum status calls_make(struct gemmd_session *session, const struct calls *calls) {
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
    else if (status == STATUS_BUSY && clock_poll(&readable, 1, CLOCK_NEVER) < 0)
      (void)session_end(session, STATUS_SYSTEM, "poll: %s", strerror(errno));
  }
  session->calling = false;
  return session->ended ? session_gone(session) : STATUS_OK;
}
