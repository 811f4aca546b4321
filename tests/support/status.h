/* What the daemon says of its first device. Failures end the running cmocka test with a message. */
#ifndef TESTS_STATUS_H
#define TESTS_STATUS_H

#include "client/gemmclient.h"

gemmd_device_info device_info(gemmd_session *session);
/* SIGKILL to the device's worker, and waits until the daemon has started another. */
void device_kill_worker(gemmd_session *session);

#endif
