#include "dispatch.h"

#include "../session/session.h"
#include "cmd.h"

/* Room for the body of any request. */
union request_body {
#define COMMAND(number, name, permission, state, request, ...) struct message_##request name;
#include "../../../proto/wire/commands.def"
};

static enum status run(struct session *session, uint32_t command, struct call *call) {
  switch (command) {
#define RUN_USER(name)                                                                                                 \
  case COMMAND_##name:                                                                                                 \
    return cmd_##name(session, call);
#define RUN_ADMIN(name) RUN_USER(name)
#define RUN_INTERNAL(name)
#define COMMAND(number, name, permission, ...) RUN_##permission(name)
#include "../../../proto/wire/commands.def"
  default:
    return error_set(&call->error, STATUS_UNSUPPORTED, "command %u is not served", command);
  }
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
  union request_body decoded;
  struct call call = {.id = head->id, .body = &decoded, .packet = packet};
  session_asked(session, head->id, info);
  if (info == NULL) {
    (void)error_set(&call.error, STATUS_UNSUPPORTED, "command %u is unknown", head->code);
  } else if (check(session, info, packet, &call.error) == STATUS_OK) {
    enum status status = message_decode_body(body, info->request, &decoded, error);
    if (status != STATUS_OK || run(session, head->code, &call) == STATUS_OK)
      return status;
  }
  session_fail(session, head->id, &call.error);
  return STATUS_OK;
}
