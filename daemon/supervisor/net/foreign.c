#include "foreign.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Of the mount that a file lies in, or one of its device, as this process sees it: is it there, and does a user serve
 * it? A line of mountinfo: "36 35 98:0 / /mnt rw,noatime - ext3 /dev/root rw,errors=continue". */
struct mount {
  bool found, of_user;
};

static struct mount find_mount(const struct statx *stat) {
  struct mount mount = {.found = false};
  char *line = NULL;
  size_t room = 0;
  FILE *file = fopen("/proc/self/mountinfo", "re");
  while (file != NULL && !mount.found && getline(&line, &room, file) > 0) {
    unsigned id, major, minor;
    if (sscanf(line, "%u %*u %u:%u", &id, &major, &minor) != 3 ||
        ((major != stat->stx_dev_major || minor != stat->stx_dev_minor) &&
         (!(stat->stx_mask & STATX_MNT_ID) || id != stat->stx_mnt_id)))
      continue;
    const char *type = strstr(line, " - "), *owner = strstr(line, "user_id=");
    mount.found = true;
    mount.of_user = type != NULL && strncmp(type + 3, "fuse", 4) == 0 &&
                    (owner == NULL || strtoul(owner + strlen("user_id="), NULL, 10) != 0);
  }
  free(line);
  if (file != NULL)
    fclose(file);
  return mount;
}

/* What is mounted elsewhere, in a user's own namespace, is asked: such a file system tells a stranger its type without
 * asking who serves it. An overlay that a user has mounted may have a file system below that the same user serves, and
 * nothing tells it from that of a container. */
static enum status check_system(int fd, const struct statx *stat, bool trusted, struct error *error) {
  struct statfs system = {.f_type = FUSE_SUPER_MAGIC};
  struct mount mount = find_mount(stat);
  if (!mount.found && fstatfs(fd, &system) == 0 && system.f_type == OVERLAYFS_SUPER_MAGIC && !trusted)
    return error_set(error, STATUS_BAD_DESCRIPTOR,
                     "the file lies on an overlay that gemmd does not see, as in a container's image: put it on a "
                     "volume, or let an admin load it");
  if (mount.found ? mount.of_user : system.f_type == FUSE_SUPER_MAGIC)
    return error_set(error, STATUS_BAD_DESCRIPTOR, "the file lies on a file system that a user serves (FUSE)");
  return STATUS_OK;
}

uint64_t foreign_file_bytes(int fd) {
  struct statx stat;
  bool known = statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_SIZE, &stat) == 0 && stat.stx_mask & STATX_SIZE;
  return known ? stat.stx_size : UINT64_MAX;
}

static int64_t nanoseconds(const struct statx_timestamp *at) {
  return at->tv_sec * 1000000000 + at->tv_nsec;
}

bool foreign_file_facts(int fd, struct foreign_facts *out) {
  const unsigned wanted = STATX_SIZE | STATX_INO | STATX_MTIME | STATX_CTIME;
  struct statx stat;
  if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, wanted, &stat) != 0 || (stat.stx_mask & wanted) != wanted)
    return false;
  *out = (struct foreign_facts){.device = (uint64_t)stat.stx_dev_major << 32 | stat.stx_dev_minor,
                                .inode = stat.stx_ino,
                                .bytes = stat.stx_size,
                                .modified_ns = nanoseconds(&stat.stx_mtime),
                                .changed_ns = nanoseconds(&stat.stx_ctime)};
  return true;
}

enum status foreign_check_file(int fd, bool trusted, struct error *error) {
  struct statx stat;
  int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_MNT_ID, &stat) != 0)
    return error_set(error, STATUS_BAD_DESCRIPTOR, "the file cannot be looked at: %s", strerror(errno));
  if (!S_ISREG(stat.stx_mode))
    return error_set(error, STATUS_BAD_DESCRIPTOR, "the descriptor is no regular file");
  if ((flags & O_PATH) || (flags & O_ACCMODE) == O_WRONLY)
    return error_set(error, STATUS_BAD_DESCRIPTOR, "the file is not open for reading");
  if (flags & O_DIRECT)
    return error_set(error, STATUS_BAD_DESCRIPTOR,
                     "the file is open with O_DIRECT, by which only whole blocks can be "
                     "read: open it without");
  return check_system(fd, &stat, trusted, error);
}

enum status foreign_check_memory(int fd, struct error *error) {
  struct statx stat;
  if (fcntl(fd, F_GET_SEALS) >= 0)
    return STATUS_OK;
  if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &stat) != 0)
    return error_set(error, STATUS_BAD_DESCRIPTOR, "the descriptor cannot be looked at: %s", strerror(errno));
  bool nameless = (stat.stx_mode & S_IFMT) == 0; /* of the kernel's own, in no file system */
  if (!nameless && !S_ISCHR(stat.stx_mode))
    return error_set(error, STATUS_BAD_DESCRIPTOR, "the descriptor is neither a memfd nor memory of a device");
  return STATUS_OK;
}
