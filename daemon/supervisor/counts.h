/* What the supervisor counts of its clients' requests. */
#pragma once

#include "../../proto/tally.h"
#include "../../proto/wire/message.h"

#include <stdint.h>

enum { COUNTS_STATUSES = STATUS_INTERNAL + 1 };
enum {
  COUNTS_COMMANDS = 0 /* as many as there are */
#define COMMAND(...) +1
#include "../../proto/wire/commands.def"
};

/* Of one command: from its receipt to the reply. */
struct counts_command {
  const struct command_info *command;
  uint64_t ns, tally[TALLY_BUCKETS];
};

struct counts {
  struct counts_command commands[COUNTS_COMMANDS]; /* those that were asked for, in the order of their first time */
  uint32_t command_count;
  uint64_t refusals[COUNTS_STATUSES]; /* replies by status; that of OK is not counted */
  uint64_t sessions;                  /* accepted */
  uint64_t withdrawn;                 /* weights that were damaged, or refused by a worker */
  uint64_t cut_off;                   /* ended because of what they did or did not do */
};

/* A request has been answered. */
void counts_answered(struct counts *counts, const struct command_info *command, uint64_t ns);
void counts_refused(struct counts *counts, enum status status);
