/* What a session has borrowed: weights, and the descriptors of the memory in which they lie, one a slab. Private. */
#pragma once

#include "../session/session.h"

/* A descriptor stays for as long as a weight in it is borrowed: it alone keeps the memory. */
struct slab {
  struct slab *next;
  uint64_t epoch;
  uint32_t id;
  int fd;        /* owned */
  uint32_t uses; /* parts of borrowed weights that lie in it */
};

struct gemmd_borrowed {
  struct gemmd_session *session;
  LIST_ENTRY(gemmd_borrowed) link;
  uint32_t borrow; /* of the session with the daemon; 0: it counts none */
  uint64_t epoch;
  enum gemmd_borrowed_state state;
  gemmd_weight_info info;
  unsigned part_count;
  gemmd_borrowed_part parts[LIMIT_PARTS];
};

/* NULL where its descriptor is not here. */
struct slab *slab_find(const struct gemmd_session *session, uint64_t epoch, uint32_t id);
/* Takes the descriptor over in any case. */
MUST_CHECK enum status slab_keep(struct gemmd_session *session, uint64_t epoch, uint32_t id, int fd);
void slabs_close_unused(struct gemmd_session *session);
/* Frees it, and the descriptors that nothing else needs, without telling the daemon. */
void borrowed_forget(struct gemmd_borrowed *borrowed);
/* What an event of the daemon says. */
void borrowed_withdraw(struct gemmd_session *session, const struct message_weight_withdrawn *event);
