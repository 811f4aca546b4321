/* The table of tuned kernels that others have mapped, and the ring by which they tell what they compute. */
#include "proto/shm/published.h"
#include "proto/shm/seen.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 64 };

static uint8_t *memory;
static struct published table;
static struct error failure;

static int setup(void **state) {
  memory = aligned_alloc(64, published_bytes(ROWS));
  if (memory == NULL)
    return -1;
  memset(memory, 0, published_bytes(ROWS));
  published_init(memory, ROWS);
  return published_open(&table, memory, published_bytes(ROWS), &failure) == STATUS_OK ? 0 : -1;
}

static int teardown(void **state) {
  free(memory);
  return 0;
}

/* All of it depends on two numbers. */
static struct published_row make(unsigned shape, unsigned version) {
  struct published_row row = {.kind = (enum published_kind)(1 + version % 3),
                              .kernel_ns = version,
                              .built_in_ns = (uint64_t)version << 32 | version};
  snprintf(row.shape, sizeof row.shape, "int8-row-%ux64-f16-f16-none-m1", shape);
  snprintf(row.identity, sizeof row.identity, "cpu-%u", version);
  memset(row.kernel, 'a' + (int)(version % 26), sizeof row.kernel - 1);
  memset(row.built_in, 'A' + (int)(version % 26), sizeof row.built_in - 1);
  return row;
}

static bool equal(const struct published_row *a, const struct published_row *b) {
  return strcmp(a->shape, b->shape) == 0 && strcmp(a->identity, b->identity) == 0 &&
         strcmp(a->kernel, b->kernel) == 0 && strcmp(a->built_in, b->built_in) == 0 && a->kind == b->kind &&
         a->kernel_ns == b->kernel_ns && a->built_in_ns == b->built_in_ns;
}

static void what_is_put_is_found(void **state) {
  struct published_row row, found;
  uint64_t generation = published_generation(&table);
  for (unsigned i = 0; i < ROWS / 4; i++) {
    row = make(i, i);
    assert_false(published_find(&table, row.shape, &found));
    published_put(memory, &row);
    assert_true(published_generation(&table) > generation);
    generation = published_generation(&table);
  }
  for (unsigned i = 0; i < ROWS / 4; i++) {
    row = make(i, i);
    assert_true(published_find(&table, row.shape, &found));
    assert_true(equal(&row, &found));
  }
  row = make(3, 77);
  published_put(memory, &row);
  assert_true(published_find(&table, row.shape, &found));
  assert_true(equal(&row, &found));
  unsigned there = 0;
  for (uint32_t i = 0; i < ROWS; i++)
    there += published_at(&table, i, &found);
  assert_int_equal(there, ROWS / 4); /* in its own place */
  assert_false(published_at(&table, ROWS, &found));
  published_remove(memory, row.shape);
  assert_false(published_find(&table, row.shape, &found));
  generation = published_generation(&table);
  published_remove(memory, row.shape);
  assert_int_equal(published_generation(&table), generation);
}

static void a_full_table_takes_what_is_new(void **state) {
  struct published_row row, found;
  for (unsigned i = 0; i < 20 * ROWS; i++) {
    row = make(i, i);
    published_put(memory, &row);
    assert_true(published_find(&table, row.shape, &found));
    assert_true(equal(&row, &found));
  }
}

static void texts_are_cut(void **state) {
  struct published_row row = make(1, 1), found;
  published_put(memory, &row);
  /* As a writer that has gone mad would leave it: without an end. */
  for (size_t at = PUBLISHED_HEADER_BYTES; at < published_bytes(ROWS); at += PUBLISHED_ROW_BYTES)
    memset(memory + at + 8 + 24 + 128, 'x', 128 + 256 + 256);
  assert_true(published_find(&table, row.shape, &found));
  assert_int_equal(strlen(found.kernel), sizeof found.kernel - 1);
  assert_int_equal(strlen(found.identity), sizeof found.identity - 1);
}

