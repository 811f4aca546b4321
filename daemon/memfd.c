#include "memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif

static enum status system_error(struct error *error, const char *what) {
  enum status status = errno == ENOMEM || errno == ENOSPC   ? STATUS_NOMEM
                       : errno == EMFILE || errno == ENFILE ? STATUS_BUSY
                                                            : STATUS_SYSTEM;
  return error_set(error, status, "%s: %s", what, strerror(errno));
}

enum status memfd_make_open(const char *name, uint64_t bytes, int *fd, struct error *error) {
  if (bytes > INT64_MAX)
    return error_set(error, STATUS_TOO_LARGE, "memory of %llu bytes is more than can be addressed",
                     (unsigned long long)bytes);
  int made = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (made < 0)
    return system_error(error, "memfd_create");
  if (ftruncate(made, (off_t)bytes) != 0) {
    enum status status = system_error(error, "ftruncate of a memfd");
    close(made);
    return status;
  }
  *fd = made;
  return STATUS_OK;
}

enum status memfd_make(const char *name, uint64_t bytes, int *fd, struct error *error) {
  int made;
  enum status status = memfd_make_open(name, bytes, &made, error);
  if (status != STATUS_OK)
    return status;
  if (fcntl(made, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    status = system_error(error, "sealing a memfd");
    close(made);
    return status;
  }
  *fd = made;
  return STATUS_OK;
}

enum status memfd_freeze(int fd, struct error *error) {
  if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) != 0)
    return system_error(error, "sealing a memfd against writing");
  return STATUS_OK;
}

static enum status write_all(int fd, const uint8_t *bytes, uint64_t length, struct error *error) {
  while (length > 0) {
    ssize_t written = write(fd, bytes, length);
    if (written < 0 && errno == EINTR)
      continue;
    if (written <= 0)
      return system_error(error, "writing a memfd");
    bytes += written;
    length -= (uint64_t)written;
  }
  return STATUS_OK;
}

enum status memfd_fill(const char *name, const void *bytes, uint64_t length, int *fd, struct error *error) {
  int made;
  enum status status = memfd_make_open(name, length, &made, error);
  if (status != STATUS_OK)
    return status;
  status = write_all(made, bytes, length, error);
  if (status == STATUS_OK)
    status = memfd_freeze(made, error);
  if (status == STATUS_OK)
    *fd = made;
  else
    close(made);
  return status;
}

enum status memfd_check(int fd, uint64_t bytes, bool frozen, struct error *error) {
  int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0)
    return error_set(error, STATUS_BAD_DESCRIPTOR, "the descriptor is no memfd");
  int wanted = F_SEAL_SHRINK | (frozen ? F_SEAL_WRITE : 0);
  if ((seals & wanted) != wanted)
    return error_set(error, STATUS_BAD_DESCRIPTOR, "the memfd is not sealed against %s",
                     seals & F_SEAL_SHRINK ? "writing" : "shrinking");
  struct stat stat;
  if (fstat(fd, &stat) != 0)
    return system_error(error, "fstat of a memfd");
  if ((uint64_t)stat.st_size != bytes)
    return error_set(error, STATUS_BAD_DESCRIPTOR, "the memfd must have %llu bytes, has %llu",
                     (unsigned long long)bytes, (unsigned long long)stat.st_size);
  return STATUS_OK;
}

enum status memfd_check_foreign(int fd, uint64_t bytes, struct error *error) {
  struct statfs system;
  int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || fstatfs(fd, &system) != 0 || system.f_type != TMPFS_MAGIC)
    return error_set(error, STATUS_BAD_DESCRIPTOR, "the descriptor is no memfd of ordinary pages");
  int wanted = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  if ((seals & wanted) != wanted)
    return error_set(error, STATUS_BAD_DESCRIPTOR,
                     "the memfd must be sealed against shrinking, growing and further seals");
  if ((seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) || (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDWR)
    return error_set(error, STATUS_BAD_DESCRIPTOR, "the memfd must be open for reading and writing");
  return memfd_check(fd, bytes, false, error);
}

static uint64_t whole_pages(uint64_t bytes) {
  uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
  return (bytes + page - 1) / page * page;
}

void *memfd_map(int fd, uint64_t bytes, bool writable, struct error *error) {
  if (bytes > SIZE_MAX - MEMFD_LARGE_PAGE) {
    (void)error_set(error, STATUS_TOO_LARGE, "memory of %llu bytes is more than can be addressed",
                    (unsigned long long)bytes);
    return NULL;
  }
  /* Large pages can be mapped as such where they lie at multiples of their size: room for that is taken first. */
  size_t room = (size_t)(bytes + MEMFD_LARGE_PAGE);
  uint8_t *taken = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (taken == MAP_FAILED) {
    (void)system_error(error, "mmap of a memfd");
    return NULL;
  }
  uint8_t *at = taken + (-(uintptr_t)taken & (MEMFD_LARGE_PAGE - 1)), *end = at + whole_pages(bytes);
  void *base = mmap(at, (size_t)bytes, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED | MAP_FIXED, fd, 0);
  if (base == MAP_FAILED) {
    (void)system_error(error, "mmap of a memfd");
    munmap(taken, room);
    return NULL;
  }
  if (at > taken)
    munmap(taken, (size_t)(at - taken));
  if (end < taken + room)
    munmap(end, (size_t)(taken + room - end));
  return base;
}

/* To clear a page takes 0.2 ms, and what it stands for 0.3 as small ones. Where memory must be compacted for it first,
 * it takes many times as long. */
enum { LARGE_PAGE_NS_MOST = 1000000 };

/* Of this thread: others that compute meanwhile do not count. */
static int64_t computed_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Of a range without any page no large one is made: it gets one first. */
void memfd_take_large_pages(uint8_t *at, uint64_t bytes) {
  for (uint64_t i = 0; i + MEMFD_LARGE_PAGE <= bytes; i += MEMFD_LARGE_PAGE) {
    int64_t begin = computed_ns();
    *(volatile uint8_t *)(at + i) = 0;
    if (madvise(at + i, MEMFD_LARGE_PAGE, MADV_COLLAPSE) != 0 || computed_ns() - begin > LARGE_PAGE_NS_MOST)
      return; /* older kernels do not know it */
  }
}
