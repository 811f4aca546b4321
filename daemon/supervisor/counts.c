#include "counts.h"

void counts_answered(struct counts *counts, const struct command_info *command, uint64_t ns) {
  uint32_t i = 0;
  while (i < counts->command_count && counts->commands[i].command != command)
    i++;
  if (i == COUNTS_COMMANDS)
    return;
  if (i == counts->command_count)
    counts->commands[counts->command_count++].command = command;
  counts->commands[i].ns += ns;
  counts->commands[i].tally[tally_bucket(ns, TALLY_NS)]++;
}

void counts_refused(struct counts *counts, enum status status) {
  if ((unsigned)status < COUNTS_STATUSES)
    counts->refusals[status]++;
}
