#include "session.h"

#include "../log.h"
#include "cmd.h"
#include "context.h"
#include "dispatch.h"
#include "loads.h"
#include "serving.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
  PATIENCE_MS = 10000, /* for a hello, and for the last reply to be read */
  REFUSED_MAX = 64     /* connections over sessions_max that still get an answer */
};

void sessions_init(struct sessions *sessions) {
  *sessions = (struct sessions){.count = 0};
  TAILQ_INIT(&sessions->list);
}

struct session *session_find(struct supervisor *supervisor, uint32_t id) {
  struct session *session;
  for (session = TAILQ_FIRST(&supervisor->sessions.list); session != NULL; session = TAILQ_NEXT(session, link))
    if (session->id == id && !session->ending)
      return session;
  return NULL;
}

/* ---- the end */

static void free_if_done(struct session *session) {
  if (!session->ending || session->open > 0 || session->holds > 0)
    return;
  struct supervisor *supervisor = session->supervisor;
  TAILQ_REMOVE(&supervisor->sessions.list, session, link);
  free(session);
}

void session_hold(struct session *session) {
  session->holds++;
}

void session_release(struct session *session) {
  session->holds--;
  free_if_done(session);
}

static void on_closed(struct channel *channel) {
  struct session *session = channel->owner;
  session->open--;
  free_if_done(session);
}

static void on_timer_closed(uv_handle_t *handle) {
  struct session *session = handle->data;
  session->open--;
  free_if_done(session);
}

static void on_arena_removed(struct session *session, const struct error *error) {
  (void)error; /* the workers have let go, whatever they said */
  session_release(session);
}

void session_end(struct session *session, const char *why) {
  if (session->ending)
    return;
  session->ending = true;
  struct supervisor *supervisor = session->supervisor;
  if (session->refused) {
    supervisor->sessions.refused--;
  } else {
    supervisor->sessions.count--;
    log_debug("session %u (%s): ends: %s", session->id, session->client, why);
  }
  session_hold(session);
  channel_close(&session->channel);
  uv_close((uv_handle_t *)&session->timer, on_timer_closed);
  loads_session_left(supervisor, session);
  serving_remove(session, on_arena_removed);
  if (supervisor->embedded)
    supervisor_stop(supervisor, supervisor->exit_status);
}

void sessions_end(struct supervisor *supervisor) {
  struct session *session, *next;
  for (session = TAILQ_FIRST(&supervisor->sessions.list); session != NULL; session = next) {
    next = TAILQ_NEXT(session, link);
    session_end(session, "gemmd stops");
  }
}

static void on_timer(uv_timer_t *timer) {
  struct session *session = timer->data;
  session_end(session, session->draining ? "it does not read its replies" : "it did not say hello in time");
}

/* Ends the session when its last reply is out; the client closes, or has PATIENCE_MS to read. */
static void drain(struct session *session, const char *why) {
  if (session->ending || session->draining)
    return;
  if (session->channel.first == NULL) {
    session_end(session, why);
    return;
  }
  session->draining = true;
  channel_pause(&session->channel, true);
  uv_timer_start(&session->timer, on_timer, PATIENCE_MS, 0);
}

/* ---- what is sent */

static void check_sent(struct session *session, enum status status, const struct error *error) {
  if (status == STATUS_OK || status == STATUS_DISCONNECTED) /* the loop reports the end of the connection */
    return;
  log_warning("session %u (%s, user %u): cut off: %s", session->id, session->client, session->user.uid, error->text);
  session_end(session, error->text);
}

void session_reply(struct session *session, uint32_t id, const struct message_type *type, const void *body,
                   const int *fds, size_t fd_count) {
  if (session->ending)
    return;
  struct message_head head = {.kind = MESSAGE_REPLY, .id = id, .code = STATUS_OK};
  struct error error;
  check_sent(session, channel_send(&session->channel, &head, type, body, fds, fd_count, &error), &error);
}

void session_fail(struct session *session, uint32_t id, const struct error *cause) {
  if (session->ending)
    return;
  struct error error;
  uint32_t retry_ms = cause->status == STATUS_BUSY ? SESSION_RETRY_MS : 0;
  check_sent(session, channel_send_failure(&session->channel, id, cause, retry_ms, &error), &error);
}

