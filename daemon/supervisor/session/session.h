/* One client: its connection, what it may do, and what it holds. Requests of a session are carried out one after the
 * other, but for loads, which run beside the rest. */
#pragma once

#include "../../../proto/shm/seen.h"
#include "../../../proto/wire/message.h"
#include "../net/channel.h"
#include "../net/role.h"
#include "../weights/borrows.h"
#include "../weights/catalog.h"
#include "../weights/loading/stage.h"
#include "arena.h"
#include "opened.h"
#include "tensors.h"
#include "users.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <uv.h>

struct session;
struct supervisor;

enum { SESSION_QUEUE_MAX = 64, SESSION_LOADS_MAX = 16, SESSION_RETRY_MS = 500 };

/* One round of questions to all workers: see serving.h. */
struct serving_round {
  uint32_t waiting;
  struct error error; /* the first failure; status OK: none */
  void (*done)(struct session *session, const struct error *error);
};

struct serving_question {
  struct session *session;
  uint32_t device;
};

/* The ring by which it tells what it computes itself: see publishing.h. */
struct session_ring {
  struct seen_taker taker; /* its memory is an owned mapping; NULL: there is none */
  int fd;                  /* owned, where there is memory */
};

struct session_request {
  uint32_t id;
  const struct command_info *command; /* NULL: none, or one that does not exist */
  uint64_t begin_ns;
};

struct session {
  TAILQ_ENTRY(session) link;
  struct supervisor *supervisor;
  struct channel channel;
  uv_timer_t timer;    /* a client must say hello, and take its replies, in time */
  uv_timer_t throttle; /* runs while the user's messages come faster than they may */
  unsigned open;       /* of channel and timers: handles of the loop */
  unsigned holds;      /* operations that still need this memory */
  uint32_t id, pid, version;
  enum role role;
  struct catalog_user user;
  bool may_borrow;
  struct user *account; /* of the user's, with one reference */
  char client[64];
  enum session_state state;
  struct error refusal;         /* status not OK: it is one too many, and its first message is answered with this */
  bool overdue;                 /* the timer has run out, and runs a last time */
  bool ending;                  /* the client is gone, or is cut off */
  bool draining;                /* ends as soon as the last reply is out */
  bool drains_gemmd;            /* has asked for gemmd's end, which does not wait for this session */
  bool busy;                    /* a request is under way: session_wait */
  uint64_t sent_then;           /* channel.sent when the timer was started */
  struct session_request asked; /* that is answered next */
  bool hello_waits;             /* until all workers are ready */
  uint32_t hello_id, arena_id;  /* of the requests under way */
  uint32_t loads;
  struct stage stage;
  struct arena arena; /* rings NULL: none */
  bool arena_leaving; /* the workers have been told to forget it */
  struct opened opened;
  struct borrows borrows;
  struct session_ring ring;
  struct tensors tensors;
  struct serving_round adding, removing;
  struct serving_question questions[LIMIT_DEVICES];
};

struct sessions {
  TAILQ_HEAD(session_list, session) list; /* owned, those that end included */
  uint32_t count;                         /* serving: neither ending nor refused */
  uint32_t drainers;                      /* of these, those that have asked for gemmd's end */
  bool draining;                          /* no new ones are taken */
  uint32_t refused;
  uint32_t last_id;
};

void sessions_init(struct sessions *sessions);
/* Takes a connected socket over. */
void session_accept(struct supervisor *supervisor, int fd);
struct session *session_find(struct supervisor *supervisor, uint32_t id);
/* New sessions and loads are turned away from now on, and gemmd ends with the last session that has not asked for
 * that itself. */
void sessions_drain(struct session *asker);
/* What all sessions of this user have staged. */
struct catalog_holding sessions_staged(const struct sessions *sessions, uint32_t uid);
void sessions_end(struct supervisor *supervisor);
/* It has an arena, of which workers and their successors must know. */
bool session_served(const struct session *session);

/* Cuts the client off and gives back all that it held, when the workers have finished with it. */
void session_end(struct session *session, const char *why);
/* The same for what a worker says that the client did to its rings: it is counted, and the log hears of it. */
void session_broken(struct supervisor *supervisor, const struct message_session_broken *message);

/* A request is under way: nothing more is received until session_continue, and the session's memory stays. */
void session_wait(struct session *session);
void session_continue(struct session *session);
/* The session's memory stays until session_release, though it may end. */
void session_hold(struct session *session);
void session_release(struct session *session);

/* A request has come: its reply is counted, and a refusal logged with its name. */
void session_asked(struct session *session, uint32_t id, const struct command_info *command);

/* To a session that is ending, these do nothing. One that does not read is cut off. */
void session_reply(struct session *session, uint32_t id, const struct message_type *type, const void *body,
                   const int *fds, size_t fd_count);
void session_fail(struct session *session, uint32_t id, const struct error *error);
/* Dropped where the client has not read the one before. */
void session_event(struct session *session, enum event event, const struct message_type *type, const void *body);
