/* A file that a command writes: it takes the place of an older one when it is whole. */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>

enum { OUTPUT_ENDINGS = 3 };

struct output {
  FILE *file;        /* to write to; owned */
  char *path, *part; /* owned; part: what is written beside path; both NULL where no place is taken */
  struct sigaction before[OUTPUT_ENDINGS];
};

/* False with errno. What is at `path` stays there; a device or a pipe has no place to be taken, and is written to. One
 * at a time: SIGINT, SIGTERM and SIGHUP remove what is not whole. */
bool output_open(struct output *output, const char *path);
/* Closes, and puts the file in its place where it is `whole`; else it is gone, and an older one stays. False with errno
 * where that failed, or a write before; then it is gone, too. */
bool output_close(struct output *output, bool whole);
