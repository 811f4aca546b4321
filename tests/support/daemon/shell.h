/* The tools as a shell runs them: exit codes, what they print, and JSON. Failures end the running cmocka test with a
 * message. */
#pragma once

#include "daemon.h"

#include <jansson.h>

struct shell_outcome {
  int code;                      /* of exit; -1: a signal */
  char out[1 << 20], err[65536]; /* a histogram has a line for each call at worst */
};

/* Command lines run in the daemon's folder from here on, and the tools find its socket. */
void shell_begin(const struct daemon *daemon);

/* Runs a command line, in which $T stands for the programs' folder ($GEMMD_BUILD, else build) and $D for the folder.
 * The outcome lasts until the next one. */
const struct shell_outcome *shell_expect(const char *line, int code);
/* The sentence on stderr has each of these parts, of which the last is followed by NULL. */
void shell_expect_parts(const char *line, int code, const char *const *parts);
#define SHELL_EXPECT_ERROR(line, code, ...) shell_expect_parts(line, code, (const char *const[]){__VA_ARGS__, NULL})
/* The object that a tool printed on stdout; the caller frees it. */
json_t *shell_expect_json(const char *line, int code);

/* Members of an object that must have them. */
json_int_t shell_integer(const json_t *object, const char *key);
const char *shell_string(const json_t *object, const char *key);
