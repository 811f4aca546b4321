/* Kernels that are held back and started as graphs, with a device that only notes what it is told. */
#include "kernels/cuda/launch/launches.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- the device: what runs, in order, as "kernel:number" each, by whatever way it came */

struct launch_graph {
  int count;
  const void *functions[LAUNCHES_HELD];
  int numbers[LAUNCHES_HELD];
};

enum { RUN_MOST = 4096, REFUSED = 7 };
static struct {
  const void *function;
  int number;
} ran[RUN_MOST];
static int ran_count, launched, made, set, run, dropped;
static bool make_fails, set_fails, run_fails;

static void note(const void *function, int number) {
  assert_true(ran_count < RUN_MOST);
  ran[ran_count].function = function;
  ran[ran_count++].number = number;
}

static int number_of(const struct launch *launch, void **values) {
  int number;
  assert_true(launch->parameter_count == 2 && launch->parameter_bytes[0] == sizeof number);
  memcpy(&number, values[0], sizeof number);
  return number;
}

static int fake_launch(void *stream, const struct launch *launch, void **values) {
  launched++;
  note(launch->function, number_of(launch, values));
  return 0;
}

static int fake_make(void *stream, const struct launch *launches, void *const *const *values, int count,
                     struct launch_graph **out) {
  if (make_fails)
    return REFUSED;
  *out = calloc(1, sizeof **out);
  assert_non_null(*out);
  (*out)->count = count;
  for (int i = 0; i < count; i++) {
    (*out)->functions[i] = launches[i].function;
    (*out)->numbers[i] = number_of(&launches[i], (void **)(uintptr_t)values[i]);
  }
  made++;
  return 0;
}

static int fake_set(struct launch_graph *graph, int place, const struct launch *launch, void **values) {
  if (set_fails)
    return REFUSED;
  assert_true(place < graph->count && graph->functions[place] == launch->function);
  graph->numbers[place] = number_of(launch, values);
  set++;
  return 0;
}

static int fake_run(struct launch_graph *graph, void *stream) {
  run++;
  for (int i = 0; i < graph->count; i++)
    note(graph->functions[i], graph->numbers[i]);
  return run_fails ? REFUSED : 0;
}

static void fake_drop(struct launch_graph *graph) {
  dropped++;
  free(graph);
}

static const struct launch_ops fake = {
    .launch = fake_launch, .make = fake_make, .set = fake_set, .run = fake_run, .drop = fake_drop};

static struct launches launches;
static const char kernels[LAUNCHES_HELD + 1];

static int setup(void **state) {
  ran_count = launched = made = set = run = dropped = 0;
  make_fails = set_fails = run_fails = false;
  launches_open(&launches, &fake, NULL, 1);
  return 0;
}

static int teardown(void **state) {
  launches_close(&launches);
  assert_int_equal(made, dropped);
  assert_int_equal(launches.graphs, 0);
  return 0;
}

static struct launch kernel(int i) {
  return (struct launch){.function = &kernels[i],
                         .grid = {1, 1, 1},
                         .block = {32, 1, 1},
                         .parameter_count = 2,
                         .parameter_bytes = {sizeof(int), 100}};
}

static void add(const struct launch *launch, int number) {
  char more[100] = "";
  void *values[] = {&number, more};
  launches_add(&launches, launch, values);
  number = -1; /* it was copied */
}

/* Kernels `first` .. `first + count - 1` with numbers from `number` on; they run, in this order. */
static void ask(uint64_t key, int first, int count, int number) {
  int before = ran_count;
  launches_hold(&launches, key);
  for (int i = 0; i < count; i++) {
    struct launch launch = kernel(first + i);
    add(&launch, number + i);
  }
  assert_int_equal(launches_release(&launches), 0);
  assert_int_equal(ran_count - before, count);
  for (int i = 0; i < count; i++) {
    assert_ptr_equal(ran[before + i].function, &kernels[first + i]);
    assert_int_equal(ran[before + i].number, number + i);
  }
}

