#include "engine.h"
#include "../../../proto/shm/spin.h"
#include "../tune/tuner.h"
#include "../tune/tuner_requests.h"
#include "nap.h"
#include "serve.h"
#include "serve_device.h"

#include <errno.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

enum {
  YIELD_EVERY = 64,     /* rounds of an idle engine: a client may need this core to ask for something */
  EVENTS_AT_ONCE = 16,  /* only that something came matters, not what */
  REST_NS = 1000000000, /* that an engine has nothing to do before it gives memory back */
  ALERT_NS = 30000,     /* what waking up takes at worst, on a machine that is not overloaded */
};

struct engine {
  pthread_t thread;
  struct mailbox mail;
  int mail_fd; /* eventfd, written after each post */
  int epoll;
  struct serve serve;
  struct spin spin;       /* learns from the time between two products */
  uint64_t idle_since_ns; /* 0: not idle */
  uint64_t spin_budget_ns;
  bool waits_for_device;
  uint64_t tuned_ns; /* when the tuner last worked, as far as `rested` knows */
  bool rested;       /* since the last product and the tuner's last work */
  unsigned idle_rounds;
  bool stopping;
  struct error lost; /* status OK: not lost */
  struct engine_message lost_message;
  struct engine_message stop;
  sem_t started;
  struct error start_error; /* status OK: the thread runs; to be read after `started` */
};

static void pause_core(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield" ::: "memory");
#endif
}

/* ---- messages */

/* Edge-triggered and never read: the eventfd is shared with the client, who could empty it first and leave the engine
 * waiting in read(2). */
static enum status watch(struct engine *engine, int fd, struct error *error) {
  struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.fd = fd};
  if (epoll_ctl(engine->epoll, EPOLL_CTL_ADD, fd, &event) != 0)
    return error_set(error, STATUS_SYSTEM, "epoll_ctl: %s", strerror(errno));
  return STATUS_OK;
}

static void add_session(struct engine *engine, struct engine_message *message) {
  struct engine_session *session = message->session;
  if (watch(engine, session->doorbell, &message->error) != STATUS_OK)
    return;
  if (serve_session_add(&engine->serve, session, &message->error) != STATUS_OK)
    epoll_ctl(engine->epoll, EPOLL_CTL_DEL, session->doorbell, NULL);
}

static void add_handle(struct engine_message *message) {
  enum status status = handles_add(&message->session->handles, message->handle, message->weight, &message->error);
  if (status == STATUS_OK)
    message->weight->handles++;
}

static void remove_handle(struct engine_message *message) {
  struct engine_weight *weight = handles_remove(&message->session->handles, message->handle);
  if (weight != NULL)
    weight->handles--;
  else
    (void)error_set(&message->error, STATUS_NOT_FOUND, "handle %u stands for nothing", message->handle);
}

static void add_tensor(struct engine_message *message) {
  if (handles_add(&message->session->tensors, message->handle, message->tensor, &message->error) == STATUS_OK)
    message->tensor->jobs = 0;
}

static void add_event(struct engine_message *message) {
  struct engine_event *event = message->event;
  event->waiting.held = 0;
  event->handle = message->handle;
  (void)!handles_add(&message->session->events, message->handle, event, &message->error);
}

static void handle_message(struct engine *engine, struct engine_message *message) {
  message->error.status = STATUS_OK;
  switch (message->verb) {
  case ENGINE_SESSION_ADD:
    add_session(engine, message);
    break;
  case ENGINE_SESSION_REMOVE:
    epoll_ctl(engine->epoll, EPOLL_CTL_DEL, message->session->doorbell, NULL);
    serve_session_remove(&engine->serve, message->session, message);
    return;
  case ENGINE_HANDLE_ADD:
    add_handle(message);
    break;
  case ENGINE_HANDLE_REMOVE:
    remove_handle(message);
    break;
  case ENGINE_TENSOR_ADD:
    add_tensor(message);
    break;
  case ENGINE_TENSOR_REMOVE:
    serve_tensor_remove(&engine->serve, message);
    return;
  case ENGINE_EVENT_ADD:
    add_event(message);
    break;
  case ENGINE_EVENT_REMOVE:
    serve_event_remove(&engine->serve, message);
    return;
  case ENGINE_WEIGHT_DETACH:
    serve_weight_detach(&engine->serve, message->weight, message);
    return;
  case ENGINE_TUNE:
    tuner_request(engine->serve.tuner, message);
    return;
  case ENGINE_STOP: /* whoever waits for a product that has not begun is answered by this */
    while (engine->serve.session_count > 0)
      serve_session_drop(&engine->serve, engine->serve.sessions[0]);
    tuner_stop(engine->serve.tuner);
    engine->stopping = true;
    return;
  case ENGINE_SESSION_BROKEN:
  case ENGINE_DEVICE_LOST:
  case ENGINE_TUNE_SAVE:
  case ENGINE_TUNE_FOUND:
    break;
  }
  engine->serve.notify(engine->serve.user, message);
}

