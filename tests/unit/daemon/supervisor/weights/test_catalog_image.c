/* The catalog as bytes: what is written is read back, and nothing else is taken for a catalog. */
#include "daemon/supervisor/weights/catalog_image.h"

#include <blake2.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct catalog catalog;
static struct error failure;
static uint8_t *image;
static size_t length;

static struct catalog_weight *add(uint8_t hash, uint32_t device, uint32_t slab, uint64_t offset) {
  struct catalog_weight weight = {.id = catalog_next_weight(&catalog),
                                  .shape = {.n = 64, .k = 32, .format = GEMM_FORMAT_INT8, .scale = GEMM_SCALE_ROW},
                                  .part_count = 1,
                                  .parts = {{.device = device,
                                             .slab = slab,
                                             .layout = 7,
                                             .offset = offset,
                                             .bytes = 4096,
                                             .n_count = 64,
                                             .checksum = 99}}};
  struct catalog_weight *out;
  memset(weight.hash, hash, sizeof weight.hash);
  assert_int_equal(extents_take_at(&catalog_slab_find(&catalog, slab)->extents, offset, 4096, &failure), STATUS_OK);
  assert_int_equal(catalog_add(&catalog, &weight, &out, &failure), STATUS_OK);
  return out;
}

static void name(const char *text, struct catalog_weight *weight, uint32_t uid, enum message_mode mode) {
  struct catalog_weight *before;
  const struct catalog_wish wish = {.name = text, .mode = mode, .user = {.uid = uid, .admin = true}};
  assert_int_equal(catalog_name(&catalog, &wish, weight, &before, &failure), STATUS_OK);
}

static int setup(void **state) {
  catalog_init(&catalog);
  for (uint32_t device = 0; device < 2; device++)
    if (catalog_slab_add(&catalog, catalog_next_slab(&catalog), device, 65536, -1, &failure) != STATUS_OK)
      return -1;
  struct catalog_weight *first = add(1, 0, 1, 8192), *second = add(2, 1, 2, 0);
  second->hash_kind = CATALOG_HASH_TREE;
  second->stamps[CATALOG_NUMBERS].known = true;
  memset(second->stamps[CATALOG_NUMBERS].bytes, 77, CATALOG_HASH_BYTES);
  second->shape.experts = 12;
  first->shape.input = GEMM_INPUT_SCALE;
  add(3, 0, 1, 0)->handles = 1; /* no name stands for it any more */
  name("a", first, 1000, MODE_PRIVATE);
  name("b", first, 1001, MODE_ALL);
  name("c", second, 0, MODE_ALL);
  return catalog_image_write(&catalog, "cpu", &image, &length, &failure) == STATUS_OK ? 0 : -1;
}

static int teardown(void **state) {
  free(image);
  catalog_free(&catalog);
  return 0;
}

static enum status read_image(struct catalog *into, const uint8_t *bytes, size_t count) {
  char backend[CATALOG_BACKEND_BYTES];
  catalog_init(into);
  return catalog_image_read(into, backend, bytes, count, &failure);
}

static void what_has_a_name_comes_back(void **state) {
  char backend[CATALOG_BACKEND_BYTES];
  struct catalog back;
  catalog_init(&back);
  assert_int_equal(catalog_image_read(&back, backend, image, length, &failure), STATUS_OK);
  assert_string_equal(backend, "cpu");
  assert_int_equal(back.slab_count, 2);
  assert_int_equal(back.weight_count, 2);
  assert_int_equal(back.name_count, 3);
  assert_int_equal(back.last_weight, 3); /* numbers are never used again */
  const struct catalog_name *a = catalog_find(&back, "a"), *b = catalog_find(&back, "b");
  assert_ptr_equal(a->weight, b->weight);
  assert_int_equal(a->owner, 1000);
  assert_int_equal(a->mode, MODE_PRIVATE);
  assert_int_equal(a->weight->hash_kind, CATALOG_HASH_SEQUENTIAL);
  assert_int_equal(catalog_find(&back, "c")->weight->hash_kind, CATALOG_HASH_TREE);
  struct catalog_stamp made = {.known = true};
  memset(made.bytes, 77, sizeof made.bytes);
  assert_ptr_equal(catalog_find_stamp(&back, CATALOG_NUMBERS, &made, NULL), catalog_find(&back, "c")->weight);
  assert_null(catalog_find_stamp(&back, CATALOG_FILES, &made, NULL));
  assert_false(a->weight->stamps[CATALOG_FILES].known || a->weight->stamps[CATALOG_NUMBERS].known);
  assert_true(catalog_has_old_hash(&back));
  assert_int_equal(b->mode, MODE_ALL);
  assert_int_equal(a->weight->names, 2);
  assert_int_equal(a->weight->handles, 0);
  assert_int_equal(a->weight->parts[0].offset, 8192);
  assert_int_equal(a->weight->parts[0].layout, 7);
  assert_int_equal(a->weight->parts[0].checksum, 99);
  assert_int_equal(catalog_slab_find(&back, 1)->extents.used, 4096); /* the unnamed one's room is free */
  assert_int_equal(catalog_slab_find(&back, 1)->fd, -1);
  assert_int_equal(catalog_find(&back, "c")->weight->shape.experts, 12);
  assert_int_equal(catalog_find(&back, "a")->weight->shape.experts, 0);
  assert_int_equal(catalog_find(&back, "a")->weight->shape.input, GEMM_INPUT_SCALE);
  assert_int_equal(catalog_find(&back, "c")->weight->shape.input, GEMM_INPUT_NONE);
  catalog_free(&back);
}

