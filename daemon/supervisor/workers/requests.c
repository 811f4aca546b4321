#include "requests.h"

#include <stdlib.h>
#include <unistd.h>

struct request {
  TAILQ_ENTRY(request) link;
  uint32_t id;
  const struct command_info *command;
  worker_done done;
  void *user;
};

void requests_init(struct requests *requests) {
  *requests = (struct requests){.last_id = 0};
  TAILQ_INIT(&requests->waiting);
}

/* Whoever asks for counters, as every status does, or for something new has nothing in the memory that a dying worker
 * may still write into, and is not kept waiting where a process cannot end because its device hangs. */
bool request_needs_no_end(enum command command) {
  switch (command) {
  case COMMAND_worker_stats:
  case COMMAND_session_add:
  case COMMAND_weight_plan:
  case COMMAND_slab_create:
  case COMMAND_weight_store:
    return true;
  default:
    return false;
  }
}

bool request_is_background(enum command command) {
  return command == COMMAND_worker_stats || command == COMMAND_worker_quiet || command == COMMAND_weight_seen ||
         command == COMMAND_weight_verify;
}

bool requests_wanted(const struct requests *requests) {
  const struct request *request;
  TAILQ_FOREACH (request, &requests->waiting, link)
    if (!request_is_background((enum command)request->command->number))
      return true;
  return false;
}

enum status requests_send(struct requests *requests, enum command command, struct channel *channel, const void *body,
                          const int *fds, size_t fd_count, worker_done done, void *user, struct error *error) {
  struct request *request = malloc(sizeof *request);
  if (request == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for a request to a worker");
  const struct command_info *info = command_find(command);
  *request = (struct request){.id = ++requests->last_id, .command = info, .done = done, .user = user};
  struct message_head head = {.kind = MESSAGE_REQUEST, .id = request->id, .code = command};
  enum status status = STATUS_OK;
  if (channel != NULL)
    status = channel_send(channel, &head, info->request, body, fds, fd_count, error);
  if (status != STATUS_OK && status != STATUS_DISCONNECTED) {
    free(request);
    return status;
  }
  TAILQ_INSERT_TAIL(&requests->waiting, request, link);
  return STATUS_OK;
}

static void fail(struct request *request, uint32_t device) {
  struct worker_answer answer = {.fd = -1};
  answer.status = error_set(&answer.error, STATUS_DEVICE_LOST, "the worker of device %u died", device);
  request->done(request->user, &answer);
  free(request);
}

void requests_fail(struct requests *requests, uint32_t device) {
  struct request_list waiting = TAILQ_HEAD_INITIALIZER(waiting);
  TAILQ_CONCAT(&waiting, &requests->waiting, link); /* new ones may come in from the callbacks */
  struct request *request;
  while ((request = TAILQ_FIRST(&waiting)) != NULL) {
    TAILQ_REMOVE(&waiting, request, link);
    fail(request, device);
  }
}

void requests_fail_at_once(struct requests *requests, uint32_t device) {
  struct request *request = TAILQ_FIRST(&requests->waiting);
  while (request != NULL) {
    if (!request_needs_no_end((enum command)request->command->number)) {
      request = TAILQ_NEXT(request, link);
      continue;
    }
    TAILQ_REMOVE(&requests->waiting, request, link);
    fail(request, device);
    request = TAILQ_FIRST(&requests->waiting); /* the callback may have changed what comes next */
  }
}

static struct request *take(struct requests *requests, uint32_t id) {
  struct request *request;
  TAILQ_FOREACH (request, &requests->waiting, link)
    if (request->id == id) {
      TAILQ_REMOVE(&requests->waiting, request, link);
      return request;
    }
  return NULL;
}

enum status requests_answer(struct requests *requests, const struct message_head *head, struct message_body body,
                            struct packet *packet, struct error *error) {
  struct request *request = take(requests, head->id);
  if (request == NULL)
    return error_set(error, STATUS_PROTOCOL, "a reply to nothing (id %u)", head->id);
  union worker_reply_body decoded;
  struct worker_answer answer = {.status = STATUS_OK, .body = &decoded, .fd = -1};
  enum status status = STATUS_OK;
  if (head->code != STATUS_OK) {
    message_decode_failure(head->code, body, &answer.error);
    answer.status = answer.error.status;
  } else if ((status = message_decode_body(body, request->command->reply, &decoded, error)) != STATUS_OK) {
    answer.error = *error;
    answer.status = answer.error.status;
  }
  answer.fd = packet_take_fd(packet, 0);
  request->done(request->user, &answer);
  if (answer.fd >= 0)
    close(answer.fd);
  free(request);
  return status;
}
