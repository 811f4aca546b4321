#include "queue_lanes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

void queue_lanes_open_for(struct queue_lanes *rig, const uint32_t users[3]) {
  struct error error;
  *rig = (struct queue_lanes){.groups = {{.waiting = 0}}};
  queue_init(&rig->queue);
  for (size_t i = 0; i < 3; i++) {
    assert_int_equal(queue_lane_open(&rig->lane[i], rig, QUEUE_LANES_SLOTS, &error), STATUS_OK);
    assert_int_equal(queue_join(&rig->queue, &rig->lane[i], users[i], &error), STATUS_OK);
  }
}

void queue_lanes_open(struct queue_lanes *rig) {
  queue_lanes_open_for(rig, (const uint32_t[]){7, 7, 7});
}

void queue_lanes_close(struct queue_lanes *rig) {
  for (size_t i = 0; i < 3; i++) {
    queue_leave(&rig->queue, &rig->lane[i]);
    queue_lane_close(&rig->lane[i]);
  }
  assert_true(TAILQ_EMPTY(&rig->queue.users));
}

struct queue_job *queue_lanes_push_rows(struct queue_lanes *rig, size_t lane, uint64_t tag, enum ring_priority priority,
                                        int64_t m) {
  struct queue_job *job = queue_reserve(&rig->lane[lane]);
  assert_non_null(job);
  job->tag = tag;
  job->priority = priority;
  job->deadline_ns = 0;
  job->product = (struct backend_job){.m = m, .x_type = GEMM_F16, .y_type = GEMM_F32};
  queue_push(&rig->queue, job, &rig->groups[0]);
  return job;
}

struct queue_job *queue_lanes_push_until(struct queue_lanes *rig, size_t lane, uint64_t tag,
                                         enum ring_priority priority, uint64_t deadline_ns) {
  struct queue_job *job = queue_lanes_push_rows(rig, lane, tag, priority, 1);
  queue_take(&rig->queue, job);
  job->deadline_ns = deadline_ns;
  queue_push(&rig->queue, job, &rig->groups[0]);
  return job;
}

void queue_lanes_push(struct queue_lanes *rig, size_t lane, uint64_t tag) {
  queue_lanes_push_rows(rig, lane, tag, RING_PRIORITY_NORMAL, 1);
}

struct queue_job *queue_lanes_pop(struct queue_lanes *rig) {
  struct queue_job *front = queue_front(&rig->queue);
  if (front != NULL) {
    assert_int_equal(queue_gather(&rig->queue, front, 1, 0), front->product.m);
    assert_null(front->mate);
    queue_begin(&rig->queue, front);
  }
  return front;
}

void queue_lanes_expect_pop(struct queue_lanes *rig, uint64_t tag) {
  struct queue_job *job = queue_lanes_pop(rig);
  assert_non_null(job);
  assert_int_equal(job->tag, tag);
  queue_release(job);
}

struct queue_job *queue_lanes_drop(struct queue_lanes *rig, size_t lane) {
  struct queue_job *job = queue_any(&rig->lane[lane]);
  if (job != NULL)
    queue_take(&rig->queue, job);
  return job;
}

void queue_lanes_expect_batch(struct queue_lanes *rig, uint64_t now_ns, const uint64_t *tags, size_t count,
                              int64_t rows) {
  struct queue_job *front = queue_front(&rig->queue);
  assert_non_null(front);
  assert_int_equal(queue_gather(&rig->queue, front, QUEUE_LANES_ROWS, now_ns), rows);
  queue_begin(&rig->queue, front);
  const struct backend_job *product = &front->product;
  size_t found = 0;
  for (struct queue_job *job = front, *next; job != NULL; job = next, product = product->next) {
    assert_ptr_equal(product, &job->product);
    bool expected = false;
    for (size_t i = 0; i < count; i++)
      expected |= tags[i] == job->tag;
    assert_true(expected);
    found++;
    next = job->mate;
    queue_release(job);
  }
  assert_null(product);
  assert_int_equal(found, count);
}