static void a_cut_one_is_refused(void **state) {
  struct catalog back;
  for (size_t count = 0; count < length; count++) {
    uint8_t *cut = malloc(count + 1);
    assert_non_null(cut);
    memcpy(cut, image, count);
    assert_int_equal(read_image(&back, cut, count), STATUS_BAD_FILE);
    assert_int_equal(back.weight_count, 0);
    free(cut);
  }
}

static void any_changed_bit_is_seen(void **state) {
  struct catalog back;
  for (size_t i = 0; i < length; i += 3) {
    image[i] ^= 0x10;
    assert_int_equal(read_image(&back, image, length), STATUS_BAD_FILE);
    image[i] ^= 0x10;
  }
}

/* With a hash that fits, every byte set to every one of some values is either read or refused, and nothing that is read
 * breaks what the catalog relies on. */
static void nonsense_with_the_right_hash_does_no_harm(void **state) {
  static const uint8_t values[] = {0, 1, 2, 0x7f, 0x80, 0xff};
  unsigned refused = 0;
  for (size_t i = 0; i + 32 < length; i++)
    for (size_t v = 0; v < sizeof values; v++) {
      struct catalog back;
      uint8_t kept = image[i];
      image[i] = values[v];
      blake2b(image + length - 32, image, NULL, 32, length - 32, 0);
      enum status status = read_image(&back, image, length);
      refused += status == STATUS_BAD_FILE;
      for (size_t s = 0; s < back.slab_count; s++) {
        const struct extents *extents = &back.slabs[s]->extents;
        for (size_t e = 0; e < extents->count; e++) {
          assert_true(extents->taken[e].bytes <= extents->bytes);
          assert_true(extents->taken[e].offset <= extents->bytes - extents->taken[e].bytes);
        }
      }
      for (size_t w = 0; w < back.weight_count; w++)
        assert_true(back.weights[w]->names > 0 && back.weights[w]->part_count <= LIMIT_PARTS);
      catalog_free(&back);
      image[i] = kept;
    }
  assert_true(refused > 100);
}

/* ---- what is lent */

static struct catalog_slab *lend(uint32_t owner, enum message_mode mode) {
  struct catalog_slab *slab = catalog_slab_find(&catalog, 2);
  slab->of = (struct catalog_class){.owner = owner, .mode = mode};
  slab->lent = true;
  slab->fresh = 12288; /* behind what lies there: something else did once */
  catalog.epoch = 0x1234567890abcdef;
  free(image);
  assert_int_equal(catalog_image_write(&catalog, "cpu", &image, &length, &failure), STATUS_OK);
  return slab;
}

static void what_is_lent_stays_so(void **state) {
  struct catalog back;
  uint32_t slab;
  uint64_t offset;
  lend(0, MODE_ALL); /* as its one name, "c" */
  assert_int_equal(read_image(&back, image, length), STATUS_OK);
  assert_true(back.epoch == 0x1234567890abcdef);
  const struct catalog_slab *lent = catalog_slab_find(&back, 2);
  assert_true(lent->lent);
  assert_true(catalog_class_equal(lent->of, (struct catalog_class){0, MODE_ALL}));
  assert_false(catalog_slab_find(&back, 1)->lent);
  assert_true(catalog_lendable(&back, catalog_find(&back, "c")->weight, lent->of));
  assert_int_equal(catalog_take(&back, 1, lent->of, 4096, 1, &slab, &offset, &failure), STATUS_OK);
  assert_int_equal(offset, 12288);
  catalog_free(&back);
}

static void what_is_lent_as_anothers_is_refused(void **state) {
  struct catalog back;
  lend(1000, MODE_ALL);
  assert_int_equal(read_image(&back, image, length), STATUS_BAD_FILE);
  assert_non_null(strstr(failure.text, "lent as another's"));
  lend(0, MODE_DEFAULT);
  assert_int_equal(read_image(&back, image, length), STATUS_BAD_FILE);
  assert_non_null(strstr(failure.text, "lent to nobody"));
  lend(0, MODE_ALL)->fresh = 4095;
  free(image);
  assert_int_equal(catalog_image_write(&catalog, "cpu", &image, &length, &failure), STATUS_OK);
  assert_int_equal(read_image(&back, image, length), STATUS_BAD_FILE);
  assert_non_null(strstr(failure.text, "where nothing was taken"));
}

