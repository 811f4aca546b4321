#include "daemon/supervisor/session/opened.h"
#include "daemon/supervisor/weights/catalog.h"
#include "daemon/supervisor/weights/placement.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct error failure;
static const struct catalog_class nobody = {.mode = MODE_DEFAULT};

/* ---- names and contents */

static struct catalog catalog;
static const struct catalog_user ann = {.uid = 1000}, bob = {.uid = 1001}, root = {.uid = 0, .admin = true};

static int open_catalog(void **state) {
  catalog_init(&catalog);
  return 0;
}

static int close_catalog(void **state) {
  catalog_free(&catalog);
  return 0;
}

static struct catalog_weight *add_weight(uint8_t content) {
  struct catalog_weight weight = {
      .id = catalog_next_weight(&catalog),
      .shape = {.n = 3, .k = 5, .format = GEMM_FORMAT_INT8, .scale = GEMM_SCALE_ROW},
      .part_count = 2,
      .parts = {{.device = 0, .bytes = 100, .n_count = 3}, {.device = 1, .bytes = 20, .n_count = 3}},
      .placement = PLACEMENT_REPLICAS};
  struct catalog_weight *out = NULL;
  memset(weight.hash, content, sizeof weight.hash);
  assert_int_equal(catalog_add(&catalog, &weight, &out, &failure), STATUS_OK);
  return out;
}

static enum status name(const char *text, struct catalog_weight *weight, bool replace, struct catalog_user user) {
  struct catalog_weight *before;
  const struct catalog_wish wish = {.name = text, .replace = replace, .user = user};
  return catalog_name(&catalog, &wish, weight, &before, &failure);
}

static void contents_are_found(void **state) {
  uint8_t hash[CATALOG_HASH_BYTES];
  struct catalog_weight *weight = add_weight(4);
  memset(hash, 4, sizeof hash);
  assert_ptr_equal(catalog_find_hash(&catalog, hash, NULL), weight);
  assert_null(catalog_find_hash(&catalog, hash, weight));
  hash[31] = 5;
  assert_null(catalog_find_hash(&catalog, hash, NULL));
  hash[31] = 4;
  assert_true(catalog_unused(weight));
  assert_int_equal(catalog_weight_bytes(weight), 120);
  for (uint8_t content = 0; content < 200; content++)
    if (content != 4)
      add_weight(content);
  for (uint8_t content = 0; content < 200; content++) {
    memset(hash, content, sizeof hash);
    assert_int_equal(catalog_find_hash(&catalog, hash, NULL)->hash[0], content);
  }
  struct catalog_weight *elsewhere = add_weight(4), *third = add_weight(4); /* the same content */
  memset(hash, 4, sizeof hash);
  assert_ptr_equal(catalog_find_hash(&catalog, hash, NULL), weight);
  assert_ptr_equal(catalog_find_hash(&catalog, hash, weight), elsewhere);
  assert_ptr_equal(catalog_find_hash(&catalog, hash, elsewhere), third);
  assert_null(catalog_find_hash(&catalog, hash, third));
  assert_ptr_equal(catalog_find_id(&catalog, elsewhere->id), elsewhere);
  catalog_remove(&catalog, elsewhere);
  assert_ptr_equal(catalog_find_hash(&catalog, hash, weight), third);
  catalog_remove(&catalog, third);
  catalog_remove(&catalog, weight);
  assert_null(catalog_find_hash(&catalog, hash, NULL));
  assert_int_equal(catalog.weight_count, 199);
}

static void what_is_disowned_leaves_its_content_to_others(void **state) {
  struct catalog_weight *first = add_weight(4), *second = add_weight(5);
  catalog_disown(&catalog, first);
  catalog_disown(&catalog, second);
  catalog_disown(&catalog, first);
  struct catalog_weight *again = add_weight(4);
  assert_ptr_equal(catalog_find_hash(&catalog, again->hash, NULL), again);
  catalog_remove(&catalog, first);
  catalog_remove(&catalog, second);
  assert_int_equal(catalog.weight_count, 1);
  assert_ptr_equal(catalog.weights[0], again);
}

