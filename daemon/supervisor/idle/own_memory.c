#include "own_memory.h"

#include "../workers/worker_proxy.h"
#include "device_load.h"

#include <stdio.h>
#include <unistd.h>

static uint64_t private_bytes(uint32_t pid) {
  unsigned long long size, resident, shared;
  char path[32];
  snprintf(path, sizeof path, "/proc/%u/statm", pid);
  FILE *file = fopen(path, "re");
  if (file == NULL)
    return 0;
  int fields = fscanf(file, "%llu %llu %llu", &size, &resident, &shared);
  fclose(file);
  return fields == 3 && resident > shared ? (resident - shared) * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

uint64_t own_memory(const struct worker *worker, bool gpu, const struct device_reading *reading, uint64_t slabs) {
  if (worker->pid == 0)
    return 0;
  if (!gpu)
    return private_bytes(worker->pid);
  if (!reading->memory_known)
    return 0;
  return reading->memory_bytes > slabs ? reading->memory_bytes - slabs : reading->memory_bytes;
}
