#include "life.h"

#include "tests/support/system/nap.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct life life;

int life_configure(void **state) {
  snprintf(life.folder, sizeof life.folder, "/tmp/gemmd-test-life-XXXXXX");
  if (mkdtemp(life.folder) == NULL)
    return -1;
  peer_config(&life.config);
  snprintf(life.config.socket, sizeof life.config.socket, "%s/sock", life.folder);
  return 0;
}

int life_clean(void **state) {
  char path[128];
  snprintf(path, sizeof path, "%s/sock.lock", life.folder);
  unlink(path);
  return rmdir(life.folder);
}

void life_begin(void) {
  life.supervisor = peer_start(&life.config);
}

void life_end(void) {
  assert_int_equal(kill(life.supervisor, SIGTERM), 0);
  assert_int_equal(peer_wait(life.supervisor), 0);
}

int life_client(void) {
  int peer = peer_connect(&life.config);
  peer_hello(peer);
  return peer;
}

enum status life_load(int peer, const char *name, uint32_t seed, bool replace, struct message_weight_info *info) {
  struct message_weight_load request = peer_load(name);
  request.replace = replace;
  int file = peer_file(300, 200, seed);
  enum status status = peer_ask(peer, COMMAND_weight_load, &request, &file, 1, info, &life.failure);
  close(file);
  return status;
}

enum status life_ask_name(int peer, enum command command, const char *name, void *out) {
  struct message_weight_name request;
  snprintf(request.name, sizeof request.name, "%s", name);
  return peer_ask(peer, command, &request, NULL, 0, out, &life.failure);
}

const struct message_status_reply *life_status(int peer) {
  const struct message_empty request = {.reserved = 0};
  assert_int_equal(peer_ask(peer, COMMAND_status, &request, NULL, 0, &life.status, NULL), STATUS_OK);
  return &life.status;
}

const struct message_device_status *life_wait_for(int peer, uint32_t device, uint32_t restarts, const char *state) {
  for (;;) {
    const struct message_device_status *now = &life_status(peer)->devices[device];
    if (now->restarts >= restarts && strcmp(now->state, state) == 0)
      return now;
    nap_shortly();
  }
}