void session_event(struct session *session, enum event event, const struct message_type *type, const void *body) {
  if (session->ending || session->channel.first != NULL)
    return;
  struct message_head head = {.kind = MESSAGE_EVENT, .id = 0, .code = event};
  struct error error;
  check_sent(session, channel_send(&session->channel, &head, type, body, NULL, 0, &error), &error);
}

/* ---- what is received */

void session_wait(struct session *session) {
  session_hold(session);
  channel_pause(&session->channel, true);
}

void session_continue(struct session *session) {
  if (!session->ending && !session->draining)
    channel_pause(&session->channel, false);
  session_release(session);
}

static void refuse(struct session *session, uint32_t id) {
  struct error error;
  (void)error_set(&error, STATUS_BUSY, "gemmd serves %lld sessions and takes no more at the moment",
                  (long long)session->supervisor->config->sessions_max);
  session_fail(session, id, &error);
  drain(session, "there are too many");
}

static void on_packet(struct channel *channel, struct packet *packet) {
  struct session *session = channel->owner;
  struct message_head head = {.id = 0};
  struct message_body body;
  struct error error;
  enum status status = message_decode_head(packet->bytes, packet->length, &head, &body, &error);
  if (status == STATUS_OK && head.kind != MESSAGE_REQUEST)
    status = error_set(&error, STATUS_PROTOCOL, "a client may only send requests");
  if (status == STATUS_OK && session->refused) {
    refuse(session, head.id);
    return;
  }
  if (status == STATUS_OK)
    status = dispatch_request(session, &head, body, packet, &error);
  if (status == STATUS_OK)
    return;
  log_info("session %u (%s, user %u): cut off: %s", session->id, session->client, session->user.uid, error.text);
  if (head.id != 0)
    session_fail(session, head.id, &error);
  drain(session, error.text);
}

static void on_end(struct channel *channel, const struct error *cause) {
  struct session *session = channel->owner;
  if (cause->status != STATUS_DISCONNECTED)
    log_info("session %u (%s, user %u): cut off: %s", session->id, session->client, session->user.uid, cause->text);
  session_end(session, cause->text);
}

void session_fleet_ready(struct supervisor *supervisor) {
  struct session *session, *next;
  for (session = TAILQ_FIRST(&supervisor->sessions.list); session != NULL; session = next) {
    next = TAILQ_NEXT(session, link);
    if (session->hello_waits)
      cmd_hello_answer(session);
  }
}

/* ---- the beginning */

static bool count_in(struct supervisor *supervisor, struct session *session) {
  struct sessions *sessions = &supervisor->sessions;
  if (sessions->count < supervisor->config->sessions_max) {
    sessions->count++;
    return true;
  }
  log_warning("a session of user %u is refused: there are %u", session->user.uid, sessions->count);
  if (sessions->refused >= REFUSED_MAX)
    return false;
  session->refused = true;
  sessions->refused++;
  return true;
}

void session_accept(struct supervisor *supervisor, int fd) {
  static const struct channel_events events = {.packet = on_packet, .end = on_end, .closed = on_closed};
  struct ucred peer;
  socklen_t peer_bytes = sizeof peer;
  struct session *session = calloc(1, sizeof *session);
  if (session == NULL || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &peer_bytes) != 0) {
    log_error("a connection is dropped: %s", session == NULL ? "no memory" : strerror(errno));
    free(session);
    close(fd);
    return;
  }
  session->supervisor = supervisor;
  session->pid = (uint32_t)peer.pid;
  session->user = (struct catalog_user){.uid = peer.uid, .admin = peer.uid == 0 || peer.uid == geteuid()};
  session->state = STATE_NEW;
  arena_init(&session->arena);
  if (!count_in(supervisor, session)) {
    free(session);
    close(fd);
    return;
  }
  struct error error;
  if (channel_open(&session->channel, &supervisor->loop, fd, SESSION_QUEUE_MAX, &events, session, &error) !=
      STATUS_OK) {
    log_error("a connection is dropped: %s", error.text);
    *(session->refused ? &supervisor->sessions.refused : &supervisor->sessions.count) -= 1;
    free(session);
    return;
  }
  session->id = ++supervisor->sessions.last_id;
  session->open = 2;
  uv_timer_init(&supervisor->loop, &session->timer);
  session->timer.data = session;
  uv_timer_start(&session->timer, on_timer, PATIENCE_MS, 0);
  TAILQ_INSERT_TAIL(&supervisor->sessions.list, session, link);
}