static bool handle_mail(struct engine *engine) {
  struct engine_message *message = mailbox_take(&engine->mail);
  bool some = message != NULL;
  while (message != NULL) {
    struct engine_message *next = message->next; /* the message may be gone once it is sent back */
    handle_message(engine, message);
    message = next;
  }
  return some;
}

/* ---- idling */

/* Sleeps until a doorbell or a message, and no longer than `nap_ns` where that is not 0. */
static void wait_for_events(struct engine *engine, uint64_t nap_ns) {
  struct epoll_event events[EVENTS_AT_ONCE];
  struct timespec nap = {.tv_sec = (time_t)(nap_ns / 1000000000u), .tv_nsec = (long)(nap_ns % 1000000000u)};
  if (nap_ns == 0)
    epoll_wait(engine->epoll, events, EVENTS_AT_ONCE, -1);
  else if (epoll_pwait2(engine->epoll, events, EVENTS_AT_ONCE, &nap, NULL) < 0 && errno == ENOSYS)
    epoll_wait(engine->epoll, events, EVENTS_AT_ONCE, 1);
}

/* While products are on the device the engine naps instead of spinning on: the backend may want the cores, and somebody
 * else may. Where it does not want them, the engine is awake when a product should end. */
static uint64_t nap_for(struct engine *engine, uint64_t now_ns) {
  struct serve *serve = &engine->serve;
  const struct nap_wait wait = {.began_ns = engine->idle_since_ns,
                                .now_ns = now_ns,
                                .expected_ns = serve->ops->on_cores ? 0 : serve_expected_ns(serve),
                                .alert_ns = engine->spin.most_ns < ALERT_NS ? engine->spin.most_ns : ALERT_NS};
  return nap_choose(&wait);
}

static void idle_begin(struct engine *engine, uint64_t now_ns) {
  engine->idle_since_ns = now_ns;
  engine->idle_rounds = 0;
  engine->waits_for_device =
      engine->serve.in_flight > 0 || engine->serve.queue.waiting > 0 || engine->serve.queue.held > 0;
  engine->spin_budget_ns = engine->waits_for_device ? engine->spin.most_ns : spin_budget(&engine->spin);
}

/* What is learnt is how long clients take to ask, not how long the device takes to answer. */
static void idle_end(struct engine *engine) {
  if (engine->idle_since_ns != 0 && !engine->waits_for_device)
    spin_learn(&engine->spin, clock_ns() - engine->idle_since_ns);
  engine->idle_since_ns = 0;
}

static bool somebody_waits(void *user) {
  const struct engine *engine = user;
  return serve_wanted(&engine->serve) || mailbox_filled(&engine->mail);
}

/* When nothing has been asked for, nor tuned, for a second, what products have taken is given back. Returns how long to
 * nap, if nothing comes: `nap_ns`, or until then. */
static uint64_t rest_after(struct engine *engine, uint64_t now_ns, uint64_t nap_ns) {
  const struct serve *serve = &engine->serve;
  uint64_t worked_ns = tuner_worked_ns(serve->tuner);
  if (worked_ns != engine->tuned_ns) {
    engine->tuned_ns = worked_ns;
    engine->rested = false;
  }
  if (serve->ops->rest == NULL || engine->rested)
    return nap_ns;
  uint64_t due_ns = (worked_ns > engine->idle_since_ns ? worked_ns : engine->idle_since_ns) + REST_NS;
  if (now_ns < due_ns)
    return due_ns - now_ns < nap_ns ? due_ns - now_ns : nap_ns;
  serve->ops->rest(serve->backend);
  tuner_rest(serve->tuner);
  engine->rested = true;
  return nap_ns;
}

/* A round in which nothing was done. A message posted after the look at the mailbox leaves its edge in epoll, so that
 * the sleep ends at once. */
static void idle(struct engine *engine) {
  uint64_t now_ns = clock_ns();
  if (engine->idle_since_ns == 0)
    idle_begin(engine, now_ns);
  uint64_t idle_ns = now_ns - engine->idle_since_ns;
  if (idle_ns < engine->spin_budget_ns) {
    if (++engine->idle_rounds % YIELD_EVERY == 0)
      sched_yield();
    else
      pause_core();
    return;
  }
  uint64_t nap_ns = engine->waits_for_device ? nap_for(engine, now_ns) : UINT64_MAX;
  if (engine->serve.in_flight == 0) /* what there is waits for clients: for their events, or for more of them */
    counters_progress(&engine->serve.counters, now_ns);
  if (!engine->waits_for_device && !engine->stopping) {
    nap_ns = tuner_step(engine->serve.tuner, now_ns, somebody_waits, engine, &engine->lost);
  }
  if (!engine->waits_for_device)
    nap_ns = rest_after(engine, now_ns, nap_ns);
  if (nap_ns == 0 || !serve_sleep(&engine->serve))
    return;
  if (!engine->waits_for_device)
    counters_progress(&engine->serve.counters, 0);
  wait_for_events(engine, nap_ns == UINT64_MAX ? 0 : nap_ns);
  serve_awake(&engine->serve);
  if (nap_ns == UINT64_MAX)
    idle_end(engine);
}

