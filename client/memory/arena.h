#pragma once

#include "../session/session.h"

/* Offset in the arena of a tensor that the caller points to. INVALID naming `what`. Private. */
MUST_CHECK enum status arena_offset(struct gemmd_session *session, const void *tensor, const char *what,
                                    uint64_t *offset);
