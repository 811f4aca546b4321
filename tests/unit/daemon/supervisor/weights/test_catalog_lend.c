/* What lies together in memory that is lent, and that no range of it is used twice. */
#include "daemon/supervisor/weights/catalog.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { ANN = 1000, BOB = 1001, WEIGHT_BYTES = 4096, SLAB_BYTES = 65536 };

static struct catalog catalog;
static struct error failure;
static const struct catalog_class anns = {ANN, MODE_PRIVATE}, anns_for_all = {ANN, MODE_ALL},
                                  bobs = {BOB, MODE_PRIVATE}, nobodys = {0, MODE_DEFAULT};

static int open_catalog(void **state) {
  catalog_init(&catalog);
  return 0;
}

static int close_catalog(void **state) {
  catalog_free(&catalog);
  return 0;
}

static struct catalog_slab *add_slab(struct catalog_class of) {
  uint32_t id = catalog_next_slab(&catalog);
  assert_int_equal(catalog_slab_add(&catalog, id, 0, SLAB_BYTES, -1, &failure), STATUS_OK);
  struct catalog_slab *slab = catalog_slab_find(&catalog, id);
  slab->of = of;
  return slab;
}

/* Stored in a slab of that class. */
static struct catalog_weight *store(uint8_t content, struct catalog_class of) {
  struct catalog_weight weight = {.id = catalog_next_weight(&catalog),
                                  .shape = {.n = 64, .k = 64, .format = GEMM_FORMAT_INT8, .scale = GEMM_SCALE_ROW},
                                  .part_count = 1,
                                  .parts = {{.bytes = WEIGHT_BYTES, .n_count = 64}}};
  struct catalog_weight *out;
  memset(weight.hash, content, sizeof weight.hash);
  assert_int_equal(
      catalog_take(&catalog, 0, of, WEIGHT_BYTES, 256, &weight.parts[0].slab, &weight.parts[0].offset, &failure),
      STATUS_OK);
  assert_int_equal(catalog_add(&catalog, &weight, &out, &failure), STATUS_OK);
  return out;
}

static void name(const char *text, struct catalog_weight *weight, struct catalog_class of) {
  struct catalog_weight *before;
  const struct catalog_wish wish = {.name = text, .mode = of.mode, .user = {.uid = of.owner, .admin = true}};
  assert_int_equal(catalog_name(&catalog, &wish, weight, &before, &failure), STATUS_OK);
}

static void memory_is_taken_where_its_class_is(void **state) {
  uint32_t slab;
  uint64_t offset;
  uint32_t mixed = add_slab(nobodys)->id, hers = add_slab(anns)->id, his = add_slab(bobs)->id;
  assert_int_equal(catalog_take(&catalog, 0, bobs, 100, 1, &slab, &offset, &failure), STATUS_OK);
  assert_int_equal(slab, his);
  assert_int_equal(catalog_take(&catalog, 0, anns, 100, 1, &slab, &offset, &failure), STATUS_OK);
  assert_int_equal(slab, hers);
  assert_int_equal(catalog_take(&catalog, 0, nobodys, 100, 1, &slab, &offset, &failure), STATUS_OK);
  assert_int_equal(slab, mixed);
  assert_int_equal(catalog_take(&catalog, 0, anns_for_all, 100, 1, &slab, &offset, &failure), STATUS_NOT_FOUND);
}

static void only_what_lies_among_its_own_is_lent(void **state) {
  add_slab(nobodys);
  add_slab(anns);
  struct catalog_weight *mixed = store(1, nobodys), *hers = store(2, anns);
  name("mixed", mixed, anns);
  name("hers", hers, anns);
  assert_false(catalog_lendable(&catalog, mixed, anns)); /* others' bytes lie, or lay, beside it */
  assert_false(catalog_lendable(&catalog, hers, bobs));
  assert_false(catalog_lendable(&catalog, hers, anns_for_all));
  assert_true(catalog_lendable(&catalog, hers, anns));
}

/* Equal content of somebody else's may stand for it as long as it is not lent. */
static void a_name_of_another_keeps_a_slab_from_being_lent(void **state) {
  struct catalog_weight *gone;
  const struct catalog_user root = {.admin = true};
  uint32_t slab;
  uint64_t offset;
  add_slab(anns);
  struct catalog_weight *first = store(1, anns), *second = store(2, anns);
  name("first", first, anns);
  name("second", second, anns);
  name("his", second, bobs);
  assert_false(catalog_lendable(&catalog, first, anns));
  assert_int_equal(catalog_take(&catalog, 0, anns, 100, 1, &slab, &offset, &failure), STATUS_NOT_FOUND);
  assert_int_equal(catalog_unname(&catalog, "his", root, &gone, &failure), STATUS_OK);
  assert_true(catalog_lendable(&catalog, first, anns));
}

