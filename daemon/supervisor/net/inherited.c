#include "inherited.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FIRST_FD = 3, FDS_MOST = 1 << 20 };

static void take_names(struct inherited *inherited, const char *names) {
  for (size_t i = 0; i < inherited->count && names != NULL; i++) {
    const char *end = strchr(names, ':');
    size_t length = end != NULL ? (size_t)(end - names) : strlen(names);
    if (length < INHERITED_NAME_BYTES)
      snprintf(inherited->list[i].name, INHERITED_NAME_BYTES, "%.*s", (int)length, names);
    names = end != NULL ? end + 1 : NULL;
  }
}

enum status inherited_read(struct inherited *inherited, struct error *error) {
  const char *pid = getenv("LISTEN_PID"), *fds = getenv("LISTEN_FDS");
  long count = pid != NULL && fds != NULL && strtol(pid, NULL, 10) == (long)getpid() ? strtol(fds, NULL, 10) : 0;
  *inherited = (struct inherited){.list = NULL};
  if (count < 0 || count > FDS_MOST)
    return error_set(error, STATUS_INVALID, "LISTEN_FDS must be 0..%d, got %ld", FDS_MOST, count);
  if (count > 0) {
    inherited->list = calloc((size_t)count, sizeof *inherited->list);
    if (inherited->list == NULL)
      return error_set(error, STATUS_NOMEM, "no memory for %ld inherited descriptors", count);
    inherited->count = (size_t)count;
    for (long i = 0; i < count; i++) {
      inherited->list[i].fd = FIRST_FD + (int)i;
      fcntl(FIRST_FD + (int)i, F_SETFD, FD_CLOEXEC);
    }
    take_names(inherited, getenv("LISTEN_FDNAMES"));
  }
  unsetenv("LISTEN_PID"); /* not for the children */
  unsetenv("LISTEN_FDS");
  unsetenv("LISTEN_FDNAMES");
  return STATUS_OK;
}

void inherited_free(struct inherited *inherited) {
  for (size_t i = 0; i < inherited->count; i++)
    if (inherited->list[i].fd >= 0)
      close(inherited->list[i].fd);
  free(inherited->list);
  *inherited = (struct inherited){.list = NULL};
}

int inherited_take(struct inherited *inherited, const char *name) {
  for (size_t i = 0; i < inherited->count; i++) {
    int fd = inherited->list[i].fd;
    if (fd < 0 || strcmp(inherited->list[i].name, name) != 0)
      continue;
    inherited->list[i].fd = -1;
    return fd;
  }
  return -1;
}

/* ---- for the next program */

/* Whichever of them has the number that another one is to get makes room. */
static bool move_away(struct inherited_fd *list, size_t count, int number) {
  for (size_t i = 0; i < count; i++)
    if (list[i].fd == number)
      return (list[i].fd = fcntl(number, F_DUPFD_CLOEXEC, FIRST_FD)) >= 0;
  return true;
}

/* The number that it had is free afterwards: there need not be as many more as there are descriptors. */
static bool move_to(struct inherited_fd *one, int number) {
  int before = one->fd;
  if (before == number)
    return fcntl(number, F_SETFD, 0) == 0;
  one->fd = dup3(before, number, 0);
  return one->fd >= 0 && close(before) == 0;
}

static enum status name_all(const struct inherited_fd *list, size_t count, struct error *error) {
  char number[32], pid[32];
  char *names = calloc(count + 1, INHERITED_NAME_BYTES + 1), *end = names;
  if (names == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for the names of descriptors");
  for (size_t i = 0; i < count; i++)
    end += sprintf(end, "%s%s", i > 0 ? ":" : "", list[i].name);
  snprintf(number, sizeof number, "%zu", count);
  snprintf(pid, sizeof pid, "%ld", (long)getpid());
  int failed = setenv("LISTEN_FDNAMES", names, 1) | setenv("LISTEN_FDS", number, 1) | setenv("LISTEN_PID", pid, 1);
  free(names);
  return failed ? error_set(error, STATUS_NOMEM, "no memory for the environment") : STATUS_OK;
}

enum status inherited_leave(struct inherited_fd *list, size_t count, struct error *error) {
  for (size_t i = 0; i < count; i++) {
    int number = FIRST_FD + (int)i;
    bool there = list[i].fd == number || move_away(list + i + 1, count - i - 1, number);
    if (!there || !move_to(&list[i], number))
      return error_set(error, STATUS_SYSTEM, "a descriptor cannot be kept: %s", strerror(errno));
  }
  return name_all(list, count, error);
}
