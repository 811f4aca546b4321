#include "serve.h"

#include "../../list.h"
#include "../tune/tuner.h"
#include "prepare.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum {
  TAKE_AT_ONCE = 16, /* submissions from one ring before the next one has its turn */
};

static uint32_t saturate(uint64_t ns) {
  return ns < UINT32_MAX ? (uint32_t)ns : UINT32_MAX;
}

static void send_back(struct serve *serve, struct engine_message *message) {
  serve->notify(serve->user, message);
}

/* ---- sessions and weights */

void serve_init(struct serve *serve) {
  queue_init(&serve->queue);
  plans_init(&serve->plans);
}

void serve_close(struct serve *serve) {
  plans_close(&serve->plans);
  queue_close(&serve->queue);
  free(serve->sessions);
}

enum status serve_session_add(struct serve *serve, struct engine_session *session, struct error *error) {
  enum status status = list_grow(&serve->sessions, serve->session_count, &serve->session_capacity,
                                 sizeof(struct engine_session *), "one more session", error);
  if (status == STATUS_OK)
    status = queue_join(&serve->queue, &session->lane, session->user, error);
  if (status != STATUS_OK)
    return status;
  session->place = serve->session_count;
  session->served = true;
  serve->sessions[serve->session_count++] = session;
  return STATUS_OK;
}

/* No product uses the weight. */
static void weight_free(struct serve *serve, struct engine_weight *weight, struct engine_message *message) {
  tuner_weight_gone(serve->tuner, weight);
  plans_forget_weight(&serve->plans, weight);
  send_back(serve, message);
}

static void release_weight(struct serve *serve, struct engine_weight *weight) {
  if (--weight->jobs == 0 && weight->detach != NULL)
    weight_free(serve, weight, weight->detach);
}

/* The plan goes with the first of its weights that goes. */
static void release_plan(struct serve *serve, struct engine_plan *plan) {
  struct engine_weight *weights[GEMM_STEPS_MOST];
  uint32_t count = plan->count;
  memcpy(weights, plan->weights, sizeof weights);
  plans_release(plan);
  for (uint32_t i = 0; i < count; i++)
    release_weight(serve, weights[i]);
}

static void forget_job(struct serve *serve, struct queue_job *job) {
  struct engine_weight *weight = job->weight;
  struct engine_plan *plan = job->plan;
  for (size_t i = 0; i < QUEUE_TENSORS; i++) {
    struct engine_tensor *tensor = job->tensors[i];
    if (tensor != NULL)
      tensor->jobs--;
  }
  queue_release(job);
  if (plan != NULL)
    release_plan(serve, plan);
  else if (weight != NULL)
    release_weight(serve, weight);
}

/* The device has finished with all that the session had. */
static void session_gone(struct serve *serve, struct engine_session *session, struct engine_message *message) {
  plans_forget_session(&serve->plans, session);
  queue_leave(&serve->queue, &session->lane);
  send_back(serve, message);
}

void serve_session_drop(struct serve *serve, struct engine_session *session) {
  if (session->served) {
    struct engine_session *last = serve->sessions[--serve->session_count];
    serve->sessions[session->place] = last;
    last->place = session->place;
    session->served = false;
  }
  for (struct queue_job *job; (job = queue_any(&session->lane)) != NULL;) {
    queue_take(&serve->queue, job);
    forget_job(serve, job);
  }
  for (int i = 0; i < RING_PRIORITIES; i++) {
    struct queue_job *job;
    TAILQ_FOREACH (job, &session->lane.lines[i].under_way, in_line)
      if (job->mate == NULL)
        serve_stop(serve, job, STATUS_CANCELLED);
  }
  for (uint32_t i = 0; i < serve->in_flight; i++) {
    struct queue_job *job = serve->on_device[i];
    if (job->lane == &session->lane && job->turns != NULL && job->mate == NULL)
      serve_stop(serve, job, STATUS_CANCELLED);
  }
}

void serve_session_remove(struct serve *serve, struct engine_session *session, struct engine_message *message) {
  serve_session_drop(serve, session);
  uint32_t from = 0;
  for (struct engine_weight *weight; (weight = handles_remove_next(&session->handles, &from)) != NULL;)
    weight->handles--;
  if (session->lane.taken == 0)
    session_gone(serve, session, message);
  else
    session->removal = message;
}

void serve_weight_detach(struct serve *serve, struct engine_weight *weight, struct engine_message *message) {
  if (weight->handles > 0)
    (void)error_set(&message->error, STATUS_WRONG_STATE, "the weight has %u handle%s", weight->handles,
                    plural(weight->handles));
  if (weight->handles > 0)
    send_back(serve, message);
  else if (weight->jobs == 0)
    weight_free(serve, weight, message);
  else
    weight->detach = message;
}

/* ---- the end of a product */

static void end_session(struct serve *serve, struct engine_session *session, const struct error *error) {
  serve_session_drop(serve, session);
  session->breakage.verb = ENGINE_SESSION_BROKEN;
  session->breakage.session = session;
  session->breakage.error = *error;
  send_back(serve, &session->breakage);
}

