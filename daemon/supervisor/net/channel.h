/* One SEQPACKET socket on the loop: records in, records out, with a bounded queue for a peer that does not read.
 *
 * Callbacks are never called from inside channel_send or channel_close. */
#pragma once

#include "../../../proto/status.h"
#include "../../../proto/wire/message.h"
#include "../../transport.h"

#include <stdbool.h>
#include <uv.h>

struct channel;

struct channel_events {
  /* A record. What is not taken out of the packet is closed afterwards. */
  void (*packet)(struct channel *channel, struct packet *packet);
  /* The peer is gone (DISCONNECTED), or sent what is no record (PROTOCOL). Once; close the channel then. */
  void (*end)(struct channel *channel, const struct error *cause);
  /* After channel_close: the memory may be used otherwise. */
  void (*closed)(struct channel *channel);
  /* What waited to be sent has gone out. NULL: nobody wants to hear. */
  void (*flushed)(struct channel *channel);
  /* Whether answers are still to be sent to a peer that has shut down its own direction: `end` waits for them. NULL:
   * none is. */
  bool (*owes)(const struct channel *channel);
};

struct channel_record;

struct channel {
  uv_poll_t poll;
  int fd; /* owned */
  const struct channel_events *events;
  void *owner;
  void *payer;                         /* of the packets; NULL: nobody */
  struct channel_record *first, *last; /* owned; waiting to be sent */
  size_t queued, queue_max;
  uint64_t sent; /* records that had to wait and have gone out */
  bool paused, ended, closing;
  bool half;      /* the peer writes no more, and reads */
  bool finishing; /* and all that it wrote has been taken */
};

/* Takes in all that the peer had sent. For a peer that is known to be gone: its exit may be seen before its last words.
 */
void channel_drain(struct channel *channel);

/* Takes `fd` over, also on failure. At most `queue_max` records wait to be sent; 0: no limit, for a trusted peer. */
MUST_CHECK enum status channel_open(struct channel *channel, uv_loop_t *loop, int fd, size_t queue_max,
                                    const struct channel_events *events, void *owner, struct error *error);
/* Encodes a message and sends it, or queues it. The descriptors stay the caller's. BUSY where the queue is full,
 * DISCONNECTED where the peer is gone (`end` is still called). */
MUST_CHECK enum status channel_send(struct channel *channel, const struct message_head *head,
                                    const struct message_type *type, const void *body, const int *fds, size_t fd_count,
                                    struct error *error);
/* A reply that says what went wrong. */
MUST_CHECK enum status channel_send_failure(struct channel *channel, uint32_t id, const struct error *cause,
                                            uint32_t retry_ms, struct error *error);
/* While paused nothing is received, but `end` is still called when the peer goes. */
void channel_pause(struct channel *channel, bool paused);
/* What `owes` would say may have changed. */
void channel_settle(struct channel *channel);
/* Closes the socket; what is queued is dropped. Again: nothing. */
void channel_close(struct channel *channel);