static void names_are_references(void **state) {
  struct catalog_weight *out = NULL;
  struct catalog_weight *weight = add_weight(1);
  assert_int_equal(name("a", weight, false, ann), STATUS_OK);
  assert_int_equal(name("b", weight, false, bob), STATUS_OK);
  assert_int_equal(name("a", weight, false, ann), STATUS_OK);         /* the same again: fine */
  assert_int_equal(name("a", weight, false, bob), STATUS_PERMISSION); /* hers, though bob has the content too */
  assert_int_equal(weight->names, 2);
  assert_int_equal(catalog_find(&catalog, "a")->owner, 1000);
  assert_int_equal(catalog_unname(&catalog, "a", bob, &out, &failure), STATUS_PERMISSION);
  assert_int_equal(catalog_unname(&catalog, "a", ann, &out, &failure), STATUS_OK);
  assert_ptr_equal(out, weight);
  assert_false(catalog_unused(weight));
  assert_int_equal(catalog_unname(&catalog, "a", ann, &out, &failure), STATUS_NOT_FOUND);
  assert_non_null(strstr(failure.text, "\"a\""));
  assert_int_equal(catalog_unname(&catalog, "b", root, &out, &failure), STATUS_OK);
  assert_true(catalog_unused(weight));
  weight->handles = 1;
  assert_false(catalog_unused(weight));
}

static void other_content_needs_replace_by_the_owner(void **state) {
  struct catalog_weight *before = NULL;
  struct catalog_weight *first = add_weight(1), *second = add_weight(2);
  assert_int_equal(name("a", first, false, ann), STATUS_OK);
  assert_int_equal(name("a", second, false, ann), STATUS_EXISTS);
  assert_int_equal(name("a", second, true, bob), STATUS_PERMISSION);
  assert_int_equal(first->names, 1);
  assert_int_equal(second->names, 0);
  struct catalog_wish wish = {.name = "a", .user = root};
  assert_int_equal(catalog_may_name(&catalog, &wish, second->hash, second, &failure), STATUS_EXISTS);
  wish.user = bob;
  assert_int_equal(catalog_may_name(&catalog, &wish, first->hash, first, &failure), STATUS_PERMISSION);
  wish.user = root;
  wish.mode = MODE_ALL;
  assert_int_equal(catalog_name(&catalog, &wish, first, &before, &failure), STATUS_OK);
  assert_null(before);
  wish = (struct catalog_wish){.name = "a", .user = bob};
  assert_int_equal(catalog_may_name(&catalog, &wish, first->hash, first, &failure), STATUS_OK);
  assert_int_equal(catalog_may_name(&catalog, &wish, first->hash, NULL, &failure), STATUS_PERMISSION); /* elsewhere */
  wish = (struct catalog_wish){.name = "a", .user = root, .replace = true};
  assert_int_equal(catalog_name(&catalog, &wish, second, &before, &failure), STATUS_OK);
  assert_ptr_equal(before, first);
  assert_int_equal(first->names, 0);
  assert_int_equal(second->names, 1);
  assert_int_equal(catalog_find(&catalog, "a")->owner, 1000);
  assert_int_equal(catalog.name_count, 1);
}

static void names_are_ordered_bytewise_for_paging(void **state) {
  static const char *const order[] = {"A", "B", "a", "a.1", "a.10", "a.2", "aa", "\xc3\xa4"};
  enum { COUNT = sizeof order / sizeof *order };
  struct catalog_weight *weight = add_weight(1);
  for (size_t i = 0; i < COUNT; i++)
    assert_int_equal(name(order[i * 3 % COUNT], weight, false, ann), STATUS_OK);
  size_t at = 0;
  for (size_t i = 0; i < COUNT; i++, at = catalog_after(&catalog, order[i - 1]))
    assert_string_equal(catalog.names[at].text, order[i]);
  assert_int_equal(at, COUNT);
  assert_int_equal(catalog_after(&catalog, ""), 0);
  assert_int_equal(catalog_after(&catalog, "a.11"), 5); /* not there itself */
  assert_null(catalog_find(&catalog, "a.11"));
}