static void publish(struct serve *serve, struct engine_session *session, const struct ring_completion *completion) {
  bool wake;
  struct error error;
  ring_worker_complete(&session->ring, completion, &wake);
  if (!wake || wake_write(&serve->wake, session->wakeup))
    return;
  (void)error_set(&error, STATUS_PROTOCOL, "the wakeup descriptor has been made to block");
  end_session(serve, session, &error);
}

void serve_complete(struct serve *serve, struct queue_job *job, const struct error *error, uint64_t device_ns) {
  struct engine_session *session = job->lane->owner;
  struct ring_completion completion = {.status = STATUS_OK};
  if (error->status != STATUS_OK)
    ring_completion_from_error(&completion, error);
  completion.tag = job->tag;
  uint64_t waited_ns = job->started_ns - job->taken_ns;
  completion.skipped = job->skipped;
  completion.device_ns = saturate(device_ns);
  completion.queue_ns = saturate(waited_ns);
  const struct engine_weight *weight = job->weight;
  enum gemm_format format = weight != NULL ? weight->shape.format : GEMM_FORMAT_NONE;
  counters_request(&serve->counters, error->status, format, (uint64_t)job->product.m, waited_ns + device_ns);
  forget_job(serve, job);
  if (session->served)
    publish(serve, session, &completion);
  else if (session->removal != NULL && session->lane.taken == 0)
    session_gone(serve, session, session->removal);
}

/* ---- taking */

struct engine_traffic *serve_traffic_of(struct serve *serve, const struct queue_job *job) {
  struct engine_weight *weight = job->weight;
  struct engine_plan *plan = job->plan;
  return plan != NULL ? &plan->traffic : weight != NULL ? &weight->traffic : &serve->tensors;
}

bool serve_expired(const struct queue_job *job, uint64_t now_ns) {
  return job->deadline_ns != 0 && job->deadline_ns <= now_ns;
}

void serve_give_up(struct serve *serve, struct queue_job *job, enum status status) {
  struct error error = {.status = status, .low = 1, .high = 0};
  job->started_ns = clock_ns();
  serve_complete(serve, job, &error, 0);
}

void serve_stop(struct serve *serve, struct queue_job *job, enum status status) {
  job->stop = status;
  serve->ops->turns_abandon(serve->backend, job->turns);
}

/* A turn of it is on the device. */
static struct queue_job *find_turn(const struct serve *serve, const struct engine_session *session, uint64_t tag) {
  for (uint32_t i = 0; i < serve->in_flight; i++) {
    struct queue_job *job = serve->on_device[i];
    if (job->turns != NULL && job->lane == &session->lane && job->tag == tag)
      return job;
  }
  return NULL;
}

static void cancel(struct serve *serve, struct engine_session *session, uint64_t tag) {
  struct queue_job *job = queue_find(&session->lane, tag);
  if (job == NULL)
    job = find_turn(serve, session, tag);
  if (job == NULL)
    return; /* it has begun, or has ended */
  if (job->turns != NULL) {
    if (job->mate == NULL && job->stop == STATUS_OK)
      serve_stop(serve, job, STATUS_CANCELLED);
    return;
  }
  queue_take(&serve->queue, job);
  serve_give_up(serve, job, STATUS_CANCELLED);
}

static void admit(struct serve *serve, struct engine_session *session, struct queue_job *job,
                  const struct ring_submission *submission) {
  struct error error = {.status = STATUS_OK};
  job->tag = submission->tag;
  job->priority = (enum ring_priority)submission->priority;
  job->deadline_ns = submission->deadline_ns;
  job->taken_ns = job->started_ns = clock_ns();
  job->product.m = 0;
  job->skipped = 0;
  struct engine_event *event = NULL;
  bool nothing_to_do = submission->opcode == RING_OP_NOP;
  if (nothing_to_do || prepare_job(&serve->plans, session, submission, job, &event, &error) != STATUS_OK) {
    serve_complete(serve, job, &error, 0);
    return;
  }
  uint64_t patience_ns = job->taken_ns + serve->event_timeout_ns;
  job->event_deadline_ns = job->deadline_ns != 0 && job->deadline_ns < patience_ns ? job->deadline_ns : patience_ns;
  if (serve_expired(job, job->taken_ns))
    serve_give_up(serve, job, STATUS_TIMEOUT);
  else if (event != NULL)
    queue_hold(&serve->queue, job, &event->waiting);
  else
    queue_push(&serve->queue, job, &serve_traffic_of(serve, job)->waiting);
}

static unsigned take_from(struct serve *serve, struct engine_session *session) {
  unsigned taken = 0;
  while (taken < TAKE_AT_ONCE && session->served) {
    struct queue_job *job = queue_reserve(&session->lane);
    if (job == NULL)
      break;
    struct ring_submission submission;
    struct error error;
    bool there = false;
    enum status status = ring_worker_take(&session->ring, &submission, &there, &error);
    if (status == STATUS_OK && there && submission.opcode != RING_OP_CANCEL) {
      admit(serve, session, job, &submission);
      taken++;
      continue;
    }
    queue_release(job);
    if (status == STATUS_OK && there) {
      cancel(serve, session, submission.tag);
      taken++;
      continue;
    }
    if (status != STATUS_OK)
      end_session(serve, session, &error);
    break;
  }
  return taken;
}

