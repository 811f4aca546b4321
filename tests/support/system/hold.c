#include "hold.h"

#include <dirent.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
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

static bool thread_stopped(const char *tasks, const char *thread) {
  char path[512], state = 0;
  snprintf(path, sizeof path, "%s/%s/stat", tasks, thread);
  FILE *file = fopen(path, "r");
  bool read = file != NULL && fscanf(file, "%*d (%*[^)]) %c", &state) == 1;
  if (file != NULL)
    fclose(file);
  return read && state == 'T';
}

/* A stop takes effect a thread at a time, some time after kill(2) has returned. */
static bool all_stopped(pid_t process) {
  char tasks[64];
  bool stopped = true;
  snprintf(tasks, sizeof tasks, "/proc/%d/task", (int)process);
  DIR *folder = opendir(tasks);
  assert_non_null(folder);
  for (const struct dirent *entry; (entry = readdir(folder)) != NULL;)
    stopped = stopped && (entry->d_name[0] == '.' || thread_stopped(tasks, entry->d_name));
  closedir(folder);
  return stopped;
}

void hold_process(pid_t process) {
  assert_int_equal(kill(process, SIGSTOP), 0);
  while (!all_stopped(process))
    sched_yield();
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

/* A tracer is told of an end before the parent is, and the parent once the tracer has ended. */
pid_t hold_corpse(pid_t process, _Atomic bool *held) {
  pid_t holder = fork();
  assert_true(holder >= 0);
  if (holder > 0)
    return holder;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (ptrace(PTRACE_SEIZE, process, NULL, NULL) != 0)
    _exit(1);
  atomic_store(held, true);
  for (;;)
    pause();
}
