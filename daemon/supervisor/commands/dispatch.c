#include "dispatch.h"

#include "../session/session.h"
#include "cmd.h"

struct handler {
  enum command command;
  void (*run)(struct session *session, uint32_t id, const void *body, struct packet *packet);
};

static const struct handler handlers[] = {
    {COMMAND_hello, cmd_hello},
    {COMMAND_ping, cmd_ping},
    {COMMAND_status, cmd_status},
    {COMMAND_metrics, cmd_metrics},
    {COMMAND_arena_create, cmd_arena_create},
    {COMMAND_queue_open, cmd_queue_open},
    {COMMAND_drain, cmd_drain},
    {COMMAND_device_retry, cmd_device_retry},
    {COMMAND_upgrade, cmd_upgrade},
    {COMMAND_arena_adopt, cmd_arena_adopt},
    {COMMAND_weight_load, cmd_weight_load},
    {COMMAND_weight_open, cmd_weight_open},
    {COMMAND_weight_close, cmd_weight_close},
    {COMMAND_weight_list, cmd_weight_list},
    {COMMAND_weight_info, cmd_weight_info},
    {COMMAND_weight_unload, cmd_weight_unload},
    {COMMAND_weight_borrow, cmd_weight_borrow},
    {COMMAND_weight_return, cmd_weight_return},
    {COMMAND_weight_hold, cmd_weight_hold},
    {COMMAND_tunings_open, cmd_tunings_open},
    {COMMAND_shapes_open, cmd_shapes_open},
    {COMMAND_tune_propose, cmd_tune_propose},
    {COMMAND_weight_commit, cmd_weight_commit},
    {COMMAND_weight_abandon, cmd_weight_abandon},
    {COMMAND_weight_fetch, cmd_weight_fetch},
    {COMMAND_tensor_open, cmd_tensor_open},
    {COMMAND_tensor_close, cmd_tensor_close},
    {COMMAND_ipc_open, cmd_ipc_open},
    {COMMAND_tune_list, cmd_tune_list},
    {COMMAND_tune_run, cmd_tune_run},
    {COMMAND_tune_forget, cmd_tune_forget},
    {COMMAND_tune_import, cmd_tune_import},
    {COMMAND_tune_pin, cmd_tune_pin},
};

/* Room for the body of any request of the table above. */
union request_body {
  struct message_hello_request hello;
  struct message_ping ping;
  struct message_empty empty;
  struct message_arena_request arena_create;
  struct message_queue_open queue_open;
  struct message_weight_load weight_load;
  struct message_weight_name weight_name;
  struct message_weight_close weight_close;
  struct message_weight_list_request weight_list;
  struct message_weight_borrow weight_borrow;
  struct message_weight_return weight_return;
  struct message_weight_hold weight_hold;
  struct message_tunings_request tunings;
  struct message_weight_commit weight_commit;
  struct message_tensor_open tensor_open;
  struct message_tensor_handle tensor_handle;
  struct message_ipc_open ipc_open;
  struct message_tune_list_request tune_list;
  struct message_tune_run_request tune_run;
  struct message_tune_forget_request tune_forget;
  struct message_tune_import_request tune_import;
  struct message_tune_pin_request tune_pin;
};

static const struct handler *find_handler(uint32_t command) {
  for (size_t i = 0; i < sizeof handlers / sizeof *handlers; i++)
    if (handlers[i].command == command)
      return &handlers[i];
  return NULL;
}

static enum status check_permission(const struct session *session, const struct command_info *info,
                                    struct error *error) {
  if (role_may(session->role, info->permission))
    return STATUS_OK;
  return error_set(error, STATUS_PERMISSION, "%s is not for %s", info->name,
                   info->permission == PERMISSION_INTERNAL ? "clients" : "this user");
}

static enum status check_state(const struct session *session, const struct command_info *info, struct error *error) {
  if (info->states & session->state)
    return STATUS_OK;
  const char *why = session->state == STATE_NEW         ? "hello comes first"
                    : (info->states & STATE_ARENA) != 0 ? "an arena comes first"
                                                        : "hello has been said";
  return error_set(error, STATUS_WRONG_STATE, "%s is not allowed in this state: %s", info->name, why);
}

/* Everything that can be said before the body is looked at. */
static enum status check(const struct session *session, const struct command_info *info, const struct packet *packet,
                         struct error *error) {
  if (session->state != STATE_NEW && info->since > session->version)
    return error_set(error, STATUS_VERSION, "%s came with version %u, this session speaks %u", info->name, info->since,
                     session->version);
  enum status status = check_permission(session, info, error);
  if (status == STATUS_OK)
    status = check_state(session, info, error);
  if (status == STATUS_OK && (packet->fd_count < info->fds || packet->fd_count > command_fds_most(info)))
    status = error_set(error, STATUS_BAD_DESCRIPTOR, "%s takes %u descriptors, got %zu", info->name, info->fds,
                       packet->fd_count);
  return status;
}

enum status dispatch_request(struct session *session, const struct message_head *head, struct message_body body,
                             struct packet *packet, struct error *error) {
  const struct command_info *info = command_find(head->code);
  const struct handler *handler = find_handler(head->code);
  union request_body decoded;
  session_asked(session, head->id, info);
  if (info == NULL) {
    (void)error_set(error, STATUS_UNSUPPORTED, "command %u is unknown", head->code);
  } else if (check(session, info, packet, error) != STATUS_OK) {
    /* answered below */
  } else if (handler == NULL) {
    (void)error_set(error, STATUS_UNSUPPORTED, "%s is not served", info->name);
  } else {
    enum status status = message_decode_body(body, info->request, &decoded, error);
    if (status == STATUS_OK)
      handler->run(session, head->id, &decoded, packet);
    return status;
  }
  session_fail(session, head->id, error);
  return STATUS_OK;
}
