#include "wait.h"
#include "../session/exchange.h"
#include "../session/resume.h"
#include "../weight/handle.h"
#include "queue.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

enum {
  SPIN_LOOKS = 32,      /* looks at the rings between two looks at the clock */
  YIELD_LONG_NS = 5000, /* somebody else had the core, perhaps the worker, and may want it again */
};

static inline void cpu_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* Gives the core away for a moment. False where spinning on would stand in somebody's way: who sleeps instead also
 * wakes up on a core that is free, where the scheduler would leave two that spin on one core for a tenth of a second.
 */
static bool give_way(void) {
  int64_t before = clock_now();
  sched_yield();
  return clock_now() - before < YIELD_LONG_NS;
}

/* Until there is something to take in. False where nothing came in the time. */
static bool wait_spin(struct gemmd_session *session, int64_t deadline) {
  int64_t budget = (int64_t)spin_budget(&session->spin);
  if (budget == 0)
    return queues_look(session);
  int64_t now = clock_now(), end = now + budget;
  end = end < deadline ? end : deadline;
  for (; now < end; now = clock_now()) {
    for (int look = 0; look < SPIN_LOOKS; look++) {
      if (queues_look(session))
        return true;
      cpu_pause();
    }
    if (session->crowded && !give_way())
      return queues_look(session);
  }
  return false;
}

/* Sleeps until one of the descriptors has something or the deadline, and takes it in. True where that was a message. */
static bool wait_poll(struct gemmd_session *session, int64_t deadline) {
  struct pollfd fds[] = {{.fd = session->wakeup, .events = POLLIN},
                         {.fd = session->socket, .events = session->calling ? 0 : POLLIN}};
  uint64_t count;
  int ready = clock_poll(fds, 2, deadline);
  if (ready < 0) {
    (void)session_end(session, STATUS_SYSTEM, "poll: %s", strerror(errno));
    return false;
  }
  if ((fds[0].revents & POLLIN) && read(session->wakeup, &count, sizeof count) < 0 && errno != EAGAIN && errno != EINTR)
    (void)session_end(session, STATUS_SYSTEM, "reading an eventfd: %s", strerror(errno));
  return fds[1].revents != 0 && exchange_look(session);
}

static void wait_sleep(struct gemmd_session *session, int64_t deadline) {
  if (!queues_sleep(session))
    return;
  (void)wait_poll(session, deadline);
  queues_awake(session);
}

void wait_take_in(struct gemmd_session *session) {
  queues_collect(session);
  if (session->ended && !session_resume(session) && session->pending.done < session->pending.used)
    queues_fail(session);
}

/* Until `request`, or with NULL any request, is finished. TIMEOUT at the deadline, with no sentence. */
static enum status wait_finished(struct gemmd_session *session, const struct request *request, int64_t deadline) {
  bool last = false;
  int64_t begin = 0;
  for (;;) {
    wait_take_in(session);
    if (request != NULL ? request->finished != 0 : session->pending.done > 0) {
      if (begin != 0)
        spin_learn(&session->spin, (uint64_t)(clock_now() - begin));
      return STATUS_OK;
    }
    if (session->ended)
      return session_gone(session);
    if (last)
      return STATUS_TIMEOUT;
    int64_t now = clock_now();
    begin = begin != 0 ? begin : now;
    if (deadline <= now) {
      /* Whoever never sleeps must notice the end of the daemon, too. */
      (void)exchange_look(session);
      last = true;
    } else if (!wait_spin(session, deadline) && clock_now() < deadline) {
      wait_sleep(session, deadline);
    }
  }
}

static int64_t wait_deadline(int timeout_ms) {
  return timeout_ms == 0 ? 0 : clock_deadline(timeout_ms < 0 ? -1 : timeout_ms * CLOCK_NS_PER_MS);
}

