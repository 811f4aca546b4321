/* The rings between two threads: nothing is lost, torn or slept through. */
#include "proto/shm/ring.h"
#include "tests/support/worker/pair.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* ---- two threads, which spin a little and then sleep for real: a lost wakeup would hang, a torn entry would show */

enum { ROUNDS = 200000, SPINS = 20 };

struct stage {
  struct pair pair;
  sem_t doorbell, wakeup;
  bool refused;
};

/* A submission whose words all follow from its number. */
static struct ring_submission numbered(uint64_t number) {
  return (struct ring_submission){.tag = number,
                                  .opcode = RING_OP_PRODUCT,
                                  .m = (uint32_t)(number * 7),
                                  .x_offset = number * 11,
                                  .x_scale_offset = ~number};
}

static void *serve(void *argument) {
  struct stage *stage = argument;
  struct ring_worker *worker = &stage->pair.worker;
  int idle = 0;
  for (uint64_t next = 0; next < ROUNDS;) {
    struct ring_submission submission;
    struct error error;
    bool taken, wake;
    if (ring_worker_take(worker, &submission, &taken, &error) != STATUS_OK) {
      stage->refused = true;
      return NULL;
    }
    if (!taken) {
      if (++idle < SPINS)
        continue;
      idle = 0;
      if (ring_worker_sleep(worker)) {
        sem_wait(&stage->doorbell);
        ring_worker_awake(worker);
      }
      continue;
    }
    struct ring_submission expected = numbered(next);
    struct ring_completion completion = {.tag = submission.tag, .value = (int64_t)(submission.tag * 3)};
    completion.status = memcmp(&submission, &expected, sizeof expected) == 0 ? STATUS_OK : STATUS_INTERNAL;
    ring_worker_complete(worker, &completion, &wake);
    if (wake)
      sem_post(&stage->wakeup);
    next++;
  }
  return NULL;
}

static void hammer(uint32_t entries) {
  struct stage stage = {.pair = pair_make(entries)};
  pthread_t thread;
  assert_int_equal(sem_init(&stage.doorbell, 0, 0) | sem_init(&stage.wakeup, 0, 0), 0);
  assert_int_equal(pthread_create(&thread, NULL, serve, &stage), 0);
  struct ring_client *client = &stage.pair.client;
  uint64_t submitted = 0, taken = 0, wrong = 0;
  for (int idle = 0; taken < ROUNDS && !stage.refused;) {
    bool wake = false, moved = false;
    struct ring_submission submission = numbered(submitted);
    struct ring_completion completion;
    if (submitted < ROUNDS && ring_client_submit(client, &submission, &wake)) {
      submitted++;
      moved = true;
      if (wake)
        sem_post(&stage.doorbell);
    }
    if (ring_client_take(client, &completion)) {
      wrong += completion.tag != taken || completion.status != STATUS_OK || completion.value != (int64_t)(taken * 3);
      taken++;
      moved = true;
    }
    if (moved || ++idle < SPINS)
      continue;
    idle = 0;
    if (ring_client_sleep(client)) {
      sem_wait(&stage.wakeup);
      ring_client_awake(client);
    }
  }
  pthread_join(thread, NULL);
  assert_false(stage.refused);
  assert_int_equal(wrong, 0);
  assert_int_equal(submitted, ROUNDS);
  assert_int_equal(taken, ROUNDS);
  sem_destroy(&stage.doorbell);
  sem_destroy(&stage.wakeup);
  pair_free(&stage.pair);
}

static void two_threads_one_entry(void **state) {
  hammer(1);
}

static void two_threads_many_entries(void **state) {
  hammer(64);
}

/* ---- the moment in which one side falls asleep and the other publishes: each round, both at once */

/* Each takes two changes of threads where other programs keep the cores busy; a race detector needs few. */
#ifdef __SANITIZE_THREAD__
enum { MEETINGS = 5000 };
#else
enum { MEETINGS = 100000 };
#endif

struct meeting {
  struct pair pair;
  _Atomic int started, finished; /* rounds, by the thread that begins them and the one that follows */
  bool client_sleeps, wake, slept;
};

