/* The program that is to take this one's place, asked first whether it starts with the options that there are now: with
 * --check it reads them and ends. Where it does not, the gemmd that runs goes on. */
#pragma once

#include "../../../proto/status.h"

struct session;

/* Answers the request `id` of the session, and begins the upgrade where all is well. UNSUPPORTED, SYSTEM, NOMEM where
 * it cannot even be asked; then the request is still to be answered. */
MUST_CHECK enum status successor_ask(struct session *session, uint32_t id, struct error *error);