static void a_description_carries_all_parts(void **state) {
  struct message_weight_info info;
  struct catalog_weight *weight = add_weight(9);
  assert_int_equal(name("w", weight, false, bob), STATUS_OK);
  catalog_describe(catalog_find(&catalog, "w"), &info);
  assert_string_equal(info.name, "w");
  assert_int_equal(info.n, 3);
  assert_int_equal(info.k, 5);
  assert_int_equal(info.bytes, 120);
  assert_int_equal(info.references, 1);
  assert_int_equal(info.owner, 1001);
  assert_int_equal(info.placement, PLACEMENT_REPLICAS);
  assert_int_equal(info.parts_count, 2);
  assert_int_equal(info.parts[1].device, 1);
  assert_int_equal(info.parts[1].n_count, 3);
  assert_int_equal(info.hash[31], 9);
  assert_false(info.shared);
}

/* ---- slabs */

static void room_comes_from_slabs_of_the_device(void **state) {
  uint32_t slab;
  uint64_t offset;
  assert_int_equal(catalog_take(&catalog, 0, nobody, 10, 1, &slab, &offset, &failure), STATUS_NOT_FOUND);
  uint32_t first = catalog_next_slab(&catalog), second = catalog_next_slab(&catalog),
           other = catalog_next_slab(&catalog);
  assert_int_equal(catalog_slab_add(&catalog, first, 0, 100, 41, &failure), STATUS_OK);
  assert_int_equal(catalog_slab_add(&catalog, second, 0, 200, 42, &failure), STATUS_OK);
  assert_int_equal(catalog_slab_add(&catalog, other, 1, 1000, 43, &failure), STATUS_OK);
  assert_int_equal(catalog_take(&catalog, 0, nobody, 150, 1, &slab, &offset, &failure), STATUS_OK);
  assert_int_equal(slab, second);
  assert_int_equal(catalog_take(&catalog, 0, nobody, 100, 1, &slab, &offset, &failure), STATUS_OK);
  assert_int_equal(slab, first);
  assert_int_equal(catalog_take(&catalog, 0, nobody, 51, 1, &slab, &offset, &failure), STATUS_NOT_FOUND);
  struct catalog_usage usage = catalog_device_usage(&catalog, 0);
  assert_int_equal(usage.slabs, 300);
  assert_int_equal(usage.used, 250);
  assert_int_equal(catalog_take(&catalog, 0, nobody, 50, 1, &slab, &offset, &failure), STATUS_OK);
  assert_false(catalog_give(&catalog, second, offset)); /* not empty yet */
  assert_true(catalog_give(&catalog, second, 0));
  assert_false(catalog_give(&catalog, second, 0)); /* nothing is given back twice */
  assert_int_equal(catalog_slab_find(&catalog, second)->fd, 42);
  catalog_slab_remove(&catalog, second);
  assert_null(catalog_slab_find(&catalog, second));
  assert_int_equal(catalog_slab_find(&catalog, other)->fd, 43);
}

/* ---- where a weight goes */

static void a_split_covers_every_row_once(void **state) {
  static const int64_t rows[] = {1, 127, 128, 129, 300, 1024, 1025, 4095};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    for (uint32_t devices = 1; devices <= LIMIT_PARTS; devices++) {
      struct catalog_part parts[LIMIT_PARTS];
      uint32_t count = catalog_split(rows[i], devices, parts);
      assert_in_range(count, 1, devices);
      int64_t at = 0;
      for (uint32_t p = 0; p < count; p++) {
        assert_int_equal(parts[p].n_begin, at);
        assert_int_equal(at % 128, 0);
        assert_true(parts[p].n_count > 0);
        at += parts[p].n_count;
      }
      assert_int_equal(at, rows[i]);
    }
  }
}

static struct message_weight_load load_to(uint32_t placement, int64_t device, uint32_t devices) {
  return (struct message_weight_load){.placement = placement, .device = device, .devices = devices};
}

