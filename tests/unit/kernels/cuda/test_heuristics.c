/* Lists by cost, the multiprocessors that clusters leave idle, and what a device can do at most. No device. */
#include "kernels/cuda/heuristics/clusters.h"
#include "kernels/cuda/heuristics/ranking.h"
#include "kernels/cuda/heuristics/roof.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 5 };

struct item {
  int number, pad[2];
};

/* Whatever order they come in: the cheapest, by cost, equals in the order in which they came; nothing behind them is
 * touched. */
static void test_the_cheapest_stay(void **state) {
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
  const struct item item = {.number = 1};
  assert_int_equal(ranking_insert(NULL, NULL, sizeof item, 0, 0, &item, 1), 0);
}

static void test_clusters(void **state) {
  assert_int_equal((int)clusters_usable(132, 1), 132);
  assert_int_equal((int)clusters_usable(132, 4) / 4, 30);
  assert_int_equal((int)clusters_usable(132, CLUSTERS_BLOCKS_MOST) / 8, 15);
  assert_int_equal((int)clusters_usable(66, 8), 60);
}

/* What the makers' data sheets say, to 3 %: 4.8 TB/s and 1979 TOPS at 1830 MHz; 1.56 TB/s and 624 TOPS. */
static void test_roofs(void **state) {
  struct roof_device h200 = {.capability = 90,
                             .multiprocessors = 132,
                             .clock_khz = 1830000,
                             .memory_clock_khz = 3201000,
                             .memory_bus_bits = 6144};
  struct roof_device a100 = {.capability = 80,
                             .multiprocessors = 108,
                             .clock_khz = 1410000,
                             .memory_clock_khz = 1215000,
                             .memory_bus_bits = 5120};
  struct roof_device unknown = {.capability = 121, .multiprocessors = 48, .clock_khz = 2000000};
  assert_float_equal((double)roof_memory(&h200) / 1e12, 4.8, 0.15);
  assert_float_equal((double)roof_operations(&h200) / 1e12, 1979, 1);
  assert_float_equal((double)roof_memory(&a100) / 1e12, 1.555, 0.01);
  assert_float_equal((double)roof_operations(&a100) / 1e12, 624, 1);
  assert_int_equal(roof_memory(&unknown), 0);
  assert_int_equal(roof_operations(&unknown), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_the_cheapest_stay),
      cmocka_unit_test(test_no_room),
      cmocka_unit_test(test_clusters),
      cmocka_unit_test(test_roofs),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
