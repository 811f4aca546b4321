#include "parked.h"

#include "../../../proto/wire/message_types.h"

#include <stdlib.h>
#include <string.h>

enum parked_way parked_way(enum command command) {
  switch (command) {
  case COMMAND_weight_plan:
  case COMMAND_slab_create:
  case COMMAND_weight_store:
  case COMMAND_weight_copy:
  case COMMAND_weight_verify:
  case COMMAND_weight_read:
  case COMMAND_weight_make:
  case COMMAND_weight_tune:
  case COMMAND_weight_pin:
  case COMMAND_tune_list:
  case COMMAND_tune_forget:
  case COMMAND_tune_import:
    return PARKED_WAITS;
  case COMMAND_session_weight_add:
  case COMMAND_session_tensor_add:
  case COMMAND_session_ipc_add:
    return PARKED_WAKES;
  default:
    return PARKED_NEEDS_NONE;
  }
}

enum status parked_add(struct parked *parked, enum command command, const void *body, worker_done done, void *user,
                       struct error *error) {
  size_t bytes = command_find(command)->request->bytes;
  struct parked_request *request = malloc(sizeof *request);
  void *copy = malloc(bytes);
  if (request == NULL || copy == NULL) {
    free(request);
    free(copy);
    return error_set(error, STATUS_NOMEM, "no memory for a request to a worker");
  }
  memcpy(copy, body, bytes);
  *request = (struct parked_request){.command = command, .body = copy, .done = done, .user = user};
  TAILQ_INSERT_TAIL(parked, request, link);
  return STATUS_OK;
}

struct parked_request *parked_take(struct parked *parked) {
  struct parked_request *request = TAILQ_FIRST(parked);
  if (request != NULL)
    TAILQ_REMOVE(parked, request, link);
  return request;
}

void parked_free(struct parked_request *request) {
  free(request->body);
  free(request);
}

void parked_fail(struct parked *parked, uint32_t device) {
  struct parked_request *request;
  while ((request = parked_take(parked)) != NULL) {
    struct worker_answer answer = {.fd = -1};
    answer.status = error_set(&answer.error, STATUS_DEVICE_LOST, "the worker of device %u does not start", device);
    request->done(request->user, &answer);
    parked_free(request);
  }
}
