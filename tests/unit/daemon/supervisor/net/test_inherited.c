/* Descriptors that pass by an exec: what is left under which number and name is found by who reads it. */
#include "daemon/supervisor/net/inherited.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { COUNT = 40, FIRST_FD = 3, STEP = 7 /* has no divisor in common with COUNT */ };

/* A file that tells which one it is by its size. */
static int file_of(off_t which) {
  int fd = memfd_create("inherited", MFD_CLOEXEC);
  return fd >= 0 && ftruncate(fd, which) == 0 ? fd : -1;
}

static off_t which_file(int fd) {
  return lseek(fd, 0, SEEK_END);
}

/* The order in which they come is another one than that of their numbers, which begin at `from`. */
static bool make_list(struct inherited_fd *list, int from) {
  int open = FIRST_FD;
  while (open < from) /* where it begins is taken */
    open = dup(STDERR_FILENO) + 1;
  for (int i = 0; i < COUNT; i++) {
    int place = i * STEP % COUNT;
    list[place] = (struct inherited_fd){.fd = file_of(place)};
    snprintf(list[place].name, sizeof list[place].name, "file-%d", place);
    if (list[place].fd < 0)
      return false;
  }
  return true;
}

/* In a process of its own, whose numbers it changes. 0: all are found again. */
static int leave_and_find(int from) {
  struct inherited_fd list[COUNT];
  struct inherited found;
  struct error error;
  closefrom(FIRST_FD);
  if (!make_list(list, from))
    return 1;
  const struct rlimit limit = {.rlim_cur = (rlim_t)(from + COUNT + 1), .rlim_max = (rlim_t)(from + COUNT + 1)};
  setrlimit(RLIMIT_NOFILE, &limit); /* one more than there are */
  if (inherited_leave(list, COUNT, &error) != STATUS_OK) {
    fprintf(stderr, "%s\n", error.text);
    return 2;
  }
  for (int i = 0; i < COUNT; i++)
    if (which_file(FIRST_FD + i) != i || fcntl(FIRST_FD + i, F_GETFD) != 0)
      return 3;
  if (inherited_read(&found, &error) != STATUS_OK || found.count != COUNT)
    return 4;
  for (int i = 0; i < COUNT; i++) {
    char name[32];
    snprintf(name, sizeof name, "file-%d", i);
    int fd = inherited_take(&found, name);
    if (fd != FIRST_FD + i || fcntl(fd, F_GETFD) != FD_CLOEXEC)
      return 5;
  }
  return 0;
}

static void expect_found(int from) {
  int status;
  fflush(NULL);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0)
    _exit(leave_and_find(from));
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

static void what_is_left_is_found_with_one_number_to_spare(void **state) {
  for (int from = FIRST_FD; from < FIRST_FD + 2 * COUNT; from++) /* in their own way, in part, or not */
    expect_found(from);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_left_is_found_with_one_number_to_spare),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
