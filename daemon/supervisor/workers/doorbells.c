#include "doorbells.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { AT_ONCE = 64 };

struct doorbells {
  uv_poll_t poll;
  int set; /* owned epoll descriptor */
  void (*rung)(void *user);
  void *user;
};

/* Nobody reads doorbells, so that what counts is that one is rung, not that it has been. */
static void on_ring(uv_poll_t *poll, int status, int ready) {
  struct doorbells *doorbells = poll->data;
  struct epoll_event events[AT_ONCE];
  if (epoll_wait(doorbells->set, events, AT_ONCE, 0) > 0)
    doorbells->rung(doorbells->user);
}

static void on_closed(uv_handle_t *handle) {
  struct doorbells *doorbells = handle->data;
  close(doorbells->set);
  free(doorbells);
}

enum status doorbells_open(uv_loop_t *loop, void (*rung)(void *user), void *user, struct doorbells **out,
                           struct error *error) {
  struct doorbells *doorbells = malloc(sizeof *doorbells);
  if (doorbells == NULL)
    return error_set(error, STATUS_NOMEM, "no memory to listen to doorbells");
  *doorbells = (struct doorbells){.set = epoll_create1(EPOLL_CLOEXEC), .rung = rung, .user = user};
  int rc = doorbells->set < 0 ? -errno : uv_poll_init(loop, &doorbells->poll, doorbells->set);
  if (rc != 0) {
    if (doorbells->set >= 0)
      close(doorbells->set);
    free(doorbells);
    return error_set(error, STATUS_SYSTEM, "doorbells cannot be listened to: %s", uv_strerror(rc));
  }
  doorbells->poll.data = doorbells;
  uv_poll_start(&doorbells->poll, UV_READABLE, on_ring);
  *out = doorbells;
  return STATUS_OK;
}

enum status doorbells_add(struct doorbells *doorbells, int fd, struct error *error) {
  struct epoll_event event = {.events = EPOLLIN | EPOLLET};
  if (epoll_ctl(doorbells->set, EPOLL_CTL_ADD, fd, &event) == 0)
    return STATUS_OK;
  return error_set(error, STATUS_SYSTEM, "a doorbell cannot be listened to: %s", strerror(errno));
}

void doorbells_remove(struct doorbells *doorbells, int fd) {
  if (doorbells != NULL)
    (void)!epoll_ctl(doorbells->set, EPOLL_CTL_DEL, fd, NULL);
}

void doorbells_close(struct doorbells *doorbells) {
  if (doorbells != NULL)
    uv_close((uv_handle_t *)&doorbells->poll, on_closed);
}
