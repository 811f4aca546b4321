/* Products that wait for the device. Three classes of priority. Within a class, users share the device's time evenly
 * (start-time fair queueing: the turn is that of the user who has been charged least, and who has had nothing to do for
 * a while has nothing saved up); a user's sessions take turns; within a session and class, products go in order of
 * arrival. Products of one weight can be gathered into one. A product that takes long has several turns, each as if it
 * were one. Apart from these, products that are held until an event of their client's has come. Pure: no device, no
 * clock, no lock; one thread. */
#pragma once

#include "../../../kernels/backend.h"
#include "../../../proto/shm/ring.h"

#include <stdint.h>
#include <sys/queue.h>

TAILQ_HEAD(queue_jobs, queue_job);
TAILQ_HEAD(queue_turns, queue_line);
TAILQ_HEAD(queue_users, queue_user);
TAILQ_HEAD(queue_shares, queue_share);
TAILQ_HEAD(queue_events, queue_event);

struct book_entry;

enum { QUEUE_TENSORS = 3 }; /* x, y and W */

/* One product from the moment it was taken from a ring until its completion is published. */
struct queue_job {
  /* While it waits, for its next turn too; of its lane and event while it is held. */
  TAILQ_ENTRY(queue_job) in_line, in_group;
  struct queue_job *mate; /* the next one of the same batch, or among the lane's free slots */
  struct queue_lane *lane;
  struct queue_group *group; /* of its weight or plan */
  struct queue_event *event; /* that it is held for; NULL: none, or that has come */
  void *weight, *plan;       /* the queue's user's, as the next one; not looked at here */
  void *tensors[QUEUE_TENSORS];
  uint64_t tag; /* the client's */
  enum ring_priority priority;
  uint64_t deadline_ns;       /* 0: none */
  uint64_t event_deadline_ns; /* how long it is held, at most */
  uint64_t taken_ns, started_ns;
  struct backend_turns *turns;    /* it is computed a turn at a time; NULL: not, or not yet */
  enum status stop;               /* why nobody wants it any more, which it ends with in its next turn; OK: wanted */
  struct book_entry *tuned;       /* the shape that was launched; of the first job of a batch. NULL: not listed */
  struct backend_job product;     /* checked, ready for the backend */
  struct backend_operand operand; /* where the product brings W itself */
  struct backend_experts experts; /* where the weight has some */
  uint32_t skipped;               /* of its pairs, once it has ended */
};

/* A session's waiting jobs of one class. */
struct queue_line {
  TAILQ_ENTRY(queue_line) in_turns; /* while it has jobs, or one under way */
  struct queue_jobs jobs;
  struct queue_jobs under_way; /* that wait for their next turns, ahead of `jobs`, as they had come */
};

/* What a user has in one class. */
struct queue_share {
  TAILQ_ENTRY(queue_share) in_class; /* while it has lines */
  struct queue_turns lines;          /* with jobs, in the order of their turns */
  uint64_t charged_ns;               /* of the device's time; see queue_charge */
  uint32_t under_way;                /* between queue_return and queue_resume */
};

struct queue_user {
  TAILQ_ENTRY(queue_user) in_users;
  uint32_t uid;
  uint32_t lanes; /* of this user */
  struct queue_share shares[RING_PRIORITIES];
};

/* A session's jobs. Slots are allocated once, so that nothing is on the serving path. */
struct queue_lane {
  void *owner;             /* the session */
  struct queue_user *user; /* between queue_join and queue_leave */
  struct queue_job *slots; /* owned */
  struct queue_job *free_slots;
  struct queue_line lines[RING_PRIORITIES];
  struct queue_jobs held;
  uint32_t taken;       /* slots in use: filled, held, waiting or on the device */
  uint32_t gathering;   /* which call of queue_gather last saw this lane */
  int64_t rows_granted; /* in that call */
};

/* The waiting jobs of one weight or plan, in order of arrival, whatever their session and class. Zeros are an empty
 * group. */
struct queue_group {
  struct queue_jobs jobs;
  uint32_t waiting;
  int64_t rows; /* of these jobs */
};

/* The jobs that are held for one event, in order of arrival. Zeros are one without any. */
struct queue_event {
  TAILQ_ENTRY(queue_event) in_turns; /* while it has jobs */
  struct queue_jobs jobs;
  uint32_t held;
};

