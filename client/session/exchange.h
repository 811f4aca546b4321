/* Commands and their answers, with the daemon that is there: what is lost with it is for control.h. Private. */
#pragma once

#include "transport.h"

/* A command and its answer. */
struct call {
  enum command command;
  const void *request; /* struct of the command's request */
  void *reply;         /* struct of the command's reply */
  int fd;              /* that travels with the request; -1: none */
  const int *more_fds; /* behind it */
  size_t more_fd_count;
  int *reply_fds; /* receives the descriptors of the reply, the caller's from then on; NULL: none may come */
  size_t reply_fd_count;
  size_t *reply_fds_came; /* so many of LIMIT_MESSAGE_FDS came; less than were sent where there was no room for them in
                             this process. NULL: it must be reply_fd_count */
  bool patient;           /* without the session's time limit */
  bool once;              /* is not asked again of the next daemon */
  void (*progress)(void *user, uint64_t done, uint64_t total); /* of a load; NULL: none */
  void *user;
};

/* How a call is made: exchange_call, or control_call of control.h, which goes on with the next daemon. */
typedef enum status call_function(struct gemmd_session *session, const struct call *call);

/* Sends and waits for the answer. The daemon's refusal is returned as it is; anything else than a proper answer ends
 * the session. DISCONNECTED where it has ended, WRONG_STATE where another call is under way. */
MUST_CHECK enum status exchange_call(struct gemmd_session *session, const struct call *call);
/* Takes in what came unasked, without waiting: events, late answers, the end. The end alone inside a call. True where
 * a message came. */
bool exchange_look(struct gemmd_session *session);

/* ---- pieces of a call, for several of them at a time: calls.h */

/* Sends the request under a number of its own. */
MUST_CHECK enum status exchange_send(struct gemmd_session *session, const struct call *call, uint32_t id,
                                     int64_t deadline);
/* Takes the answer in, and the descriptors of the packet. */
MUST_CHECK enum status exchange_reply(struct gemmd_session *session, const struct call *call,
                                      const struct message_head *head, struct message_body body, struct packet *packet);
/* The answer to a call that was given up: what was opened goes back. False where nobody has asked for it. */
bool exchange_late(struct gemmd_session *session, const struct message_head *head, struct message_body body);