static void what_is_lent_is_shared_within_its_class_only(void **state) {
  add_slab(anns);
  struct catalog_weight *weight = store(1, anns);
  name("hers", weight, anns);
  assert_true(catalog_may_share(&catalog, weight, bobs));
  assert_true(catalog_lend(&catalog, weight));
  assert_false(catalog_lend(&catalog, weight)); /* nothing new */
  assert_true(catalog_may_share(&catalog, weight, anns));
  assert_false(catalog_may_share(&catalog, weight, bobs));
  assert_false(catalog_may_share(&catalog, weight, anns_for_all));
  assert_int_equal(catalog_device_usage(&catalog, 0).lent, SLAB_BYTES);
}

static void no_range_of_what_is_lent_is_taken_twice(void **state) {
  uint32_t slab;
  uint64_t offset;
  struct catalog_slab *lent = add_slab(anns);
  struct catalog_weight *first = store(1, anns), *second = store(2, anns), *third = store(3, anns);
  name("second", second, anns);
  assert_int_equal(second->parts[0].offset, WEIGHT_BYTES);
  assert_false(catalog_give(&catalog, lent->id, first->parts[0].offset));
  catalog_remove(&catalog, first);
  assert_int_equal(catalog_take(&catalog, 0, anns, 100, 1, &slab, &offset, &failure), STATUS_OK);
  assert_int_equal(offset, 0); /* not lent yet */
  assert_false(catalog_give(&catalog, slab, offset));
  assert_true(catalog_lend(&catalog, second));
  assert_false(catalog_give(&catalog, lent->id, third->parts[0].offset)); /* the last one */
  catalog_remove(&catalog, third);
  for (uint64_t least = 3 * WEIGHT_BYTES; least < SLAB_BYTES; least += WEIGHT_BYTES) {
    assert_int_equal(catalog_take(&catalog, 0, anns, WEIGHT_BYTES, 256, &slab, &offset, &failure), STATUS_OK);
    assert_int_equal(offset, least);
    assert_false(catalog_give(&catalog, slab, offset));
  }
  assert_int_equal(catalog_take(&catalog, 0, anns, 1, 1, &slab, &offset, &failure), STATUS_NOT_FOUND);
}

static void names_move_by_their_class(void **state) {
  add_slab(nobodys);
  add_slab(anns);
  struct catalog_weight *from = store(1, nobodys), *to = store(1, anns);
  name("a", from, anns);
  name("b", from, bobs);
  name("c", from, anns);
  name("d", from, anns_for_all);
  assert_int_equal(catalog_move_names(&catalog, from, anns, to), 2);
  assert_int_equal(from->names, 2);
  assert_int_equal(to->names, 2);
  assert_ptr_equal(catalog_find(&catalog, "a")->weight, to);
  assert_ptr_equal(catalog_find(&catalog, "b")->weight, from);
  assert_ptr_equal(catalog_find(&catalog, "c")->weight, to);
  assert_ptr_equal(catalog_find(&catalog, "d")->weight, from);
  assert_int_equal(catalog_move_names(&catalog, from, anns, to), 0);
}

static void what_a_name_will_be(void **state) {
  const struct catalog_wish by_ann = {.name = "a", .user = {.uid = ANN}};
  const struct catalog_wish by_root = {.name = "a", .user = {.uid = 0, .admin = true}};
  const struct catalog_wish to_all = {.name = "a", .mode = MODE_ALL, .user = {.uid = 0, .admin = true}};
  assert_true(catalog_class_equal(catalog_class_wished(&catalog, &by_ann), anns));
  assert_true(catalog_class_equal(catalog_class_wished(&catalog, &by_root), (struct catalog_class){0, MODE_ALL}));
  add_slab(anns);
  name("a", store(1, anns), anns);
  assert_true(catalog_class_equal(catalog_class_wished(&catalog, &by_root), anns));
  assert_true(catalog_class_equal(catalog_class_wished(&catalog, &to_all), anns_for_all));
}

static void what_is_borrowed_is_used(void **state) {
  add_slab(anns);
  struct catalog_weight *weight = store(1, anns);
  assert_true(catalog_unused(weight));
  weight->borrows = 1;
  assert_false(catalog_unused(weight));
}

#define CATALOG(test) cmocka_unit_test_setup_teardown(test, open_catalog, close_catalog)

int main(void) {
  const struct CMUnitTest tests[] = {
      CATALOG(memory_is_taken_where_its_class_is),
      CATALOG(only_what_lies_among_its_own_is_lent),
      CATALOG(a_name_of_another_keeps_a_slab_from_being_lent),
      CATALOG(what_is_lent_is_shared_within_its_class_only),
      CATALOG(no_range_of_what_is_lent_is_taken_twice),
      CATALOG(names_move_by_their_class),
      CATALOG(what_a_name_will_be),
      CATALOG(what_is_borrowed_is_used),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