unsigned serve_take(struct serve *serve) {
  unsigned taken = 0;
  size_t sessions = serve->session_count;
  if (sessions == 0)
    return 0;
  serve->turn = (serve->turn + 1) % sessions;
  /* A session that breaks on the way is replaced by the last one, which may then be looked at twice or not at all in
   * this round. */
  for (size_t i = 0; i < sessions && serve->session_count > 0; i++)
    taken += take_from(serve, serve->sessions[(serve->turn + i) % serve->session_count]);
  return taken;
}

/* ---- memory and events that are to be given back */

/* What the client asked for before lies in its ring: as much as an honest one can have there. */
static void take_what_waits(struct serve *serve, struct engine_session *session) {
  uint32_t taken = 0;
  for (unsigned more = 1; more > 0 && taken < session->ring.entries; taken += more)
    more = take_from(serve, session);
}

void serve_tensor_remove(struct serve *serve, struct engine_message *message) {
  struct engine_tensor *tensor = message->tensor;
  take_what_waits(serve, message->session);
  if (tensor->jobs > 0)
    (void)error_set(&message->error, STATUS_BUSY, "%u product%s in flight in the memory", tensor->jobs,
                    plural(tensor->jobs));
  else
    (void)handles_remove(&message->session->tensors, message->handle);
  send_back(serve, message);
}

void serve_event_remove(struct serve *serve, struct engine_message *message) {
  take_what_waits(serve, message->session);
  uint32_t held = message->event->waiting.held;
  if (held > 0)
    (void)error_set(&message->error, STATUS_BUSY, "%u product%s held for the event", held, plural(held));
  else
    (void)handles_remove(&message->session->events, message->handle);
  send_back(serve, message);
}

/* ---- events: asked, never waited for, each in its turn, so that one that never comes costs others a look */

/* `status` is what the event has said. False where the job goes on being held. */
static bool look_at_held(struct serve *serve, struct queue_job *job, enum status status, uint32_t handle,
                         uint64_t now_ns) {
  if (status == STATUS_BUSY && now_ns < job->event_deadline_ns)
    return false;
  queue_take(&serve->queue, job);
  if (status == STATUS_OK) {
    queue_push(&serve->queue, job, &serve_traffic_of(serve, job)->waiting);
    return true;
  }
  struct error error;
  (void)error_field(&error, status == STATUS_BUSY ? STATUS_TIMEOUT : STATUS_INVALID, FIELD_EVENT, handle, 1, 0);
  job->started_ns = now_ns;
  serve_complete(serve, job, &error, 0);
  return true;
}

unsigned serve_look(struct serve *serve) {
  struct queue_event *turn = queue_next_event(&serve->queue);
  if (turn == NULL)
    return 0;
  const struct engine_event *event =
      (const struct engine_event *)((const uint8_t *)turn - offsetof(struct engine_event, waiting));
  enum status status = serve->ops->event_query(serve->backend, event->device);
  uint64_t now_ns = clock_ns();
  unsigned done = 0;
  /* All are of one session: where that breaks on the way, none is held any more. */
  for (struct queue_job *job = TAILQ_FIRST(&turn->jobs), *next; job != NULL && turn->held > 0; job = next) {
    next = TAILQ_NEXT(job, in_group);
    done += look_at_held(serve, job, status, event->handle, now_ns);
  }
  return done;
}

/* ---- deadlines of what waits */

unsigned serve_expire(struct serve *serve) {
  enum { LOOK_EVERY_NS = 5000000 };
  unsigned ended = 0;
  uint64_t now_ns = serve->queue.timed > 0 ? clock_ns() : 0;
  if (serve->queue.timed == 0 || now_ns - serve->deadlines_ns < LOOK_EVERY_NS)
    return 0;
  serve->deadlines_ns = now_ns;
  for (struct queue_job *job; (job = queue_late(&serve->queue, now_ns)) != NULL; ended++) {
    queue_take(&serve->queue, job);
    serve_give_up(serve, job, STATUS_TIMEOUT);
  }
  return ended;
}

/* ---- sleep */

bool serve_wanted(const struct serve *serve) {
  for (size_t i = 0; i < serve->session_count; i++)
    if (ring_worker_wanted(&serve->sessions[i]->ring))
      return true;
  return false;
}

bool serve_sleep(struct serve *serve) {
  for (size_t i = 0; i < serve->session_count; i++)
    if (!ring_worker_sleep(&serve->sessions[i]->ring)) {
      while (i-- > 0)
        ring_worker_awake(&serve->sessions[i]->ring);
      return false;
    }
  return true;
}

void serve_awake(struct serve *serve) {
  for (size_t i = 0; i < serve->session_count; i++)
    ring_worker_awake(&serve->sessions[i]->ring);
}
