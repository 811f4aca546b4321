/* Memory of the daemon's for processes that launch kernels themselves: which kernels were found, and what they compute.
 */
#include "../session/control.h"

static int open_memory(gemmd_session *session, enum command command, const void *request, int *fd, uint64_t *bytes) {
  struct message_memory_reply reply = {.bytes = 0};
  int came = -1;
  struct call call = {
      .command = command, .request = request, .reply = &reply, .fd = -1, .reply_fds = &came, .reply_fd_count = 1};
  enum status status = control_call(session, &call);
  *fd = came;
  *bytes = status == STATUS_OK ? reply.bytes : 0;
  return session_result(status);
}

int gemmd_tunings_open(gemmd_session *session, unsigned device, int *fd, uint64_t *bytes) {
  const struct message_tunings_request request = {.device = device};
  return open_memory(session, COMMAND_tunings_open, &request, fd, bytes);
}

int gemmd_shapes_open(gemmd_session *session, int *fd, uint64_t *bytes) {
  const struct message_empty request = {.reserved = 0};
  return open_memory(session, COMMAND_shapes_open, &request, fd, bytes);
}

uint32_t gemmd_resumes(const gemmd_session *session) {
  return session->resumes;
}