/* A writer that was ended in the middle leaves an odd sequence. */
static void a_torn_row_is_not_there_and_nobody_waits(void **state) {
  struct published_row row = make(1, 1), other = make(2, 2), found;
  published_put(memory, &row);
  published_put(memory, &other);
  for (size_t at = PUBLISHED_HEADER_BYTES; at < published_bytes(ROWS); at += PUBLISHED_ROW_BYTES)
    if (strcmp((const char *)memory + at + 8 + 24, row.shape) == 0)
      memory[at] |= 1;
  assert_false(published_find(&table, row.shape, &found));
  assert_true(published_find(&table, other.shape, &found));
}

struct race {
  _Atomic bool stop;
  _Atomic unsigned reads;
};

static void *read_on(void *user) {
  struct race *race = user;
  struct published_row row, wanted;
  while (!atomic_load(&race->stop)) {
    row = make(1, 0);
    if (!published_find(&table, row.shape, &row))
      continue;
    wanted = make(1, (unsigned)row.kernel_ns);
    if (!equal(&row, &wanted))
      return race; /* half of one and half of another */
    atomic_fetch_add(&race->reads, 1);
  }
  return NULL;
}

static void no_reader_sees_half_a_row(void **state) {
  struct race race = {.stop = false};
  pthread_t threads[2];
  for (int i = 0; i < 2; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, read_on, &race), 0);
  for (unsigned version = 0; version < 20000 || atomic_load(&race.reads) < 1000; version++) {
    struct published_row row = make(1, version);
    published_put(memory, &row);
  }
  atomic_store(&race.stop, true);
  for (int i = 0; i < 2; i++) {
    void *torn;
    assert_int_equal(pthread_join(threads[i], &torn), 0);
    assert_null(torn);
  }
}

static void what_is_no_table_is_refused(void **state) {
  struct published other;
  assert_int_equal(published_open(&other, memory, PUBLISHED_HEADER_BYTES - 1, &failure), STATUS_PROTOCOL);
  assert_int_equal(published_open(&other, memory, published_bytes(ROWS) - 1, &failure), STATUS_PROTOCOL);
  uint32_t *words = (uint32_t *)(void *)memory;
  words[1]++;
  assert_int_equal(published_open(&other, memory, published_bytes(ROWS), &failure), STATUS_VERSION);
  words[1]--;
  static const uint32_t rows[] = {0, 1, 8, 48, PUBLISHED_ROWS_MOST * 2u, UINT32_MAX, 1u << 31};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    words[2] = rows[i];
    assert_int_equal(published_open(&other, memory, published_bytes(ROWS), &failure), STATUS_PROTOCOL);
  }
  words[2] = ROWS;
  words[0]++;
  assert_int_equal(published_open(&other, memory, published_bytes(ROWS), &failure), STATUS_PROTOCOL);
}

/* ---- the ring */

static void *make_ring(void) {
  void *ring = aligned_alloc(64, SEEN_BYTES);
  assert_non_null(ring);
  memset(ring, 0, SEEN_BYTES);
  seen_init(ring);
  assert_int_equal(seen_check(ring, SEEN_BYTES, &failure), STATUS_OK);
  return ring;
}

static void what_is_seen_comes_in_order_and_once(void **state) {
  struct seen_taker taker = {.memory = make_ring()};
  struct seen_entry entry, out;
  uint32_t in = 0, taken = 0;
  assert_false(seen_take(&taker, &out));
  for (int round = 0; round < 5; round++) {
    do
      entry = (struct seen_entry){.borrow = in, .m = in + 1, .x_type = 2, .y_type = 3, .bias_type = 1};
    while (seen_put(taker.memory, &entry) && ++in > 0);
    assert_int_equal(in - taken, SEEN_ENTRIES); /* no more fit */
    for (int i = 0; i < 200; i++, taken++) {
      assert_true(seen_take(&taker, &out));
      assert_true(out.borrow == taken && out.m == taken + 1 && out.x_type == 2 && out.y_type == 3 &&
                  out.bias_type == 1);
    }
  }
  while (seen_take(&taker, &out))
    taken++;
  assert_int_equal(taken, in);
  free(taker.memory);
}

