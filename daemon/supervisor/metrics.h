/* All numbers of daemon and devices in Prometheus' text format (version 0.0.4). */
#pragma once

#include "../../proto/wire/message.h"

#include <stddef.h>

struct supervisor;

/* *text is the caller's, to be freed. NOMEM. */
MUST_CHECK enum status metrics_write(const struct supervisor *supervisor, const struct message_status_reply *status,
                                     char **text, size_t *bytes, struct error *error);
