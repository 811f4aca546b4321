#include "serve_device.h"

#include "../tune/tuner.h"

#include <string.h>

enum {
  POLL_AT_ONCE = 16,
  LONG_NS = 2000000,         /* what is predicted to take longer has turns */
  TURN_NS = 3000000,         /* of such, where the device computes for this thread, */
  DEVICE_TURN_NS = 2000000,  /* and where it computes beside it: two of them, and what was started before */
  GATHERED_BYTES = 16 << 20, /* of x and y of a product that several requests are gathered into */
  GATHERED_ELEMENT_BYTES = 4 /* at most */
};

/* How many products may be under way so that one of this class begins: the classes above find room. A user has fewer in
 * each, and so has a bound on the memory that these take. */
enum { OWN_UNDER_WAY_MOST = 4 };
static const uint32_t under_way_most[RING_PRIORITIES] = {
    [RING_PRIORITY_URGENT] = 16, [RING_PRIORITY_NORMAL] = 12, [RING_PRIORITY_BACKGROUND] = 8};

/* Who asked for more rows of it has had more of the device. */
static void charge_batch(struct serve *serve, const struct queue_job *front, uint64_t ns) {
  uint64_t rows = 0;
  for (const struct queue_job *job = front; job != NULL; job = job->mate)
    rows += (uint64_t)job->product.m;
  for (const struct queue_job *job = front; job != NULL; job = job->mate)
    queue_charge(&serve->queue, job, (uint64_t)((double)ns * (double)job->product.m / (double)rows));
}

/* All products of a batch have ended alike. */
static void complete_batch(struct serve *serve, struct queue_job *front, const struct error *error,
                           uint64_t device_ns) {
  uint64_t started_ns = front->started_ns, rows = 0;
  for (const struct queue_job *job = front; job != NULL; job = job->mate)
    rows += (uint64_t)job->product.m;
  counters_product(&serve->counters, rows, device_ns);
  tuner_finished(serve->tuner, front->tuned, device_ns);
  for (struct queue_job *job = front, *next; job != NULL; job = next) {
    next = job->mate;
    job->started_ns = started_ns;
    serve_complete(serve, job, error, device_ns);
  }
}

/* Nothing is gathered with it: it brings a W of its own, or its rows go to experts of their own. */
static bool goes_alone(const struct queue_job *front) {
  return front->product.operand != NULL || front->product.experts != NULL;
}

/* Rows that come within the window may still go with it. And while the device works on the same weight, nothing is
 * gained by starting the next product at once: it would only be small, and have to wait there. What is started evenly
 * over the time of a product keeps the device busy with the fewest and largest ones. */
static bool worth_waiting(struct serve *serve, const struct queue_job *front, int64_t rows, uint64_t now_ns) {
  const struct engine_traffic *traffic = serve_traffic_of(serve, front);
  if (rows >= serve->batch_rows || goes_alone(front))
    return false;
  if (now_ns - front->taken_ns < serve->batch_window_ns)
    return true;
  return traffic->on_device > 0 && now_ns - traffic->started_ns < traffic->typical_ns / serve->in_flight_max;
}

uint64_t serve_expected_ns(struct serve *serve) {
  const struct queue_job *oldest = serve->in_flight > 0 ? serve->on_device[0] : NULL;
  if (oldest == NULL || oldest->turns != NULL)
    return 0;
  const struct engine_traffic *traffic = serve_traffic_of(serve, oldest);
  return traffic->typical_ns > 0 ? oldest->started_ns + traffic->typical_ns : 0;
}

static void note_begin(struct engine_traffic *traffic, uint64_t now_ns) {
  traffic->on_device++;
  traffic->started_ns = now_ns;
}

static void note_end(struct engine_traffic *traffic, uint64_t took_ns) {
  enum { SHARE = 8 };
  traffic->on_device--;
  traffic->typical_ns = traffic->typical_ns - traffic->typical_ns / SHARE + took_ns / SHARE;
}

/* The kernel of each product, as for one alone. Which of them took how long nobody knows afterwards. */
static void choose_step_kernels(struct serve *serve, uint32_t user, struct engine_plan *plan, enum gemm_type x_type,
                                int64_t rows) {
  for (uint32_t i = 0; i < plan->count; i++) {
    struct backend_step *step = &plan->steps[i];
    struct backend_job alone = {
        .x_type = x_type, .y_type = step->y_type, .bias = step->bias, .bias_type = step->bias_type};
    (void)tuner_launch(serve->tuner, user, plan->weights[i], &alone, rows);
    step->variant = alone.variant;
    x_type = step->y_type;
  }
}