/* ---- */

static void test_what_comes_again_becomes_a_graph(void **state) {
  ask(1, 0, 3, 10);
  assert_int_equal(made, 0);
  assert_int_equal(launched, 3);
  ask(1, 0, 3, 10);
  ask(1, 0, 3, 10);
  assert_int_equal(made, 1);
  assert_int_equal(run, 2);
  assert_int_equal(launched, 3);
}

static void test_a_kernel_alone_is_launched(void **state) {
  for (int i = 0; i < 4; i++)
    ask(1, 0, 1, i);
  assert_int_equal(made, 0);
  assert_int_equal(launched, 4);
}

static void test_only_what_differs_is_set(void **state) {
  ask(1, 0, 2, 10);
  ask(1, 0, 2, 10);
  assert_int_equal(set, 0);
  ask(1, 0, 2, 20);
  assert_int_equal(set, 2);
  ask(1, 0, 2, 20);
  assert_int_equal(set, 2);
  launches_hold(&launches, 1);
  struct launch first = kernel(0), second = kernel(1);
  second.grid[0] = 5;
  add(&first, 20);
  add(&second, 21);
  assert_int_equal(launches_release(&launches), 0);
  assert_int_equal(set, 3);
  assert_int_equal(made, 1);
}

/* Another kernel, another cluster, other parameters: a graph of another form. */
static void test_form(void **state) {
  for (int way = 0; way < 5; way++)
    for (int turn = 0; turn < 3; turn++) {
      launches_hold(&launches, 1);
      struct launch first = kernel(0), second = kernel(way == 1 ? 2 : 1);
      second.cluster[1] = way == 2 ? 4 : 0;
      second.dependent = way == 3;
      second.parameter_bytes[1] = way == 4 ? 60 : 100;
      add(&first, turn);
      add(&second, turn);
      assert_int_equal(launches_release(&launches), 0);
    }
  assert_int_equal(made, 5);
}

static void test_keys_have_graphs_of_their_own(void **state) {
  for (int turn = 0; turn < 4; turn++)
    for (int key = 1; key <= 3; key++)
      ask((uint64_t)key, 0, 2, 10 * key);
  assert_int_equal(made, 3);
  assert_int_equal(set, 0);
}

/* What is started early stays ahead of what is added then, and is a graph of its own. */
static void test_start(void **state) {
  for (int turn = 0; turn < 3; turn++) {
    int before = ran_count;
    launches_hold(&launches, 1);
    for (int i = 0; i < 4; i++) {
      struct launch launch = kernel(i);
      if (i == 2) {
        launches_start(&launches);
        assert_int_equal(ran_count - before, 2);
      }
      add(&launch, i);
    }
    assert_int_equal(launches_release(&launches), 0);
    for (int i = 0; i < 4; i++)
      assert_int_equal(ran[before + i].number, i);
  }
  assert_int_equal(made, 2);
}

/* More kernels, or larger ones, than there is room for: in several goes, in order. */
static void test_room(void **state) {
  enum { LARGE = LAUNCH_BYTES - LAUNCH_ALIGN };
  static char large[LARGE];
  ask(1, 0, LAUNCHES_HELD, 0);
  for (int turn = 0; turn < 3; turn++) {
    int before = ran_count;
    launches_hold(&launches, 1);
    for (int i = 0; i < 3 * LAUNCHES_HELD; i++) {
      struct launch launch = kernel(0);
      launch.parameter_bytes[1] = LARGE;
      void *values[] = {&i, large};
      launches_add(&launches, &launch, values);
    }
    assert_int_equal(launches_release(&launches), 0);
    assert_int_equal(ran_count - before, 3 * LAUNCHES_HELD);
    for (int i = 0; i < 3 * LAUNCHES_HELD; i++)
      assert_int_equal(ran[before + i].number, i);
  }
}

