/* One load from beginning to end: open files and a request become a sealed memfd in canonical form. */
#pragma once

#include "../../proto/wire/message.h"
#include "../bands.h"

/* Reads the files behind `fds` (they stay the caller's) with `threads` threads. *memfd is the caller's. `tick` sees
 * bytes worked on (read and hashed); it may be NULL; CANCELLED where it returns false. */
MUST_CHECK enum status load_run(const struct message_weight_load *request, const int *fds, size_t fd_count,
                                unsigned threads, bool (*tick)(void *user, uint64_t done, uint64_t total), void *user,
                                struct message_load_done *done, int *memfd, struct error *error);
