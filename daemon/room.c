#include "room.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 768 };

/* The number behind `key` at the beginning of a line, in `unit` bytes. UINT64_MAX where there is none, or no limit. */
static uint64_t read_number(const char *path, const char *key, uint64_t unit) {
  char line[256];
  uint64_t number = UINT64_MAX;
  size_t length = strlen(key);
  FILE *file = fopen(path, "re");
  while (file != NULL && number == UINT64_MAX && fgets(line, sizeof line, file) != NULL) {
    char *end;
    if (strncmp(line, key, length) != 0)
      continue;
    unsigned long long value = strtoull(line + length, &end, 10);
    if (end != line + length && value <= UINT64_MAX / unit)
      number = value * unit;
  }
  if (file != NULL)
    fclose(file);
  return number;
}

static uint64_t number_in(const char *folder, const char *name, const char *key) {
  char path[PATH_BYTES];
  int length = snprintf(path, sizeof path, "%s/%s", folder, name);
  return length > 0 && (size_t)length < sizeof path ? read_number(path, key, 1) : UINT64_MAX;
}

static void take_least(struct room *room, uint64_t left, uint64_t total) {
  if (left < room->left)
    *room = (struct room){.left = left, .total = total};
}

/* What of a group's pages the kernel would rather give up. */
static uint64_t given_up(const char *folder, bool unified) {
  static const char *const keys[2][2] = {{"total_inactive_file ", "total_active_file "},
                                         {"inactive_file ", "active_file "}};
  uint64_t sum = 0;
  for (int i = 0; i < 2; i++) {
    uint64_t bytes = number_in(folder, "memory.stat", keys[unified][i]);
    sum += bytes != UINT64_MAX ? bytes : 0;
  }
  return sum;
}

/* One group. A limit beyond what any machine has is none. */
static void look_at(struct room *room, const char *folder, bool unified) {
  uint64_t limit = number_in(folder, unified ? "memory.max" : "memory.limit_in_bytes", "");
  uint64_t used = number_in(folder, unified ? "memory.current" : "memory.usage_in_bytes", "");
  if (limit >= (uint64_t)1 << 60 || used == UINT64_MAX)
    return;
  uint64_t kept = given_up(folder, unified);
  kept = kept < used ? used - kept : 0;
  take_least(room, kept < limit ? limit - kept : 0, limit);
}

/* The group at `path` below `mount`, and those that it is in. */
static void look_up_from(struct room *room, const char *mount, char *path, bool unified) {
  char folder[PATH_BYTES];
  for (;;) {
    int length = snprintf(folder, sizeof folder, "%s%s", mount, path);
    if (length > 0 && (size_t)length < sizeof folder)
      look_at(room, folder, unified);
    char *last = strrchr(path, '/');
    if (last == NULL || path[0] == '\0')
      return;
    *last = '\0';
  }
}

struct room room_read(const char *proc, const char *groups) {
  char path[PATH_BYTES], line[PATH_BYTES], mount[PATH_BYTES];
  struct room room = {.left = UINT64_MAX, .total = UINT64_MAX};
  snprintf(path, sizeof path, "%s/meminfo", proc);
  take_least(&room, read_number(path, "MemAvailable:", 1024), read_number(path, "MemTotal:", 1024));
  snprintf(path, sizeof path, "%s/self/cgroup", proc);
  FILE *file = fopen(path, "re");
  while (file != NULL && fgets(line, sizeof line, file) != NULL) { /* "NUMBER:CONTROLLERS:PATH" */
    line[strcspn(line, "\n")] = '\0';
    char *controllers = strchr(line, ':'), *place = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
    if (place == NULL)
      continue;
    *place++ = '\0';
    bool unified = controllers[1] == '\0';
    if (!unified && strcmp(controllers + 1, "memory") != 0)
      continue;
    snprintf(mount, sizeof mount, "%s%s", groups, unified ? "" : "/memory");
    look_up_from(&room, mount, place, unified);
  }
  if (file != NULL)
    fclose(file);
  return room;
}

enum status room_check(const struct room *room, uint64_t bytes, struct error *error) {
  enum { SHARE = 16, MIB = 1 << 20, KEPT_MOST = 64 * MIB };
  uint64_t kept = room->total / SHARE < KEPT_MOST ? room->total / SHARE : KEPT_MOST;
  if (room->left >= kept && room->left - kept >= bytes)
    return STATUS_OK;
  return error_set(error, STATUS_NOMEM, "%llu MiB of host memory are wanted; %llu are left, of which gemmd keeps %llu",
                   (unsigned long long)(bytes / MIB), (unsigned long long)(room->left / MIB),
                   (unsigned long long)(kept / MIB));
}

enum status room_for(uint64_t bytes, struct error *error) {
  struct room room = room_read("/proc", "/sys/fs/cgroup");
  return room_check(&room, bytes, error);
}
