#include "control_send.h"

#include "../../log.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A message that waits for the socket. */
struct control_letter {
  struct control_letter *next;
  int fd; /* owned; -1: none */
  size_t length;
  uint8_t bytes[];
};

static void free_letter(struct control_letter *letter) {
  if (letter->fd >= 0)
    close(letter->fd);
  free(letter);
}

static void keep(struct control *control, const uint8_t *bytes, size_t length, int fd) {
  struct control_letter *letter = malloc(sizeof *letter + length);
  if (letter == NULL) {
    log_error("no memory for a message to the supervisor");
    control->end(control);
    return;
  }
  *letter = (struct control_letter){.fd = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1, .length = length};
  memcpy(letter->bytes, bytes, length);
  if (control->unsent_last != NULL)
    control->unsent_last->next = letter;
  else
    control->unsent = letter;
  control->unsent_last = letter;
  control->watch(control);
}

/* False where the socket takes nothing at the moment. */
static bool try_send(struct control *control, const uint8_t *bytes, size_t length, int fd) {
  struct error error;
  enum status status = transport_send(control->socket, bytes, length, &fd, fd >= 0 ? 1 : 0, &error);
  if (status == STATUS_BUSY)
    return false;
  if (status != STATUS_OK && status != STATUS_DISCONNECTED)
    log_error("sending to the supervisor: %s", error.text);
  if (status != STATUS_OK)
    control->end(control);
  return true;
}

static void send_bytes(struct control *control, const uint8_t *bytes, size_t length, int fd) {
  if (control->closing)
    return;
  if (control->unsent != NULL || !try_send(control, bytes, length, fd))
    keep(control, bytes, length, fd);
}

static void send_message(struct control *control, const struct message_head *head, const struct message_type *type,
                         const void *body, int fd) {
  uint8_t bytes[LIMIT_MESSAGE_BYTES];
  size_t length;
  struct error error;
  if (message_encode(head, type, body, bytes, sizeof bytes, &length, &error) == STATUS_OK)
    send_bytes(control, bytes, length, fd);
  else
    log_error("composing a message to the supervisor: %s", error.text);
}

void control_send_event(struct control *control, uint32_t event, const struct message_type *type, const void *body) {
  struct message_head head = {.kind = MESSAGE_EVENT, .code = event};
  send_message(control, &head, type, body, -1);
}

void control_send_reply(struct control *control, uint32_t id, const struct message_type *type, const void *body,
                        int fd) {
  struct message_head head = {.kind = MESSAGE_REPLY, .id = id, .code = STATUS_OK};
  send_message(control, &head, type, body, fd);
}

void control_send_failure(struct control *control, uint32_t id, const struct error *failure) {
  uint8_t bytes[LIMIT_MESSAGE_BYTES];
  size_t length;
  struct error error;
  if (message_encode_failure(id, failure, 0, bytes, sizeof bytes, &length, &error) == STATUS_OK)
    send_bytes(control, bytes, length, -1);
  else
    log_error("composing a refusal to the supervisor: %s", error.text);
}

void control_send_kept(struct control *control) {
  while (control->unsent != NULL && !control->closing) {
    struct control_letter *letter = control->unsent;
    if (!try_send(control, letter->bytes, letter->length, letter->fd))
      return;
    control->unsent = letter->next;
    if (control->unsent == NULL)
      control->unsent_last = NULL;
    free_letter(letter);
  }
}

void control_send_drop(struct control *control) {
  while (control->unsent != NULL) {
    struct control_letter *letter = control->unsent;
    control->unsent = letter->next;
    free_letter(letter);
  }
  control->unsent_last = NULL;
}
