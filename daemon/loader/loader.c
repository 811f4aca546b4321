#include "loader.h"

#include "../../proto/clock.h"
#include "../../proto/wire/message.h"
#include "../log.h"
#include "../transport.h"
#include "load.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct conversation {
  int control;
  uint32_t id;     /* of the request */
  bool progress;   /* events are wanted */
  uint64_t sent;   /* bytes of the last event */
  int64_t sent_ms; /* when; 0: never */
};

/* Waits until the socket is ready; false where it has ended. */
static bool wait_for(int socket, short events) {
  struct pollfd poll_fd = {.fd = socket, .events = events};
  int ready;
  do
    ready = poll(&poll_fd, 1, -1);
  while (ready < 0 && errno == EINTR);
  return ready == 1 && (poll_fd.revents & (events | POLLHUP | POLLERR | POLLNVAL)) == (poll_fd.revents & events);
}

static bool peer_is_gone(int socket) {
  struct pollfd poll_fd = {.fd = socket, .events = POLLRDHUP};
  return poll(&poll_fd, 1, 0) == 1 && (poll_fd.revents & (POLLHUP | POLLRDHUP | POLLERR)) != 0;
}

/* An event that does not fit into the socket now is dropped: the next one says more. */
static void send_progress(struct conversation *talk, uint64_t done, uint64_t total) {
  struct message_head head = {.kind = MESSAGE_EVENT, .code = EVENT_weight_progress};
  struct message_weight_progress body = {.request = talk->id, .done = done, .total = total};
  uint8_t bytes[256];
  size_t length = 0;
  struct error error;
  if (message_encode(&head, &message_weight_progress_type, &body, bytes, sizeof bytes, &length, &error) == STATUS_OK &&
      transport_send(talk->control, bytes, length, NULL, 0, &error) == STATUS_OK)
    talk->sent = done;
}

static bool tick(void *user, uint64_t done, uint64_t total) {
  struct conversation *talk = user;
  if (peer_is_gone(talk->control))
    return false;
  int64_t now = (int64_t)(clock_ns() / 1000000);
  bool due = now - talk->sent_ms >= BANDS_TICK_MS || done == total;
  if (talk->progress && due && done != talk->sent) {
    talk->sent_ms = now;
    send_progress(talk, done, total);
  }
  return true;
}

static enum status send_reply(int control, const uint8_t *bytes, size_t length, int memfd, struct error *error) {
  for (;;) {
    enum status status = transport_send(control, bytes, length, &memfd, memfd >= 0 ? 1 : 0, error);
    if (status != STATUS_BUSY || !wait_for(control, POLLOUT))
      return status;
  }
}

static enum status send_failure(const struct conversation *talk, const struct error *cause, struct error *error) {
  uint8_t bytes[1024];
  size_t length = 0;
  enum status status = message_encode_failure(talk->id, cause, 0, bytes, sizeof bytes, &length, error);
  return status == STATUS_OK ? send_reply(talk->control, bytes, length, -1, error) : status;
}

static enum status send_done(const struct conversation *talk, const struct message_load_done *done, int memfd,
                             struct error *error) {
  struct message_head head = {.kind = MESSAGE_REPLY, .id = talk->id, .code = STATUS_OK};
  uint8_t bytes[1024];
  size_t length = 0;
  enum status status = message_encode(&head, &message_load_done_type, done, bytes, sizeof bytes, &length, error);
  return status == STATUS_OK ? send_reply(talk->control, bytes, length, memfd, error) : status;
}

/* The request out of a packet, whose descriptors are its files. */
static enum status take_request(const struct packet *packet, struct conversation *talk,
                                struct message_weight_load *request, struct error *error) {
  struct message_head head;
  struct message_body body;
  enum status status = message_decode_head(packet->bytes, packet->length, &head, &body, error);
  if (status != STATUS_OK)
    return status;
  talk->id = head.id;
  if (head.kind != MESSAGE_REQUEST || head.code != COMMAND_load)
    return error_set(error, STATUS_PROTOCOL, "a loader takes the request load, got kind %d, code %u", (int)head.kind,
                     head.code);
  status = message_decode_body(body, &message_weight_load_type, request, error);
  if (status != STATUS_OK)
    return status;
  if (packet->fd_count < 1)
    return error_set(error, STATUS_PROTOCOL, "load brings 1 descriptor, got 0");
  talk->progress = request->progress;
  return STATUS_OK;
}

static enum status serve(struct conversation *talk, struct packet *packet, struct error *error) {
  struct message_weight_load request;
  struct message_load_done done;
  struct error cause;
  int memfd = -1;
  enum status status = take_request(packet, talk, &request, &cause);
  if (status == STATUS_OK)
    status = load_run(&request, packet->fds, packet->fd_count, bands_threads(), tick, talk, &done, &memfd, &cause);
  packet_close(packet);
  if (status != STATUS_OK)
    return send_failure(talk, &cause, error);
  status = send_done(talk, &done, memfd, error);
  close(memfd);
  return status;
}

/* Where memory ends the kernel ends this process, not the largest: a load is refused, and products go on. */
static void offer_to_the_kernel(void) {
  int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (fd < 0 || write(fd, "1000", 4) != 4)
    log_info("a loader is not the first to end where memory ends: %s", strerror(errno));
  if (fd >= 0)
    close(fd);
}

int loader_run(const struct config *config, int control) {
  (void)config; /* no option concerns a load */
  offer_to_the_kernel();
  struct error error;
  struct conversation talk = {.control = control};
  struct packet *packet = calloc(1, sizeof *packet);
  if (!packet) {
    log_error("no memory for a message");
    return EXIT_FAILURE;
  }
  enum status status = STATUS_BUSY;
  while (status == STATUS_BUSY && wait_for(control, POLLIN))
    status = transport_receive(control, packet, &error);
  if (status == STATUS_OK)
    status = serve(&talk, packet, &error);
  free(packet);
  if (status == STATUS_OK)
    return EXIT_SUCCESS;
  if (status != STATUS_BUSY && status != STATUS_DISCONNECTED)
    log_error("%s", error.text);
  return EXIT_FAILURE;
}
