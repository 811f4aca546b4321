#include "private_bytes.h"

#include <stdio.h>

uint64_t private_bytes(pid_t pid) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return 0; /* they keep what was freed, and more beside */
#else
  char path[64], line[128];
  unsigned long long kib = 0;
  snprintf(path, sizeof path, "/proc/%ld/status", (long)pid);
  FILE *file = fopen(path, "r");
  while (file != NULL && fgets(line, sizeof line, file) != NULL)
    if (sscanf(line, "RssAnon: %llu kB", &kib) == 1)
      break;
  if (file != NULL)
    fclose(file);
  return kib << 10;
#endif
}
