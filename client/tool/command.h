/* What the command-line programs share: commands and their options as rows of tables, from which parsing, --help and
 * error sentences are made.
 *
 * Every program knows --socket PATH, --json and --help beside the options of its commands. */
#pragma once

#include "../gemmclient.h"
#include "words.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define TOOL_OPTIONS_MAX 32 /* of one command */
#define TOOL_GIVEN_MAX 256  /* on one command line */

enum tool_exit {
  TOOL_OK = 0,
  TOOL_REFUSED = 1,     /* gemmd or the system refused; the sentence names the status */
  TOOL_USAGE = 2,       /* the command line is wrong; nothing was asked of gemmd */
  TOOL_UNREACHABLE = 3, /* no connection, or it was lost */
  TOOL_RETRY = 4,       /* refused for now: the same call may succeed later */
};

struct tool_option {
  const char *name;     /* without the dashes; NULL ends the list */
  const char *argument; /* NULL: a flag */
  const char *summary;
  bool required;
};

struct tool_call;

struct tool_command {
  const char *name;
  const char *arguments; /* as the help shows them; those that are no options */
  int least, most;       /* how many of those */
  const char *summary;
  const struct tool_option *options; /* NULL: none */
  const char *example;
  const char *keys; /* of the JSON object, for the help */
  enum tool_exit (*run)(struct tool_call *call);
};

struct tool {
  const char *name, *summary;
  const struct tool_command *const *commands; /* NULL ends the list */
  bool first_is_default;                      /* an option in the place of the command means the first command */
};

/* One call of one command. */
struct tool_call {
  const struct tool *tool;
  const struct tool_command *command;
  const char *socket; /* NULL: the library's default */
  bool json;
  const char *values[TOOL_OPTIONS_MAX]; /* of command->options; a flag's value is its name */
  /* All of them, in their order; an option may be given several times. */
  struct tool_given {
    int option;
    const char *value;
  } given[TOOL_GIVEN_MAX];
  int given_count;
  int count; /* of arguments that are no options */
  char **arguments;
  FILE *out; /* of reports: stdout, or stderr where stdout carries a tensor */
};

/* The whole of main(). */
int tool_main(const struct tool *tool, int argc, char **argv);

/* What was given for an option; NULL where it was not. */
const char *tool_value(const struct tool_call *call, const char *option);
/* All that was given for an option, in order: at most `room`, into `out`; how many there are. */
unsigned tool_values(const struct tool_call *call, const char *option, const char **out, unsigned room);
/* An option as a number in low..high, `fallback` where it was not given. False after having said what is wrong. */
bool tool_number(const struct tool_call *call, const char *option, double low, double high, double fallback,
                 double *out);
/* The same for whole numbers. */
bool tool_integer(const struct tool_call *call, const char *option, int64_t low, int64_t high, int64_t fallback,
                  int64_t *out);

/* The same for an option that is a word of a list. */
bool tool_word(const struct tool_call *call, const char *option, const struct word *words, int fallback, int *out);

/* Writes "gemmctl: load: <sentence>" to stderr, and nothing else: for a command line that is wrong, and for what is
 * said beside a refusal. Returns `code`, so that callers can `return tool_fail(...)`. */
enum tool_exit tool_fail(const struct tool_call *call, enum tool_exit code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A random number for a name that nobody else has: process ids of several containers are alike. */
enum tool_exit tool_random(const struct tool_call *call, uint64_t *out);

/* Says why something was refused, names the status, and chooses the exit code; with --json also as an object. */
enum tool_exit tool_refuse(const struct tool_call *call, const char *text, int status);
/* The same for what the program itself finds, as a file that cannot be opened. */
enum tool_exit tool_cannot(const struct tool_call *call, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same with the session's own sentence. */
enum tool_exit tool_refused(const struct tool_call *call, const gemmd_session *session, int status);

/* Connects as the call asks. On failure says why, leaves *session NULL and returns the exit code. */
enum tool_exit tool_connect(const struct tool_call *call, const gemmd_options *options, gemmd_session **session);
