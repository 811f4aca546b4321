/* Which ranges of a memory are taken. */
#include "proto/extents.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct error failure;

static void ranges_fill_the_first_gap_that_fits(void **state) {
  struct extents extents;
  uint64_t a, b, c, d;
  extents_init(&extents, 1024);
  assert_int_equal(extents_take(&extents, 0, 100, 64, &a, &failure), STATUS_OK);
  assert_int_equal(extents_take(&extents, 0, 100, 64, &b, &failure), STATUS_OK);
  assert_int_equal(extents_take(&extents, 0, 100, 64, &c, &failure), STATUS_OK);
  assert_int_equal(a, 0);
  assert_int_equal(b, 128);
  assert_int_equal(c, 256);
  assert_int_equal(extents.used, 300);
  assert_true(extents_give(&extents, b));
  assert_int_equal(extents_take(&extents, 0, 129, 64, &d, &failure), STATUS_OK); /* one byte too many for the gap */
  assert_int_equal(d, 384);
  assert_int_equal(extents_take(&extents, 0, 128, 64, &b, &failure), STATUS_OK); /* fits to the byte */
  assert_int_equal(b, 128);
  extents_free(&extents);
}

static void a_memory_fills_to_its_last_byte(void **state) {
  struct extents extents;
  uint64_t offset;
  extents_init(&extents, 256);
  assert_int_equal(extents_take(&extents, 0, 257, 1, &offset, &failure), STATUS_NOT_FOUND);
  assert_int_equal(extents_take(&extents, 0, 255, 256, &offset, &failure), STATUS_OK);
  assert_int_equal(extents_take(&extents, 0, 1, 2, &offset, &failure), STATUS_NOT_FOUND);
  assert_int_equal(extents_take(&extents, 0, 1, 1, &offset, &failure), STATUS_OK);
  assert_int_equal(offset, 255);
  assert_int_equal(extents_take(&extents, 0, 1, 1, &offset, &failure), STATUS_NOT_FOUND);
  assert_true(extents_give(&extents, 0));
  assert_true(extents_give(&extents, 255));
  assert_false(extents_give(&extents, 255));
  assert_int_equal(extents.used, 0);
  assert_int_equal(extents_take(&extents, 0, 256, 256, &offset, &failure), STATUS_OK);
  extents_free(&extents);
}

static void sizes_that_cannot_be_are_refused(void **state) {
  struct extents extents;
  uint64_t offset;
  extents_init(&extents, 1024);
  assert_int_equal(extents_take(&extents, 0, 0, 1, &offset, &failure), STATUS_INVALID);
  assert_int_equal(extents_take(&extents, 0, 1, 0, &offset, &failure), STATUS_INVALID);
  assert_int_equal(extents_take(&extents, 0, 1, 3, &offset, &failure), STATUS_INVALID);
  assert_int_equal(extents_take(&extents, 0, UINT64_MAX, 1, &offset, &failure), STATUS_NOT_FOUND);
  assert_int_equal(extents_take(&extents, 0, 1, 1, &offset, &failure), STATUS_OK);
  assert_int_equal(extents_take(&extents, 0, 1, (uint64_t)1 << 63, &offset, &failure), STATUS_NOT_FOUND);
  extents_free(&extents);
}

/* Against a map of bytes: ranges never overlap, lie inside, are aligned, and a refusal is right. */
static void random_ranges_never_overlap(void **state) {
  enum { BYTES = 4096, ROUNDS = 20000, SLOTS = 64 };
  static uint8_t map[BYTES];
  struct extents extents;
  uint64_t offsets[SLOTS], sizes[SLOTS] = {0}, used = 0;
  memset(map, 0, sizeof map);
  extents_init(&extents, BYTES);
  srand(7);
  for (int round = 0; round < ROUNDS; round++) {
    int slot = rand() % SLOTS;
    if (sizes[slot] != 0) {
      assert_true(extents_give(&extents, offsets[slot]));
      memset(map + offsets[slot], 0, sizes[slot]);
      used -= sizes[slot];
      sizes[slot] = 0;
    } else {
      uint64_t bytes = 1 + (uint64_t)rand() % 300, align = (uint64_t)1 << rand() % 8, offset;
      uint64_t expected = 0;
      for (; expected + bytes <= BYTES; expected += align)
        if (memchr(map + expected, 1, bytes) == NULL)
          break;
      enum status status = extents_take(&extents, 0, bytes, align, &offset, &failure);
      if (expected + bytes > BYTES) {
        assert_int_equal(status, STATUS_NOT_FOUND);
        continue;
      }
      assert_int_equal(status, STATUS_OK);
      assert_int_equal(offset, expected);
      memset(map + offset, 1, bytes);
      offsets[slot] = offset;
      sizes[slot] = bytes;
      used += bytes;
    }
    assert_int_equal(extents.used, used);
  }
  extents_free(&extents);
}

static void the_largest_gap_is_from_an_offset_on(void **state) {
  struct extents extents;
  extents_init(&extents, 1000);
  assert_int_equal(extents_largest(&extents, 0), 1000);
  assert_int_equal(extents_largest(&extents, 300), 700);
  assert_int_equal(extents_largest(&extents, 1001), 0);
  assert_int_equal(extents_take_at(&extents, 400, 500, &failure), STATUS_OK);
  assert_int_equal(extents_largest(&extents, 0), 400);
  assert_int_equal(extents_largest(&extents, 350), 100);
  assert_int_equal(extents_largest(&extents, 500), 100);
  assert_int_equal(extents_take_at(&extents, 0, 400, &failure), STATUS_OK);
  assert_int_equal(extents_take_at(&extents, 900, 100, &failure), STATUS_OK);
  assert_int_equal(extents_largest(&extents, 0), 0);
  extents_free(&extents);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ranges_fill_the_first_gap_that_fits),  cmocka_unit_test(a_memory_fills_to_its_last_byte),
      cmocka_unit_test(sizes_that_cannot_be_are_refused),     cmocka_unit_test(random_ranges_never_overlap),
      cmocka_unit_test(the_largest_gap_is_from_an_offset_on),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
