/* Lending the memory of weights to processes that compute with it themselves: who may, what may lie together in memory
 * that is lent, and what becomes of it. See "Borrowed weights" in proto/PROTOCOL.md. */
#pragma once

#include "catalog.h"

struct session;
struct supervisor;

/* The class of the slab that a weight under a name of class `named` is to lie in: none where hardly anybody could
 * borrow it, so that small weights of many users share slabs. */
struct catalog_class lend_class(const struct supervisor *supervisor, struct catalog_class named);
/* The descriptor of a slab as a borrower gets it, the caller's: of a memfd one that cannot be written through, nor, for
 * other users, be opened again for that. BUSY where gemmd has no descriptor left. */
MUST_CHECK enum status lend_descriptor(int slab, int *fd, struct error *error);
/* One borrow less; what was lent is compared with what was loaded. */
void lend_return(struct supervisor *supervisor, struct catalog_weight *weight);
/* The session has ended: all that it has borrowed is given back. */
void lend_session_left(struct session *session);
/* The bytes of the weight are not those that were loaded, or no worker knows its layout; `what` has become of it is for
 * log and borrowers. Nobody gets a product with it: it loses its names, no load of that content shares it, sessions
 * that have it open end, and those that have borrowed it are told. */
void lend_withdraw(struct supervisor *supervisor, struct catalog_weight *weight, const char *what);