static void choose_kernels(struct serve *serve, struct queue_job *front, int64_t rows) {
  const struct engine_session *session = front->lane->owner;
  front->tuned = NULL;
  if (front->product.experts != NULL)
    front->product.variant = NULL; /* the backend's own choice */
  else if (front->plan != NULL)
    choose_step_kernels(serve, session->user, front->plan, front->product.x_type, rows);
  else if (front->product.operand != NULL)
    front->tuned = tuner_launch_tensors(serve->tuner, session->user, &front->product);
  else
    front->tuned = tuner_launch(serve->tuner, session->user, front->weight, &front->product, rows);
}

/* Clients with products here that look out for them; if all sleep, one will have been woken when this one ends. */
static uint32_t count_awake(const struct serve *serve) {
  uint32_t awake = 0;
  for (size_t i = 0; i < serve->session_count; i++) {
    const struct engine_session *session = serve->sessions[i];
    awake += session->lane.taken > 0 && ring_worker_watched(&session->ring);
  }
  return awake > 0 ? awake : 1;
}

/* All that is decided when so many rows of it are about to start. */
static void make_ready(struct serve *serve, struct queue_job *front, int64_t rows) {
  choose_kernels(serve, front, rows);
  if (serve->ops->on_cores)
    front->product.awake = count_awake(serve);
}

static void device_takes(struct serve *serve, struct queue_job *front) {
  if (serve->in_flight == 0)
    serve->oldest_ns = clock_ns();
  serve->on_device[serve->in_flight++] = front;
}

static void device_returns(struct serve *serve, const struct queue_job *front) {
  uint32_t at = 0;
  while (serve->on_device[at] != front)
    at++;
  if (at == 0)
    serve->oldest_ns = clock_ns();
  serve->in_flight--;
  memmove(&serve->on_device[at], &serve->on_device[at + 1], (serve->in_flight - at) * sizeof(struct queue_job *));
}

/* ---- products that take long: a turn at a time, others between */

static bool takes_long(const struct serve *serve, const struct queue_job *front) {
  return serve->ops->predict_ns != NULL && serve->ops->predict_ns(serve->backend, &front->product) > LONG_NS;
}

/* Room on the device for one more of a kind: turns, where they go there, or whole products. Neither keeps the other
 * from having one there. */
static bool has_room(const struct serve *serve, bool turn) {
  uint32_t alike = 0;
  for (uint32_t i = 0; i < serve->in_flight; i++)
    alike += (serve->on_device[i]->turns != NULL) == turn;
  bool turns_there = serve->ops->turns_submit != NULL;
  return alike < serve->in_flight_max && serve->in_flight < serve->in_flight_max + (turns_there ? 1 : 0);
}

/* Its client wants it no more, or not so late. */
static void note_stop(struct serve *serve, struct queue_job *front, uint64_t now_ns) {
  if (front->mate == NULL && front->stop == STATUS_OK && serve_expired(front, now_ns))
    serve_stop(serve, front, STATUS_TIMEOUT);
}

/* It has ended in a turn. Nothing where the device is lost with it. */
static void end_turns(struct serve *serve, struct queue_job *front, struct error *error, uint64_t device_ns,
                      struct error *lost) {
  front->turns = NULL;
  if (error->status == STATUS_DEVICE_LOST) {
    *lost = *error;
    return;
  }
  if (error->status == STATUS_CANCELLED && front->stop != STATUS_OK)
    *error = (struct error){.status = front->stop, .low = 1, .high = 0};
  complete_batch(serve, front, error, device_ns);
}

/* The turn is the device's, which reports its end. */
static unsigned submit_turn(struct serve *serve, struct queue_job *front, struct error *lost) {
  struct error error = {.status = STATUS_OK};
  if (!has_room(serve, true))
    return 0;
  queue_resume(&serve->queue, front);
  note_stop(serve, front, clock_ns());
  enum status status = serve->ops->turns_submit(serve->backend, front->turns, DEVICE_TURN_NS, &error);
  if (status == STATUS_OK)
    device_takes(serve, front);
  else if (status == STATUS_BUSY)
    queue_return(&serve->queue, front);
  else
    end_turns(serve, front, &error, 0, lost);
  return status != STATUS_BUSY;
}

static unsigned take_turn(struct serve *serve, struct queue_job *front, struct error *lost) {
  struct error error = {.status = STATUS_OK, .low = 1, .high = 0};
  struct backend_done done;
  if (serve->ops->turns_submit != NULL)
    return submit_turn(serve, front, lost);
  uint64_t begin_ns = clock_ns();
  queue_resume(&serve->queue, front);
  note_stop(serve, front, begin_ns);
  bool ended = serve->ops->turns_next(serve->backend, front->turns, TURN_NS, &done, &error);
  front->skipped = done.skipped;
  uint64_t took_ns = clock_ns() - begin_ns;
  charge_batch(serve, front, took_ns);
  if (!ended) {
    queue_return(&serve->queue, front);
    return 1;
  }
  error.status = done.status;
  end_turns(serve, front, &error, done.device_ns, lost);
  return 1;
}

