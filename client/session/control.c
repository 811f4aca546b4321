#include "control.h"
#include "../submit/queue.h"
#include "resume.h"

enum status control_call(struct gemmd_session *session, const struct call *call) {
  if (session->ended && !session_resume(session))
    return session_gone(session);
  for (;;) {
    enum status status = exchange_call(session, call);
    if (!session->ended || !session_resume(session))
      return status;
    if (call->once)
      return error_set(&session->error, STATUS_DISCONNECTED,
                       "the daemon was lost during %s, and another one found; whether it was done is not known",
                       command_find(call->command)->name);
  }
}

enum status control_alive(struct gemmd_session *session) {
  bool failed = false;
  for (uint32_t device = 0; device < session->devices; device++)
    failed |= session->queues[device].open && queue_failed(&session->queues[device]);
  if (failed)
    (void)exchange_look(session);
  return session->ended && !session_resume(session) ? session_gone(session) : STATUS_OK;
}
