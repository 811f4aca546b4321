#include "session.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>

enum status session_end(struct gemmd_session *session, enum status status, const char *format, ...) {
  char text[ERROR_TEXT_BYTES];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  (void)error_set(&session->error, status, "%s", text);
  if (!session->ended) {
    session->ended = true;
    session->end = session->error;
    shutdown(session->socket, SHUT_RDWR);
  }
  return status;
}

enum status session_gone(struct gemmd_session *session) {
  return error_set(&session->error, STATUS_DISCONNECTED, "the session has ended: %s", session->end.text);
}