/* So many keys that there is no room for all: graphs of the same form are turned to others, none is made. */
static void test_more_keys_than_graphs(void **state) {
  enum { KEYS = LAUNCHES_GRAPHS + 20 };
  for (int turn = 0; turn < 4; turn++)
    for (int key = 1; key <= KEYS; key++)
      ask((uint64_t)key, 0, 2, key);
  assert_int_equal(made, LAUNCHES_GRAPHS);
  assert_int_equal(launches.graphs, LAUNCHES_GRAPHS);
  assert_true(run > 2 * KEYS);
}

/* The more streams there are, the fewer graphs has each. */
static void test_streams_share_graphs(void **state) {
  static const int streams[] = {1, 4, 5, 16, 64}, graphs[] = {64, 64, 51, 16, 4};
  for (size_t i = 0; i < sizeof streams / sizeof *streams; i++) {
    launches_close(&launches);
    launches_open(&launches, &fake, NULL, streams[i]);
    for (int turn = 0; turn < 3; turn++)
      for (int key = 1; key <= LAUNCHES_GRAPHS; key++)
        ask((uint64_t)key, 0, 2, key);
    assert_int_equal(launches.graphs, graphs[i]);
    assert_int_equal(made - dropped, graphs[i]);
  }
}

/* A form that comes when all places are taken waits until one of them is no more in use. */
static void test_a_new_form(void **state) {
  for (int turn = 0; turn < 2; turn++)
    for (int key = 1; key <= LAUNCHES_GRAPHS; key++)
      ask((uint64_t)key, 0, 2, key);
  for (int turn = 0; turn < 4; turn++)
    ask(1, 5, 3, turn);
  assert_int_equal(made, LAUNCHES_GRAPHS);
  for (int turn = 0; turn < LAUNCHES_PATIENCE; turn++)
    ask(1, 0, 2, 1);
  for (int turn = 0; turn < 3; turn++)
    ask(1, 5, 3, turn);
  assert_int_equal(made, LAUNCHES_GRAPHS + 1);
  assert_int_equal(dropped, 1);
}

/* ---- failures */

static void test_no_graph_can_be_made(void **state) {
  make_fails = true;
  for (int turn = 0; turn < 4; turn++)
    ask(1, 0, 2, turn);
  assert_true(launches.refused);
  make_fails = false;
  ask(1, 0, 2, 9);
  assert_int_equal(made, 0);
  assert_int_equal(launched, 10);
}

static void test_a_graph_that_cannot_be_set_goes(void **state) {
  ask(1, 0, 2, 1);
  ask(1, 0, 2, 1);
  set_fails = true;
  ask(1, 0, 2, 2);
  assert_int_equal(dropped, 1);
  assert_false(launches.refused);
}

/* The first failure is what is returned, and nothing is started behind it. */
static void test_a_start_that_fails(void **state) {
  ask(1, 0, 2, 1);
  ask(1, 0, 2, 1);
  run_fails = true;
  launches_hold(&launches, 1);
  struct launch first = kernel(0), second = kernel(1);
  add(&first, 1);
  add(&second, 2);
  launches_start(&launches);
  int before = ran_count;
  add(&first, 3);
  assert_int_equal(launches_release(&launches), REFUSED);
  assert_int_equal(ran_count, before);
  run_fails = false;
  ask(1, 0, 2, 1);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
  const struct CMUnitTest tests[] = {
      TEST(test_what_comes_again_becomes_a_graph),
      TEST(test_a_kernel_alone_is_launched),
      TEST(test_only_what_differs_is_set),
      TEST(test_form),
      TEST(test_keys_have_graphs_of_their_own),
      TEST(test_start),
      TEST(test_room),
      TEST(test_more_keys_than_graphs),
      TEST(test_streams_share_graphs),
      TEST(test_a_new_form),
      TEST(test_no_graph_can_be_made),
      TEST(test_a_graph_that_cannot_be_set_goes),
      TEST(test_a_start_that_fails),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
