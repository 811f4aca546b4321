#pragma once

#include "../../proto/status.h"

/* Keeps the sentence for this thread; returns the public status. */
int direct_result(enum status status, const struct error *error);
