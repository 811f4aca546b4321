/* Bad input must disturb nobody: a real daemon with two weights, and a session, the witness, that was there all along
 * and still gets right products. What fails ends the running cmocka test. */
#pragma once

#include "client/gemmclient.h"
#include "daemon.h"
#include "tests/support/reference/oracle.h"

extern const struct gemm_weight witness_int8_shape;

struct witness {
  struct daemon daemon;                         /* takes 8 sessions, arenas of 64 MiB */
  struct oracle_weight int8_values, f16_values; /* of its weights "int8" and "f16" */
  gemmd_session *session;                       /* with 2 entries a ring */
  gemmd_weight *int8, *f16;
};
extern struct witness witness;

/* For cmocka: before and after a group of tests. */
int witness_start(void **state);
int witness_stop(void **state);

/* The file that the weights were loaded from. */
const char *witness_model(void);
gemmd_load witness_load(const char *tensor, const char *name, enum gemmd_format format);
/* After each refusal: the daemon, its worker and its weights are what they were, and a product is right. */
void witness_undisturbed(void);

void witness_ok(gemmd_session *session, int status);
/* The call must have ended with `expected`, and a sentence that contains `text`. */
void witness_status(gemmd_session *session, int status, int expected, const char *text);
