/* Records over the socket, and the descriptors beside them; private. */
#pragma once

#include "session.h"

/* A received record, its bytes in session->packet. */
struct packet {
  size_t length;
  int fds[LIMIT_MESSAGE_FDS];
  size_t fd_count;
  bool cut; /* more descriptors were sent: this process had no room for them */
};

/* Closes the descriptors that nobody has taken. */
void packet_close(struct packet *packet);
/* The next record, into session->packet. BUSY where none waits, with the session's error untouched; after other
 * failures the session has ended. */
MUST_CHECK enum status packet_receive(struct gemmd_session *session, struct packet *packet);
/* Sends the `length` bytes of session->packet. TIMEOUT leaves the session as it is. A daemon that has closed may have
 * said why, so that is no error here. */
MUST_CHECK enum status packet_send(struct gemmd_session *session, size_t length, const int *fds, size_t fd_count,
                                   int64_t deadline);
