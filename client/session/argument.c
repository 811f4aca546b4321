#include "argument.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

enum status text_copy(struct gemmd_session *session, char *to, size_t bytes, const char *from, const char *what) {
  size_t length = from != NULL ? strnlen(from, bytes) : 0;
  if (length == 0 || length == bytes)
    return error_set(&session->error, STATUS_INVALID, "%s must have 1..%zu bytes, got %s", what, bytes - 1,
                     length == 0 ? "none" : "more");
  memcpy(to, from, length + 1);
  return STATUS_OK;
}

static enum status open_status(int reason) {
  switch (reason) {
  case ENOENT:
  case ENOTDIR:
    return STATUS_NOT_FOUND;
  case EACCES:
  case EPERM:
    return STATUS_PERMISSION;
  default:
    return STATUS_SYSTEM;
  }
}

enum status path_open(struct gemmd_session *session, int folder, const char *path, int *fd) {
  /* Not blocking: opening a FIFO would wait for a writer; the daemon refuses it as no regular file. */
  do {
    *fd = openat(folder, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  } while (*fd < 0 && errno == EINTR);
  if (*fd >= 0)
    return STATUS_OK;
  return error_set(&session->error, open_status(errno), "cannot open %.160s: %s", path, strerror(errno));
}
