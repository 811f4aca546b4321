/* Products over experts beside dense ones of ours that read as many bytes of W for as many rows each, in turn. By the
 * clock of the host, from submit to poll. */
#ifndef BENCH_EXPERTS_H
#define BENCH_EXPERTS_H

#include "settings.h"

MUST_CHECK enum status experts_measure(const struct tool_call *call, const struct settings *settings,
                                       struct error *error);

#endif
