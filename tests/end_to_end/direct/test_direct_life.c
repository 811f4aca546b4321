/* Engines: what gemmd, its worker, and other engines do meanwhile, their dying included, does not show. */
#include "client/gemmclient_direct.h"
#include "tests/support/daemon/daemon.h"
#include "tests/support/daemon/engine.h"
#include "tests/support/daemon/layers.h"
#include "tests/support/daemon/status.h"
#include "tests/support/system/nap.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

enum { ROWS_MOST = 64, LANES = 2 };

enum { ENGINES = 2, ROUNDS = 40 };

struct scene {
  atomic_int rounds[ENGINES]; /* products so far */
  atomic_bool stop;
  atomic_bool back; /* gemmd is there again, without the weight */
};

/* Computes until it is told to stop; always the same x, always the same bits. */
static int compute_on(int index, void *user) {
  struct scene *scene = user;
  struct engine engine;
  gemmd_direct_weight *weight;
  struct engine_product product;
  EXPECT(engine_open(&engine, &layers.daemon, LANES, ROWS_MOST));
  EXPECT(engine_report(gemmd_direct_borrow(engine.direct, "lent", &weight)));
  EXPECT(engine_product_make(&engine, &product, weight, &layers.weights[2], 6 + index, GEMM_F16, GEMM_F16, 5));
  EXPECT(!engine.gpu || engine_product_record(&engine, &product));
  void *first = malloc(product.y_bytes), *y = malloc(product.y_bytes);
  EXPECT(first != NULL && y != NULL && engine_product_run(&engine, &product));
  EXPECT(engine_get(&engine, first, product.y, product.y_bytes));
  while (!atomic_load(&scene->stop)) {
    EXPECT(engine_product_run(&engine, &product));
    EXPECT(engine_get(&engine, y, product.y, product.y_bytes) && memcmp(first, y, product.y_bytes) == 0);
    atomic_fetch_add(&scene->rounds[index], 1);
  }
  if (atomic_load(&scene->back)) {
    for (int i = 0; i < 100 && gemmd_direct_look(weight) == GEMMD_BORROWED_SHARED; i++)
      (void)gemmd_dispatch(engine.session, 100);
    EXPECT(gemmd_direct_look(weight) == GEMMD_BORROWED_ALONE);
    EXPECT(engine_product_run(&engine, &product));
  }
  free(first);
  free(y);
  engine_product_free(&engine, &product);
  while (gemmd_direct_return(weight) == GEMMD_BUSY)
    nap_shortly();
  engine_close(&engine);
  return 0;
}

/* Until each of the first `count` engines has computed some more. */
static void await_rounds(struct scene *scene, int first, int count) {
  for (int i = first; i < first + count; i++) {
    int seen = atomic_load(&scene->rounds[i]);
    while (atomic_load(&scene->rounds[i]) < seen + ROUNDS)
      nap_shortly();
  }
}

static gemmd_session *lend(void) {
  gemmd_session *session = daemon_join(&layers.daemon, NULL);
  layers_load(session, layers_name(2), "lent", GEMMD_FORMAT_INT8);
  return session;
}

/* The name goes, others come and go where it was, the worker is killed. */
static void test_unload_and_worker(void **state) {
  struct scene *scene = clients_share(sizeof *scene);
  struct clients clients;
  gemmd_session *session = lend();
  clients_start(&clients, ENGINES, compute_on, scene);
  await_rounds(scene, 0, ENGINES);
  expect_ok(session, gemmd_weight_unload(session, "lent", NULL));
  for (int i = 0; i < 5; i++) {
    layers_load(session, "real", "passing", i % 2 ? GEMMD_FORMAT_FP8 : GEMMD_FORMAT_INT8);
    await_rounds(scene, 0, ENGINES);
    expect_ok(session, gemmd_weight_unload(session, "passing", NULL));
  }
  device_kill_worker(session);
  await_rounds(scene, 0, ENGINES);
  atomic_store(&scene->stop, true);
  clients_wait(&clients);
  gemmd_disconnect(session);
}

/* One engine is killed; the other does not notice, and a third finds the weight. */
static void test_engine_killed(void **state) {
  struct scene *scene = clients_share(sizeof *scene);
  struct clients victim, other;
  gemmd_session *session = lend();
  gemmd_borrower borrowers[4];
  unsigned count;
  clients_start(&victim, 1, compute_on, scene);
  await_rounds(scene, 0, 1);
  struct scene *second = clients_share(sizeof *second);
  clients_start(&other, 1, compute_on, second);
  await_rounds(second, 0, 1);
  expect_ok(session, gemmd_weight_borrowers(session, "lent", borrowers, 4, &count, NULL));
  assert_int_equal(count, 2);
  assert_int_equal(kill(victim.pids[0], SIGKILL), 0);
  assert_int_equal(waitpid(victim.pids[0], NULL, 0), victim.pids[0]);
  await_rounds(second, 0, 1);
  do {
    expect_ok(session, gemmd_weight_borrowers(session, "lent", borrowers, 4, &count, NULL));
  } while (count != 1);
  struct scene *third = clients_share(sizeof *third);
  struct clients late;
  clients_start(&late, 1, compute_on, third);
  await_rounds(third, 0, 1);
  atomic_store(&second->stop, true);
  atomic_store(&third->stop, true);
  clients_wait(&other);
  clients_wait(&late);
  expect_ok(session, gemmd_weight_unload(session, "lent", NULL));
  gemmd_disconnect(session);
}

/* All of gemmd is killed, and comes back empty. */
static void test_gemmd_killed(void **state) {
  struct scene *scene = clients_share(sizeof *scene);
  struct clients clients;
  gemmd_disconnect(lend());
  clients_start(&clients, ENGINES, compute_on, scene);
  await_rounds(scene, 0, ENGINES);
  daemon_kill(&layers.daemon);
  await_rounds(scene, 0, ENGINES);
  daemon_start(&layers.daemon);
  await_rounds(scene, 0, ENGINES);
  atomic_store(&scene->back, true);
  atomic_store(&scene->stop, true);
  clients_wait(&clients);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_unload_and_worker),
      cmocka_unit_test(test_engine_killed),
      cmocka_unit_test(test_gemmd_killed),
  };
  return cmocka_run_group_tests(tests, layers_start, layers_stop);
}
