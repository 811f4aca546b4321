/* Memory that a client makes for itself, to be handed over. */
#pragma once

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* A memfd of `bytes` zeros with these seals (F_SEAL_...). Where there is none, the process is aborted. */
static inline int sealed_memfd(uint64_t bytes, int seals) {
  int fd = memfd_create("tensor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0 || fcntl(fd, F_ADD_SEALS, seals) != 0)
    abort();
  return fd;
}
