/* Products that are held for an event of their client's: the engine with the real cpu backend, whose events are the
 * test's. One that comes, one that never does, one that fails, and others that are served meanwhile. */
#include "daemon/worker/serve/serve.h"
#include "tests/support/worker/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>

#include <cmocka.h>

enum { EVENT = 5 << 16 | 1, OTHER_EVENT = 5 << 16 | 2 };

/* An event of the device, as the test has it. */
struct backend_event {
  _Atomic int says; /* enum status */
  _Atomic unsigned asked;
};

static enum status query(struct backend *backend, struct backend_event *event) {
  atomic_fetch_add(&event->asked, 1);
  return (enum status)atomic_load(&event->says);
}

struct scene {
  struct backend_ops device;
  struct rig_control control;
  struct rig_client client;
  struct backend_event behind[2];
  struct engine_event events[2];
  struct engine_message messages[2];
};

/* A client with two events that have not come. */
static void begin(struct scene *scene, uint64_t event_timeout_us) {
  *scene = (struct scene){.device = *rig.ops};
  scene->device.event_query = query;
  rig_start_holding(&scene->control, &scene->device, event_timeout_us);
  rig_join(&scene->control, &scene->client);
  for (uint32_t i = 0; i < 2; i++) {
    atomic_store(&scene->behind[i].says, STATUS_BUSY);
    scene->events[i].device = &scene->behind[i];
    scene->messages[i] = (struct engine_message) {
      .verb = ENGINE_EVENT_ADD, .session = &scene->client.session, .event = &scene->events[i], .handle = EVENT
      +i
    };
    assert_int_equal(rig_ask(&scene->control, &scene->messages[i]), STATUS_OK);
  }
}

static void end(struct scene *scene) {
  rig_leave(&scene->control, &scene->client);
  rig_stop(&scene->control);
  assert_int_equal(rig.weight.jobs, 0);
}

static struct ring_submission held_product(struct scene *scene, unsigned slot, uint32_t event) {
  struct ring_submission product = rig_product(&scene->client, slot, 3);
  rig_fill(&scene->client, &product, slot);
  product.event = event;
  return product;
}

static void wait_until_asked(struct backend_event *event) {
  unsigned before = atomic_load(&event->asked);
  while (atomic_load(&event->asked) < before + 3)
    continue;
}

enum { LONG_US = 60000000, SHORT_US = 2000 };

static void a_product_begins_when_its_event_comes(void **state) {
  struct scene scene;
  begin(&scene, LONG_US);
  struct ring_submission waits = held_product(&scene, 0, EVENT), does_not = held_product(&scene, 1, 0);
  uint64_t tag = rig_submit(&scene.client, waits);
  for (unsigned i = 0; i < 20; i++) { /* others are served meanwhile */
    rig_fill(&scene.client, &does_not, i);
    assert_int_equal(rig_call(&scene.client, does_not).status, STATUS_OK);
    rig_check(&scene.client, &does_not);
  }
  wait_until_asked(&scene.behind[0]);
  assert_int_equal(atomic_load(&scene.behind[1].asked), 0);
  assert_false(ring_client_ready(&scene.client.ring));
  atomic_store(&scene.behind[0].says, STATUS_OK);
  struct ring_completion completion = rig_take(&scene.client);
  assert_int_equal(completion.tag, tag);
  assert_int_equal(completion.status, STATUS_OK);
  rig_check(&scene.client, &waits);
  assert_int_equal(rig_call(&scene.client, waits).status, STATUS_OK); /* it has come */
  end(&scene);
}

static void each_waits_for_its_own(void **state) {
  struct scene scene;
  struct ring_completion completion;
  begin(&scene, LONG_US);
  uint64_t first = rig_submit(&scene.client, held_product(&scene, 0, EVENT));
  uint64_t second = rig_submit(&scene.client, held_product(&scene, 1, OTHER_EVENT));
  uint64_t third = rig_submit(&scene.client, held_product(&scene, 2, OTHER_EVENT));
  wait_until_asked(&scene.behind[0]);
  atomic_store(&scene.behind[1].says, STATUS_OK);
  completion = rig_take(&scene.client);
  assert_int_equal(completion.tag, second);
  completion = rig_take(&scene.client);
  assert_int_equal(completion.tag, third);
  wait_until_asked(&scene.behind[0]);
  assert_false(ring_client_ready(&scene.client.ring));
  atomic_store(&scene.behind[0].says, STATUS_OK);
  assert_int_equal(rig_take(&scene.client).tag, first);
  end(&scene);
}

static void expect_event_error(struct rig_client *client, struct ring_submission product, enum status status) {
  struct ring_completion completion = rig_call(client, product);
  assert_int_equal(completion.status, status);
  assert_int_equal(completion.field, FIELD_EVENT);
  assert_int_equal(completion.value, product.event);
}

