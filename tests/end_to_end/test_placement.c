/* One weight on two devices, as copies and in ranges of its rows: products are right, both devices compute them, and
 * either's worker may die meanwhile. On a machine with one GPU these tests are skipped. */
#include "client/gemmclient.h"
#include "tests/support/daemon/daemon.h"
#include "tests/support/daemon/product.h"
#include "tests/support/daemon/status.h"
#include "tests/support/reference/checkpoint.h"
#include "tests/support/reference/oracle.h"
#include "tests/support/system/nap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

/* Rows that are no multiple of what devices are given. */
static const struct gemm_weight shapes[] = {
    {1100, 512, GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 0, 0},  {700, 384, GEMM_FORMAT_FP8, GEMM_SCALE_BLOCK, 0, 0},
    {515, 512, GEMM_FORMAT_INT2, GEMM_SCALE_GROUP, 0, 0}, {900, 640, GEMM_FORMAT_INT2A8, GEMM_SCALE_GROUP, 0, 0},
    {300, 500, GEMM_FORMAT_BF16, GEMM_SCALE_NONE, 0, 0},
};
enum { DEVICES = 2, IN_FLIGHT = 12, ROUNDS = 4 };

static struct daemon daemon_under_test;
static struct oracle_weight weights[COUNT(shapes)];
static gemmd_session *session;

static gemmd_daemon_info status(void) {
  gemmd_daemon_info info;
  expect_ok(session, gemmd_daemon_status(session, &info));
  return info;
}

static const char *weight_name(int index) {
  static const char *const names[COUNT(shapes)] = {"int8", "fp8", "int2", "int2a8", "bf16"};
  return names[index];
}

static void load_all(enum gemmd_placement placement) {
  static struct checkpoint checkpoint;
  const char *path = daemon_path(&daemon_under_test, "model.safetensors");
  for (int i = 0; i < COUNT(shapes); i++)
    checkpoint_add_weight(&checkpoint, weight_name(i), &weights[i]);
  checkpoint_write(&checkpoint, path);
  for (int i = 0; i < COUNT(shapes); i++) {
    const gemmd_load load = {.name = weight_name(i),
                             .tensor = weight_name(i),
                             .format = (enum gemmd_format)shapes[i].format,
                             .placement = placement,
                             .device = -1,
                             .devices = DEVICES};
    gemmd_weight_info info;
    expect_ok(session, gemmd_weight_load_file(session, path, &load, &info));
    assert_int_equal(info.devices, DEVICES);
  }
}

/* False where the machine has one device; nothing is left then. */
static bool begin(enum gemmd_placement placement) {
  daemon_make(&daemon_under_test, daemon_on_cuda() ? "devices = 0\n" : "devices = 2\n");
  daemon_start(&daemon_under_test);
  session = daemon_join(&daemon_under_test, NULL);
  if (status().devices >= DEVICES) {
    for (int i = 0; i < COUNT(shapes); i++)
      oracle_weight_make(&weights[i], &shapes[i], (uint64_t)i + 1);
    load_all(placement);
    return true;
  }
  gemmd_disconnect(session);
  daemon_end(&daemon_under_test);
  return false;
}

static void end(void) {
  for (int i = 0; i < COUNT(shapes); i++)
    expect_ok(session, gemmd_weight_unload(session, weight_name(i), NULL));
  for (int i = 0; i < DEVICES; i++)
    while (device_info_of(session, i).memory_slabs != 0)
      nap_shortly();
  gemmd_disconnect(session);
  daemon_end(&daemon_under_test);
  for (int i = 0; i < COUNT(shapes); i++)
    oracle_weight_free(&weights[i]);
}

static struct product_request request_of(int index, int place) {
  return (struct product_request){.weight = &weights[index],
                                  .m = 1 + place * 7 % 23,
                                  .x_type = GEMM_BF16,
                                  .y_type = GEMM_F32,
                                  .bias_type = place % 2 ? GEMM_F32 : GEMM_TYPE_NONE,
                                  .y_extra = place % 3 * 8,
                                  .seed = (uint64_t)place + 1};
}

/* Products of one weight, all under way at the same time. `meanwhile` runs when they have been submitted. */
static void compute(int index, void (*meanwhile)(void)) {
  struct product products[IN_FLIGHT];
  gemmd_weight *weight;
  expect_ok(session, gemmd_weight_open(session, weight_name(index), &weight));
  for (int i = 0; i < IN_FLIGHT; i++) {
    struct product_request request = request_of(index, i);
    assert_true(product_make(&products[i], session, &request));
    expect_ok(session, gemmd_submit(weight, &products[i].product, &products[i].ticket));
  }
  if (meanwhile != NULL)
    meanwhile();
  for (int i = 0; i < IN_FLIGHT; i++) {
    expect_ok(session, gemmd_wait(session, products[i].ticket, -1, NULL));
    assert_true(product_right(&products[i]));
    product_free(&products[i], session);
  }
  gemmd_weight_close(weight);
}

