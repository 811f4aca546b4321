/* The arena's allocator, and pointers into the arena. */
#include "client/memory/arena.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BEGIN = 4096, BLOCKS = 16, END = BEGIN + BLOCKS * HEAP_ALIGN };

static struct heap heap_make(void) {
  struct heap heap;
  heap_init(&heap, BEGIN, END);
  return heap;
}

static uint64_t take(struct heap *heap, uint64_t bytes) {
  uint64_t offset = 0;
  assert_true(heap_alloc(heap, bytes, &offset));
  return offset;
}

static void alloc_aligns_and_rounds_up(void **state) {
  struct heap heap = heap_make();
  assert_int_equal(take(&heap, 1), BEGIN);
  assert_int_equal(take(&heap, 256), BEGIN + 256);
  assert_int_equal(take(&heap, 257), BEGIN + 512);
  assert_int_equal(take(&heap, 0), BEGIN + 1024);
  assert_int_equal(take(&heap, 1), BEGIN + 1280);
  heap_release(&heap);
}

static void bounds_are_rounded_inwards(void **state) {
  struct heap heap;
  uint64_t offset;
  heap_init(&heap, 4097, 4096 + 1023);
  assert_int_equal(heap_largest(&heap), 512);
  assert_int_equal(take(&heap, 512), 4096 + 256);
  assert_false(heap_alloc(&heap, 1, &offset));
  heap_release(&heap);
  heap_init(&heap, 100, 200);
  assert_int_equal(heap_largest(&heap), 0);
  assert_false(heap_alloc(&heap, 1, &offset));
  heap_release(&heap);
}

static void exhaustion_is_refused_and_harmless(void **state) {
  struct heap heap = heap_make();
  uint64_t offset = 77;
  assert_false(heap_alloc(&heap, END - BEGIN + 1, &offset));
  assert_false(heap_alloc(&heap, UINT64_MAX, &offset));
  assert_int_equal(offset, 77);
  assert_int_equal(take(&heap, END - BEGIN), BEGIN);
  assert_false(heap_alloc(&heap, 1, &offset));
  assert_true(heap_free(&heap, BEGIN));
  assert_int_equal(heap_largest(&heap), END - BEGIN);
  heap_release(&heap);
}

static void the_first_hole_that_fits_is_taken(void **state) {
  struct heap heap = heap_make();
  uint64_t a = take(&heap, 256), b = take(&heap, 512), c = take(&heap, 256);
  take(&heap, 256);
  assert_true(heap_free(&heap, a));
  assert_true(heap_free(&heap, b));
  assert_int_equal(take(&heap, 768), a);
  assert_true(heap_free(&heap, a));
  assert_true(heap_free(&heap, c));
  assert_int_equal(heap_largest(&heap), END - BEGIN - 1280);
  assert_int_equal(take(&heap, 1024), a);
  heap_release(&heap);
}

/* Freed in every order, three neighbours must become one hole again. */
static void neighbours_coalesce_in_any_order(void **state) {
  static const int orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
    struct heap heap = heap_make();
    uint64_t offsets[] = {take(&heap, 256), take(&heap, 300), take(&heap, 1)};
    take(&heap, END - BEGIN - 1024);
    assert_int_equal(heap_largest(&heap), 0);
    for (int j = 0; j < 3; j++)
      assert_true(heap_free(&heap, offsets[orders[i][j]]));
    assert_int_equal(heap.extents.count, 1);
    assert_int_equal(heap_largest(&heap), 1024);
    heap_release(&heap);
  }
}

static void only_what_was_given_can_be_freed_and_once(void **state) {
  struct heap heap = heap_make();
  uint64_t a = take(&heap, 512);
  assert_false(heap_free(&heap, a + 256));
  assert_false(heap_free(&heap, a + 1));
  assert_false(heap_free(&heap, 0));
  assert_false(heap_free(&heap, END));
  assert_false(heap_free(&heap, UINT64_MAX));
  assert_int_equal(heap.extents.count, 1);
  assert_true(heap_free(&heap, a));
  assert_false(heap_free(&heap, a));
  assert_int_equal(heap_largest(&heap), END - BEGIN);
  heap_release(&heap);
}