static void a_placement_is_checked_before_anything_is_loaded(void **state) {
  struct message_weight_load request = load_to(PLACEMENT_SINGLE, 2, 0);
  assert_int_equal(placement_check(&request, 2, &failure), STATUS_INVALID);
  assert_int_equal(failure.field, FIELD_DEVICE);
  assert_int_equal(failure.value, 2);
  assert_int_equal(failure.high, 1);
  request = load_to(PLACEMENT_SINGLE, -2, 0);
  assert_int_equal(placement_check(&request, 2, &failure), STATUS_INVALID);
  request = load_to(PLACEMENT_SPLIT + 1, 0, 0);
  assert_int_equal(placement_check(&request, 2, &failure), STATUS_INVALID);
  request = load_to(PLACEMENT_SPLIT, 0, 3);
  assert_int_equal(placement_check(&request, 2, &failure), STATUS_INVALID);
  request = load_to(PLACEMENT_SPLIT, -1, 2);
  assert_int_equal(placement_check(&request, 2, &failure), STATUS_OK);
}

static void a_single_weight_goes_where_asked_or_where_room_is(void **state) {
  const struct placement_device devices[] = {{true, 10}, {false, 90}, {true, 30}, {true, 30}};
  struct catalog_part parts[LIMIT_PARTS];
  uint32_t count = 0;
  struct message_weight_load request = load_to(PLACEMENT_SINGLE, 3, 0);
  assert_int_equal(placement_choose(&request, 70, devices, 4, parts, &count, &failure), STATUS_OK);
  assert_int_equal(count, 1);
  assert_int_equal(parts[0].device, 3);
  assert_int_equal(parts[0].n_count, 70);
  request.device = -1;
  assert_int_equal(placement_choose(&request, 70, devices, 4, parts, &count, &failure), STATUS_OK);
  assert_int_equal(parts[0].device, 2);
  request.device = 1;
  assert_int_equal(placement_choose(&request, 70, devices, 4, parts, &count, &failure), STATUS_DEVICE_LOST);
}

static void several_parts_go_to_different_devices(void **state) {
  const struct placement_device devices[] = {{true, 10}, {false, 90}, {true, 30}, {true, 40}};
  struct catalog_part parts[LIMIT_PARTS];
  uint32_t count = 0;
  struct message_weight_load request = load_to(PLACEMENT_REPLICAS, -1, 2);
  assert_int_equal(placement_choose(&request, 70, devices, 4, parts, &count, &failure), STATUS_OK);
  assert_int_equal(count, 2);
  assert_int_equal(parts[0].device, 3);
  assert_int_equal(parts[1].device, 2);
  assert_int_equal(parts[1].n_count, 70);
  request = load_to(PLACEMENT_SPLIT, 3, 0); /* all that are in order, from device 3 on */
  assert_int_equal(placement_choose(&request, 300, devices, 4, parts, &count, &failure), STATUS_OK);
  assert_int_equal(count, 3);
  assert_int_equal(parts[0].device, 3);
  assert_int_equal(parts[1].device, 0);
  assert_int_equal(parts[2].device, 2);
  assert_int_equal(parts[2].n_begin, 256);
  assert_int_equal(parts[2].n_count, 44);
  request.devices = 4;
  assert_int_equal(placement_choose(&request, 300, devices, 4, parts, &count, &failure), STATUS_DEVICE_LOST);
}

static void what_lies_as_asked_is_shared(void **state) {
  struct catalog_weight there = {.shape = {.n = 300}, .placement = PLACEMENT_SINGLE, .part_count = 1};
  there.parts[0].device = 2;
  struct message_weight_load request = load_to(PLACEMENT_SINGLE, -1, 0);
  assert_true(placement_fits(&request, &there, 3));
  request.device = 2;
  assert_true(placement_fits(&request, &there, 3));
  request.device = 1;
  assert_false(placement_fits(&request, &there, 3));
  request = load_to(PLACEMENT_REPLICAS, -1, 1);
  assert_false(placement_fits(&request, &there, 3));
  there.placement = PLACEMENT_REPLICAS;
  there.part_count = 3;
  assert_true(placement_fits(&(struct message_weight_load){.placement = PLACEMENT_SINGLE, .device = -1}, &there, 3));
  request = load_to(PLACEMENT_REPLICAS, 2, 0);
  assert_true(placement_fits(&request, &there, 3));
  assert_false(placement_fits(&request, &there, 4)); /* all are four now */
  request.devices = 2;
  assert_false(placement_fits(&request, &there, 3));
  request.devices = 3;
  assert_true(placement_fits(&request, &there, 4));
  there.placement = PLACEMENT_SPLIT;
  request = load_to(PLACEMENT_SPLIT, -1, 5);
  assert_true(placement_fits(&request, &there, 5)); /* 300 rows make three ranges */
  request.devices = 2;
  assert_false(placement_fits(&request, &there, 5));
  request.devices = 0;
  assert_false(placement_fits(&request, &there, 0)); /* no device is in order */
}

