/* A backend's own products and those of the library beside it, in one process and in turn, because machines that are
 * shared drift within minutes. By the clock of the host, from submit to poll. */
#pragma once

#include "settings.h"

MUST_CHECK enum status turned_measure(const struct tool_call *call, const struct settings *settings,
                                      struct error *error);
