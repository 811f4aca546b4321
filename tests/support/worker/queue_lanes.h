/* The worker's queue with lanes of three sessions, and products in them that nobody computes. */
#pragma once

#include "daemon/worker/serve/queue.h"

enum { QUEUE_LANES_SLOTS = 4, QUEUE_LANES_ROWS = 8 /* of a batch, at most */ };

struct queue_lanes {
  struct queue queue;
  struct queue_group groups[2]; /* of two weights */
  struct queue_lane lane[3];
};

/* Three lanes, of these users; queue_lanes_open: all of one. What is pushed is for the first weight. */
void queue_lanes_open_for(struct queue_lanes *rig, const uint32_t users[3]);
void queue_lanes_open(struct queue_lanes *rig);
void queue_lanes_close(struct queue_lanes *rig);
struct queue_job *queue_lanes_push_rows(struct queue_lanes *rig, size_t lane, uint64_t tag, enum ring_priority priority,
                                        int64_t m);
struct queue_job *queue_lanes_push_until(struct queue_lanes *rig, size_t lane, uint64_t tag,
                                         enum ring_priority priority, uint64_t deadline_ns);
void queue_lanes_push(struct queue_lanes *rig, size_t lane, uint64_t tag);
/* The front job begins, alone. */
struct queue_job *queue_lanes_pop(struct queue_lanes *rig);
void queue_lanes_expect_pop(struct queue_lanes *rig, uint64_t tag);
struct queue_job *queue_lanes_drop(struct queue_lanes *rig, size_t lane);
/* Gathers behind the front job, which begins with its mates: `count` jobs of these tags, in any order. */
void queue_lanes_expect_batch(struct queue_lanes *rig, uint64_t now_ns, const uint64_t *tags, size_t count,
                              int64_t rows);
