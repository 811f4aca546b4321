#include "channel.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PACKETS_A_TURN = 16 }; /* so that one busy peer does not keep the others waiting */

struct channel_record {
  struct channel_record *next;
  int fds[LIMIT_MESSAGE_FDS]; /* owned copies */
  size_t fd_count, length;
  uint8_t bytes[];
};

static void record_free(struct channel_record *record) {
  for (size_t i = 0; i < record->fd_count; i++)
    close(record->fds[i]);
  free(record);
}

static void on_poll(uv_poll_t *poll, int status, int events);

/* All that a peer is to have that writes no more. */
static bool finished(const struct channel *channel) {
  bool owes = channel->events->owes != NULL && channel->events->owes(channel);
  return channel->finishing && channel->first == NULL && !owes;
}

static void watch(struct channel *channel) {
  /* half closed stays half closed; that both are is told with anything that is watched */
  int events = channel->half ? UV_PRIORITIZED : UV_DISCONNECT;
  if (!channel->paused && !channel->finishing)
    events |= UV_READABLE;
  if (channel->first != NULL || finished(channel))
    events |= UV_WRITABLE;
  if (!channel->ended && !channel->closing)
    uv_poll_start(&channel->poll, events, on_poll);
}

static void end(struct channel *channel, const struct error *cause) {
  if (channel->ended || channel->closing)
    return;
  channel->ended = true;
  uv_poll_stop(&channel->poll);
  channel->events->end(channel, cause);
}

/* False where the channel has ended. */
static bool flush(struct channel *channel) {
  while (channel->first != NULL) {
    struct channel_record *record = channel->first;
    struct error error;
    enum status status =
        transport_send(channel->fd, record->bytes, record->length, record->fds, record->fd_count, &error);
    if (status == STATUS_BUSY)
      return true;
    if (status != STATUS_OK) {
      end(channel, &error);
      return false;
    }
    channel->first = record->next;
    if (channel->first == NULL)
      channel->last = NULL;
    channel->queued--;
    channel->sent++;
    record_free(record);
  }
  return true;
}

/* The peer has shut down its direction alone. */
static bool is_half_closed(const struct channel *channel) {
  struct pollfd peer = {.fd = channel->fd, .events = POLLRDHUP};
  return poll(&peer, 1, 0) == 1 && (peer.revents & POLLRDHUP) && !(peer.revents & (POLLHUP | POLLERR));
}

/* True while there may be more. */
static bool receive_one(struct channel *channel) {
  struct packet packet;
  struct error error;
  packet.payer = channel->payer;
  if (channel->paused || channel->ended || channel->closing || channel->finishing)
    return false;
  enum status status = transport_receive(channel->fd, &packet, &error);
  if (status == STATUS_BUSY)
    return false;
  if (status == STATUS_DISCONNECTED && is_half_closed(channel)) {
    channel->half = channel->finishing = true;
    return false;
  }
  if (status != STATUS_OK) {
    end(channel, &error);
    return false;
  }
  channel->events->packet(channel, &packet);
  packet_close(&packet);
  return true;
}

static void receive(struct channel *channel) {
  for (int i = 0; i < PACKETS_A_TURN && receive_one(channel); i++) {
  }
}

void channel_drain(struct channel *channel) {
  while (receive_one(channel)) {
  }
}

static void on_poll(uv_poll_t *poll, int status, int events) {
  struct channel *channel = poll->data;
  struct error gone;
  (void)error_set(&gone, STATUS_DISCONNECTED, "the peer has closed the connection");
  if ((events & UV_WRITABLE) && !flush(channel))
    return;
  if ((events & UV_WRITABLE) && channel->first == NULL && channel->events->flushed != NULL)
    channel->events->flushed(channel);
  /* An error of the socket: the peer left with something unread; what it sent before may still be there. */
  if (status < 0 || (events & UV_READABLE))
    receive(channel);
  else if ((events & UV_DISCONNECT) && is_half_closed(channel))
    channel->half = true;
  else if (events & (UV_DISCONNECT | UV_PRIORITIZED))
    end(channel, &gone);
  if (status < 0 || finished(channel))
    end(channel, &gone);
  watch(channel);
}