/* A long random life, mirrored in a map of blocks: nothing overlaps, nothing is lost. */
static void a_random_life_keeps_the_books(void **state) {
  enum { SPAN = 4096, ROUNDS = 20000 };
  static uint8_t taken[SPAN];
  static uint64_t offsets[SPAN], blocks[SPAN];
  size_t live = 0;
  struct heap heap;
  uint32_t random = 1;
  memset(taken, 0, sizeof taken);
  heap_init(&heap, 0, (uint64_t)SPAN * HEAP_ALIGN);
  for (int round = 0; round < ROUNDS; round++) {
    random = random * 1664525u + 1013904223u;
    uint64_t size = 1 + (random >> 20) % 64, offset;
    if ((random >> 12) % 3 != 0 && heap_alloc(&heap, size * HEAP_ALIGN - (random >> 8) % HEAP_ALIGN, &offset)) {
      offsets[live] = offset / HEAP_ALIGN;
      blocks[live++] = size;
      for (uint64_t i = 0; i < size; i++)
        assert_int_equal(taken[offset / HEAP_ALIGN + i]++, 0);
    } else if (live > 0) {
      size_t victim = (random >> 4) % live;
      assert_true(heap_free(&heap, offsets[victim] * HEAP_ALIGN));
      memset(&taken[offsets[victim]], 0, blocks[victim]);
      offsets[victim] = offsets[--live];
      blocks[victim] = blocks[live];
    }
  }
  while (live > 0)
    assert_true(heap_free(&heap, offsets[--live] * HEAP_ALIGN));
  assert_int_equal(heap.extents.count, 0);
  assert_int_equal(heap_largest(&heap), (uint64_t)SPAN * HEAP_ALIGN);
  heap_release(&heap);
}

/* ---- the session's view */

static struct gemmd_session *session_make(void) {
  struct gemmd_session *session = calloc(1, sizeof *session);
  assert_non_null(session);
  session->arena = aligned_alloc(4096, END);
  assert_non_null(session->arena);
  session->arena_bytes = END;
  session->tensor_offset = BEGIN;
  heap_init(&session->heap, BEGIN, END);
  return session;
}

static void session_free(struct gemmd_session *session) {
  heap_release(&session->heap);
  free(session->arena);
  free(session);
}

static void pointers_become_offsets(void **state) {
  struct gemmd_session *session = session_make();
  uint64_t offset = 0;
  char *memory = gemmd_alloc(session, 100);
  assert_non_null(memory);
  assert_int_equal((uintptr_t)memory % HEAP_ALIGN, 0);
  assert_int_equal(arena_offset(session, memory, "x", &offset), STATUS_OK);
  assert_int_equal(offset, BEGIN);
  assert_int_equal(arena_offset(session, session->arena + END - 1, "x", &offset), STATUS_OK);
  assert_int_equal(offset, END - 1);
  session_free(session);
}

static void pointers_outside_the_tensors_are_refused_by_name(void **state) {
  struct gemmd_session *session = session_make();
  uint64_t offset = 77;
  char local;
  const void *outside[] = {
    &local,
    session->arena - 1,
    session->arena,
    session->arena + BEGIN - 1,
    session->arena + END,
    (void *)UINTPTR_MAX
  };
  for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++) {
    assert_int_equal(arena_offset(session, outside[i], "bias", &offset), STATUS_INVALID);
    assert_string_equal(session->error.text, "bias must lie in the session's arena (gemmd_alloc)");
  }
  assert_int_equal(arena_offset(session, NULL, "x scale", &offset), STATUS_INVALID);
  assert_string_equal(session->error.text, "x scale must not be NULL");
  assert_int_equal(offset, 77);
  session_free(session);
}

static void foreign_memory_is_not_freed(void **state) {
  struct gemmd_session *session = session_make();
  char local, *memory = gemmd_alloc(session, 1);
  gemmd_free(session, NULL);
  assert_string_equal(session->error.text, "");
  gemmd_free(session, &local);
  assert_int_equal(session->error.status, STATUS_INVALID);
  assert_int_equal(session->heap.extents.count, 1);
  gemmd_free(session, memory);
  assert_int_equal(session->heap.extents.count, 0);
  session_free(session);
}

static void a_full_arena_says_what_is_left(void **state) {
  struct gemmd_session *session = session_make();
  assert_non_null(gemmd_alloc(session, 256));
  assert_null(gemmd_alloc(session, END - BEGIN));
  assert_int_equal(session->error.status, STATUS_NOMEM);
  assert_string_equal(session->error.text, "no room for 4096 bytes in the arena, the largest free piece has 3840");
  assert_null(gemmd_alloc(session, SIZE_MAX));
  session_free(session);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(alloc_aligns_and_rounds_up),
      cmocka_unit_test(bounds_are_rounded_inwards),
      cmocka_unit_test(exhaustion_is_refused_and_harmless),
      cmocka_unit_test(the_first_hole_that_fits_is_taken),
      cmocka_unit_test(neighbours_coalesce_in_any_order),
      cmocka_unit_test(only_what_was_given_can_be_freed_and_once),
      cmocka_unit_test(a_random_life_keeps_the_books),
      cmocka_unit_test(pointers_become_offsets),
      cmocka_unit_test(pointers_outside_the_tensors_are_refused_by_name),
      cmocka_unit_test(foreign_memory_is_not_freed),
      cmocka_unit_test(a_full_arena_says_what_is_left),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
