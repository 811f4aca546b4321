#include "session.h"

#include "../../log.h"
#include "../context.h"
#include "../net/closing.h"
#include "../net/descriptors.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
  HELLO_MS = 2000,
  PATIENCE_MS = 10000, /* for one of the replies that wait to be read */
  CLOSING_MOST = 1024, /* descriptors whose file systems hold up their closing */
  CLOSING_MOST_OF_USER = 256,
  STUCK_MS = 1000, /* for which who has too many of them is not waited for again */
  REFUSED_MAX = 64 /* connections that are refused and still get an answer */
};

void sessions_init(struct sessions *sessions) {
  *sessions = (struct sessions){.count = 0};
  TAILQ_INIT(&sessions->list);
}

struct catalog_holding sessions_staged(const struct sessions *sessions, uint32_t uid) {
  struct catalog_holding holding = {.names = 0};
  const struct session *session;
  for (session = TAILQ_FIRST(&sessions->list); session != NULL; session = TAILQ_NEXT(session, link))
    for (size_t i = 0; session->user.uid == uid && i < session->stage.count; i++) {
      holding.names++;
      holding.bytes += catalog_weight_bytes(session->stage.items[i].weight);
    }
  return holding;
}

struct session *session_find(struct supervisor *supervisor, uint32_t id) {
  struct session *session;
  for (session = TAILQ_FIRST(&supervisor->sessions->list); session != NULL; session = TAILQ_NEXT(session, link))
    if (session->id == id && !session->ending)
      return session;
  return NULL;
}

bool session_served(const struct session *session) {
  return session->arena.rings != NULL && !session->arena_leaving;
}

/* ---- what the log hears, and what is counted */

static const char *request_name(const struct session *session, uint32_t id) {
  return session->asked.command != NULL && session->asked.id == id ? session->asked.command->name : "";
}

/* One user cannot fill the journal. `id` of a request; 0: none. */
static void report(struct session *session, enum log_level level, uint32_t id, enum status reason, const char *text) {
  struct supervisor *supervisor = session->supervisor;
  const struct log_subject subject = {.session = session->id,
                                      .uid = session->user.uid,
                                      .client = session->client,
                                      .request = request_name(session, id),
                                      .reason = reason == STATUS_OK ? "" : status_name(reason)};
  uint32_t left_out;
  bool may = user_may_log(session->account, uv_now(&supervisor->loop), &left_out);
  if (left_out > 0)
    log_warning("%u lines about user %u were left out", left_out, session->user.uid);
  if (may)
    log_about(level, &subject, "session %u (%s, user %u): %s", session->id, session->client, session->user.uid, text);
}

static void report_cut_off(struct session *session, enum log_level level, uint32_t id, enum status reason,
                           const char *why) {
  char text[ERROR_TEXT_BYTES + 16];
  session->supervisor->counts.cut_off++;
  snprintf(text, sizeof text, "cut off: %s", why);
  report(session, level, id, reason, text);
}

void session_asked(struct session *session, uint32_t id, const struct command_info *command) {
  session->asked = (struct session_request){.id = id, .command = command, .begin_ns = uv_hrtime()};
}

static void count_answer(struct session *session, uint32_t id) {
  if (session->asked.command != NULL && session->asked.id == id)
    counts_answered(&session->supervisor->counts, session->asked.command, uv_hrtime() - session->asked.begin_ns);
}

/* ---- the end */

