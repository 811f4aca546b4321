#include "daemon/memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static struct error failure;

static uint64_t size_of(int fd) {
  struct stat stat;
  assert_int_equal(fstat(fd, &stat), 0);
  return (uint64_t)stat.st_size;
}

static void made_memory_keeps_its_size(void **state) {
  int fd = -1;
  assert_int_equal(memfd_make("test", 8192, &fd, &failure), STATUS_OK);
  assert_int_equal(size_of(fd), 8192);
  assert_int_equal(ftruncate(fd, 4096), -1);
  assert_int_equal(errno, EPERM);
  assert_int_equal(ftruncate(fd, 16384), -1);
  assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1); /* no further seals */
  assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  close(fd);
}

static void made_memory_is_zero_and_shared(void **state) {
  int fd = -1;
  assert_int_equal(memfd_make("test", 4096, &fd, &failure), STATUS_OK);
  uint8_t *writer = memfd_map(fd, 4096, true, &failure), *reader = memfd_map(fd, 4096, false, &failure);
  assert_non_null(writer);
  assert_non_null(reader);
  assert_int_equal(reader[0], 0);
  assert_int_equal(reader[4095], 0);
  writer[4095] = 7;
  assert_int_equal(reader[4095], 7);
  munmap(writer, 4096);
  munmap(reader, 4096);
  close(fd);
}

static void frozen_memory_cannot_be_written(void **state) {
  int fd = -1;
  assert_int_equal(memfd_make_open("test", 100, &fd, &failure), STATUS_OK);
  assert_int_equal(ftruncate(fd, 200), 0); /* growable until then */
  assert_int_equal(pwrite(fd, "x", 1, 199), 1);
  assert_int_equal(memfd_check(fd, 200, false, &failure), STATUS_BAD_DESCRIPTOR);
  assert_int_equal(memfd_freeze(fd, &failure), STATUS_OK);
  assert_int_equal(pwrite(fd, "x", 1, 0), -1);
  assert_null(memfd_map(fd, 200, true, &failure));
  assert_int_equal(failure.status, STATUS_SYSTEM);
  assert_int_equal(memfd_check(fd, 200, true, &failure), STATUS_OK);
  close(fd);
}

static void memory_that_is_mapped_for_writing_cannot_be_frozen(void **state) {
  int fd = -1;
  assert_int_equal(memfd_make_open("test", 4096, &fd, &failure), STATUS_OK);
  void *writer = memfd_map(fd, 4096, true, &failure);
  assert_non_null(writer);
  assert_int_equal(memfd_freeze(fd, &failure), STATUS_SYSTEM);
  munmap(writer, 4096);
  assert_int_equal(memfd_freeze(fd, &failure), STATUS_OK);
  close(fd);
}

static void the_check_refuses_what_could_change(void **state) {
  int fd = -1, pair[2];
  char path[] = "/tmp/gemmd-test-memfd-XXXXXX";
  assert_int_equal(memfd_make("test", 4096, &fd, &failure), STATUS_OK);
  assert_int_equal(memfd_check(fd, 4096, false, &failure), STATUS_OK);
  assert_int_equal(memfd_check(fd, 4096, true, &failure), STATUS_BAD_DESCRIPTOR); /* it may be written */
  assert_non_null(strstr(failure.text, "writing"));
  assert_int_equal(memfd_check(fd, 4095, false, &failure), STATUS_BAD_DESCRIPTOR);
  assert_int_equal(memfd_check(fd, 4097, false, &failure), STATUS_BAD_DESCRIPTOR);
  close(fd);
  fd = mkstemp(path);
  assert_true(fd >= 0);
  assert_int_equal(unlink(path), 0);
  assert_int_equal(ftruncate(fd, 4096), 0);
  assert_int_equal(memfd_check(fd, 4096, false, &failure), STATUS_BAD_DESCRIPTOR);
  close(fd);
  assert_int_equal(pipe(pair), 0);
  assert_int_equal(memfd_check(pair[0], 0, false, &failure), STATUS_BAD_DESCRIPTOR);
  close(pair[0]);
  close(pair[1]);
  assert_int_equal(memfd_check(-1, 0, false, &failure), STATUS_BAD_DESCRIPTOR);
}

static void sizes_that_cannot_be_are_refused(void **state) {
  int fd = -1;
  assert_int_equal(memfd_make("test", UINT64_MAX, &fd, &failure), STATUS_TOO_LARGE);
  assert_int_equal(memfd_make("test", (uint64_t)INT64_MAX + 1, &fd, &failure), STATUS_TOO_LARGE);
  assert_int_equal(fd, -1);
}

/* Whether the system has large pages or not: zeros where nothing is written, and all that is written is there. */
static void large_pages_are_memory_like_any(void **state) {
  const uint64_t odd = 3 * MEMFD_LARGE_PAGE + 4097;
  uint8_t byte;
  int fd = -1;
  assert_int_equal(memfd_make_open("test", odd, &fd, &failure), STATUS_OK);
  uint8_t *base = memfd_map(fd, odd, true, &failure);
  assert_non_null(base);
  assert_int_equal((uintptr_t)base % MEMFD_LARGE_PAGE, 0);
  memfd_take_large_pages(base, MEMFD_LARGE_PAGE);
  memfd_take_large_pages(base + MEMFD_LARGE_PAGE, odd - MEMFD_LARGE_PAGE);
  for (uint64_t i = 0; i < odd; i++)
    if (base[i] != 0)
      fail_msg("byte %llu is %u", (unsigned long long)i, base[i]);
  for (uint64_t i = 0; i < odd; i += 4096)
    base[i] = (uint8_t)(i / 4096 % 251);
  assert_int_equal(munmap(base, odd), 0);
  for (uint64_t i = 0; i < odd; i += 4096) {
    assert_int_equal(pread(fd, &byte, 1, (off_t)i), 1);
    assert_int_equal(byte, i / 4096 % 251);
  }
  assert_int_equal(size_of(fd), odd);
  assert_int_equal(memfd_freeze(fd, &failure), STATUS_OK);
  close(fd);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(made_memory_keeps_its_size),
      cmocka_unit_test(made_memory_is_zero_and_shared),
      cmocka_unit_test(frozen_memory_cannot_be_written),
      cmocka_unit_test(memory_that_is_mapped_for_writing_cannot_be_frozen),
      cmocka_unit_test(the_check_refuses_what_could_change),
      cmocka_unit_test(sizes_that_cannot_be_are_refused),
      cmocka_unit_test(large_pages_are_memory_like_any),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
