#pragma once

#include "session.h"

/* After the end of a session: finds the next daemon, with growing pauses, gives it the arena, opens the weights by name
 * and submits again what was in flight. False where that cannot be; session->end says why. Private. */
bool session_resume(struct gemmd_session *session);
