/* What the daemon answers, and says of a device, the first where none is named. Failures end the running cmocka test
 * with a message. */
#pragma once

#include "client/gemmclient.h"
#include "daemon.h"

/* Ends the test with the session's sentence unless the call's status is OK. */
void expect_ok(gemmd_session *session, int status);

/* A session with the daemon. A process that gets none, a test or one of its clients, ends with 1 and the reason. */
gemmd_session *daemon_join(const struct daemon *daemon, const gemmd_options *options);

/* Loads the tensor `name` of model.safetensors in the daemon's folder, under its own name. */
void daemon_load(gemmd_session *session, const struct daemon *daemon, const char *name, enum gemmd_format format);

gemmd_device_info device_info(gemmd_session *session);
gemmd_device_info device_info_of(gemmd_session *session, int device);
/* SIGKILL to the device's worker, and waits until the daemon has started another. */
void device_kill_worker(gemmd_session *session);
void device_kill_worker_of(gemmd_session *session, int device);
