/* A control group of the test's own that limits memory, of either version of cgroups; for root, where the machine lets
 * it make one. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct cgroup {
  char path[256], home[256]; /* the group's folder, and that of the group this process was in */
  bool unified;              /* version 2 */
};

/* False with the reason where there can be none. */
bool cgroup_make(struct cgroup *out, char why[128]);
/* This process, and what it starts from here on, is in the group, or where it was before. */
bool cgroup_enter(const struct cgroup *group);
bool cgroup_leave(const struct cgroup *group);
/* Of memory, page cache and shared memory included; UINT64_MAX: no limit. False where less cannot be had. */
bool cgroup_limit(const struct cgroup *group, uint64_t bytes);
uint64_t cgroup_used(const struct cgroup *group);
/* Processes of it that the kernel has ended for its limit. */
uint64_t cgroup_killed(const struct cgroup *group);
/* Nobody is in it any more. */
void cgroup_remove(const struct cgroup *group);