/* Where the one whose turn it is has to wait, another one goes on. */
static unsigned take_other_turn(struct serve *serve, struct queue_job *front, struct error *lost) {
  if (serve->queue.under_way == 0 || (serve->ops->turns_submit != NULL && !has_room(serve, true)))
    return 0;
  queue_pass(&serve->queue, front);
  struct queue_job *other = queue_any_under_way(&serve->queue, front);
  return other != NULL ? take_turn(serve, other, lost) : 0;
}

/* ---- a product begins */

/* Rows that this one may be gathered with. */
static int64_t rows_most(const struct serve *serve, const struct queue_job *front) {
  const struct engine_plan *plan = front->plan;
  const struct engine_weight *weight = plan != NULL ? plan->weights[0] : front->weight;
  if (goes_alone(front))
    return front->product.m;
  int64_t most = GATHERED_BYTES / (GATHERED_ELEMENT_BYTES * (weight->shape.k + weight->shape.n));
  most = most < serve->batch_rows ? most : serve->batch_rows;
  return most > front->product.m ? most : front->product.m;
}

/* Of its user and class: those that wait for a turn, and those whose turn is on the device. */
static uint32_t under_way_of(const struct serve *serve, const struct queue_job *front) {
  uint32_t count = queue_under_way_of(front);
  for (uint32_t i = 0; i < serve->in_flight; i++) {
    const struct queue_job *job = serve->on_device[i];
    count += job->turns != NULL && job->lane->user == front->lane->user && job->priority == front->priority;
  }
  return count;
}

/* The product with its mates is the device's, or has ended; BUSY: it goes on waiting. */
static enum status begin(struct serve *serve, struct queue_job *front, struct error *error) {
  bool turns = takes_long(serve, front);
  if (turns ? under_way_of(serve, front) >= OWN_UNDER_WAY_MOST : !has_room(serve, false))
    return STATUS_BUSY;
  enum status status = turns ? serve->ops->turns_begin(serve->backend, &front->product, under_way_most[front->priority],
                                                       &front->turns, error)
                             : serve->ops->submit(serve->backend, &front->product, error);
  if (status == STATUS_BUSY || status == STATUS_DEVICE_LOST)
    return status;
  queue_begin(&serve->queue, front);
  if (status != STATUS_OK) {
    complete_batch(serve, front, error, 0);
  } else if (turns) {
    queue_return(&serve->queue, front);
  } else {
    device_takes(serve, front);
    note_begin(serve_traffic_of(serve, front), front->started_ns);
  }
  return STATUS_OK;
}

unsigned serve_start(struct serve *serve, struct error *lost) {
  struct queue_job *front = queue_front(&serve->queue);
  if (front == NULL || !(has_room(serve, false) || has_room(serve, true)))
    return 0;
  if (front->turns != NULL)
    return take_turn(serve, front, lost);
  uint64_t now_ns = clock_ns();
  if (serve_expired(front, now_ns)) {
    queue_take(&serve->queue, front);
    serve_give_up(serve, front, STATUS_TIMEOUT);
    return 1;
  }
  struct error error = {.status = STATUS_OK};
  int64_t rows = queue_gather(&serve->queue, front, rows_most(serve, front), now_ns);
  if (worth_waiting(serve, front, rows, now_ns))
    return take_other_turn(serve, front, lost);
  front->started_ns = now_ns;
  make_ready(serve, front, rows);
  enum status status = begin(serve, front, &error);
  if (status == STATUS_BUSY)
    return take_other_turn(serve, front, lost);
  if (status != STATUS_DEVICE_LOST)
    return 1;
  *lost = error;
  return 0;
}

unsigned serve_finish(struct serve *serve, struct error *lost) {
  struct backend_done done[POLL_AT_ONCE];
  if (serve->in_flight == 0)
    return 0;
  int finished = serve->ops->poll(serve->backend, done, POLL_AT_ONCE);
  for (int i = 0; i < finished; i++) {
    struct error error = {.status = done[i].status, .low = 1, .high = 0};
    if (error.status == STATUS_DEVICE_LOST) {
      (void)error_set(lost, STATUS_DEVICE_LOST, "the device was lost under a product");
      break;
    }
    struct queue_job *front = (struct queue_job *)(uintptr_t)done[i].tag;
    device_returns(serve, front);
    charge_batch(serve, front, done[i].turn_ns);
    front->skipped = done[i].skipped;
    if (done[i].goes_on) {
      queue_return(&serve->queue, front);
    } else if (front->turns != NULL) {
      end_turns(serve, front, &error, done[i].device_ns, lost);
    } else {
      note_end(serve_traffic_of(serve, front), clock_ns() - front->started_ns);
      complete_batch(serve, front, &error, done[i].device_ns);
    }
  }
  return (unsigned)finished;
}
