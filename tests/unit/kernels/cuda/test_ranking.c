/* Lists by cost, and the multiprocessors that clusters leave idle. No device. */
#include "kernels/cuda/heuristics/clusters.h"
#include "kernels/cuda/heuristics/ranking.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { MOST = 5 };

struct item {
  int number, pad[2];
};

/* Whatever order they come in: the cheapest, by cost, equals in the order in which they came; nothing behind them is
 * touched. */
static void test_the_cheapest_stay(void **state) {
  (void)state;
  static const double prices[][8] = {
      {1, 2, 3, 4, 5, 6, 7, 8}, {8, 7, 6, 5, 4, 3, 2, 1}, {3, 1, 4, 1, 5, 9, 2, 6}, {2, 2, 2, 2, 1, 1, 1, 1}};
  for (size_t row = 0; row < sizeof prices / sizeof *prices; row++) {
    struct item items[MOST + 1] = {[MOST] = {.number = -1}};
    double costs[MOST + 1] = {[MOST] = -1};
    int count = 0;
    for (int i = 0; i < 8; i++) {
      const struct item item = {.number = i};
      count = ranking_insert(items, costs, sizeof item, count, MOST, &item, prices[row][i]);
      assert_int_equal(count, i < MOST ? i + 1 : MOST);
    }
    for (int i = 0; i < MOST; i++) {
      int cheaper = 0;
      for (int j = 0; j < 8; j++)
        cheaper += prices[row][j] < costs[i] || (prices[row][j] == costs[i] && j < items[i].number);
      assert_int_equal(cheaper, i);
      assert_true(prices[row][items[i].number] == costs[i]);
    }
    assert_int_equal(items[MOST].number, -1);
    assert_true(costs[MOST] == -1);
  }
}

static void test_no_room(void **state) {
  (void)state;
  const struct item item = {.number = 1};
  assert_int_equal(ranking_insert(NULL, NULL, sizeof item, 0, 0, &item, 1), 0);
}

static void test_clusters(void **state) {
  (void)state;
  assert_int_equal((int)clusters_usable(132, 1), 132);
  assert_int_equal((int)clusters_usable(132, 4) / 4, 30);
  assert_int_equal((int)clusters_usable(132, CLUSTERS_BLOCKS_MOST) / 8, 15);
  assert_int_equal((int)clusters_usable(66, 8), 60);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_the_cheapest_stay),
      cmocka_unit_test(test_no_room),
      cmocka_unit_test(test_clusters),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
