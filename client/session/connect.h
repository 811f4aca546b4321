#pragma once

#include "session.h"

/* Says hello and gets the arena, on a socket that is open; private. */
MUST_CHECK enum status session_begin(struct gemmd_session *session, const gemmd_options *options);
