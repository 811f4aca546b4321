#include "load.h"

#include "../memfd.h"
#include "convert.h"
#include "file.h"
#include "hash.h"
#include "input.h"
#include "source.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

/* Shared memory that the host does not have ends in the kernel killing processes, and not always this one: a hostile
 * file can be sparse and claim terabytes. */
static enum status check_memory(uint64_t bytes, struct error *error) {
  FILE *meminfo = fopen("/proc/meminfo", "re");
  unsigned long long available = 0;
  bool known = false;
  char line[128];
  while (meminfo && !known && fgets(line, sizeof line, meminfo))
    known = sscanf(line, "MemAvailable: %llu kB", &available) == 1;
  if (meminfo)
    fclose(meminfo);
  if (!known || bytes / 1024 < available)
    return STATUS_OK;
  return error_set(error, STATUS_NOMEM, "the weight takes %llu KiB of host memory while it is loaded; %llu are free",
                   (unsigned long long)bytes / 1024, available);
}

static enum status fill(const struct files *files, const struct source *source, void *canonical, unsigned threads,
                        struct watch *watch, bool old_hash, struct message_load_done *done, struct error *error) {
  enum status status = convert_run(files, source, canonical, threads, watch, error);
  if (status != STATUS_OK)
    return status;
  input_write(source, canonical);
  *done = (struct message_load_done){.n = source->weight.n,
                                     .k = source->weight.k,
                                     .format = source->weight.format,
                                     .scale = source->weight.scale,
                                     .input = source->weight.input,
                                     .bytes = source->layout.total_bytes};
  if (old_hash)
    hash_sequential(&source->weight, canonical, done->bytes, done->old_hash);
  return hash_weight(&source->weight, canonical, done->bytes, threads, watch, done->hash, error);
}

static enum status load_tensor(const struct files *files, const struct source *source, unsigned threads,
                               struct watch *watch, bool old_hash, struct message_load_done *done, int *memfd,
                               struct error *error) {
  uint64_t bytes = source->layout.total_bytes;
  int fd = -1;
  enum status status = check_memory(bytes, error);
  if (status == STATUS_OK)
    status = memfd_make_open("gemmd-weight", bytes, &fd, error);
  if (status != STATUS_OK)
    return status;
  void *canonical = memfd_map(fd, bytes, true, error);
  if (canonical) {
    status = fill(files, source, canonical, threads, watch, old_hash, done, error);
    munmap(canonical, bytes); /* sealing against writing needs it gone */
    if (status == STATUS_OK)
      status = memfd_freeze(fd, error);
  } else {
    status = error->status;
  }
  if (status == STATUS_OK)
    *memfd = fd;
  else
    close(fd);
  return status;
}

enum status load_run(const struct message_weight_load *request, const int *fds, size_t fd_count, unsigned threads,
                     bool (*tick)(void *user, uint64_t done, uint64_t total), void *user,
                     struct message_load_done *done, int *memfd, struct error *error) {
  struct files files;
  struct source source;
  enum status status = files_open(&files, fds, fd_count, request->config, error);
  source.order = NULL;
  if (status == STATUS_OK)
    status = source_resolve(&files.model, request, &source, error);
  if (status == STATUS_OK)
    status = input_find(&files, &source, error);
  if (status == STATUS_OK) {
    struct watch watch = {.total = convert_bytes(&source) + source.layout.total_bytes, .tick = tick, .user = user};
    status = load_tensor(&files, &source, threads, &watch, request->old_hash, done, memfd, error);
  }
  input_free(&source);
  files_close(&files);
  return status;
}
