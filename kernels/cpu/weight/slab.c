#include "slab.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif
#define HUGE_PAGE ((uint64_t)2 << 20)

struct backend_slab {
  int fd; /* owned */
  uint64_t bytes;
  const uint8_t *base; /* owned; read only */
  void *mapping;       /* owned; holds `base` */
  uint64_t mapping_bytes;
};

/* Bytes that the machine can give without swapping; all of its memory where the kernel does not say. */
static uint64_t memory_available(void) {
  unsigned long long kib = 0;
  char line[128];
  struct sysinfo system = {0};
  FILE *file = fopen("/proc/meminfo", "re");
  if (file != NULL) {
    while (fgets(line, sizeof(line), file) != NULL && sscanf(line, "MemAvailable: %llu kB", &kib) != 1) {
    }
    fclose(file);
  }
  if (kib > 0) {
    return (uint64_t)kib * 1024;
  }
  return sysinfo(&system) == 0 ? (uint64_t)system.totalram * system.mem_unit : UINT64_MAX;
}

/* Where the file's huge pages can be mapped as such: at a multiple of their size. `mapping` is room for that. */
static void *map_aligned(int fd, uint64_t bytes, void *mapping) {
  uint64_t at = ((uint64_t)(uintptr_t)mapping + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
  return mmap((void *)(uintptr_t)at, bytes, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0);
}

static enum status slab_open(int fd, uint64_t bytes, struct backend_slab **out, struct error *error) {
  struct backend_slab *slab = malloc(sizeof(*slab));
  int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  uint64_t mapping_bytes = bytes + HUGE_PAGE;
  void *mapping = mmap(NULL, mapping_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  void *base = mapping != MAP_FAILED ? map_aligned(fd, bytes, mapping) : MAP_FAILED;
  if (slab == NULL || own < 0 || base == MAP_FAILED) {
    enum status status =
        error_set(error, STATUS_NOMEM, "a slab of %" PRIu64 " bytes cannot be mapped: %s", bytes, strerror(errno));
    if (mapping != MAP_FAILED) {
      munmap(mapping, mapping_bytes);
    }
    if (own >= 0) {
      close(own);
    }
    free(slab);
    return status;
  }
  *slab = (struct backend_slab){
      .fd = own, .bytes = bytes, .base = base, .mapping = mapping, .mapping_bytes = mapping_bytes};
  *out = slab;
  return STATUS_OK;
}

enum status cpu_slab_create(uint64_t bytes, int *fd, struct backend_slab **out, struct error *error) {
  uint64_t available = memory_available();
  if (bytes == 0) {
    return error_set(error, STATUS_INVALID, "a slab must have at least 1 byte");
  }
  if (bytes > available || bytes > INT64_MAX) {
    return error_set(error, STATUS_NOMEM, "a slab of %" PRIu64 " bytes does not fit: %" PRIu64 " are available", bytes,
                     available);
  }
  int made = memfd_create("gemmd-weights", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (made < 0 || ftruncate(made, (off_t)bytes) != 0 ||
      fcntl(made, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    enum status status = error_set(error, errno == ENOMEM || errno == ENOSPC ? STATUS_NOMEM : STATUS_SYSTEM,
                                   "a slab of %" PRIu64 " bytes cannot be made: %s", bytes, strerror(errno));
    if (made >= 0) {
      close(made);
    }
    return status;
  }
  enum status status = slab_open(made, bytes, out, error);
  if (status != STATUS_OK) {
    close(made);
    return status;
  }
  *fd = made;
  return STATUS_OK;
}

enum status cpu_slab_import(int fd, uint64_t bytes, struct backend_slab **out, struct error *error) {
  struct stat stat;
  int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return error_set(error, STATUS_BAD_DESCRIPTOR, "a slab must be a memfd sealed against shrinking");
  }
  if (fstat(fd, &stat) != 0 || bytes == 0 || (uint64_t)stat.st_size != bytes) {
    return error_set(error, STATUS_BAD_DESCRIPTOR,
                     "a slab of %" PRIu64 " bytes was expected, the descriptor has %" PRId64, bytes,
                     (int64_t)stat.st_size);
  }
  return slab_open(fd, bytes, out, error);
}

void cpu_slab_close(struct backend_slab *slab) {
  munmap(slab->mapping, slab->mapping_bytes);
  close(slab->fd);
  free(slab);
}

static enum status check_range(const struct backend_slab *slab, uint64_t offset, uint64_t bytes, struct error *error) {
  if (offset > slab->bytes || bytes > slab->bytes - offset) {
    return error_set(error, STATUS_INVALID, "bytes %" PRIu64 "..+%" PRIu64 " are not in a slab of %" PRIu64, offset,
                     bytes, slab->bytes);
  }
  return STATUS_OK;
}

/* Of a huge page without any small one none is made: each gets one first, in the range, where nobody's bytes are. */
void cpu_slab_prepare(struct backend_slab *slab, uint64_t offset, uint64_t bytes) {
  uint64_t begin = offset / HUGE_PAGE * HUGE_PAGE, end = (offset + bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
  end = end < slab->bytes ? end : slab->bytes;
  for (uint64_t at = begin; at < end; at += HUGE_PAGE) {
    if (pwrite(slab->fd, "", 1, (off_t)(at > offset ? at : offset)) != 1) {
      return; /* whoever writes the weight says why */
    }
  }
  madvise((void *)(slab->base + begin), end - begin, MADV_COLLAPSE);
}

enum status cpu_slab_write(struct backend_slab *slab, uint64_t offset, const void *data, uint64_t bytes,
                           struct error *error) {
  enum status status = check_range(slab, offset, bytes, error);
  for (uint64_t done = 0; status == STATUS_OK && done < bytes;) {
    ssize_t step = pwrite(slab->fd, (const uint8_t *)data + done, bytes - done, (off_t)(offset + done));
    if (step > 0) {
      done += (uint64_t)step;
    } else if (step == 0 || errno != EINTR) {
      bool full = step < 0 && (errno == ENOSPC || errno == ENOMEM);
      status = error_set(error, full ? STATUS_NOMEM : STATUS_SYSTEM,
                         "a weight of %" PRIu64 " bytes cannot be stored: %s", bytes, strerror(errno));
    }
  }
  return status;
}

/* Older kernels know neither call; pages are then small, and come one by one. */
void cpu_slab_touch(const struct backend_slab *slab, uint64_t offset, uint64_t bytes, bool huge) {
  uint64_t page = huge ? HUGE_PAGE : (uint64_t)sysconf(_SC_PAGESIZE), begin = offset / page * page;
  uint64_t end = (offset + bytes + page - 1) / page * page;
  end = end < slab->bytes ? end : slab->bytes;
  void *at = (void *)(slab->base + begin);
  if (!huge || madvise(at, end - begin, MADV_COLLAPSE) != 0) {
#ifdef MADV_POPULATE_READ
    madvise(at, end - begin, MADV_POPULATE_READ);
#endif
  }
}

const uint8_t *cpu_slab_read(const struct backend_slab *slab, uint64_t offset, uint64_t bytes, struct error *error) {
  return check_range(slab, offset, bytes, error) == STATUS_OK ? slab->base + offset : NULL;
}
