/* The table of all that a search has tried: fetched, and written as CSV, JSON or text. */
#pragma once

#include "../ctl.h"

struct tune_trials {
  gemmd_tune_search search;
  gemmd_tune_trial *list; /* owned; fastest first */
  size_t count, room;
};

/* Of out->search's device and number; the caller frees the list, also after a failure. */
enum tool_exit tune_trials_fetch(const struct tool_call *call, gemmd_session *session, struct tune_trials *out);
/* A line a candidate, with a column for each parameter that any of them has. */
void tune_trials_csv(const struct tune_trials *trials, FILE *out);
json_t *tune_trials_json(const struct tune_trials *trials);
/* tune trials: the table of the last search, to --csv's file where that is given. */
enum tool_exit tune_trials_show(struct tool_call *call, gemmd_session *session, uint32_t device);
