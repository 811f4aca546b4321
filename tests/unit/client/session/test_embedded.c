/* Starting a daemon of one's own: which program, with what, and what is left of it. The programs here are scripts that
 * end at once; their exit status tells what they saw. */
#include "client/gemmclient.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char script_path[64];

static void script_write(const char *text) {
  snprintf(script_path, sizeof script_path, "/tmp/gemmd-embedded-%d", (int)getpid());
  int fd = open(script_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);
  assert_true(fd >= 0);
  assert_int_equal(write(fd, text, strlen(text)), strlen(text));
  close(fd);
  assert_int_equal(setenv("GEMMD_BINARY", script_path, 1), 0);
}

static int script_remove(void **state) {
  unlink(script_path);
  unsetenv("GEMMD_BINARY");
  return 0;
}

static void connect_fails(const char *address, int expected, const char *says) {
  gemmd_session *session;
  assert_int_equal(gemmd_connect(&session, address, NULL), expected);
  assert_string_equal(gemmd_error(session), says);
  gemmd_disconnect(session);
  /* No child is left behind. */
  assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
  assert_int_equal(errno, ECHILD);
}

static void a_missing_program_is_named(void **state) {
  setenv("GEMMD_BINARY", "/nonexistent/gemmd", 1);
  connect_fails("embedded:", GEMMD_SYSTEM, "cannot start /nonexistent/gemmd: No such file or directory");
}

static void the_status_of_a_daemon_that_ends_is_told(void **state) {
  script_write("#!/bin/sh\nexit 7\n");
  connect_fails("embedded:", GEMMD_DISCONNECTED, "the embedded daemon ended with exit status 7; its log tells why");
  script_write("#!/bin/sh\nkill -9 $$\n");
  connect_fails("embedded:", GEMMD_DISCONNECTED, "the embedded daemon was killed by signal 9");
}

static void it_is_told_how_to_serve(void **state) {
  script_write("#!/bin/sh\n[ \"$*\" = \"--embedded\" ] && exit 3\nexit 1\n");
  connect_fails("embedded:", GEMMD_DISCONNECTED, "the embedded daemon ended with exit status 3; its log tells why");
  script_write("#!/bin/sh\n[ \"$*\" = \"--embedded --config /a b/gemmd.conf\" ] && [ $# = 3 ] && exit 3\nexit 1\n");
  connect_fails("embedded:/a b/gemmd.conf", GEMMD_DISCONNECTED,
                "the embedded daemon ended with exit status 3; its log tells why");
}

/* A descriptor of this process without close-on-exec, a blocked and an ignored signal: none of them is the daemon's. */
static void it_inherits_the_socket_and_nothing_else(void **state) {
  int leak = fcntl(open("/dev/null", O_RDONLY | O_CLOEXEC), F_DUPFD, 4);
  sigset_t blocked;
  assert_true(leak >= 4);
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  sigprocmask(SIG_BLOCK, &blocked, NULL);
  signal(SIGHUP, SIG_IGN);
  char text[512];
  snprintf(text, sizeof text,
           "#!/bin/sh\n"
           "[ -S /proc/$$/fd/3 ] || exit 1\n"
           "[ -e /proc/$$/fd/%d ] && exit 2\n"
           "grep -q '^SigBlk:.0*$' /proc/self/status || exit 4\n" /* grep's own: a shell that waits blocks some */
           "grep -q '^SigIgn:.*[02468ace]$' /proc/$$/status || exit 5\n" /* SIGHUP is the lowest bit */
           "[ /proc/$$/fd/0 -ef /dev/null ] && [ /proc/$$/fd/1 -ef /dev/null ] || exit 6\n"
           "exit 3\n",
           leak);
  script_write(text);
  connect_fails("embedded:", GEMMD_DISCONNECTED, "the embedded daemon ended with exit status 3; its log tells why");
  sigprocmask(SIG_UNBLOCK, &blocked, NULL);
  signal(SIGHUP, SIG_DFL);
  close(leak);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(a_missing_program_is_named, script_remove),
      cmocka_unit_test_teardown(the_status_of_a_daemon_that_ends_is_told, script_remove),
      cmocka_unit_test_teardown(it_is_told_how_to_serve, script_remove),
      cmocka_unit_test_teardown(it_inherits_the_socket_and_nothing_else, script_remove),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
