/* Tables of the worker: a session's handles, the supervisor's numbers, and parts of a split weight. */
#include "daemon/worker/control/canonical.h"
#include "daemon/worker/control/idmap.h"
#include "daemon/worker/serve/handles.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define HANDLE(generation, index) ((uint32_t)(generation) << 16 | (index))

/* ---- handles */

static void a_handle_is_found_until_removed(void **state) {
  static const uint32_t some[] = {HANDLE(1, 0),   HANDLE(0, 1),     HANDLE(1, 255),
                                  HANDLE(7, 256), HANDLE(1, 65535), HANDLE(65535, 4096)};
  enum { COUNT = sizeof some / sizeof *some };
  int weights[COUNT];
  struct handles handles;
  struct error error;
  handles_init(&handles);
  assert_null(handles_find(&handles, some[0]));
  assert_null(handles_remove(&handles, some[0]));
  for (size_t i = 0; i < COUNT; i++)
    assert_int_equal(handles_add(&handles, some[i], &weights[i], &error), STATUS_OK);
  for (size_t i = 0; i < COUNT; i++)
    assert_ptr_equal(handles_find(&handles, some[i]), &weights[i]);
  for (size_t i = 0; i < COUNT; i++) {
    assert_ptr_equal(handles_remove(&handles, some[i]), &weights[i]);
    assert_null(handles_find(&handles, some[i]));
    assert_null(handles_remove(&handles, some[i]));
  }
  handles_close(&handles);
}

static void another_generation_is_another_handle(void **state) {
  int first, second;
  struct handles handles;
  struct error error;
  handles_init(&handles);
  assert_int_equal(handles_add(&handles, HANDLE(1, 9), &first, &error), STATUS_OK);
  assert_int_equal(handles_add(&handles, HANDLE(2, 9), &second, &error), STATUS_EXISTS);
  assert_null(handles_find(&handles, HANDLE(2, 9)));
  assert_null(handles_remove(&handles, HANDLE(2, 9)));
  assert_ptr_equal(handles_remove(&handles, HANDLE(1, 9)), &first);
  assert_int_equal(handles_add(&handles, HANDLE(2, 9), &second, &error), STATUS_OK);
  assert_null(handles_find(&handles, HANDLE(1, 9)));
  assert_ptr_equal(handles_find(&handles, HANDLE(2, 9)), &second);
  handles_close(&handles);
}

static void all_indices_can_be_used_and_emptied(void **state) {
  static char weights[LIMIT_SESSION_WEIGHTS];
  struct handles handles;
  struct error error;
  handles_init(&handles);
  for (uint32_t i = 0; i < LIMIT_SESSION_WEIGHTS; i++)
    assert_int_equal(handles_add(&handles, HANDLE(3, i), &weights[i], &error), STATUS_OK);
  uint32_t from = 0, left = 0;
  for (char *weight; (weight = handles_remove_next(&handles, &from)) != NULL; left++)
    assert_ptr_equal(weight, &weights[left]);
  assert_int_equal(left, LIMIT_SESSION_WEIGHTS);
  assert_null(handles_find(&handles, HANDLE(3, 0)));
  handles_close(&handles);
}

/* ---- numbers */

static void numbers_that_collide_survive_removals(void **state) {
  enum { COUNT = 300 };
  static char items[COUNT];
  static bool there[COUNT];
  struct idmap map = {0};
  struct error error;
  uint32_t id;
  assert_null(idmap_find(&map, 0));
  assert_null(idmap_remove(&map, 0));
  assert_null(idmap_any(&map, &id));
  srand(1);
  for (unsigned step = 0; step < 40000; step++) {
    uint32_t i = (uint32_t)rand() % COUNT;
    uint32_t number = i * 4096 + (i & 7); /* few low bits differ, so that runs are long */
    if (step % 2000 < 1000) {
      assert_int_equal(idmap_add(&map, number, &items[i], &error), there[i] ? STATUS_EXISTS : STATUS_OK);
      there[i] = true;
    } else {
      assert_ptr_equal(idmap_remove(&map, number), there[i] ? &items[i] : NULL);
      there[i] = false;
    }
    uint32_t look = (uint32_t)rand() % COUNT;
    assert_ptr_equal(idmap_find(&map, look * 4096 + (look & 7)), there[look] ? &items[look] : NULL);
  }
  size_t expected = 0;
  for (size_t i = 0; i < COUNT; i++)
    expected += there[i];
  assert_int_equal(map.count, expected);
  for (; expected > 0; expected--)
    assert_non_null(idmap_remove(&map, (idmap_any(&map, &id), id)));
  assert_null(idmap_any(&map, &id));
  idmap_close(&map);
}

