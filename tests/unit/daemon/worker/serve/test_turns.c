/* The engine with a device that computes turns of long products beside it, as a GPU does: a turn has been started, and
 * ends when the device is asked. What is computed is the cpu backend's. */
#include "tests/support/worker/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { STARTED_MOST = 8, LONG_NS = 1000000000, TURN_NS = 1, ROWS = 300, PRODUCTS = 12, TIMES = 10, POLLS = 5 };

static struct backend_ops beside;

/* Of the engine's thread: products by turns, with their tags, and which of them have a turn on the device. */
static struct {
  struct backend_turns *turns;
  uint64_t tag;
} known[16];
static struct backend_turns *started[STARTED_MOST];
static int started_count;
static unsigned polls, most_known; /* products that had turns at once */

static uint64_t long_from_two_rows_on(const struct backend *backend, const struct backend_job *job) {
  return job->m > 1 ? LONG_NS : 1;
}

static enum status begin(struct backend *backend, const struct backend_job *job, uint32_t most,
                         struct backend_turns **out, struct error *error) {
  enum status status = rig.ops->turns_begin(backend, job, most, out, error);
  if (status != STATUS_OK)
    return status;
  size_t place = 0;
  while (known[place].turns != NULL && known[place].turns != *out)
    place++;
  known[place].turns = *out;
  known[place].tag = job->tag;
  unsigned count = 0;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    count += known[i].turns != NULL;
  most_known = count > most_known ? count : most_known;
  return STATUS_OK;
}

static enum status start(struct backend *backend, struct backend_turns *turns, uint64_t budget_ns,
                         struct error *error) {
  if (started_count == STARTED_MOST)
    return error_set(error, STATUS_BUSY, "%d turns are under way", started_count);
  started[started_count++] = turns;
  return STATUS_OK;
}

/* One turn ends at a time, when the engine has had time to start more. */
static int finish(struct backend *backend, struct backend_done *done, int most) {
  int count = rig.ops->poll(backend, done, most);
  if (count > 0 || started_count == 0 || ++polls % POLLS != 0)
    return count;
  struct backend_turns *turns = started[0];
  struct error error;
  size_t place = 0;
  started[0] = started[--started_count];
  while (known[place].turns != turns)
    place++;
  bool ended = rig.ops->turns_next(backend, turns, TURN_NS, done, &error);
  done->tag = known[place].tag;
  done->goes_on = !ended;
  if (!ended)
    done->status = STATUS_OK;
  else
    known[place].turns = NULL;
  return 1;
}

static int open_device(void **state) {
  int status = rig_open(state);
  beside = *rig.ops;
  beside.predict_ns = long_from_two_rows_on;
  beside.turns_begin = begin;
  beside.turns_next = NULL;
  beside.turns_submit = start;
  beside.poll = finish;
  return status;
}

/* More than the device takes, or than the four that a user may have under way; short ones between. */
static void all_of_a_session_end(void **state) {
  struct rig_control control;
  struct rig_client client;
  struct ring_submission products[PRODUCTS];
  most_known = 0;
  rig_start_on(&control, &beside, 0);
  rig_join(&control, &client);
  for (unsigned time = 0; time < TIMES; time++) {
    for (unsigned i = 0; i < PRODUCTS; i++) {
      products[i] = rig_product(&client, i, i % 4 == 3 ? 1 : ROWS);
      rig_fill(&client, &products[i], time + i);
      rig_submit(&client, products[i]);
    }
    for (unsigned i = 0; i < PRODUCTS; i++)
      assert_int_equal(rig_take(&client).status, STATUS_OK);
    for (unsigned i = 0; i < PRODUCTS; i++)
      rig_check(&client, &products[i]);
  }
  assert_int_equal(most_known, 4);
  rig_leave(&control, &client);
  rig_stop(&control);
}

/* The first ones are cancelled at some moment: between two turns, during one, or before they begin. */
static void some_are_cancelled(void **state) {
  struct rig_control control;
  struct rig_client client;
  struct ring_submission products[PRODUCTS];
  rig_start_on(&control, &beside, 0);
  rig_join(&control, &client);
  for (unsigned i = 0; i < PRODUCTS; i++) {
    products[i] = rig_product(&client, i, ROWS);
    rig_fill(&client, &products[i], i);
    rig_submit(&client, products[i]);
  }
  /* a cancellation has the tag of what it cancels, and no end of its own */
  client.next_tag = 0;
  for (unsigned i = 0; i < PRODUCTS && i < RIG_ENTRIES - PRODUCTS; i++)
    rig_submit(&client, (struct ring_submission){.opcode = RING_OP_CANCEL});
  for (unsigned i = 0; i < PRODUCTS; i++) {
    struct ring_completion completion = rig_take(&client);
    if (completion.status == STATUS_OK)
      rig_check(&client, &products[completion.tag - 1]);
    else
      assert_int_equal(completion.status, STATUS_CANCELLED);
  }
  rig_leave(&control, &client);
  rig_stop(&control);
}

/* A session that leaves in the midst of them takes nothing with it. */
static void a_session_leaves_with_some_under_way(void **state) {
  struct rig_control control;
  struct rig_client leaves, stays;
  rig_start_on(&control, &beside, 0);
  rig_join(&control, &stays);
  for (unsigned time = 0; time < TIMES; time++) {
    rig_join(&control, &leaves);
    for (unsigned i = 0; i < PRODUCTS; i++) {
      struct ring_submission product = rig_product(&leaves, i, ROWS);
      rig_fill(&leaves, &product, i);
      rig_submit(&leaves, product);
    }
    (void)rig_take(&leaves);
    rig_leave(&control, &leaves);
    struct ring_submission product = rig_product(&stays, 0, ROWS);
    rig_fill(&stays, &product, time);
    assert_int_equal(rig_call(&stays, product).status, STATUS_OK);
    rig_check(&stays, &product);
  }
  assert_int_equal(rig.weight.jobs, 0);
  rig_leave(&control, &stays);
  rig_stop(&control);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(all_of_a_session_end),
      cmocka_unit_test(some_are_cancelled),
      cmocka_unit_test(a_session_leaves_with_some_under_way),
  };
  return cmocka_run_group_tests(tests, open_device, rig_close);
}
