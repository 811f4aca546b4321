#include "proto/wire/rights.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const int numbers[LIMIT_MESSAGE_FDS] = {3, 1, 4, 15, 9, 2, 6, 5};

static void what_is_put_is_taken(void **state) {
  for (size_t count = 1; count <= LIMIT_MESSAGE_FDS; count++) {
    union rights rights;
    struct msghdr header = {.msg_iovlen = 0};
    int fds[LIMIT_MESSAGE_FDS] = {0};
    rights_put(&rights, &header, numbers, count);
    assert_true(header.msg_controllen <= sizeof rights);
    assert_int_equal(rights_take(&header, fds), count);
    assert_memory_equal(fds, numbers, count * sizeof fds[0]);
  }
}

static void nothing_to_send_takes_no_room(void **state) {
  union rights rights;
  struct msghdr header = {.msg_iovlen = 0};
  int fds[LIMIT_MESSAGE_FDS];
  rights_put(&rights, &header, NULL, 0);
  assert_null(header.msg_control);
  assert_int_equal(header.msg_controllen, 0);
  assert_int_equal(rights_take(&header, fds), 0);
}

static void other_parts_are_passed_over(void **state) {
  union {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(3 * sizeof(int)) + CMSG_SPACE(2 * sizeof(int))];
  } parts = {.bytes = {0}};
  struct msghdr header = {.msg_control = parts.bytes, .msg_controllen = sizeof parts.bytes};
  int fds[LIMIT_MESSAGE_FDS];
  struct cmsghdr *part = CMSG_FIRSTHDR(&header);
  *part =
      (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_CREDENTIALS, .cmsg_len = CMSG_LEN(3 * sizeof(int))};
  assert_int_equal(rights_take(&header, fds), 0);
  part = CMSG_NXTHDR(&header, part);
  *part = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(2 * sizeof(int))};
  memcpy(CMSG_DATA(part), numbers, 2 * sizeof(int));
  assert_int_equal(rights_take(&header, fds), 2);
  assert_memory_equal(fds, numbers, 2 * sizeof fds[0]);
}

/* One more would be a descriptor that nobody closes. */
static void the_room_is_for_the_limit(void **state) {
  union rights rights;
  struct msghdr header = {.msg_iovlen = 0};
  rights_expect(&rights, &header);
  assert_ptr_equal(header.msg_control, rights.bytes);
  assert_true(header.msg_controllen >= CMSG_LEN(LIMIT_MESSAGE_FDS * sizeof(int)));
  assert_true(header.msg_controllen < CMSG_LEN((LIMIT_MESSAGE_FDS + 1) * sizeof(int)));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_put_is_taken),
      cmocka_unit_test(nothing_to_send_takes_no_room),
      cmocka_unit_test(other_parts_are_passed_over),
      cmocka_unit_test(the_room_is_for_the_limit),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
