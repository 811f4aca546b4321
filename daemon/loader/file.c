#include "file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum status file_open(struct file *file, int fd, struct error *error) {
  struct stat stat;
  if (fstat(fd, &stat) != 0)
    return error_set(error, STATUS_BAD_DESCRIPTOR, "weights file: %s", strerror(errno));
  if (!S_ISREG(stat.st_mode))
    return error_set(error, STATUS_BAD_DESCRIPTOR, "weights file must be a regular file");
  *file = (struct file){.fd = fd, .bytes = (uint64_t)stat.st_size};
  return STATUS_OK;
}

enum status file_read(const struct file *file, uint64_t offset, void *out, size_t bytes, struct error *error) {
  uint8_t *to = out;
  while (bytes > 0) {
    ssize_t got = pread(file->fd, to, bytes, (off_t)offset);
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      return error_set(error, errno == EBADF ? STATUS_BAD_DESCRIPTOR : STATUS_SYSTEM,
                       "weights file cannot be read at byte %llu: %s", (unsigned long long)offset, strerror(errno));
    if (got == 0)
      return error_set(error, STATUS_BAD_FILE, "file ends at byte %llu; it had %llu when the load began",
                       (unsigned long long)offset, (unsigned long long)file->bytes);
    to += got;
    offset += (uint64_t)got;
    bytes -= (size_t)got;
  }
  return STATUS_OK;
}

enum status file_header(const struct file *file, struct safetensors *out, struct error *error) {
  uint8_t first[SAFETENSORS_LENGTH_BYTES];
  size_t have = file->bytes < sizeof first ? (size_t)file->bytes : sizeof first;
  uint64_t json_bytes = 0;
  enum status status = file_read(file, 0, first, have, error);
  if (status == STATUS_OK)
    status = safetensors_length(first, have, file->bytes, &json_bytes, error);
  if (status != STATUS_OK)
    return status;
  char *json = malloc((size_t)json_bytes + 1);
  if (!json)
    return error_set(error, STATUS_NOMEM, "no memory for a header of %llu bytes", (unsigned long long)json_bytes);
  status = file_read(file, SAFETENSORS_LENGTH_BYTES, json, (size_t)json_bytes, error);
  if (status == STATUS_OK)
    status = safetensors_parse(json, json_bytes, file->bytes, out, error);
  free(json);
  return status;
}