/* ---- handles */

static void a_handle_given_back_means_nothing(void **state) {
  struct opened opened = {.count = 0};
  struct catalog_weight weight = {.id = 1};
  uint32_t first, second, third;
  assert_int_equal(opened_add(&opened, &weight, 0, &first, &failure), STATUS_OK);
  assert_int_equal(opened_add(&opened, &weight, 3, &second, &failure), STATUS_OK);
  assert_int_not_equal(first, 0);
  assert_int_not_equal(first, second);
  assert_int_equal(opened_find(&opened, second)->device, 3);
  opened_remove(&opened, first);
  assert_null(opened_find(&opened, first));
  assert_int_equal(opened_add(&opened, &weight, 1, &third, &failure), STATUS_OK);
  assert_int_equal(third & 0xffff, first & 0xffff); /* the place is used again, under another generation */
  assert_int_not_equal(third, first);
  assert_null(opened_find(&opened, first));
  opened_remove(&opened, first);
  assert_non_null(opened_find(&opened, third));
  assert_null(opened_find(&opened, 0));
  assert_null(opened_find(&opened, UINT32_MAX));
  opened_free(&opened);
}

static void handles_are_bounded_and_generations_wrap(void **state) {
  struct opened opened = {.count = 0};
  struct catalog_weight weight = {.id = 1};
  uint32_t handle = 0, last = 0;
  for (uint32_t i = 0; i < LIMIT_SESSION_WEIGHTS; i++)
    assert_int_equal(opened_add(&opened, &weight, 0, &last, &failure), STATUS_OK);
  assert_int_equal(opened_add(&opened, &weight, 0, &handle, &failure), STATUS_TOO_LARGE);
  for (uint32_t i = 0; i < 70000; i++) {
    opened_remove(&opened, last);
    assert_int_equal(opened_add(&opened, &weight, 0, &handle, &failure), STATUS_OK);
    assert_int_not_equal(handle, last);
    assert_int_not_equal(handle >> 16, 0);
    last = handle;
  }
  assert_int_equal(opened_at(&opened, last & 0xffff), last);
  opened_remove(&opened, last);
  assert_int_equal(opened_at(&opened, last & 0xffff), 0);
  opened_free(&opened);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_lies_as_asked_is_shared),
      cmocka_unit_test_setup_teardown(contents_are_found, open_catalog, close_catalog),
      cmocka_unit_test_setup_teardown(what_is_disowned_leaves_its_content_to_others, open_catalog, close_catalog),
      cmocka_unit_test_setup_teardown(names_are_references, open_catalog, close_catalog),
      cmocka_unit_test_setup_teardown(other_content_needs_replace_by_the_owner, open_catalog, close_catalog),
      cmocka_unit_test_setup_teardown(names_are_ordered_bytewise_for_paging, open_catalog, close_catalog),
      cmocka_unit_test_setup_teardown(a_description_carries_all_parts, open_catalog, close_catalog),
      cmocka_unit_test_setup_teardown(room_comes_from_slabs_of_the_device, open_catalog, close_catalog),
      cmocka_unit_test(a_split_covers_every_row_once),
      cmocka_unit_test(a_placement_is_checked_before_anything_is_loaded),
      cmocka_unit_test(a_single_weight_goes_where_asked_or_where_room_is),
      cmocka_unit_test(several_parts_go_to_different_devices),
      cmocka_unit_test(a_handle_given_back_means_nothing),
      cmocka_unit_test(handles_are_bounded_and_generations_wrap),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