/* ---- parts of a split weight */

/* Every byte of a canonical weight a function of its place, so that a wrong byte shows. */
static uint8_t *numbered(uint64_t bytes) {
  uint8_t *whole = malloc(bytes);
  assert_non_null(whole);
  for (uint64_t i = 0; i < bytes; i++)
    whole[i] = (uint8_t)(i * 131 + (i >> 8) * 17 + 7);
  return whole;
}

static void check_part(enum gemm_format format, enum gemm_scale scale, uint64_t scale_begin, int64_t n_begin,
                       int64_t n_count) {
  enum { N = 300, K = 200 };
  struct gemm_weight part = {.n = n_count, .k = K, .format = format, .scale = scale};
  struct gemm_layout whole_layout, part_layout;
  struct error error;
  assert_int_equal(canonical_part_check(&part, n_begin, N, &whole_layout, &part_layout, &error), STATUS_OK);
  uint8_t *whole = numbered(whole_layout.total_bytes);
  uint8_t *copy = malloc(part_layout.total_bytes);
  assert_non_null(copy);
  memset(copy, 0xff, part_layout.total_bytes);
  canonical_part_copy(scale, &whole_layout, whole, n_begin, &part_layout, copy);
  assert_memory_equal(copy, whole + (uint64_t)n_begin * whole_layout.row_bytes, part_layout.codes_bytes);
  for (uint64_t i = part_layout.codes_bytes; i < part_layout.scales_offset; i++)
    assert_int_equal(copy[i], 0);
  if (part_layout.scales_bytes > 0)
    assert_memory_equal(copy + part_layout.scales_offset, whole + whole_layout.scales_offset + scale_begin,
                        part_layout.scales_bytes);
  free(copy);
  free(whole);
}

static void a_part_has_its_rows_and_their_scales(void **state) {
  check_part(GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 4 * 7, 7, 100);
  check_part(GEMM_FORMAT_INT8, GEMM_SCALE_ONE, 0, 7, 100);
  check_part(GEMM_FORMAT_FP8, GEMM_SCALE_BLOCK, 4 * 2, 128, 172); /* two block columns */
  check_part(GEMM_FORMAT_FP8, GEMM_SCALE_BLOCK, 4 * 4, 256, 44);
  check_part(GEMM_FORMAT_INT2, GEMM_SCALE_GROUP, 2 * 2 * 299, 299, 1);
  check_part(GEMM_FORMAT_INT2, GEMM_SCALE_ROW, 2 * 10, 10, 5);
  check_part(GEMM_FORMAT_BF16, GEMM_SCALE_NONE, 0, 200, 100);
  check_part(GEMM_FORMAT_F16, GEMM_SCALE_NONE, 0, 0, 300);
}

static void a_part_that_does_not_fit_is_refused(void **state) {
  struct gemm_layout whole_layout, part_layout;
  struct gemm_weight part = {.n = 100, .k = 64, .format = GEMM_FORMAT_INT8, .scale = GEMM_SCALE_ROW};
  struct error error;
  static const struct {
    int64_t n_begin, n_total;
  } bad[] = {{1, 100}, {-1, 200}, {101, 200}, {INT64_MAX, 200}, {0, 99}, {0, 0}, {0, -1}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    assert_int_equal(canonical_part_check(&part, bad[i].n_begin, bad[i].n_total, &whole_layout, &part_layout, &error),
                     STATUS_INVALID);
  assert_int_equal(canonical_part_check(&part, 100, 200, &whole_layout, &part_layout, &error), STATUS_OK);
  part.format = GEMM_FORMAT_FP8;
  part.scale = GEMM_SCALE_BLOCK;
  assert_int_equal(canonical_part_check(&part, 64, 200, &whole_layout, &part_layout, &error), STATUS_INVALID);
  assert_non_null(strstr(error.text, "multiple of 128"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_handle_is_found_until_removed),      cmocka_unit_test(another_generation_is_another_handle),
      cmocka_unit_test(all_indices_can_be_used_and_emptied),  cmocka_unit_test(numbers_that_collide_survive_removals),
      cmocka_unit_test(a_part_has_its_rows_and_their_scales), cmocka_unit_test(a_part_that_does_not_fit_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
