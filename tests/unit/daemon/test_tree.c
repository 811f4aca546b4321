/* Leaves in lanes are those that BLAKE2b gives one at a time. */
#include "../../../daemon/tree.h"

#include <blake2.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { PIECE = 384, PIECES = 2 * TREE_LANES_MOST + 3, REST = 57, NUMBER = 0x01020304 };

static const struct tree_kind small = {.text = "a kind of it", .piece_bytes = PIECE};

/* The leaf as tree.h describes it. */
static void expect_leaf(const struct tree_kind *kind, const uint8_t *piece, size_t bytes, uint32_t number,
                        uint8_t leaf[TREE_HASH_BYTES]) {
  uint8_t header[16];
  blake2b_state state;
  memcpy(header, kind->text, 12);
  for (int i = 0; i < 4; i++)
    header[12 + i] = (uint8_t)(number >> 8 * i);
  blake2b_init(&state, TREE_HASH_BYTES);
  blake2b_update(&state, header, sizeof header);
  blake2b_update(&state, piece, bytes);
  blake2b_final(&state, leaf, TREE_HASH_BYTES);
}

static uint8_t *random_bytes(size_t count) {
  uint8_t *bytes = malloc(count);
  assert_non_null(bytes);
  for (size_t i = 0; i < count; i++)
    bytes[i] = (uint8_t)rand();
  return bytes;
}

static void test_leaves_are_those_of_blake2b(void **state) {
  uint8_t *bytes = random_bytes(PIECES * PIECE + REST);
  for (unsigned pieces = 0; pieces <= PIECES; pieces++)
    for (size_t rest = 0; rest <= REST; rest += REST) {
      uint8_t leaves[PIECES + 1][TREE_HASH_BYTES], expected[TREE_HASH_BYTES];
      tree_leaves(&small, bytes, (uint64_t)pieces * PIECE + rest, NUMBER, leaves);
      for (unsigned i = 0; i < pieces + (rest > 0); i++) {
        expect_leaf(&small, bytes + i * PIECE, i < pieces ? PIECE : rest, NUMBER + i, expected);
        assert_memory_equal(leaves[i], expected, TREE_HASH_BYTES);
      }
    }
  free(bytes);
}

static void test_leaves_of_content(void **state) {
  size_t length = (size_t)(TREE_LANES_MOST + 1) * TREE_PIECE_BYTES + REST;
  uint8_t *bytes = random_bytes(length);
  uint8_t leaves[TREE_LANES_MOST + 2][TREE_HASH_BYTES], expected[TREE_HASH_BYTES];
  tree_leaves(&tree_content, bytes, length, 5, leaves);
  for (uint32_t i = 0; i < TREE_LANES_MOST + 2; i++) {
    size_t begin = (size_t)i * TREE_PIECE_BYTES, left = length - begin;
    expect_leaf(&tree_content, bytes + begin, left < TREE_PIECE_BYTES ? left : TREE_PIECE_BYTES, 5 + i, expected);
    assert_memory_equal(leaves[i], expected, TREE_HASH_BYTES);
  }
  free(bytes);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_leaves_are_those_of_blake2b),
      cmocka_unit_test(test_leaves_of_content),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
