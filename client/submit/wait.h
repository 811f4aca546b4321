#pragma once

#include "../session/session.h"

/* Takes in what all devices have answered; where the session has ended it goes on with the next daemon, or what is in
 * flight fails. Private. */
void wait_take_in(struct gemmd_session *session);
