/* A client without the library: bare records on the control socket, and the rings of an arena as it likes. Failures of
 * the connection itself end the running cmocka test. */
#pragma once

#include "proto/shm/ring.h"
#include "proto/wire/message.h"

#include <stddef.h>

struct raw_reply {
  enum status status;
  struct error error; /* where status is not OK */
  int fds[LIMIT_MESSAGE_FDS];
  size_t fd_count;
};

int raw_connect(const char *path);
void raw_send(int socket, const void *bytes, size_t length, const int *fds, size_t fd_count);
/* One reply; its body goes to `out` where it is OK and `out` not NULL. False where the daemon has closed. */
bool raw_receive(int socket, uint32_t id, const struct message_type *type, void *out, struct raw_reply *reply);
/* Sends a request and waits for its reply. */
bool raw_ask(int socket, enum command command, const void *body, const int *fds, size_t fd_count, void *out,
             struct raw_reply *reply);
/* The daemon closes the connection; a last reply may come before. */
void raw_expect_end(int socket);

/* A session with an arena and an open weight. */
struct raw_session {
  int socket, wakeup, doorbell;
  void *arena;
  uint64_t bytes, tensor_offset;
  uint32_t handle;
  struct ring_client ring;
};
void raw_open(struct raw_session *session, const char *path, uint32_t entries, const char *weight);
void raw_close(struct raw_session *session);
void raw_ring(struct raw_session *session); /* the doorbell */
/* Submits, wakes the worker and waits for the completion. */
void raw_submit(struct raw_session *session, const struct ring_submission *submission, struct ring_completion *out);
