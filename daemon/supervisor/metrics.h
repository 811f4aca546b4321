/* What the supervisor counts of its clients' requests, and all numbers in Prometheus' text format (version 0.0.4). */
#ifndef SUPERVISOR_METRICS_H
#define SUPERVISOR_METRICS_H

#include "../../proto/tally.h"
#include "../../proto/wire/message.h"

#include <stdint.h>

struct supervisor;

enum { METRICS_COMMANDS = 32, METRICS_STATUSES = STATUS_INTERNAL + 1 };

/* Of one command: from its receipt to the reply. */
struct metrics_command {
  const struct command_info *command;
  uint64_t ns, tally[TALLY_BUCKETS];
};

struct metrics {
  struct metrics_command commands[METRICS_COMMANDS]; /* those that were asked for, in the order of their first time */
  uint32_t command_count;
  uint64_t refusals[METRICS_STATUSES]; /* replies by status; that of OK is not counted */
  uint64_t sessions;                   /* accepted */
  uint64_t withdrawn;                  /* weights that were damaged, or refused by a worker */
  uint64_t cut_off;                    /* ended because of what they did or did not do */
};

/* A request has been answered. */
void metrics_answered(struct metrics *metrics, const struct command_info *command, uint64_t ns);
void metrics_refused(struct metrics *metrics, enum status status);

/* *text is the caller's, to be freed. NOMEM. */
MUST_CHECK enum status metrics_write(const struct supervisor *supervisor, const struct message_status_reply *status,
                                     char **text, size_t *bytes, struct error *error);

#endif