static void free_if_done(struct session *session) {
  if (!session->ending || session->open > 0 || session->holds > 0)
    return;
  struct supervisor *supervisor = session->supervisor;
  TAILQ_REMOVE(&supervisor->sessions->list, session, link);
  users_leave(&supervisor->users, session->account, uv_now(&supervisor->loop));
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

static void end_if_drained(struct supervisor *supervisor) {
  const struct sessions *sessions = supervisor->sessions;
  if (sessions->draining && sessions->count == sessions->drainers)
    supervisor->hooks->stop(supervisor, 0);
}

void session_end(struct session *session, const char *why) {
  if (session->ending)
    return;
  session->ending = true;
  struct supervisor *supervisor = session->supervisor;
  if (session->refusal.status != STATUS_OK) {
    supervisor->sessions->refused--;
  } else {
    supervisor->sessions->count--;
    supervisor->sessions->drainers -= session->drains_gemmd;
    session->account->sessions--;
    log_debug("session %u (%s): ends: %s", session->id, session->client, why);
  }
  session_hold(session);
  channel_close(&session->channel);
  uv_close((uv_handle_t *)&session->timer, on_timer_closed);
  uv_close((uv_handle_t *)&session->throttle, on_timer_closed);
  supervisor->hooks->session_left(session);
  session_release(session);
  if (supervisor->embedded)
    supervisor->hooks->stop(supervisor, 0);
  end_if_drained(supervisor);
}

void session_broken(struct supervisor *supervisor, const struct message_session_broken *message) {
  struct session *session = session_find(supervisor, message->session);
  if (session == NULL)
    return; /* it left in the meantime */
  report_cut_off(session, LOG_LEVEL_WARNING, 0, STATUS_PROTOCOL, message->text);
  session_event(session, EVENT_session_broken, &message_session_broken_type, message);
  session_end(session, message->text);
}

void sessions_drain(struct session *asker) {
  struct sessions *sessions = asker->supervisor->sessions;
  log_info("session %u (%s, user %u): no new sessions and loads from here on", asker->id, asker->client,
           asker->user.uid);
  sessions->draining = true;
  sessions->drainers += !asker->drains_gemmd;
  asker->drains_gemmd = true;
  end_if_drained(asker->supervisor);
}

void sessions_end(struct supervisor *supervisor) {
  struct session *session, *next;
  for (session = TAILQ_FIRST(&supervisor->sessions->list); session != NULL; session = next) {
    next = TAILQ_NEXT(session, link);
    session_end(session, "gemmd stops");
  }
}

static void on_timer(uv_timer_t *timer);

static void give_time(struct session *session, uint64_t timeout_ms) {
  session->overdue = false;
  uv_timer_start(&session->timer, on_timer, timeout_ms, 0);
}

/* The client has PATIENCE_MS for each of the replies that wait, so that a slow one gets on and a stopped one does not
 * hold what they bring. */
static void await_reader(struct session *session) {
  session->sent_then = session->channel.sent;
  give_time(session, PATIENCE_MS);
}

/* The loop runs timers before it looks at sockets. Where gemmd itself did not run, as in a machine that is moved, what
 * the client did in time lies there; so it is looked at once more first, and the time is over after that. */
static void on_timer(uv_timer_t *timer) {
  struct session *session = timer->data;
  if (!session->overdue) {
    session->overdue = true;
    uv_timer_start(timer, on_timer, 1, 0); /* 0 would run it before sockets again */
    return;
  }
  bool greeted = session->state != STATE_NEW || session->draining;
  if (greeted && session->channel.first == NULL)
    return;
  if (greeted && session->channel.sent != session->sent_then) {
    await_reader(session);
    return;
  }
  const char *why = greeted ? "it does not read its replies" : "it did not say hello in time";
  report_cut_off(session, LOG_LEVEL_INFO, 0, STATUS_TIMEOUT, why);
  session_end(session, why);
}

/* Ends the session when its last reply is out; the client has PATIENCE_MS to read each. */
static void drain(struct session *session, const char *why) {
  if (session->ending || session->draining)
    return;
  if (session->channel.first == NULL) {
    session_end(session, why);
    return;
  }
  session->draining = true;
  channel_pause(&session->channel, true);
  await_reader(session);
}

/* ---- what is sent */

static void check_sent(struct session *session, enum status status, const struct error *error) {
  if (status == STATUS_OK && session->channel.first != NULL && session->state != STATE_NEW &&
      !uv_is_active((uv_handle_t *)&session->timer))
    await_reader(session);
  if (status == STATUS_OK || status == STATUS_DISCONNECTED) /* the loop reports the end of the connection */
    return;
  report_cut_off(session, LOG_LEVEL_WARNING, 0, status, error->text);
  session_end(session, error->text);
}

void session_reply(struct session *session, uint32_t id, const struct message_type *type, const void *body,
                   const int *fds, size_t fd_count) {
  if (session->ending)
    return;
  struct message_head head = {.kind = MESSAGE_REPLY, .id = id, .code = STATUS_OK};
  count_answer(session, id);
  struct error error;
  check_sent(session, channel_send(&session->channel, &head, type, body, fds, fd_count, &error), &error);
}

void session_fail(struct session *session, uint32_t id, const struct error *cause) {
  if (session->ending)
    return;
  struct error error;
  count_answer(session, id);
  counts_refused(&session->supervisor->counts, cause->status);
  report(session, LOG_LEVEL_INFO, id, cause->status, cause->text);
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

/* Nothing is received while a request is under way, while the user's messages come too fast, or before the end. */
static void listen_or_not(struct session *session) {
  if (!session->ending)
    channel_pause(&session->channel,
                  session->busy || session->draining || uv_is_active((uv_handle_t *)&session->throttle));
}

void session_wait(struct session *session) {
  session_hold(session);
  session->busy = true;
  listen_or_not(session);
}

void session_continue(struct session *session) {
  session->busy = false;
  listen_or_not(session);
  session_release(session);
}

static void on_throttle(uv_timer_t *timer) {
  listen_or_not(timer->data);
}

/* Counts a message; the next one may have to wait. */
static void spend_message(struct session *session, size_t fds) {
  struct supervisor *supervisor = session->supervisor;
  uint32_t wait_ms = user_spend_message(&supervisor->users, session->account, fds, uv_now(&supervisor->loop));
  if (wait_ms == 0)
    return;
  uv_timer_start(&session->throttle, on_throttle, wait_ms, 0);
  listen_or_not(session);
}

static void refuse(struct session *session, uint32_t id) {
  session_fail(session, id, &session->refusal);
  drain(session, session->refusal.text);
}

static bool closes_too_many(const struct session *session) {
  return atomic_load(&session->account->closing) >= CLOSING_MOST_OF_USER || closing_pending() >= CLOSING_MOST;
}

/* Closes that wait for nobody end as soon as their threads run, which takes a moment on a busy machine. */
static bool stays_stuck(struct session *session) {
  const struct timespec moment = {.tv_nsec = 200000};
  uint64_t now_ms = uv_now(&session->supervisor->loop), *stuck_ms = &session->account->stuck_ms;
  if (*stuck_ms != 0 && now_ms - *stuck_ms < STUCK_MS)
    return true;
  closing_settle();
  for (int i = 0; i < 50 && closes_too_many(session); i++)
    nanosleep(&moment, NULL);
  *stuck_ms = closes_too_many(session) ? now_ms : 0;
  return *stuck_ms != 0;
}

/* Whether descriptors are taken: each whose file system holds up its closing is a thread of gemmd's that may never end.
 * Not of a user who has many of these, so that others go on. */
static enum status check_closing(struct session *session, uint32_t id, struct error *error) {
  if (!closes_too_many(session) || !stays_stuck(session))
    return STATUS_OK;
  (void)error_set(error, STATUS_PROTOCOL,
                  "descriptors of clients cannot be closed, %u of this user and %u in all; no more are taken",
                  atomic_load(&session->account->closing), closing_pending());
  report(session, LOG_LEVEL_WARNING, id, STATUS_PROTOCOL, error->text);
  return STATUS_PROTOCOL;
}

static void on_packet(struct channel *channel, struct packet *packet) {
  struct session *session = channel->owner;
  struct message_head head = {.id = 0};
  struct message_body body;
  struct error error;
  spend_message(session, packet->fd_count);
  enum status status = message_decode_head(packet->bytes, packet->length, &head, &body, &error);
  bool is_message = status == STATUS_OK; /* what is none gets no reply */
  if (status == STATUS_OK && head.kind != MESSAGE_REQUEST)
    status = error_set(&error, STATUS_PROTOCOL, "a client may only send requests");
  if (status == STATUS_OK && session->refusal.status != STATUS_OK) {
    refuse(session, head.id);
    return;
  }
  if (status == STATUS_OK && packet->fd_count > 0)
    status = check_closing(session, head.id, &error);
  if (status == STATUS_OK)
    status = session->supervisor->hooks->requested(session, &head, body, packet, &error);
  if (status == STATUS_OK)
    return;
  report_cut_off(session, LOG_LEVEL_INFO, head.id, status, error.text);
  if (is_message)
    session_fail(session, head.id, &error);
  drain(session, error.text);
}

static void on_end(struct channel *channel, const struct error *cause) {
  struct session *session = channel->owner;
  if (cause->status != STATUS_DISCONNECTED)
    report_cut_off(session, LOG_LEVEL_INFO, 0, cause->status, cause->text);
  session_end(session, cause->text);
}

static void on_flushed(struct channel *channel) {
  struct session *session = channel->owner;
  if (session->draining)
    session_end(session, "its last reply is out");
}

/* ---- the beginning */

/* Whether there is a place. Some are kept for admins, so that whoever must look after a daemon that is full gets in. */
static enum status check_places(struct supervisor *supervisor, struct session *session, struct error *error) {
  const struct config *config = supervisor->config;
  bool admin = session->role == ROLE_ADMIN;
  int64_t places = config->sessions_max - (admin ? 0 : config->sessions_reserved);
  if (supervisor->sessions->draining && !admin)
    return error_set(error, STATUS_SHUTTING_DOWN, "gemmd takes no new sessions and ends with those it has");
  if (supervisor->sessions->count >= places)
    return error_set(error, STATUS_BUSY, "gemmd serves %u session%s and takes no more at the moment",
                     supervisor->sessions->count, plural(supervisor->sessions->count));
  if (!descriptors_left(admin))
    return error_set(error, STATUS_BUSY, "gemmd has no descriptors for another session at the moment");
  return user_add_session(&supervisor->users, session->account, error);
}

static bool count_in(struct supervisor *supervisor, struct session *session) {
  struct sessions *sessions = supervisor->sessions;
  if (check_places(supervisor, session, &session->refusal) == STATUS_OK) {
    sessions->count++;
    return true;
  }
  char text[ERROR_TEXT_BYTES + 16];
  snprintf(text, sizeof text, "is refused: %s", session->refusal.text);
  report(session, LOG_LEVEL_WARNING, 0, session->refusal.status, text);
  if (sessions->refused >= REFUSED_MAX)
    return false;
  sessions->refused++;
  return true;
}

static enum status identify(struct supervisor *supervisor, struct session *session, int fd, struct error *error) {
  struct role_peer peer;
  enum status status = role_peer_read(fd, &peer, error);
  if (status != STATUS_OK)
    return status;
  session->pid = (uint32_t)peer.pid;
  session->role = role_of(&supervisor->rules, &peer, geteuid());
  session->may_borrow = role_may_borrow(&supervisor->rules, &peer, geteuid());
  session->user = (struct catalog_user){.uid = peer.uid, .admin = session->role == ROLE_ADMIN};
  role_peer_free(&peer);
  session->account = users_enter(&supervisor->users, session->user.uid, session->user.admin, uv_now(&supervisor->loop));
  return session->account != NULL ? STATUS_OK : error_set(error, STATUS_NOMEM, "no memory for a user");
}

static bool owes_answers(const struct channel *channel) {
  const struct session *session = channel->owner;
  return session->busy || session->hello_waits || session->loads > 0;
}

static void start_timers(struct session *session) {
  uv_loop_t *loop = &session->supervisor->loop;
  uv_timer_init(loop, &session->timer);
  uv_timer_init(loop, &session->throttle);
  session->timer.data = session->throttle.data = session;
  give_time(session, HELLO_MS);
}

void session_accept(struct supervisor *supervisor, int fd) {
  static const struct channel_events events = {
      .packet = on_packet, .end = on_end, .closed = on_closed, .flushed = on_flushed, .owes = owes_answers};
  struct error error;
  struct session *session = calloc(1, sizeof *session);
  enum status status =
      session == NULL ? error_set(&error, STATUS_NOMEM, "no memory") : identify(supervisor, session, fd, &error);
  if (status != STATUS_OK) {
    log_error("a connection is dropped: %s", error.text);
    free(session);
    close(fd);
    return;
  }
  session->supervisor = supervisor;
  session->id = ++supervisor->sessions->last_id;
  session->state = STATE_NEW;
  arena_init(&session->arena);
  if (!count_in(supervisor, session)) {
    users_leave(&supervisor->users, session->account, uv_now(&supervisor->loop));
    free(session);
    close(fd);
    return;
  }
  if (channel_open(&session->channel, &supervisor->loop, fd, SESSION_QUEUE_MAX, &events, session, &error) !=
      STATUS_OK) {
    log_error("a connection is dropped: %s", error.text);
    if (session->refusal.status != STATUS_OK) {
      supervisor->sessions->refused--;
    } else {
      supervisor->sessions->count--;
      session->account->sessions--;
    }
    users_leave(&supervisor->users, session->account, uv_now(&supervisor->loop));
    free(session);
    return;
  }
  supervisor->counts.sessions++;
  session->channel.payer = &session->account->closing;
  session->open = 3;
  start_timers(session);
  TAILQ_INSERT_TAIL(&supervisor->sessions->list, session, link);
}
