#include "users.h"

#include <grp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cmocka.h>

int users_configure(void **state) {
  if (life_configure(state) != 0 || chmod(life.folder, 0755) != 0)
    return -1;
  snprintf(life.config.use_group, sizeof life.config.use_group, "%d", USERS_USE);
  snprintf(life.config.admin_group, sizeof life.config.admin_group, "%d", USERS_ADMIN);
  life.config.socket_mode = 0666;
  return 0;
}

pid_t users_start(uid_t uid, gid_t group, void (*play)(void)) {
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid > 0)
    return pid;
  if (setgroups(1, &group) != 0 || setgid(uid) != 0 || setuid(uid) != 0)
    _exit(9);
  play();
  exit(0);
}

void users_play(uid_t uid, gid_t group, void (*play)(void)) {
  assert_int_equal(peer_wait(users_start(uid, group, play)), 0);
}

enum status users_greet(int peer) {
  const struct message_hello_request request = {.version_min = 1, .version_max = 1, .client = "test"};
  return peer_ask(peer, COMMAND_hello, &request, NULL, 0, NULL, &life.failure);
}

enum status users_load(int peer, const char *name, uint32_t seed, enum message_mode mode,
                       struct message_weight_info *info) {
  struct message_weight_load request = peer_load(name);
  request.mode = mode;
  int file = peer_file(64, 64, seed);
  enum status status = peer_ask(peer, COMMAND_weight_load, &request, &file, 1, info, &life.failure);
  close(file);
  return status;
}
