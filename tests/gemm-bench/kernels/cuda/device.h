/* A GPU's products beside cuBLASLt's: graphs of launches, by the clock of the device. */
#pragma once

#include "../settings.h"

MUST_CHECK enum status device_measure(const struct tool_call *call, const struct settings *settings,
                                      struct error *error);
