/* What callers hand in; private. */
#pragma once

#include "session.h"

/* Copies text that must have 1..bytes-1 bytes; `what` names it. */
MUST_CHECK enum status text_copy(struct gemmd_session *session, char *to, size_t bytes, const char *from,
                                 const char *what);
/* Opens a file for reading, a path from `folder` (AT_FDCWD). NOT_FOUND, PERMISSION, SYSTEM with the path. */
MUST_CHECK enum status path_open(struct gemmd_session *session, int folder, const char *path, int *fd);
