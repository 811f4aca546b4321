#include "memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

struct backend_arena {
  void *base;
  uint64_t bytes;
};

/* What could shrink would make reading it a fault. A hole that is punched into it spoils its owner's data alone. */
static enum status check(int fd, uint64_t bytes, struct error *error) {
  struct statfs system;
  struct stat file;
  int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || fstatfs(fd, &system) != 0 || system.f_type != TMPFS_MAGIC || fstat(fd, &file) != 0) {
    return error_set(error, STATUS_BAD_DESCRIPTOR, "the descriptor is no memfd of ordinary pages");
  }
  if ((seals & F_SEAL_SHRINK) == 0) {
    return error_set(error, STATUS_BAD_DESCRIPTOR, "the memfd is not sealed against shrinking");
  }
  if ((uint64_t)file.st_size != bytes) {
    return error_set(error, STATUS_BAD_DESCRIPTOR, "the memfd must have %" PRIu64 " bytes, has %lld", bytes,
                     (long long)file.st_size);
  }
  return STATUS_OK;
}

enum status cpu_memory_import(int fd, uint64_t bytes, struct backend_arena **out, void **address, struct error *error) {
  enum status status = check(fd, bytes, error);
  if (status != STATUS_OK) {
    return status;
  }
  struct backend_arena *memory = malloc(sizeof(*memory));
  if (memory == NULL) {
    return error_set(error, STATUS_NOMEM, "no memory for an entry of memory");
  }
  memory->bytes = bytes;
  memory->base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory->base == MAP_FAILED) {
    free(memory);
    return error_set(error, STATUS_BAD_DESCRIPTOR, "the memfd cannot be mapped for writing: %s", strerror(errno));
  }
  *out = memory;
  *address = memory->base;
  return STATUS_OK;
}

void cpu_memory_close(struct backend_arena *memory) {
  if (memory == NULL) {
    return;
  }
  munmap(memory->base, memory->bytes);
  free(memory);
}