/* ---- the thread */

static bool round_of_work(struct engine *engine) {
  unsigned done = handle_mail(engine);
  if (!engine->stopping) {
    done += serve_take(&engine->serve);
    done += serve_look(&engine->serve);
    done += serve_expire(&engine->serve);
  }
  if (!engine->stopping || engine->serve.queue.under_way > 0)
    done += serve_start(&engine->serve, &engine->lost);
  if (engine->lost.status == STATUS_OK)
    done += serve_finish(&engine->serve, &engine->lost);
  /* A product that hangs does not keep those of other streams from ending: what counts is how long the oldest on the
   * device has been there without one ahead of it. */
  if (done > 0)
    counters_progress(&engine->serve.counters, engine->serve.in_flight > 0 ? engine->serve.oldest_ns : clock_ns());
  engine->rested = engine->rested && done == 0;
  counters_waiting(&engine->serve.counters, engine->serve.queue.waiting + engine->serve.queue.held);
  return done > 0;
}

static void *run(void *argument) {
  struct engine *engine = argument;
  prctl(PR_SET_NAME, "engine");
  prctl(PR_SET_TIMERSLACK, 1ul); /* naps are shorter than the usual 50 us of slack */
  bool opened = wake_open(&engine->serve.wake, &engine->start_error) == STATUS_OK;
  sem_post(&engine->started);
  if (!opened)
    return NULL;
  while (!engine->stopping || engine->serve.in_flight > 0 || engine->serve.queue.under_way > 0) {
    if (round_of_work(engine))
      idle_end(engine);
    else
      idle(engine);
    if (engine->lost.status != STATUS_OK) {
      engine->lost_message.verb = ENGINE_DEVICE_LOST;
      engine->lost_message.error = engine->lost;
      engine->serve.notify(engine->serve.user, &engine->lost_message);
      break;
    }
  }
  wake_close(&engine->serve.wake);
  return NULL;
}

/* Signals are the control thread's, but for the one that wake_open asks for. */
static enum status start_thread(struct engine *engine, struct error *error) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int failure = pthread_create(&engine->thread, NULL, run, engine);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (failure != 0)
    return error_set(error, STATUS_SYSTEM, "pthread_create: %s", strerror(failure));
  while (sem_wait(&engine->started) != 0)
    ;
  if (engine->start_error.status == STATUS_OK)
    return STATUS_OK;
  pthread_join(engine->thread, NULL);
  *error = engine->start_error;
  return error->status;
}

static void free_engine(struct engine *engine) {
  if (engine->mail_fd >= 0)
    close(engine->mail_fd);
  if (engine->epoll >= 0)
    close(engine->epoll);
  mailbox_close(&engine->mail);
  sem_destroy(&engine->started);
  serve_close(&engine->serve);
  free(engine);
}

static enum status open_descriptors(struct engine *engine, struct error *error) {
  engine->epoll = epoll_create1(EPOLL_CLOEXEC);
  engine->mail_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (engine->epoll < 0 || engine->mail_fd < 0)
    return error_set(error, STATUS_SYSTEM, "epoll or eventfd: %s", strerror(errno));
  return watch(engine, engine->mail_fd, error);
}

enum status engine_start(const struct engine_options *options, struct engine **out, struct error *error) {
  struct engine *engine = calloc(1, sizeof *engine);
  if (engine == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for the engine");
  mailbox_open(&engine->mail);
  sem_init(&engine->started, 0, 0);
  serve_init(&engine->serve);
  engine->serve.ops = options->ops;
  engine->serve.backend = options->backend;
  engine->serve.in_flight_max = options->in_flight;
  engine->serve.tuner = options->tuner;
  engine->serve.notify = options->notify;
  engine->serve.user = options->user;
  engine->serve.batch_rows = options->batch_rows;
  engine->serve.batch_window_ns = options->batch_window_us * 1000;
  engine->serve.event_timeout_ns = options->event_timeout_us * 1000;
  spin_init(&engine->spin, options->spin_us * 1000);
  enum status status = open_descriptors(engine, error);
  if (status == STATUS_OK)
    status = start_thread(engine, error);
  if (status != STATUS_OK) {
    free_engine(engine);
    return status;
  }
  *out = engine;
  return STATUS_OK;
}

static void ring_doorbell(struct engine *engine) {
  uint64_t one = 1;
  ssize_t written = write(engine->mail_fd, &one, sizeof one);
  (void)written; /* a full counter wakes the engine just as well */
}

void engine_post(struct engine *engine, struct engine_message *message) {
  mailbox_put(&engine->mail, message);
  ring_doorbell(engine);
}

void engine_stats(struct engine *engine, struct message_worker_stats *out) {
  uint64_t now_ns = clock_ns();
  counters_read(&engine->serve.counters, now_ns, out);
  if (counters_ask(&engine->serve.counters, now_ns))
    ring_doorbell(engine);
}

void engine_stop(struct engine *engine) {
  engine->stop.verb = ENGINE_STOP;
  engine_post(engine, &engine->stop);
  pthread_join(engine->thread, NULL);
  free_engine(engine);
}
