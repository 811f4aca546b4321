/* What each user id holds, over all its sessions, and the caps on that. Pure: time comes in as a parameter.
 *
 * Admins are counted and not capped: whoever must look after a daemon that others have filled gets in. */
#pragma once

#include "../../../proto/status.h"
#include "../../config.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct user {
  uint32_t uid;
  bool admin;
  uint32_t references; /* sessions that point here, those that end included */
  uint32_t sessions, loads;
  uint32_t searches;  /* for a fastest kernel, under way */
  uint64_t load_turn; /* see load_line.h */
  uint64_t entries;   /* of rings: the most that can be in flight */
  uint64_t arena_bytes;
  int64_t tokens_milli;    /* messages that may be taken at once, in thousandths; below 0: taken ahead of their time */
  uint64_t filled_ms;      /* when the tokens were counted last */
  uint64_t lines_since_ms; /* lines of the log about this user, in the window that began then */
  uint32_t lines, lines_left_out;
  atomic_uint closing; /* descriptors of the user's whose closing has not returned; threads count it down */
  uint64_t stuck_ms;   /* when these were found too many, and did not get fewer; 0: not */
};

struct users {
  const struct config *config; /* not owned */
  struct user **list;          /* owned */
  size_t count, capacity;
};

void users_init(struct users *users, const struct config *config);
/* But for those where a thread counts yet: they stay with `users`. */
void users_free(struct users *users);

/* The user, made where it is not known; with one reference more. NULL for lack of memory. An admin and a user of the
 * same id, by groups of different processes, are two. */
struct user *users_enter(struct users *users, uint32_t uid, bool admin, uint64_t now_ms);
void users_leave(struct users *users, struct user *user, uint64_t now_ms);

/* Count something in, or BUSY with what the cap is. */
MUST_CHECK enum status user_add_session(const struct users *users, struct user *user, struct error *error);
MUST_CHECK enum status user_add_load(const struct users *users, struct user *user, struct error *error);
/* One at a time: each takes the device for as long as it is left alone. */
MUST_CHECK enum status user_add_search(struct user *user, struct error *error);
MUST_CHECK enum status user_add_arena(const struct users *users, struct user *user, uint64_t bytes, uint64_t entries,
                                      struct error *error);
/* Whether `held` + `more` bytes of devices are within the cap: BUSY otherwise. */
MUST_CHECK enum status user_check_device(const struct users *users, const struct user *user, uint64_t held,
                                         uint64_t more, struct error *error);

/* The same for one more name of a weight, beside those that the user has. */
MUST_CHECK enum status user_check_name(const struct users *users, const struct user *user, uint64_t held,
                                       struct error *error);

/* One message has come, which counts as `more` others besides: those that its descriptors stand for. Milliseconds until
 * the session that brought it may bring another; 0: at once. Sessions of one user wait for each other's messages too,
 * so that many sessions get no more through than one. */
uint32_t user_spend_message(const struct users *users, struct user *user, size_t more, uint64_t now_ms);

/* Whether one more line about this user may go into the log: so many in a window of seconds. *left_out: how many did
 * not in the window before, to be said now; else 0. */
bool user_may_log(struct user *user, uint64_t now_ms, uint32_t *left_out);
