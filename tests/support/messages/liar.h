/* The other side of a client's socket: a thread that answers honestly but for one place, where it lies. There are no
 * assertions in its thread: what it gets wrong, the client's status shows. */
#pragma once

#include "proto/shm/ring.h"
#include "proto/wire/message.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

/* Of the arena that it makes. */
enum { LIAR_ENTRIES = 4, LIAR_DEVICES = 2, LIAR_TENSORS = 65536 };

struct liar {
  int listener, socket;
  int wakeup;
  void *arena;
  uint64_t bytes;
  uint32_t id; /* of the last request */
  char path[64];
  pthread_t thread;
  void (*hello)(struct liar *);
  void (*arena_create)(struct liar *);
  void (*rest)(struct liar *);
};

/* Starts the thread, which answers hello and arena_create as these do, then calls `rest`, then waits for the end. */
void liar_start(struct liar *liar, void (*hello)(struct liar *), void (*arena)(struct liar *),
                void (*rest)(struct liar *));
void liar_join(struct liar *liar);

/* ---- in the thread */

void liar_send(struct liar *liar, const void *bytes, size_t length, const int *fds, size_t fd_count);
void liar_message(struct liar *liar, enum message_kind kind, uint32_t id, uint32_t code,
                  const struct message_type *type, const void *body, const int *fds, size_t fd_count);
/* To the last request. */
void liar_reply(struct liar *liar, const struct message_type *type, const void *body, const int *fds, size_t fd_count);
/* Waits for a request; its number, or 0 at the end. */
uint32_t liar_request(struct liar *liar);
void liar_until_closed(struct liar *liar);

/* ---- honest answers, and what they are made of */

extern const struct message_hello_reply liar_good_hello;
void liar_hello(struct liar *liar);
void liar_arena(struct liar *liar);
/* The arena's memory, mapped and formatted, with these seals. */
int liar_memfd(struct liar *liar, unsigned seals);
struct message_arena_reply liar_good_arena(const struct liar *liar);
/* Closes `memfd`. Of memfd, wakeup, wakeup the first `fd_count` travel. */
void liar_send_arena(struct liar *liar, int memfd, const struct message_arena_reply *reply, size_t fd_count);

/* How many descriptors this process has open. */
int liar_descriptors(void);