enum status channel_open(struct channel *channel, uv_loop_t *loop, int fd, size_t queue_max,
                         const struct channel_events *events, void *owner, struct error *error) {
  *channel = (struct channel){.fd = fd, .events = events, .owner = owner, .queue_max = queue_max};
  int rc = uv_poll_init(loop, &channel->poll, fd);
  if (rc != 0) {
    close(fd);
    return error_set(error, STATUS_SYSTEM, "a socket cannot be watched: %s", uv_strerror(rc));
  }
  channel->poll.data = channel;
  watch(channel);
  return STATUS_OK;
}

static enum status enqueue(struct channel *channel, const void *bytes, size_t length, const int *fds, size_t fd_count,
                           struct error *error) {
  if (channel->queue_max != 0 && channel->queued >= channel->queue_max)
    return error_set(error, STATUS_BUSY, "the peer has %zu messages to read", channel->queued);
  struct channel_record *record = malloc(sizeof *record + length);
  if (record == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for a message");
  *record = (struct channel_record){.length = length};
  memcpy(record->bytes, bytes, length);
  for (size_t i = 0; i < fd_count; i++) {
    int copy = fcntl(fds[i], F_DUPFD_CLOEXEC, 0);
    if (copy < 0) {
      record_free(record);
      return error_set(error, STATUS_SYSTEM, "dup: %s", strerror(errno));
    }
    record->fds[record->fd_count++] = copy;
  }
  if (channel->last == NULL)
    channel->first = record;
  else
    channel->last->next = record;
  channel->last = record;
  channel->queued++;
  watch(channel);
  return STATUS_OK;
}

static enum status send_bytes(struct channel *channel, const void *bytes, size_t length, const int *fds,
                              size_t fd_count, struct error *error) {
  if (channel->ended || channel->closing)
    return error_set(error, STATUS_DISCONNECTED, "the connection is closed");
  if (channel->first == NULL) {
    enum status status = transport_send(channel->fd, bytes, length, fds, fd_count, error);
    if (status != STATUS_BUSY)
      return status;
  }
  return enqueue(channel, bytes, length, fds, fd_count, error);
}

enum status channel_send(struct channel *channel, const struct message_head *head, const struct message_type *type,
                         const void *body, const int *fds, size_t fd_count, struct error *error) {
  uint8_t bytes[LIMIT_MESSAGE_BYTES];
  size_t length;
  enum status status = message_encode(head, type, body, bytes, sizeof bytes, &length, error);
  return status != STATUS_OK ? status : send_bytes(channel, bytes, length, fds, fd_count, error);
}

enum status channel_send_failure(struct channel *channel, uint32_t id, const struct error *cause, uint32_t retry_ms,
                                 struct error *error) {
  uint8_t bytes[LIMIT_MESSAGE_BYTES];
  size_t length;
  enum status status = message_encode_failure(id, cause, retry_ms, bytes, sizeof bytes, &length, error);
  return status != STATUS_OK ? status : send_bytes(channel, bytes, length, NULL, 0, error);
}

void channel_pause(struct channel *channel, bool paused) {
  if (channel->paused == paused)
    return;
  channel->paused = paused;
  watch(channel);
}

void channel_settle(struct channel *channel) {
  if (channel->finishing)
    watch(channel);
}

static void on_closed(uv_handle_t *handle) {
  struct channel *channel = handle->data;
  channel->events->closed(channel);
}

void channel_close(struct channel *channel) {
  if (channel->closing)
    return;
  channel->closing = true;
  uv_close((uv_handle_t *)&channel->poll, on_closed);
  close(channel->fd);
  while (channel->first != NULL) {
    struct channel_record *record = channel->first;
    channel->first = record->next;
    record_free(record);
  }
  channel->last = NULL;
  channel->queued = 0;
}