static void devices_are_told_of_work_and_pauses(void **state) {
  void *ring = make_ring();
  seen_computes(NULL, 0); /* a process whose gemmd has no ring says nothing */
  seen_computes(ring, 3);
  seen_computes(ring, 3);
  seen_pause(ring, 3, 5000);
  struct seen_device there = seen_device(ring, 3, 4999), other = seen_device(ring, 2, 4999);
  assert_int_equal(there.products, 2);
  assert_int_equal(there.pause_until_ns, 5000);
  assert_true(other.products == 0 && other.pause_until_ns == 0);
  assert_int_equal(seen_device(ring, 3, 5000).pause_until_ns, 0); /* over by itself */
  seen_computes(ring, 3);                                         /* or by the next product */
  assert_int_equal(seen_device(ring, 3, 0).pause_until_ns, 0);
  seen_pause(ring, 3, UINT64_MAX);
  assert_int_equal(seen_device(ring, 3, 7).pause_until_ns, 7 + SEEN_PAUSE_MOST_NS);
  seen_pause(ring, 3, 0);
  assert_int_equal(seen_device(ring, 3, 7).pause_until_ns, 0);
  struct seen_entry out;
  assert_false(seen_take(&(struct seen_taker){.memory = ring}, &out)); /* the ring is where it was */
  free(ring);
}

static void whatever_lies_in_the_ring_ends(void **state) {
  static const uint8_t bytes[] = {0x00, 0xff, 0x01, 0x80};
  for (size_t i = 0; i < sizeof bytes; i++) {
    struct seen_taker taker = {.memory = make_ring()};
    struct seen_entry out;
    unsigned taken = 0;
    memset(taker.memory, bytes[i], SEEN_BYTES);
    while (taken < 10 * SEEN_ENTRIES && seen_take(&taker, &out))
      taken++;
    assert_true(taken <= SEEN_ENTRIES);
    free(taker.memory);
  }
}

struct putters {
  void *ring;
  _Atomic unsigned put, ended;
};

static void *put_on(void *user) {
  struct putters *putters = user;
  for (unsigned i = 0; i < 20000; i++)
    if (seen_put(putters->ring, &(struct seen_entry){.borrow = 7, .m = 9}))
      atomic_fetch_add(&putters->put, 1);
  atomic_fetch_add(&putters->ended, 1);
  return NULL;
}

static void threads_put_together(void **state) {
  struct putters putters = {.ring = make_ring()};
  struct seen_taker taker = {.memory = putters.ring};
  struct seen_entry out;
  pthread_t threads[3];
  unsigned taken = 0;
  bool over;
  for (int i = 0; i < 3; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, put_on, &putters), 0);
  do {
    over = atomic_load(&putters.ended) == 3;
    for (; seen_take(&taker, &out); taken++)
      assert_true(out.borrow == 7 && out.m == 9);
  } while (!over);
  for (int i = 0; i < 3; i++)
    assert_int_equal(pthread_join(threads[i], NULL), 0);
  assert_int_equal(taken, atomic_load(&putters.put));
  free(putters.ring);
}

#define TABLE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      TABLE(what_is_put_is_found),
      TABLE(a_full_table_takes_what_is_new),
      TABLE(texts_are_cut),
      TABLE(a_torn_row_is_not_there_and_nobody_waits),
      TABLE(no_reader_sees_half_a_row),
      TABLE(what_is_no_table_is_refused),
      cmocka_unit_test(what_is_seen_comes_in_order_and_once),
      cmocka_unit_test(devices_are_told_of_work_and_pauses),
      cmocka_unit_test(whatever_lies_in_the_ring_ends),
      cmocka_unit_test(threads_put_together),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
