/* The loads that wait, and whose is next. Users take turns, however many each has; a user's own come in the order of
 * their arrival. Beside the places that all share there is one for small loads alone, so that these wait for each other
 * at most. Pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#define LOAD_LINE_SMALL_BYTES ((uint64_t)16 << 20) /* of the files, at most */

struct load_entry {
  TAILQ_ENTRY(load_entry) link;
  uint64_t *turn; /* the user's, which stays while the entry waits; 0 at first */
  bool small;
};

struct load_line {
  TAILQ_HEAD(load_entries, load_entry) entries; /* in the order of arrival */
  uint64_t turns;                               /* given so far */
};

void load_line_init(struct load_line *line);
void load_line_add(struct load_line *line, struct load_entry *entry);
/* The entry whose turn it is, which leaves the line: of the user whose last turn is the longest ago, the one that came
 * first. `small`: of small ones alone. NULL where there is none. */
struct load_entry *load_line_next(struct load_line *line, bool small);
/* It does not wait any more. */
void load_line_remove(struct load_line *line, struct load_entry *entry);
