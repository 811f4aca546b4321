/* What tells files and requests apart without reading: each thing that a load depends on, and nothing else. */
#include "daemon/supervisor/weights/loading/stamp.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { USER = 1000, SETTLED_US = 2100000 };

static struct load_files files;

/* A file whose times are old enough to be trusted. */
static int open_file(void **state) {
  files.fds[0] = memfd_create("model", MFD_CLOEXEC);
  files.count = 1;
  int failed = files.fds[0] < 0 || write(files.fds[0], "weights", 7) != 7;
  usleep(SETTLED_US);
  return failed;
}

static int close_file(void **state) {
  return close(files.fds[0]);
}

static struct message_weight_load request_of(const char *name, const char *tensor) {
  struct message_weight_load request = {.format = 1, .device = -1};
  snprintf(request.name, sizeof request.name, "%s", name);
  snprintf(request.tensor, sizeof request.tensor, "%s", tensor);
  return request;
}

static bool equal(const struct catalog_stamp *a, const struct catalog_stamp *b) {
  assert_true(a->known && b->known);
  return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

static bool changes(const struct message_weight_load *request) {
  const struct message_weight_load plain = request_of("a", "w");
  struct catalog_stamp before, after;
  stamp_make(&plain, &files, USER, &before);
  stamp_make(request, &files, USER, &after);
  return !equal(&before, &after);
}

static void where_it_goes_does_not_matter(void **state) {
  struct message_weight_load request = request_of("another", "w");
  request.replace = request.progress = request.staged = request.trust = request.old_hash = true;
  request.placement = PLACEMENT_REPLICAS;
  request.device = 3;
  request.devices = 2;
  request.mode = MODE_ALL;
  assert_false(changes(&request));
}

static void what_is_made_does(void **state) {
  struct message_weight_load requests[9];
  for (int i = 0; i < 9; i++)
    requests[i] = request_of("a", i == 0 ? "v" : "w");
  strcpy(requests[1].scale_tensor, "s");
  requests[2].format = 2;
  requests[3].scale = 1;
  requests[4].method = 3;
  strcpy(requests[5].more[0].tensor, "v");
  requests[5].more_count = 1;
  requests[6].parts = 2;
  requests[7].columns = true;
  requests[8].experts = 4;
  for (int i = 0; i < 9; i++)
    if (!changes(&requests[i]))
      fail_msg("request %d has the stamp of the plain one", i);
}

static void users_are_told_apart(void **state) {
  const struct message_weight_load request = request_of("a", "w");
  struct catalog_stamp mine, yours;
  stamp_make(&request, &files, USER, &mine);
  stamp_make(&request, &files, USER + 1, &yours);
  assert_false(equal(&mine, &yours));
}

static void so_are_files_of_one_size(void **state) {
  const struct message_weight_load request = request_of("a", "w");
  struct catalog_stamp first, second;
  stamp_make(&request, &files, USER, &first);
  int fd = files.fds[0];
  assert_int_equal(open_file(NULL), 0);
  stamp_make(&request, &files, USER, &second);
  assert_false(equal(&first, &second));
  assert_int_equal(close_file(NULL), 0);
  files.fds[0] = fd;
}

static void what_has_just_changed_is_not_known(void **state) {
  const struct message_weight_load request = request_of("a", "w");
  const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
  struct catalog_stamp before, stamp;
  stamp_make(&request, &files, USER, &before);
  assert_true(before.known);
  assert_int_equal(pwrite(files.fds[0], "W", 1, 0), 1);
  stamp_make(&request, &files, USER, &stamp);
  assert_false(stamp.known);
  /* The time of its content can be set, that of its last change cannot. */
  assert_int_equal(futimens(files.fds[0], old), 0);
  stamp_make(&request, &files, USER, &stamp);
  assert_false(stamp.known);
  stamp = before;
  stamp_check(&request, &files, USER, &stamp);
  assert_false(stamp.known);
  usleep(SETTLED_US);
  stamp_make(&request, &files, USER, &stamp);
  assert_false(equal(&before, &stamp));
}

static void what_stays_is_still_known_afterwards(void **state) {
  const struct message_weight_load request = request_of("a", "w");
  struct catalog_stamp stamp, same;
  stamp_make(&request, &files, USER, &stamp);
  same = stamp;
  stamp_check(&request, &files, USER, &same);
  assert_true(equal(&stamp, &same));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(where_it_goes_does_not_matter),
      cmocka_unit_test(what_is_made_does),
      cmocka_unit_test(users_are_told_apart),
      cmocka_unit_test(so_are_files_of_one_size),
      cmocka_unit_test(what_stays_is_still_known_afterwards),
      cmocka_unit_test(what_has_just_changed_is_not_known),
  };
  return cmocka_run_group_tests(tests, open_file, close_file);
}
