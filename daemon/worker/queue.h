/* Products that wait for the device: in order of arrival within a session, sessions in turn. Pure: no device, no
 * clock, no lock; one thread. */
#ifndef WORKER_QUEUE_H
#define WORKER_QUEUE_H

#include "../../kernels/backend.h"

#include <stdint.h>

/* One product from the moment it was taken from a ring until its completion is published. */
struct queue_job {
  struct queue_job *next; /* within its lane, or among the lane's free slots */
  struct queue_lane *lane;
  void *weight; /* the queue's user's; not looked at here */
  uint64_t tag; /* the client's */
  uint64_t taken_ns, started_ns;
  struct backend_job product; /* checked, ready for the backend */
};

/* A session's jobs. Slots are allocated once, so that nothing is on the serving path. */
struct queue_lane {
  struct queue_lane *next; /* among the lanes with waiting jobs */
  void *owner;             /* the session */
  struct queue_job *slots; /* owned */
  struct queue_job *free_slots;
  struct queue_job *first, *last; /* waiting */
  uint32_t waiting;
  uint32_t taken; /* slots in use: filled, waiting or on the device */
};

struct queue {
  struct queue_lane *first, *last; /* lanes with waiting jobs, in the order of their turns */
  uint32_t waiting;
};

void queue_init(struct queue *queue);

/* Room for `slots` jobs. NOMEM. */
MUST_CHECK enum status queue_lane_open(struct queue_lane *lane, void *owner, uint32_t slots, struct error *error);
/* Only when no slot is in use. A lane of zeros is fine. */
void queue_lane_close(struct queue_lane *lane);

/* A slot to fill in; NULL where all are in use. Goes back by queue_release. */
struct queue_job *queue_reserve(struct queue_lane *lane);
/* The filled job waits for its turn. */
void queue_push(struct queue *queue, struct queue_job *job);
/* The job whose turn it is; NULL where none waits. It stays where it is. */
struct queue_job *queue_front(const struct queue *queue);
/* Takes the front job out and gives the next turn to the next session. The job's slot stays in use. */
struct queue_job *queue_pop(struct queue *queue);
/* Takes the first waiting job of one lane out, whoever's turn it is; NULL where none waits. */
struct queue_job *queue_drop(struct queue *queue, struct queue_lane *lane);
/* Gives the slot of a job back that waits no more. */
void queue_release(struct queue_job *job);

#endif