/* As a gemmd wrote it that knew nothing of lending, of experts and of what is done to x: without the epoch and what
 * stands behind each slab and each weight. */
static void one_of_the_version_before_is_read(void **state) {
  enum {
    HEAD = 48,
    EPOCH = 8,
    SLAB = 16,
    LENT = 24,
    EXPERTS = 8,
    INPUT = 8,
    STAMPS = 8 + 2 * 32,
    HASH = 32,
    WEIGHTS_AT = 16
  };
  const size_t weight_bytes = 72 + LIMIT_PARTS * sizeof(struct catalog_part);
  uint8_t *older = malloc(length), *to = older;
  struct catalog back;
  const uint8_t *from = image;
  memcpy(to, from, HEAD);
  older[8] = 2; /* the version */
  to += HEAD;
  from += HEAD + EPOCH;
  for (int i = 0; i < 2; i++, to += SLAB, from += SLAB + LENT)
    memcpy(to, from, SLAB);
  for (uint32_t i = 0; i < image[WEIGHTS_AT]; i++, to += weight_bytes, from += weight_bytes + EXPERTS + INPUT + STAMPS)
    memcpy(to, from, weight_bytes);
  size_t rest = (size_t)(image + length - HASH - from);
  memcpy(to, from, rest);
  to += rest;
  blake2b(to, older, NULL, HASH, (size_t)(to - older), 0);
  assert_int_equal(read_image(&back, older, (size_t)(to - older) + HASH), STATUS_OK);
  assert_int_equal(back.name_count, 3);
  assert_true(back.epoch == 0);
  assert_int_equal(catalog_slab_find(&back, 1)->extents.used, 4096);
  assert_false(catalog_slab_find(&back, 1)->lent);
  assert_int_equal(catalog_slab_find(&back, 1)->of.mode, MODE_DEFAULT);
  catalog_free(&back);
  free(older);
}

/* What another gemmd made of the same numbers may be another content. */
static void what_was_made_by_another_recipe_is_not_found(void **state) {
  enum { HEAD = 48, EPOCH = 8, SLAB = 16, LENT = 24, EXPERTS = 8, INPUT = 8, HASH = 32 };
  size_t weight = 72 + LIMIT_PARTS * sizeof(struct catalog_part) + EXPERTS + INPUT, stamps = 8 + 2 * CATALOG_HASH_BYTES;
  uint8_t *recipe = image + HEAD + EPOCH + 2 * (SLAB + LENT) + 2 * weight + stamps; /* of the second weight */
  struct catalog back;
  assert_int_equal(recipe[0], 1);
  assert_int_equal(recipe[4], 1 << CATALOG_NUMBERS);
  recipe[0] = 2;
  blake2b(image + length - HASH, image, NULL, HASH, length - HASH, 0);
  assert_int_equal(read_image(&back, image, length), STATUS_OK);
  assert_false(catalog_find(&back, "c")->weight->stamps[CATALOG_NUMBERS].known);
  catalog_free(&back);
  recipe[0] = 1;
  recipe[4] = 1 << CATALOG_MARKS;
  blake2b(image + length - HASH, image, NULL, HASH, length - HASH, 0);
  assert_int_equal(read_image(&back, image, length), STATUS_BAD_FILE);
  assert_non_null(strstr(failure.text, "nothing known"));
}

static void exact_ranges_are_taken_once(void **state) {
  struct extents extents;
  extents_init(&extents, 1000);
  assert_int_equal(extents_take_at(&extents, 100, 100, &failure), STATUS_OK);
  assert_int_equal(extents_take_at(&extents, 100, 100, &failure), STATUS_NOT_FOUND);
  assert_int_equal(extents_take_at(&extents, 199, 1, &failure), STATUS_NOT_FOUND);
  assert_int_equal(extents_take_at(&extents, 50, 51, &failure), STATUS_NOT_FOUND);
  assert_int_equal(extents_take_at(&extents, 0, 0, &failure), STATUS_NOT_FOUND);
  assert_int_equal(extents_take_at(&extents, 0, 100, &failure), STATUS_OK);
  assert_int_equal(extents_take_at(&extents, 900, 101, &failure), STATUS_NOT_FOUND);
  assert_int_equal(extents_take_at(&extents, UINT64_MAX, 2, &failure), STATUS_NOT_FOUND);
  assert_int_equal(extents_take_at(&extents, 200, 800, &failure), STATUS_OK);
  assert_int_equal(extents.used, 1000);
  extents_free(&extents);
}

#define IMAGE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      IMAGE(what_has_a_name_comes_back),
      IMAGE(a_cut_one_is_refused),
      IMAGE(any_changed_bit_is_seen),
      IMAGE(nonsense_with_the_right_hash_does_no_harm),
      IMAGE(what_is_lent_stays_so),
      IMAGE(what_is_lent_as_anothers_is_refused),
      IMAGE(one_of_the_version_before_is_read),
      IMAGE(what_was_made_by_another_recipe_is_not_found),
      cmocka_unit_test(exact_ranges_are_taken_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