static void take_error(struct gemmd_session *session, const struct request *request) {
  bool named = request->submission.opcode != RING_OP_TENSORS; /* else the handle is that of memory */
  const struct gemmd_weight *weight =
      named ? weight_find(session, request->parts[0].device, request->parts[0].handle) : NULL;
  session->error = request->error;
  if (weight != NULL)
    weight_name_error(weight, &session->error);
}

/* Gives the result out and the slot back. */
static void take_result(struct gemmd_session *session, struct request *request, gemmd_result *result) {
  if (request->error.status != STATUS_OK)
    take_error(session, request);
  if (result != NULL)
    *result = (gemmd_result){.ticket = request->ticket,
                             .status = session_result(request->error.status),
                             .device_ns = request->device_ns,
                             .queue_ns = request->queue_ns,
                             .skipped = request->skipped};
  pending_remove(&session->pending, request);
}

int gemmd_wait(gemmd_session *session, uint64_t ticket, int timeout_ms, gemmd_result *result) {
  struct request *request = pending_find(&session->pending, ticket);
  if (request == NULL)
    return session_result(error_set(&session->error, STATUS_INVALID, "ticket %llu names no product in flight",
                                    (unsigned long long)ticket));
  enum status status = wait_finished(session, request, wait_deadline(timeout_ms));
  if (status == STATUS_TIMEOUT)
    (void)error_set(&session->error, status, "the product was not finished within %d ms", timeout_ms);
  if (status == STATUS_OK) {
    status = request->error.status;
    take_result(session, request, result);
  }
  queues_arm(session);
  return session_result(status);
}

/* With no sentence where that is TIMEOUT. */
static enum status wait_any(gemmd_session *session, int64_t deadline, gemmd_result *result) {
  if (session->pending.used == 0)
    return session->ended ? session_gone(session)
                          : error_set(&session->error, STATUS_NOT_FOUND, "no product is in flight");
  enum status status = wait_finished(session, NULL, deadline);
  if (status == STATUS_OK)
    take_result(session, pending_finished(&session->pending), result);
  queues_arm(session);
  return status;
}

int gemmd_wait_any(gemmd_session *session, int timeout_ms, gemmd_result *result) {
  enum status status = wait_any(session, wait_deadline(timeout_ms), result);
  if (status == STATUS_TIMEOUT)
    (void)error_set(&session->error, status, "no product was finished within %d ms", timeout_ms);
  return session_result(status);
}

int gemmd_wait_any_until(gemmd_session *session, uint64_t deadline_ns, gemmd_result *result) {
  enum status status = wait_any(session, deadline_ns < CLOCK_NEVER ? (int64_t)deadline_ns : CLOCK_NEVER, result);
  if (status == STATUS_TIMEOUT)
    (void)error_set(&session->error, status, "no product was finished by %" PRIu64 " ns", deadline_ns);
  return session_result(status);
}

/* ---- event loops */

int gemmd_fd(const gemmd_session *session) {
  if (session->epoll >= 0) {
    struct gemmd_session *own = (struct gemmd_session *)session;
    own->event_loop = true;
    queues_arm(own);
  }
  return session->epoll;
}

/* Once around: what the descriptors brought, then what the rings hold. True where a message came. */
static bool dispatch_look(struct gemmd_session *session, int64_t deadline) {
  bool message = wait_poll(session, deadline);
  queues_awake(session);
  wait_take_in(session);
  return message;
}

int gemmd_dispatch(gemmd_session *session, int timeout_ms) {
  int64_t deadline = wait_deadline(timeout_ms);
  if (session->ended && !session_resume(session))
    return session_result(session_gone(session));
  session->event_loop = true;
  if (!dispatch_look(session, 0) && !session->ended && session->pending.done == 0 && deadline > clock_now() &&
      !wait_spin(session, deadline) && queues_sleep(session))
    (void)dispatch_look(session, deadline);
  else
    wait_take_in(session);
  queues_arm(session);
  return session_result(session->ended ? session->end.status : STATUS_OK);
}
