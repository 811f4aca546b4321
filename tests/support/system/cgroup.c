#include "cgroup.h"

#include <errno.h>
#include <mntent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool write_file(const char *folder, const char *name, const char *text) {
  char path[320];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "w");
  if (file == NULL)
    return false;
  bool written = fputs(text, file) >= 0;
  return fclose(file) == 0 && written;
}

/* The number behind `key`, or the file's first where that is empty. 0 where there is none. */
static uint64_t read_number(const char *folder, const char *name, const char *key) {
  char path[320], line[256];
  uint64_t number = 0;
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "r");
  while (file != NULL && fgets(line, sizeof line, file) != NULL)
    if (strncmp(line, key, strlen(key)) == 0) {
      number = strtoull(line + strlen(key), NULL, 10);
      break;
    }
  if (file != NULL)
    fclose(file);
  return number;
}

/* Where the controller of memory is mounted. */
static bool find_mount(struct cgroup *out, char mount[128]) {
  FILE *mounts = setmntent("/proc/self/mounts", "r");
  bool found = false;
  for (struct mntent *each; mounts != NULL && !found && (each = getmntent(mounts)) != NULL;) {
    char controllers[320];
    bool unified = strcmp(each->mnt_type, "cgroup2") == 0;
    snprintf(controllers, sizeof controllers, "%s/memory.stat", each->mnt_dir);
    found = unified ? access(controllers, F_OK) == 0 || write_file(each->mnt_dir, "cgroup.subtree_control", "+memory")
                    : strcmp(each->mnt_type, "cgroup") == 0 && hasmntopt(each, "memory") != NULL;
    out->unified = unified;
    snprintf(mount, 128, "%s", each->mnt_dir);
  }
  if (mounts != NULL)
    endmntent(mounts);
  return found;
}

/* The group that this process is in: a line "NUMBER:CONTROLLERS:PATH". */
static bool find_home(struct cgroup *out, const char *mount) {
  char line[512];
  bool found = false;
  FILE *file = fopen("/proc/self/cgroup", "r");
  while (file != NULL && !found && fgets(line, sizeof line, file) != NULL) {
    line[strcspn(line, "\n")] = '\0';
    char *controllers = strchr(line, ':'), *path = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
    if (path == NULL)
      continue;
    *path++ = '\0';
    found = out->unified ? strcmp(controllers, ":") == 0 : strcmp(controllers, ":memory") == 0;
    if (found)
      snprintf(out->home, sizeof out->home, "%.120s%.120s", mount, path);
  }
  if (file != NULL)
    fclose(file);
  return found;
}

bool cgroup_make(struct cgroup *out, char why[128]) {
  char mount[128];
  *out = (struct cgroup){.unified = false};
  if (!find_mount(out, mount) || !find_home(out, mount)) {
    snprintf(why, 128, "no control group of this machine limits memory");
    return false;
  }
  snprintf(out->path, sizeof out->path, "%.120s/gemmd-test.%ld", mount, (long)getpid());
  if (out->unified)
    (void)write_file(mount, "cgroup.subtree_control", "+memory");
  if (mkdir(out->path, 0755) == 0 && cgroup_limit(out, UINT64_MAX))
    return true;
  snprintf(why, 128, "%.80s: %s", out->path, strerror(errno));
  rmdir(out->path);
  return false;
}

bool cgroup_enter(const struct cgroup *group) {
  return write_file(group->path, "cgroup.procs", "0");
}

bool cgroup_leave(const struct cgroup *group) {
  return write_file(group->home, "cgroup.procs", "0");
}

bool cgroup_limit(const struct cgroup *group, uint64_t bytes) {
  char text[32];
  snprintf(text, sizeof text, "%llu", (unsigned long long)bytes);
  if (bytes == UINT64_MAX)
    snprintf(text, sizeof text, group->unified ? "max" : "-1");
  if (!group->unified)
    return write_file(group->path, "memory.limit_in_bytes", text);
  (void)write_file(group->path, "memory.swap.max", "0");
  return write_file(group->path, "memory.max", text);
}

uint64_t cgroup_used(const struct cgroup *group) {
  return read_number(group->path, group->unified ? "memory.current" : "memory.usage_in_bytes", "");
}

uint64_t cgroup_killed(const struct cgroup *group) {
  return read_number(group->path, group->unified ? "memory.events" : "memory.oom_control", "oom_kill ");
}

void cgroup_remove(const struct cgroup *group) {
  for (int tries = 0; rmdir(group->path) != 0 && errno == EBUSY && tries < 100; tries++)
    usleep(10000);
}