static void kill_first(void) {
  device_kill_worker(session);
}

static void kill_second(void) {
  device_kill_worker_of(session, 1);
}

static void serve_and_kill(enum gemmd_placement placement) {
  if (!begin(placement))
    skip();
  for (int i = 0; i < COUNT(shapes); i++)
    compute(i, NULL);
  gemmd_daemon_info served = status();
  for (int i = 0; i < DEVICES; i++)
    assert_true(served.device[i].requests > 0);
  for (int i = 0; i < ROUNDS; i++)
    compute(i % COUNT(shapes), i % 2 == 0 ? kill_first : kill_second);
  daemon_upgrade(&daemon_under_test);
  for (int i = 0; i < COUNT(shapes); i++)
    compute(i, NULL);
  served = status();
  for (int i = 0; i < DEVICES; i++)
    assert_string_equal(served.device[i].state, "ready");
  end();
}

static void copies_serve_and_outlive_their_workers(void **state) {
  serve_and_kill(GEMMD_PLACEMENT_REPLICAS);
}

static void ranges_serve_and_outlive_their_workers(void **state) {
  serve_and_kill(GEMMD_PLACEMENT_SPLIT);
}

static void a_range_takes_a_part_of_the_memory_and_a_copy_all_of_it(void **state) {
  uint64_t used[2][DEVICES];
  for (int i = 0; i < 2; i++) {
    if (!begin(i == 0 ? GEMMD_PLACEMENT_REPLICAS : GEMMD_PLACEMENT_SPLIT))
      skip();
    gemmd_daemon_info now = status();
    for (int device = 0; device < DEVICES; device++)
      used[i][device] = now.device[device].memory_used;
    end();
  }
  assert_int_equal(used[0][0], used[0][1]);
  for (int device = 0; device < DEVICES; device++) {
    assert_true(used[1][device] > 0);
    assert_true(used[1][device] < used[0][device]);
  }
  assert_true(used[1][0] + used[1][1] >= used[0][0]);
}

/* Loads the first weight once more; where it lies then. */
static gemmd_weight_info load_again(const char *name, enum gemmd_placement placement, int device) {
  gemmd_weight_info info;
  const gemmd_load load = {.name = name,
                           .tensor = weight_name(0),
                           .format = (enum gemmd_format)shapes[0].format,
                           .placement = placement,
                           .device = device};
  expect_ok(session,
            gemmd_weight_load_file(session, daemon_path(&daemon_under_test, "model.safetensors"), &load, &info));
  return info;
}

static void equal_content_lies_where_each_load_wants_it(void **state) {
  if (!begin(GEMMD_PLACEMENT_SPLIT))
    skip();
  assert_true(load_again("anywhere", GEMMD_PLACEMENT_SINGLE, -1).shared);
  for (int device = 0; device < DEVICES; device++) {
    const char *name = device == 0 ? "first" : "second";
    uint64_t before = device_info_of(session, device).memory_used;
    assert_false(load_again(name, GEMMD_PLACEMENT_SINGLE, device).shared);
    assert_true(device_info_of(session, device).memory_used > before);
    assert_true(load_again("once more", GEMMD_PLACEMENT_SINGLE, device).shared);
  }
  assert_int_equal(load_again("copies", GEMMD_PLACEMENT_REPLICAS, -1).devices, DEVICES);
  gemmd_weight_info moved = load_again("first", GEMMD_PLACEMENT_SPLIT, -1); /* no other content: it need not say so */
  assert_true(moved.shared);
  assert_int_equal(moved.devices, DEVICES);
  daemon_upgrade(&daemon_under_test); /* and each name finds its own again */
  static const char *const names[] = {"anywhere", "second", "once more", "copies", "first"};
  for (int i = 0; i < COUNT(names); i++) {
    gemmd_weight *weight;
    struct product_request request = request_of(0, i);
    expect_ok(session, gemmd_weight_open(session, names[i], &weight));
    assert_int_equal(gemmd_weight_get_info(weight)->devices, i == 1 || i == 2 ? 1 : DEVICES);
    assert_true(product_run(session, weight, &request));
    gemmd_weight_close(weight);
    expect_ok(session, gemmd_weight_unload(session, names[i], NULL));
  }
  end();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(copies_serve_and_outlive_their_workers),
      cmocka_unit_test(ranges_serve_and_outlive_their_workers),
      cmocka_unit_test(equal_content_lies_where_each_load_wants_it),
      cmocka_unit_test(a_range_takes_a_part_of_the_memory_and_a_copy_all_of_it),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
