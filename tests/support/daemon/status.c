#include "status.h"

#include "tests/support/system/nap.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

void expect_ok(gemmd_session *session, int status) {
  if (status != GEMMD_OK)
    fail_msg("%s: %s", gemmd_status_name(status), gemmd_error(session));
}

gemmd_session *daemon_join(const struct daemon *daemon, const gemmd_options *options) {
  gemmd_session *session = NULL;
  if (gemmd_connect(&session, daemon->socket, options) == GEMMD_OK)
    return session;
  fprintf(stderr, "connect: %s\n", gemmd_error(session));
  exit(1);
}

void daemon_load(gemmd_session *session, const struct daemon *daemon, const char *name, enum gemmd_format format) {
  const gemmd_load request = {.name = name, .tensor = name, .format = format, .device = -1};
  expect_ok(session, gemmd_weight_load_file(session, daemon_path(daemon, "model.safetensors"), &request, NULL));
}

gemmd_device_info device_info_of(gemmd_session *session, int device) {
  gemmd_daemon_info info;
  expect_ok(session, gemmd_daemon_status(session, &info));
  return info.device[device];
}

gemmd_device_info device_info(gemmd_session *session) {
  return device_info_of(session, 0);
}

void device_kill_worker_of(gemmd_session *session, int device) {
  gemmd_device_info before = device_info_of(session, device);
  assert_int_equal(kill((pid_t)before.pid, SIGKILL), 0);
  while (device_info_of(session, device).restarts == before.restarts)
    nap_shortly();
}

void device_kill_worker(gemmd_session *session) {
  device_kill_worker_of(session, 0);
}
