/* The way to a daemon, the first one or the next; private. */
#pragma once

#include "session.h"

/* Connects the socket to session->path. */
MUST_CHECK enum status link_connect(struct gemmd_session *session);
/* VERSION where the daemon speaks none that this library does. */
MUST_CHECK enum status link_hello(struct gemmd_session *session, struct message_hello_reply *reply);
/* Adds socket and wakeup to what gemmd_fd watches. */
MUST_CHECK enum status link_watch(struct gemmd_session *session);