/* Spins, because the two must meet within nanoseconds; gives way where there is one core only. */
static void await(_Atomic int *word, int value) {
  for (int spins = 0; atomic_load(word) < value; spins++)
    if (spins > 10000)
      sched_yield();
}

static void publish(struct meeting *meeting) {
  struct ring_submission submission = {.tag = 1};
  struct ring_completion completion = {.tag = 1};
  if (meeting->client_sleeps)
    ring_worker_complete(&meeting->pair.worker, &completion, &meeting->wake);
  else
    (void)ring_client_submit(&meeting->pair.client, &submission, &meeting->wake);
}

static void *publish_each_round(void *argument) {
  struct meeting *meeting = argument;
  for (int round = 1; round <= MEETINGS; round++) {
    await(&meeting->started, round);
    publish(meeting);
    atomic_store(&meeting->finished, round);
  }
  return NULL;
}

/* Never may the sleeper sleep while the publisher sees nobody to wake. */
static void meet(bool client_sleeps) {
  struct meeting meeting = {.pair = pair_make(4), .client_sleeps = client_sleeps};
  struct pair *pair = &meeting.pair;
  pthread_t thread;
  int lost = 0;
  assert_int_equal(pthread_create(&thread, NULL, publish_each_round, &meeting), 0);
  for (int round = 1; round <= MEETINGS; round++) {
    if (client_sleeps) {
      assert_true(pair_submit(pair, 1));
      assert_int_equal(pair_take(pair), 1);
    }
    atomic_store(&meeting.started, round);
    for (volatile int delay = round % 256; delay > 0; delay--)
      ; /* as long as the other needs to hear of the round, somewhere in this range */
    meeting.slept = client_sleeps ? ring_client_sleep(&pair->client) : ring_worker_sleep(&pair->worker);
    await(&meeting.finished, round);
    lost += meeting.slept && !meeting.wake;
    ring_client_awake(&pair->client);
    ring_worker_awake(&pair->worker);
    if (!client_sleeps) {
      assert_int_equal(pair_take(pair), 1);
      pair_complete(pair, 1);
    }
    assert_int_equal(pair_reap(pair), 1);
  }
  pthread_join(thread, NULL);
  assert_int_equal(lost, 0);
  pair_free(pair);
}

static void a_worker_falls_asleep_meanwhile(void **state) {
  meet(false);
}

static void a_client_falls_asleep_meanwhile(void **state) {
  meet(true);
}

/* A client that scribbles over all shared words while the worker serves: the worker may refuse, but reads nothing
 * outside the arena (for the sanitizer) and goes on counting right. */
static void *scribble(void *argument) {
  struct stage *stage = argument;
  struct ring_queue *queue = stage->pair.client.queue;
  uint32_t random = 1;
  for (int i = 0; i < ROUNDS; i++) {
    random = random * 1664525u + 1013904223u;
    uint32_t value = i % 3 ? random >> 30 : random;
    atomic_store(&queue->submission_tail, value);
    atomic_store(&queue->completion_head, i % 2 ? value : random);
    atomic_store(&queue->client_generation, 1 + (random >> 28) / 12);
    atomic_store(&queue->submission_head, random);
    atomic_store(&queue->completion_tail, random);
  }
  return NULL;
}

static void a_scribbling_client(void **state) {
  struct stage stage = {.pair = pair_make(4)};
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, scribble, &stage), 0);
  for (int i = 0; i < ROUNDS; i++) {
    int64_t tag = pair_take(&stage.pair);
    if (tag >= 0)
      pair_complete(&stage.pair, (uint64_t)tag);
    assert_true(stage.pair.worker.in_flight == 0);
    assert_int_equal(stage.pair.worker.submission_head, stage.pair.worker.completion_tail);
  }
  pthread_join(thread, NULL);
  pair_free(&stage.pair);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(two_threads_one_entry),
      cmocka_unit_test(two_threads_many_entries),
      cmocka_unit_test(a_worker_falls_asleep_meanwhile),
      cmocka_unit_test(a_client_falls_asleep_meanwhile),
      cmocka_unit_test(a_scribbling_client),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