static void one_that_never_comes_ends_its_products_alone(void **state) {
  struct scene scene;
  begin(&scene, SHORT_US);
  expect_event_error(&scene.client, held_product(&scene, 0, EVENT), STATUS_TIMEOUT);
  rig_expect_nop(&scene.client);
  end(&scene);
  begin(&scene, LONG_US); /* the product's own deadline is sooner */
  struct ring_submission product = held_product(&scene, 0, EVENT);
  product.deadline_ns = clock_ns() + SHORT_US * 1000;
  assert_int_equal(rig_call(&scene.client, product).status,
                   STATUS_TIMEOUT); /* it may have passed before the event was asked */
  end(&scene);
}

static void what_cannot_be_asked_is_refused(void **state) {
  struct scene scene;
  begin(&scene, LONG_US);
  atomic_store(&scene.behind[0].says, STATUS_DEVICE_LOST); /* what a client's event says costs the client alone */
  expect_event_error(&scene.client, held_product(&scene, 0, EVENT), STATUS_INVALID);
  expect_event_error(&scene.client, held_product(&scene, 0, 5 << 16 | 3), STATUS_NOT_FOUND);
  expect_event_error(&scene.client, held_product(&scene, 0, 6 << 16 | 1), STATUS_NOT_FOUND);
  expect_event_error(&scene.client, held_product(&scene, 0, RIG_HANDLE), STATUS_NOT_FOUND);
  end(&scene);
}

static void a_held_product_is_cancelled(void **state) {
  struct scene scene;
  bool wake;
  begin(&scene, LONG_US);
  uint64_t tag = rig_submit(&scene.client, held_product(&scene, 0, EVENT));
  wait_until_asked(&scene.behind[0]);
  assert_true(ring_client_cancel(&scene.client.ring, tag, &wake));
  if (wake)
    rig_ring_doorbell(&scene.client);
  assert_int_equal(rig_take(&scene.client).status, STATUS_CANCELLED);
  end(&scene);
}

/* An event in use is not given back; a session that leaves takes what is held with it. */
static void leaving_with_products_held(void **state) {
  struct scene scene;
  begin(&scene, LONG_US);
  struct ring_submission product = held_product(&scene, 0, EVENT);
  rig_submit(&scene.client, product);
  wait_until_asked(&scene.behind[0]);
  scene.messages[0].verb = scene.messages[1].verb = ENGINE_EVENT_REMOVE;
  assert_int_equal(rig_ask(&scene.control, &scene.messages[0]), STATUS_BUSY);
  assert_int_equal(rig_ask(&scene.control, &scene.messages[1]), STATUS_OK);
  expect_event_error(&scene.client, held_product(&scene, 1, OTHER_EVENT), STATUS_NOT_FOUND);
  struct message_worker_stats stats;
  engine_stats(scene.control.engine, &stats);
  assert_int_equal(stats.waiting, 1);
  end(&scene);
  assert_int_equal(scene.events[0].waiting.held, 0);
}

/* The product was asked for before its event was to be given back: the engine was busy, and finds both. */
static void an_event_in_use_stays_for_a_busy_engine(void **state) {
  struct scene scene;
  begin(&scene, LONG_US);
  rig_keep_busy(&scene.device);
  struct ring_submission first = rig_product(&scene.client, 1, 3), product = held_product(&scene, 0, EVENT);
  rig_submit(&scene.client, first);
  rig_await_busy();
  rig_submit(&scene.client, product);
  scene.messages[0].verb = ENGINE_EVENT_REMOVE;
  engine_post(scene.control.engine, &scene.messages[0]);
  rig_let_go();
  assert_int_equal(rig_expect_back(&scene.control, &scene.messages[0]), STATUS_BUSY);
  assert_int_equal(rig_take(&scene.client).status, STATUS_OK);
  atomic_store(&scene.behind[0].says, STATUS_OK);
  assert_int_equal(rig_take(&scene.client).status, STATUS_OK);
  rig_check(&scene.client, &product);
  end(&scene);
}

/* A worker that is told to end answers nobody, and waits for no event. */
static void a_worker_ends_with_products_held(void **state) {
  struct scene scene;
  begin(&scene, LONG_US);
  rig_submit(&scene.client, held_product(&scene, 0, EVENT));
  wait_until_asked(&scene.behind[0]);
  rig_stop(&scene.control);
  assert_int_equal(rig.weight.jobs, 0);
  rig.weight.handles = 0;
  rig_free_client(&scene.client);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_product_begins_when_its_event_comes),
      cmocka_unit_test(each_waits_for_its_own),
      cmocka_unit_test(one_that_never_comes_ends_its_products_alone),
      cmocka_unit_test(what_cannot_be_asked_is_refused),
      cmocka_unit_test(a_held_product_is_cancelled),
      cmocka_unit_test(leaving_with_products_held),
      cmocka_unit_test(an_event_in_use_stays_for_a_busy_engine),
      cmocka_unit_test(a_worker_ends_with_products_held),
  };
  return cmocka_run_group_tests(tests, rig_open, rig_close);
}
