/* What memory there is left for this process: of the machine, and of the control groups that it is in. Where that ends
 * the kernel ends a process, so what is large is refused before. */
#pragma once

#include "../proto/status.h"

#include <stdint.h>

struct room {
  uint64_t left, total; /* bytes, of whichever has least left; UINT64_MAX: not known */
};

/* `proc` and `groups`: "/proc" and "/sys/fs/cgroup", of either version of cgroups. */
struct room room_read(const char *proc, const char *groups);
/* NOMEM where so many bytes more would leave little for gemmd itself: a sixteenth of all, at most 64 MiB. */
MUST_CHECK enum status room_check(const struct room *room, uint64_t bytes, struct error *error);
/* Of this machine, now. */
MUST_CHECK enum status room_for(uint64_t bytes, struct error *error);
