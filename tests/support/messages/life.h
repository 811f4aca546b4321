/* A supervisor over its life, for tests of what it keeps: one at a time, in a folder of its own, with bare messages. */
#pragma once

#include "peer.h"

#include <stdbool.h>

extern struct life {
  struct config config; /* of the next supervisor; set up anew for each test */
  pid_t supervisor;
  struct error failure;               /* of the last request that was refused */
  struct message_status_reply status; /* as last asked for */
  char folder[40];
} life;

/* For cmocka: before and after each test. The second fails where the socket is left behind. */
int life_configure(void **state);
int life_clean(void **state);

void life_begin(void);
void life_end(void);
/* A connection that has said hello. */
int life_client(void);
/* Loads a weight of 300 x 200, INT8, whose values depend on `seed`. */
enum status life_load(int peer, const char *name, uint32_t seed, bool replace, struct message_weight_info *info);
/* A request that takes a name. */
enum status life_ask_name(int peer, enum command command, const char *name, void *out);
const struct message_status_reply *life_status(int peer);
/* Asks until the worker of `device` has been started `restarts` times and is in `state`. */
const struct message_device_status *life_wait_for(int peer, uint32_t device, uint32_t restarts, const char *state);
