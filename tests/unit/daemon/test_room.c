/* What memory is left, from files as the kernel has them, of a machine and of control groups of both versions. */
#include "daemon/room.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cmocka.h>

#define MIB ((uint64_t)1 << 20)

static char folder[] = "/tmp/gemmd-room-XXXXXX", proc[64], groups[64];

static void put(const char *name, const char *text) {
  char path[256];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  for (char *slash = path + sizeof folder; *slash != '\0'; slash++)
    if (*slash == '/') {
      *slash = '\0';
      mkdir(path, 0700);
      *slash = '/';
    }
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fputs(text, file);
  assert_int_equal(fclose(file), 0);
}

static void clear(void) {
  char command[128];
  snprintf(command, sizeof command, "rm -rf %s/proc %s/groups", folder, folder);
  assert_int_equal(system(command), 0);
  put("proc/meminfo", "MemTotal:        2097152 kB\nMemFree:          100000 kB\nMemAvailable:    1048576 kB\n");
}

static void of_the_machine(void **state) {
  clear();
  struct room room = room_read(proc, groups);
  assert_int_equal(room.left, 1024 * MIB);
  assert_int_equal(room.total, 2048 * MIB);
  struct room none = room_read("/nowhere", "/nowhere");
  struct error error;
  assert_int_equal(none.left, UINT64_MAX);
  assert_int_equal(room_check(&none, (uint64_t)1 << 60, &error), STATUS_OK);
}

/* Pages of files, which the kernel gives up, are no memory that is taken; a group's parent has a limit, too. */
static void of_a_group(void **state) {
  clear();
  put("proc/self/cgroup", "0::/machine/gemmd\n");
  put("groups/machine/gemmd/memory.max", "536870912\n");
  put("groups/machine/gemmd/memory.current", "314572800\n");
  put("groups/machine/gemmd/memory.stat", "anon 104857600\ninactive_file 41943040\nactive_file 10485760\n");
  struct room room = room_read(proc, groups);
  assert_int_equal(room.left, (512 - 300 + 50) * MIB);
  assert_int_equal(room.total, 512 * MIB);
  put("groups/machine/memory.max", "419430400\n");
  put("groups/machine/memory.current", "399507456\n");
  assert_int_equal(room_read(proc, groups).left, 19 * MIB);
  put("groups/machine/memory.max", "max\n");
  assert_int_equal(room_read(proc, groups).left, (512 - 300 + 50) * MIB);
}

static void of_a_group_of_the_first_version(void **state) {
  clear();
  put("proc/self/cgroup", "9:name=systemd:/\n4:memory:/gemmd\n0::/other\n");
  put("groups/memory/gemmd/memory.limit_in_bytes", "104857600\n");
  put("groups/memory/gemmd/memory.usage_in_bytes", "125829120\n"); /* as when it was lowered */
  assert_int_equal(room_read(proc, groups).left, 0);
  put("groups/memory/gemmd/memory.stat", "inactive_file 1\ntotal_inactive_file 52428800\ntotal_active_file 0\n");
  assert_int_equal(room_read(proc, groups).left, 30 * MIB);
  put("groups/memory/gemmd/memory.limit_in_bytes", "9223372036854771712\n"); /* none */
  assert_int_equal(room_read(proc, groups).left, 1024 * MIB);
}

/* Something stays for gemmd itself: a sixteenth, at most 64 MiB. */
static void some_is_kept(void **state) {
  static const struct {
    uint64_t left, total, bytes;
    bool fits;
  } cases[] = {
      {100, 160, 90, true},       {100, 160, 91, false},     {5, 160, 0, false},     {1000, 100000, 936, true},
      {1000, 100000, 937, false}, {0, UINT64_MAX, 1, false}, {64, 1 << 20, 0, true},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    uint64_t total = cases[i].total == UINT64_MAX ? UINT64_MAX : cases[i].total * MIB;
    struct room room = {.left = cases[i].left * MIB, .total = total};
    struct error error;
    assert_int_equal(room_check(&room, cases[i].bytes * MIB, &error), cases[i].fits ? STATUS_OK : STATUS_NOMEM);
  }
}

static int open_folder(void **state) {
  if (mkdtemp(folder) == NULL)
    return -1;
  snprintf(proc, sizeof proc, "%s/proc", folder);
  snprintf(groups, sizeof groups, "%s/groups", folder);
  return 0;
}

static int close_folder(void **state) {
  char command[64];
  snprintf(command, sizeof command, "rm -rf %s", folder);
  return system(command);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(of_the_machine),
      cmocka_unit_test(of_a_group),
      cmocka_unit_test(of_a_group_of_the_first_version),
      cmocka_unit_test(some_is_kept),
  };
  return cmocka_run_group_tests(tests, open_folder, close_folder);
}
