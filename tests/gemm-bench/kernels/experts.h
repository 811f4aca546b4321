/* Products over experts. On cores beside dense ones of ours that read as many bytes of W for as many rows each, in
 * turn, by the clock of the host, from submit to poll; on a device beside what its memory and arithmetic allow, by its
 * own clock, with routing, gathering and quantization, from x on the device. */
#pragma once

#include "settings.h"

MUST_CHECK enum status experts_measure(const struct tool_call *call, const struct settings *settings,
                                       struct error *error);
