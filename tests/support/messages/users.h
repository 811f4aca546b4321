/* Processes of several users before one supervisor (see life.h). To be another user takes root. */
#pragma once

#include "life.h"

#include <stdio.h>
#include <unistd.h>

enum { USERS_USE = 54321, USERS_ADMIN = 54322, USERS_OTHER = 54323, USERS_ALICE = 54331, USERS_BOB = 54332 };

/* For cmocka, instead of life_configure: members of USERS_USE may use gemmd, those of USERS_ADMIN all of it. */
int users_configure(void **state);
/* Runs `play` in a process of that user, whose supplementary group is `group`, and waits for it. */
void users_play(uid_t uid, gid_t group, void (*play)(void));
/* The same without waiting; to be reaped by peer_wait, which must get 0. */
pid_t users_start(uid_t uid, gid_t group, void (*play)(void));

/* Assertions of cmocka end a test by a jump that a child must not take: in `play`, this one. */
#define EXPECT(condition)                                                                                              \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, life.failure.text);                          \
      _exit(1);                                                                                                        \
    }                                                                                                                  \
  } while (0)

/* hello; the reply's status. */
enum status users_greet(int peer);
/* Loads a weight of 64 x 64, INT8, whose values depend on `seed`. */
enum status users_load(int peer, const char *name, uint32_t seed, enum message_mode mode,
                       struct message_weight_info *info);
