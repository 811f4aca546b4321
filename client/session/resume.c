/* The daemon is lost: goes on with the next one. The arena is handed to that as it is, so that pointers into it and
 * what they point to stay; handles of weights and rings are new. A weight that it has not is missing until a product is
 * asked of it and it is there. */
#include "resume.h"
#include "../memory/tensor.h"
#include "../submit/missing.h"
#include "../submit/queue.h"
#include "../weight/again.h"
#include "../weight/borrowed.h"
#include "backoff.h"
#include "exchange.h"
#include "link.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

static void pause_before(uint32_t attempt) {
  uint64_t mixed = ((uint64_t)clock_now() ^ (uint64_t)getpid() << 32) * 0x9e3779b97f4a7c15u;
  int64_t ns = backoff_ns(attempt, (uint32_t)(mixed >> 32));
  struct timespec left = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
  while (nanosleep(&left, &left) != 0 && errno == EINTR)
    continue;
}

/* A fork may hold the descriptor, too: closing it would leave it in what gemmd_fd watches. */
static void close_watched(const struct gemmd_session *session, int fd) {
  (void)epoll_ctl(session->epoll, EPOLL_CTL_DEL, fd, NULL);
  close(fd);
}

/* ---- the steps */

static enum status lay_out_again(struct gemmd_session *session) {
  struct message_arena_request request = {.bytes = session->arena_bytes, .entries = session->entries};
  struct message_arena_reply reply = {.bytes = 0};
  int fds[2] = {-1, -1};
  struct call call = {.command = COMMAND_arena_adopt,
                      .request = &request,
                      .reply = &reply,
                      .fd = session->memfd,
                      .reply_fds = fds,
                      .reply_fd_count = 2};
  enum status status = exchange_call(session, &call);
  if (status != STATUS_OK)
    return status;
  close(fds[0]); /* the same */
  close_watched(session, session->wakeup);
  session->wakeup = fds[1];
  if (reply.bytes != session->arena_bytes || reply.entries != session->entries || reply.devices != session->devices)
    return session_end(session, STATUS_PROTOCOL, "the next daemon has laid out another arena");
  return STATUS_OK;
}

static enum status open_all_again(struct gemmd_session *session) {
  enum status status = STATUS_OK;
  session->stand_ins = 0;
  for (struct gemmd_weight *weight = LIST_FIRST(&session->weights); status == STATUS_OK && weight != NULL;
       weight = LIST_NEXT(weight, link)) {
    status = weight_open_again(weight);
    if (status == STATUS_NOT_FOUND)
      status = weight_stand_in(weight);
  }
  for (uint32_t device = 0; status == STATUS_OK && device < session->devices; device++) {
    struct queue *queue = &session->queues[device];
    bool open = queue->open;
    queue_close(queue);
    queue->in_flight = 0;
    if (open && (status = queue_open(session, device, exchange_call)) != STATUS_OK)
      queue->doorbell = -1, queue->open = true; /* to be opened by the next attempt */
  }
  return status;
}

static enum status hold_again(struct gemmd_session *session, struct gemmd_borrowed *borrowed) {
  struct message_weight_hold request = {.epoch = borrowed->epoch, .parts_count = borrowed->part_count};
  struct message_weight_held reply = {.same = false};
  memcpy(request.name, borrowed->info.name, sizeof request.name);
  memcpy(request.hash, borrowed->info.hash, sizeof request.hash);
  for (unsigned i = 0; i < borrowed->part_count; i++)
    request.parts[i] = (struct message_held_part){.slab = borrowed->parts[i].slab, .offset = borrowed->parts[i].offset};
  struct call call = {.command = COMMAND_weight_hold, .request = &request, .reply = &reply, .fd = -1};
  enum status status = exchange_call(session, &call);
  bool refused = status == STATUS_PERMISSION || status == STATUS_UNSUPPORTED;
  if (status != STATUS_OK && !refused)
    return status;
  borrowed->borrow = status == STATUS_OK && reply.same ? reply.borrow : 0;
  if (borrowed->state != GEMMD_BORROWED_WITHDRAWN)
    borrowed->state = borrowed->borrow != 0 ? GEMMD_BORROWED_SHARED : GEMMD_BORROWED_ALONE;
  return STATUS_OK;
}

/* The next daemon is told what is still here; what it has not is alone from now on. */
static enum status hold_all_again(struct gemmd_session *session) {
  enum status status = STATUS_OK;
  for (struct gemmd_borrowed *borrowed = LIST_FIRST(&session->borrowed); status == STATUS_OK && borrowed != NULL;
       borrowed = LIST_NEXT(borrowed, link))
    status = hold_again(session, borrowed);
  return status;
}

/* ---- all of them */

static enum status attempt(struct gemmd_session *session) {
  struct message_hello_reply hello;
  if (session->socket >= 0)
    close_watched(session, session->socket);
  session->socket = -1;
  session->ended = false;
  session->abandoned_count = 0;
  enum status status = link_connect(session);
  if (status == STATUS_OK)
    status = link_hello(session, &hello);
  if (status == STATUS_OK && hello.devices != session->devices)
    return error_set(&session->error, STATUS_NOT_FOUND, "the next daemon has %u devices, this session %u",
                     hello.devices, session->devices);
  if (status == STATUS_OK)
    status = lay_out_again(session);
  if (status == STATUS_OK)
    status = open_all_again(session);
  if (status == STATUS_OK)
    status = tensors_open_again(session);
  if (status == STATUS_OK)
    status = hold_all_again(session);
  if (status == STATUS_OK)
    status = link_watch(session);
  return status;
}

/* Not those that the next attempt would meet again. */
static bool worth_another(enum status status) {
  return status == STATUS_DISCONNECTED || status == STATUS_TIMEOUT || status == STATUS_BUSY ||
         status == STATUS_SHUTTING_DOWN || status == STATUS_DEVICE_LOST;
}

static bool resume(struct gemmd_session *session) {
  int64_t deadline = clock_deadline(session->resume_ns);
  for (uint32_t attempts = 1;; attempts++) {
    enum status status = attempt(session);
    if (status == STATUS_OK)
      break;
    if (!worth_another(status) || clock_now() >= deadline) {
      struct error why = session->error;
      (void)session_end(session, STATUS_DISCONNECTED, "%.200s", why.text);
      (void)!link_watch(session); /* a socket that is not connected polls readable: who waits for it hears of it */
      session->error = session->end;
      return false;
    }
    pause_before(attempts);
  }
  session->resumes++;
  handles_rename(session);
  tensors_rename_handles(session);
  missing_fail(session);
  queues_submit_all(session);
  queues_arm(session);
  return true;
}

bool session_resume(struct gemmd_session *session) {
  if (session->resuming || session->calling || session->resume_ns == 0 || session->path[0] == '\0' ||
      session->epoll < 0 || session->end.status != STATUS_DISCONNECTED)
    return false;
  session->resuming = true;
  session->ended = false;
  queues_salvage(session);
  bool resumed = !session->ended && resume(session);
  session->resuming = false;
  if (!resumed)
    session->resume_ns = 0;
  return resumed;
}
