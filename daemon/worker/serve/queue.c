#include "queue.h"

#include <stdlib.h>
#include <string.h>

/* Jobs of a weight that queue_gather looks at: more than fill any batch, and a bound on its time. */
enum { LOOK_AT_MOST = 1024 };

void queue_init(struct queue *queue) {
  memset(queue, 0, sizeof *queue);
  TAILQ_INIT(&queue->events);
  TAILQ_INIT(&queue->users);
  for (int i = 0; i < RING_PRIORITIES; i++)
    TAILQ_INIT(&queue->classes[i]);
}

void queue_close(struct queue *queue) {
  for (struct queue_user *user; (user = TAILQ_FIRST(&queue->users)) != NULL;) {
    TAILQ_REMOVE(&queue->users, user, in_users);
    free(user);
  }
}

enum status queue_lane_open(struct queue_lane *lane, void *owner, uint32_t slots, struct error *error) {
  memset(lane, 0, sizeof *lane);
  lane->owner = owner;
  lane->slots = calloc(slots, sizeof *lane->slots);
  if (lane->slots == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for a queue of %u products", slots);
  for (int i = 0; i < RING_PRIORITIES; i++) {
    TAILQ_INIT(&lane->lines[i].jobs);
    TAILQ_INIT(&lane->lines[i].under_way);
  }
  TAILQ_INIT(&lane->held);
  for (uint32_t i = slots; i-- > 0;) {
    lane->slots[i].lane = lane;
    lane->slots[i].mate = lane->free_slots;
    lane->free_slots = &lane->slots[i];
  }
  return STATUS_OK;
}

void queue_lane_close(struct queue_lane *lane) {
  free(lane->slots);
  memset(lane, 0, sizeof *lane);
}

/* ---- users */

static struct queue_user *find_user(const struct queue *queue, uint32_t uid) {
  struct queue_user *user = TAILQ_FIRST(&queue->users);
  while (user != NULL && user->uid != uid)
    user = TAILQ_NEXT(user, in_users);
  return user;
}

enum status queue_join(struct queue *queue, struct queue_lane *lane, uint32_t uid, struct error *error) {
  struct queue_user *user = find_user(queue, uid);
  if (user == NULL) {
    user = calloc(1, sizeof *user);
    if (user == NULL)
      return error_set(error, STATUS_NOMEM, "no memory for the queue of one more user");
    user->uid = uid;
    for (int i = 0; i < RING_PRIORITIES; i++)
      TAILQ_INIT(&user->shares[i].lines);
    TAILQ_INSERT_TAIL(&queue->users, user, in_users);
  }
  user->lanes++;
  lane->user = user;
  return STATUS_OK;
}

void queue_leave(struct queue *queue, struct queue_lane *lane) {
  struct queue_user *user = lane->user;
  lane->user = NULL;
  if (user == NULL || --user->lanes > 0)
    return;
  TAILQ_REMOVE(&queue->users, user, in_users);
  free(user);
}

/* ---- lines */

static struct queue_share *share_of(const struct queue_lane *lane, enum ring_priority priority) {
  return &lane->user->shares[priority];
}

/* The line has something from here on. Who has had nothing begins where the others are. */
static void add_line(struct queue *queue, struct queue_lane *lane, enum ring_priority priority) {
  struct queue_share *share = share_of(lane, priority);
  if (TAILQ_EMPTY(&share->lines)) {
    if (share->charged_ns < queue->charged_ns[priority])
      share->charged_ns = queue->charged_ns[priority];
    TAILQ_INSERT_TAIL(&queue->classes[priority], share, in_class);
  }
  TAILQ_INSERT_TAIL(&share->lines, &lane->lines[priority], in_turns);
}

static void remove_line(struct queue *queue, struct queue_lane *lane, enum ring_priority priority) {
  struct queue_share *share = share_of(lane, priority);
  TAILQ_REMOVE(&share->lines, &lane->lines[priority], in_turns);
  if (TAILQ_EMPTY(&share->lines))
    TAILQ_REMOVE(&queue->classes[priority], share, in_class);
}

static bool line_empty(const struct queue_line *line) {
  return TAILQ_EMPTY(&line->jobs) && TAILQ_EMPTY(&line->under_way);
}

/* The next turn is another session's, and among users who are charged alike another user's. */
static void pass_turn(struct queue *queue, struct queue_lane *lane, enum ring_priority priority) {
  struct queue_share *share = share_of(lane, priority);
  remove_line(queue, lane, priority);
  if (!line_empty(&lane->lines[priority]))
    add_line(queue, lane, priority);
  if (!TAILQ_EMPTY(&share->lines)) {
    TAILQ_REMOVE(&queue->classes[priority], share, in_class);
    TAILQ_INSERT_TAIL(&queue->classes[priority], share, in_class);
  }
}

/* ---- jobs */

struct queue_job *queue_reserve(struct queue_lane *lane) {
  struct queue_job *job = lane->free_slots;
  if (job == NULL)
    return NULL;
  lane->free_slots = job->mate;
  lane->taken++;
  job->mate = NULL;
  job->turns = NULL;
  job->stop = STATUS_OK;
  return job;
}

void queue_release(struct queue_job *job) {
  struct queue_lane *lane = job->lane;
  job->weight = job->plan = NULL;
  memset(job->tensors, 0, sizeof job->tensors);
  job->mate = lane->free_slots;
  lane->free_slots = job;
  lane->taken--;
}

void queue_push(struct queue *queue, struct queue_job *job, struct queue_group *group) {
  struct queue_line *line = &job->lane->lines[job->priority];
  if (line_empty(line))
    add_line(queue, job->lane, job->priority);
  TAILQ_INSERT_TAIL(&line->jobs, job, in_line);
  if (group->waiting++ == 0)
    TAILQ_INIT(&group->jobs);
  TAILQ_INSERT_TAIL(&group->jobs, job, in_group);
  group->rows += job->product.m;
  job->group = group;
  queue->waiting++;
  queue->timed += job->deadline_ns != 0;
}

void queue_hold(struct queue *queue, struct queue_job *job, struct queue_event *event) {
  if (event->held++ == 0) {
    TAILQ_INIT(&event->jobs);
    TAILQ_INSERT_TAIL(&queue->events, event, in_turns);
  }
  TAILQ_INSERT_TAIL(&event->jobs, job, in_group);
  TAILQ_INSERT_TAIL(&job->lane->held, job, in_line);
  job->event = event;
  queue->held++;
}

struct queue_event *queue_next_event(struct queue *queue) {
  struct queue_event *event = TAILQ_FIRST(&queue->events);
  if (event == NULL)
    return NULL;
  TAILQ_REMOVE(&queue->events, event, in_turns);
  TAILQ_INSERT_TAIL(&queue->events, event, in_turns);
  return event;
}

static void take_held(struct queue *queue, struct queue_job *job) {
  struct queue_event *event = job->event;
  TAILQ_REMOVE(&event->jobs, job, in_group);
  TAILQ_REMOVE(&job->lane->held, job, in_line);
  if (--event->held == 0)
    TAILQ_REMOVE(&queue->events, event, in_turns);
  job->event = NULL;
  queue->held--;
}

static struct queue_job *first_of(const struct queue_share *share) {
  const struct queue_line *line = TAILQ_FIRST(&share->lines);
  return TAILQ_FIRST(TAILQ_EMPTY(&line->under_way) ? &line->jobs : &line->under_way);
}

static const enum ring_priority first_to_last[RING_PRIORITIES] = {RING_PRIORITY_URGENT, RING_PRIORITY_NORMAL,
                                                                  RING_PRIORITY_BACKGROUND};

struct queue_job *queue_front(const struct queue *queue) {
  bool below = queue->starts % RING_TURN_BELOW == RING_TURN_BELOW - 1;
  for (int i = 0; i < RING_PRIORITIES; i++) {
    enum ring_priority priority = first_to_last[below ? RING_PRIORITIES - 1 - i : i];
    const struct queue_share *best = TAILQ_FIRST(&queue->classes[priority]), *share;
    for (share = best; share != NULL; share = TAILQ_NEXT(share, in_class))
      if (share->charged_ns < best->charged_ns)
        best = share;
    if (best != NULL)
      return first_of(best);
  }
  return NULL;
}

void queue_take(struct queue *queue, struct queue_job *job) {
  if (job->event != NULL) {
    take_held(queue, job);
    return;
  }
  struct queue_line *line = &job->lane->lines[job->priority];
  struct queue_group *group = job->group;
  TAILQ_REMOVE(&line->jobs, job, in_line);
  pass_turn(queue, job->lane, job->priority);
  TAILQ_REMOVE(&group->jobs, job, in_group);
  group->waiting--;
  group->rows -= job->product.m;
  queue->waiting--;
  queue->timed -= job->deadline_ns != 0;
}

static void note_turn(struct queue *queue, const struct queue_job *job) {
  uint64_t charged_ns = share_of(job->lane, job->priority)->charged_ns;
  if (charged_ns > queue->charged_ns[job->priority])
    queue->charged_ns[job->priority] = charged_ns;
  queue->starts++;
}

void queue_begin(struct queue *queue, struct queue_job *front) {
  note_turn(queue, front);
  for (struct queue_job *job = front; job != NULL; job = job->mate)
    queue_take(queue, job);
}

void queue_return(struct queue *queue, struct queue_job *job) {
  struct queue_line *line = &job->lane->lines[job->priority];
  if (line_empty(line))
    add_line(queue, job->lane, job->priority);
  struct queue_job *later = TAILQ_FIRST(&line->under_way);
  while (later != NULL && later->taken_ns <= job->taken_ns)
    later = TAILQ_NEXT(later, in_line);
  if (later != NULL)
    TAILQ_INSERT_BEFORE(later, job, in_line);
  else
    TAILQ_INSERT_TAIL(&line->under_way, job, in_line);
  share_of(job->lane, job->priority)->under_way++;
  queue->under_way++;
}

void queue_resume(struct queue *queue, struct queue_job *job) {
  note_turn(queue, job);
  TAILQ_REMOVE(&job->lane->lines[job->priority].under_way, job, in_line);
  share_of(job->lane, job->priority)->under_way--;
  pass_turn(queue, job->lane, job->priority);
  queue->under_way--;
}

uint32_t queue_under_way_of(const struct queue_job *job) {
  return share_of(job->lane, job->priority)->under_way;
}

void queue_pass(struct queue *queue, struct queue_job *job) {
  pass_turn(queue, job->lane, job->priority);
}

void queue_charge(struct queue *queue, const struct queue_job *job, uint64_t ns) {
  share_of(job->lane, job->priority)->charged_ns += ns;
}

/* ---- looking for one */

static struct queue_job *under_way_in(const struct queue_share *share) {
  const struct queue_line *line;
  for (line = TAILQ_FIRST(&share->lines); line != NULL; line = TAILQ_NEXT(line, in_turns))
    if (!TAILQ_EMPTY(&line->under_way))
      return TAILQ_FIRST(&line->under_way);
  return NULL;
}

struct queue_job *queue_any_under_way(const struct queue *queue, const struct queue_job *job) {
  const struct queue_share *share = share_of(job->lane, job->priority);
  struct queue_job *found = under_way_in(share);
  for (int i = 0; found == NULL && queue->under_way > 0 && i < RING_PRIORITIES; i++)
    for (share = TAILQ_FIRST(&queue->classes[first_to_last[i]]); share != NULL; share = TAILQ_NEXT(share, in_class))
      if ((found = under_way_in(share)) != NULL)
        break;
  return found;
}

static struct queue_job *late_in(const struct queue_share *share, uint64_t now_ns) {
  const struct queue_line *line;
  struct queue_job *job;
  for (line = TAILQ_FIRST(&share->lines); line != NULL; line = TAILQ_NEXT(line, in_turns))
    for (job = TAILQ_FIRST(&line->jobs); job != NULL; job = TAILQ_NEXT(job, in_line))
      if (job->deadline_ns != 0 && job->deadline_ns <= now_ns)
        return job;
  return NULL;
}

struct queue_job *queue_late(const struct queue *queue, uint64_t now_ns) {
  const struct queue_share *share;
  for (int i = 0; i < RING_PRIORITIES; i++)
    for (share = TAILQ_FIRST(&queue->classes[i]); share != NULL; share = TAILQ_NEXT(share, in_class)) {
      struct queue_job *job = late_in(share, now_ns);
      if (job != NULL)
        return job;
    }
  return NULL;
}

static struct queue_job *find_in(const struct queue_jobs *jobs, uint64_t tag) {
  struct queue_job *job = TAILQ_FIRST(jobs);
  while (job != NULL && job->tag != tag)
    job = TAILQ_NEXT(job, in_line);
  return job;
}

struct queue_job *queue_find(const struct queue_lane *lane, uint64_t tag) {
  struct queue_job *job = find_in(&lane->held, tag);
  for (int i = 0; job == NULL && i < RING_PRIORITIES; i++) {
    job = find_in(&lane->lines[i].under_way, tag);
    if (job == NULL)
      job = find_in(&lane->lines[i].jobs, tag);
  }
  return job;
}

struct queue_job *queue_any(const struct queue_lane *lane) {
  for (int i = 0; i < RING_PRIORITIES; i++)
    if (!TAILQ_EMPTY(&lane->lines[i].jobs))
      return TAILQ_FIRST(&lane->lines[i].jobs);
  return TAILQ_FIRST(&lane->held);
}

/* ---- gathering */

struct gathering {
  struct queue_job *front, *last;
  int64_t rows, rows_most;
  int64_t share; /* of one lane */
  uint32_t number;
  uint64_t now_ns;
};

/* The rows that this lane has in the batch so far. */
static int64_t *granted(const struct gathering *gathering, struct queue_lane *lane) {
  if (lane->gathering != gathering->number) {
    lane->gathering = gathering->number;
    lane->rows_granted = 0;
  }
  return &lane->rows_granted;
}

static bool fits_together(const struct gathering *gathering, const struct queue_job *job) {
  const struct backend_job *first = &gathering->front->product, *other = &job->product;
  return other->x_type == first->x_type && other->y_type == first->y_type && other->bias == first->bias &&
         other->bias_type == first->bias_type && (job->deadline_ns == 0 || job->deadline_ns > gathering->now_ns);
}

static void add_mate(struct gathering *gathering, struct queue_job *job) {
  gathering->rows += job->product.m;
  *granted(gathering, job->lane) += job->product.m;
  job->mate = NULL;
  job->product.next = NULL;
  gathering->last->mate = job;
  gathering->last->product.next = &job->product;
  gathering->last = job;
}

static bool gathered(const struct gathering *gathering, const struct queue_job *job) {
  return job->mate != NULL || job == gathering->last;
}

/* One pass over the group: takes what fits, of each lane no more than its share where there is one. */
static void gather_pass(struct gathering *gathering, struct queue_group *group) {
  struct queue_job *job;
  unsigned looks = 0;
  for (job = TAILQ_FIRST(&group->jobs); job != NULL; job = TAILQ_NEXT(job, in_group)) {
    if (gathering->rows == gathering->rows_most || looks++ == LOOK_AT_MOST)
      return;
    bool room = gathering->rows + job->product.m <= gathering->rows_most;
    if (room && !gathered(gathering, job) && fits_together(gathering, job) &&
        *granted(gathering, job->lane) + job->product.m <= gathering->share)
      add_mate(gathering, job);
  }
}

/* Makes all jobs of the group single, and returns how many lanes they are of. */
static int64_t undo(const struct gathering *gathering, struct queue_group *group) {
  struct queue_job *job;
  unsigned looks = 0;
  int64_t lanes = 0;
  for (job = TAILQ_FIRST(&group->jobs); job != NULL; job = TAILQ_NEXT(job, in_group)) {
    if (looks++ == LOOK_AT_MOST)
      break;
    job->mate = NULL;
    job->product.next = NULL;
    lanes += job->lane->gathering != gathering->number;
    (void)granted(gathering, job->lane);
  }
  return lanes;
}

int64_t queue_gather(struct queue *queue, struct queue_job *front, int64_t rows_most, uint64_t now_ns) {
  struct queue_group *group = front->group;
  struct gathering gathering = {.front = front,
                                .last = front,
                                .rows = front->product.m,
                                .rows_most = rows_most,
                                .number = ++queue->gatherings,
                                .now_ns = now_ns};
  int64_t lanes = undo(&gathering, group);
  front->mate = NULL;
  front->product.next = NULL;
  if (group->waiting == 1)
    return gathering.rows;
  *granted(&gathering, front->lane) = front->product.m;
  gathering.share = rows_most;
  if (group->rows > rows_most && lanes > 0) {
    gathering.share = (rows_most + lanes - 1) / lanes;
    gather_pass(&gathering, group);
    gathering.share = rows_most;
  }
  gather_pass(&gathering, group);
  return gathering.rows;
}
