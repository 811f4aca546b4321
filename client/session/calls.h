/* Several calls under way; private. */
#pragma once

#include "exchange.h"

/* Calls of one kind that are under way together; their answers come in any order. */
struct calls {
  unsigned width; /* how many at a time, at most CALLS_WIDTH */
  /* Fills in the next call, with what it points to, which stays until it is done; false: there is none now. */
  bool (*next)(void *user, unsigned slot, struct call *call);
  void (*done)(void *user, unsigned slot, enum status status); /* the sentence is the session's */
  void *user;
};
enum { CALLS_WIDTH = 8 };

/* Makes calls until there are none. What each comes to is said to `done`; the result is not OK where the session has
 * ended meanwhile: calls under way have no answer then, and none is made again. */
MUST_CHECK enum status calls_make(struct gemmd_session *session, const struct calls *calls);