struct queue {
  struct queue_users users; /* owned */
  struct queue_shares
      classes[RING_PRIORITIES];         /* with lines, in the order of their turns where they are charged alike */
  uint64_t charged_ns[RING_PRIORITIES]; /* what whoever had the last turn had been charged before it */
  struct queue_events events;           /* with jobs, in the order of their turns */
  uint32_t waiting, held, under_way;
  uint32_t timed;      /* of `waiting`: with a deadline */
  uint32_t starts;     /* calls of queue_begin and queue_resume so far */
  uint32_t gatherings; /* calls of queue_gather so far */
};

void queue_init(struct queue *queue);
/* Forgets whose lanes there are, joined or not; none of them is used any more. */
void queue_close(struct queue *queue);

/* Room for `slots` jobs. NOMEM. */
MUST_CHECK enum status queue_lane_open(struct queue_lane *lane, void *owner, uint32_t slots, struct error *error);
/* Only when no slot is in use. A lane of zeros is fine. */
void queue_lane_close(struct queue_lane *lane);
/* Whose the lane is, before its first job. NOMEM. */
MUST_CHECK enum status queue_join(struct queue *queue, struct queue_lane *lane, uint32_t uid, struct error *error);
/* No job of the lane is waiting, held or under way. Nothing where it has not joined. */
void queue_leave(struct queue *queue, struct queue_lane *lane);

/* A slot to fill in; NULL where all are in use. Goes back by queue_release. */
struct queue_job *queue_reserve(struct queue_lane *lane);
/* The filled job waits for its turn, among those of `group`. */
void queue_push(struct queue *queue, struct queue_job *job, struct queue_group *group);
/* The filled job is held for `event`: it waits for no turn before queue_take and queue_push. */
void queue_hold(struct queue *queue, struct queue_job *job, struct queue_event *event);
/* The event to look at, each with jobs in its turn; NULL where no job is held. */
struct queue_event *queue_next_event(struct queue *queue);
/* The job whose turn it is, one under way among them; NULL where there is none. It stays where it is. */
struct queue_job *queue_front(const struct queue *queue);
/* Links jobs that can be computed together with `front` behind it, by `mate` and by `product.next`, until they have
 * `rows_most` rows: those of its group, types and bias, whose deadline is later than now. Sessions get equal
 * shares of the rows where not all fit. They stay where they are; a later call undoes it. Returns the rows. */
int64_t queue_gather(struct queue *queue, struct queue_job *front, int64_t rows_most, uint64_t now_ns);
/* Takes a waiting or held job out; its slot stays in use. The next turn in its class is another session's. */
void queue_take(struct queue *queue, struct queue_job *job);
/* Takes `front` and its mates out: they go to the device. */
void queue_begin(struct queue *queue, struct queue_job *front);
/* A job that had begun waits for its next turn, ahead of those in its lane and class that have not, and that came
 * later: while a turn of one is on the device, others may begin. */
void queue_return(struct queue *queue, struct queue_job *job);
/* That turn begins; the next one in its class is another session's. */
void queue_resume(struct queue *queue, struct queue_job *job);
/* Jobs of this one's user and class that wait for their next turn. */
uint32_t queue_under_way_of(const struct queue_job *job);
/* The job cannot begin yet: the next turn of its user and class is another session's. */
void queue_pass(struct queue *queue, struct queue_job *job);
/* The device has worked so long for the job. */
void queue_charge(struct queue *queue, const struct queue_job *job, uint64_t ns);
/* Some job under way, of the user and class of `job` where there is one, else of the first class; NULL: there is none.
 */
struct queue_job *queue_any_under_way(const struct queue *queue, const struct queue_job *job);
/* A waiting job whose deadline has passed; NULL where there is none. Looks at all. */
struct queue_job *queue_late(const struct queue *queue, uint64_t now_ns);
/* The waiting, held or under way job of this lane with this tag; NULL where there is none. */
struct queue_job *queue_find(const struct queue_lane *lane, uint64_t tag);
/* Some waiting or held job of this lane; NULL where there is none. */
struct queue_job *queue_any(const struct queue_lane *lane);
/* Gives the slot of a job back that waits no more. */
void queue_release(struct queue_job *job);
