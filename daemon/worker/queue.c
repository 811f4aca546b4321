#include "queue.h"

#include <stdlib.h>
#include <string.h>

void queue_init(struct queue *queue) {
  memset(queue, 0, sizeof *queue);
}

enum status queue_lane_open(struct queue_lane *lane, void *owner, uint32_t slots, struct error *error) {
  memset(lane, 0, sizeof *lane);
  lane->owner = owner;
  lane->slots = calloc(slots, sizeof *lane->slots);
  if (lane->slots == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for a queue of %u products", slots);
  for (uint32_t i = slots; i-- > 0;) {
    lane->slots[i].lane = lane;
    lane->slots[i].next = lane->free_slots;
    lane->free_slots = &lane->slots[i];
  }
  return STATUS_OK;
}

void queue_lane_close(struct queue_lane *lane) {
  free(lane->slots);
  memset(lane, 0, sizeof *lane);
}

struct queue_job *queue_reserve(struct queue_lane *lane) {
  struct queue_job *job = lane->free_slots;
  if (job == NULL)
    return NULL;
  lane->free_slots = job->next;
  lane->taken++;
  job->next = NULL;
  return job;
}

void queue_release(struct queue_job *job) {
  struct queue_lane *lane = job->lane;
  job->weight = NULL;
  job->next = lane->free_slots;
  lane->free_slots = job;
  lane->taken--;
}

static void append_lane(struct queue *queue, struct queue_lane *lane) {
  lane->next = NULL;
  if (queue->last != NULL)
    queue->last->next = lane;
  else
    queue->first = lane;
  queue->last = lane;
}

static void remove_lane(struct queue *queue, struct queue_lane *lane) {
  struct queue_lane *before = NULL;
  for (struct queue_lane *each = queue->first; each != lane; each = each->next)
    before = each;
  if (before != NULL)
    before->next = lane->next;
  else
    queue->first = lane->next;
  if (queue->last == lane)
    queue->last = before;
  lane->next = NULL;
}

void queue_push(struct queue *queue, struct queue_job *job) {
  struct queue_lane *lane = job->lane;
  job->next = NULL;
  if (lane->last != NULL)
    lane->last->next = job;
  else
    lane->first = job;
  lane->last = job;
  if (lane->waiting++ == 0)
    append_lane(queue, lane);
  queue->waiting++;
}

struct queue_job *queue_front(const struct queue *queue) {
  return queue->first != NULL ? queue->first->first : NULL;
}

static struct queue_job *take_first(struct queue *queue, struct queue_lane *lane) {
  struct queue_job *job = lane->first;
  lane->first = job->next;
  if (lane->first == NULL)
    lane->last = NULL;
  job->next = NULL;
  lane->waiting--;
  queue->waiting--;
  return job;
}

struct queue_job *queue_pop(struct queue *queue) {
  struct queue_lane *lane = queue->first;
  if (lane == NULL)
    return NULL;
  struct queue_job *job = take_first(queue, lane);
  remove_lane(queue, lane);
  if (lane->waiting > 0)
    append_lane(queue, lane);
  return job;
}

struct queue_job *queue_drop(struct queue *queue, struct queue_lane *lane) {
  if (lane->waiting == 0)
    return NULL;
  struct queue_job *job = take_first(queue, lane);
  if (lane->waiting == 0)
    remove_lane(queue, lane);
  return job;
}
