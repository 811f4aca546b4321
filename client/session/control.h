/* Commands that outlive a daemon; private. */
#pragma once

#include "exchange.h"

/* As exchange_call. Where the daemon is lost, the session goes on with the next one if it can: the call is made again
 * there, or is DISCONNECTED where it is to be made once. */
MUST_CHECK enum status control_call(struct gemmd_session *session, const struct call *call);
/* Before a submission names anything of the session: DISCONNECTED where it has ended and does not go on with the next
 * daemon. Where a device has failed it looks whether its daemon is still there: one that ended then has left the rings
 * as they were, and only the socket knows. */
MUST_CHECK enum status control_alive(struct gemmd_session *session);
