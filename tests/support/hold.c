#include "hold.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

pid_t hold_find(pid_t process, const char *name) {
  char path[64], comm[32];
  pid_t found = 0;
  snprintf(path, sizeof path, "/proc/%d/task", (int)process);
  DIR *folder = opendir(path);
  for (struct dirent *entry; folder != NULL && found == 0 && (entry = readdir(folder)) != NULL;) {
    char file[400];
    snprintf(file, sizeof file, "%s/%s/comm", path, entry->d_name);
    FILE *in = fopen(file, "r");
    if (in != NULL && fgets(comm, sizeof comm, in) != NULL && strncmp(comm, name, strlen(name)) == 0)
      found = (pid_t)atoi(entry->d_name);
    if (in != NULL)
      fclose(in);
  }
  if (folder != NULL)
    closedir(folder);
  return found;
}

pid_t hold_thread(pid_t thread, _Atomic bool *held) {
  pid_t holder = fork();
  assert_true(holder >= 0);
  if (holder > 0)
    return holder;
  int status;
  if (ptrace(PTRACE_SEIZE, thread, NULL, NULL) != 0 || ptrace(PTRACE_INTERRUPT, thread, NULL, NULL) != 0 ||
      waitpid(thread, &status, __WALL) != thread)
    _exit(1);
  atomic_store(held, true);
  while (waitpid(thread, &status, __WALL) == thread && !WIFEXITED(status) && !WIFSIGNALED(status))
    ;
  _exit(0);
}
