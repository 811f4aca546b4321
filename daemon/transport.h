/* Control messages and descriptors over a SEQPACKET socket: one message, one record. */
#pragma once

#include "../proto/limits.h"
#include "../proto/status.h"
#include "../proto/wire/message.h"

#include <stddef.h>
#include <stdint.h>

/* A received record. The descriptors belong to the packet until they are taken. `payer` is set by who receives it. */
struct packet {
  uint8_t bytes[LIMIT_MESSAGE_BYTES];
  size_t length;
  int fds[LIMIT_MESSAGE_FDS];
  size_t fd_count;
  void *payer; /* for the function of transport_close_by alone */
};

/* Sends one record. BUSY where the socket would block (nothing was sent), DISCONNECTED where the peer is gone. The
 * descriptors stay the caller's. */
MUST_CHECK enum status transport_send(int socket, const void *bytes, size_t length, const int *fds, size_t fd_count,
                                      struct error *error);
/* Receives one record, without blocking. BUSY where there is none, DISCONNECTED at the end, PROTOCOL where the record
 * or its descriptors were truncated (what came is closed). Descriptors are close-on-exec. */
MUST_CHECK enum status transport_receive(int socket, struct packet *packet, struct error *error);
/* How descriptors that came are closed from here on, in this process, with their packet's payer; else by close(2). */
void transport_close_by(void (*close_fd)(int fd, void *payer));
/* Takes descriptor `index` out of the packet; -1 where there is none. */
int packet_take_fd(struct packet *packet, size_t index);
/* Closes what has not been taken. */
void packet_close(struct packet *packet);
