#include "status.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

gemmd_device_info device_info(gemmd_session *session) {
  gemmd_daemon_info info;
  if (gemmd_daemon_status(session, &info) != GEMMD_OK)
    fail_msg("%s", gemmd_error(session));
  return info.device[0];
}

void device_kill_worker(gemmd_session *session) {
  gemmd_device_info before = device_info(session);
  assert_int_equal(kill((pid_t)before.pid, SIGKILL), 0);
  while (device_info(session).restarts == before.restarts)
    continue;
}
