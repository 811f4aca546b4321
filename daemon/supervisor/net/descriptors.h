/* The limit on open descriptors, which many sessions can reach. The last ones are kept back, so that gemmd can still
 * answer, start a worker's successor, and let an admin in. */
#pragma once

#include <stdbool.h>

/* Raises the soft limit to the hard one. */
void descriptors_raise_limit(void);
/* Whether a client may have more. Admins may take half of what is kept back. */
bool descriptors_left(bool admin);
