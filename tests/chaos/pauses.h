/* What clients see of faults: one fault after the other under the same load of processes, and for each a line of a
 * table with tries, products lost, and how long clients waited. */
#pragma once

#include "client/gemmclient.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { PAUSES_CLIENTS = 16, PAUSES_ROUNDS = 100 };

/* In memory that all processes see. */
struct pauses {
  _Atomic bool stop;
  _Atomic uint64_t right[PAUSES_CLIENTS], longest_ns[PAUSES_CLIENTS], wrong, refused;
  int clients;
};

struct pauses_fault {
  const char *name;
  void (*inject)(void);
  void (*settle)(void); /* what has to be so again before the next try; NULL: nothing */
  int rounds;           /* 1..PAUSES_ROUNDS */
};

/* By a client, for each product: how long it waited and what it got. */
void pauses_note(struct pauses *pauses, int client, uint64_t waited_ns, int status, bool right);
void pauses_head(const struct pauses *pauses);
/* Tries the fault and prints its line. A try is over when every client has had new right products, of which the first
 * may have been asked for before the fault: the longest wait among them is no shorter than the time from the fault to
 * the client's next right product. Returns the longest of all in nanoseconds. */
uint64_t pauses_try(struct pauses *pauses, const struct pauses_fault *fault);
