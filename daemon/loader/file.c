#include "file.h"

#include "../../proto/weights/gguf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { GGUF_BYTES_FIRST = 1 << 16 };

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

static enum status gguf_header(const struct file *file, struct safetensors *out, struct error *error) {
  uint64_t most = file->bytes < LIMIT_FILE_HEADER_BYTES ? file->bytes : LIMIT_FILE_HEADER_BYTES;
  enum status status = STATUS_UNSUPPORTED;
  bool more = true;
  /* How long the header is says only the header itself. */
  for (uint64_t have = GGUF_BYTES_FIRST; more; have *= 4) {
    have = have < most ? have : most;
    uint8_t *bytes = malloc((size_t)have + 1);
    if (!bytes)
      return error_set(error, STATUS_NOMEM, "no memory for a header of %llu bytes", (unsigned long long)have);
    status = file_read(file, 0, bytes, (size_t)have, error);
    if (status == STATUS_OK)
      status = gguf_parse(bytes, (size_t)have, file->bytes, out, &more, error);
    else
      more = false;
    free(bytes);
    if (have == most)
      break;
  }
  return status;
}

static enum status safetensors_header(const struct file *file, const uint8_t *first, size_t have,
                                      struct safetensors *out, struct error *error) {
  uint64_t json_bytes = 0;
  enum status status = safetensors_length(first, have, file->bytes, &json_bytes, error);
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

enum status file_header(const struct file *file, struct safetensors *out, struct error *error) {
  uint8_t first[SAFETENSORS_LENGTH_BYTES];
  size_t have = file->bytes < sizeof first ? (size_t)file->bytes : sizeof first;
  *out = (struct safetensors){.count = 0};
  enum status status = file_read(file, 0, first, have, error);
  if (status != STATUS_OK)
    return status;
  return gguf_is(first, have) ? gguf_header(file, out, error) : safetensors_header(file, first, have, out, error);
}

/* ---- the files of one load */

static enum status read_config(int fd, char **text, size_t *bytes, struct error *error) {
  struct file file;
  enum status status = file_open(&file, fd, error);
  if (status != STATUS_OK)
    return status;
  if (file.bytes > FILES_CONFIG_BYTES)
    return error_set(error, STATUS_BAD_FILE, "the model's configuration has %llu bytes; the most is %d",
                     (unsigned long long)file.bytes, FILES_CONFIG_BYTES);
  *bytes = (size_t)file.bytes;
  *text = malloc(*bytes + 1);
  if (!*text)
    return error_set(error, STATUS_NOMEM, "no memory for the model's configuration");
  return file_read(&file, 0, *text, *bytes, error);
}

enum status files_open(struct files *files, const int *fds, size_t count, bool config, struct error *error) {
  char *text = NULL;
  size_t bytes = 0, weights = config && count > 0 ? count - 1 : count;
  *files = (struct files){.count = 0};
  if (weights < 1 || weights > IMPORT_FILES)
    return error_set(error, STATUS_BAD_DESCRIPTOR, "a load takes 1..%d files of weights, got %zu", IMPORT_FILES,
                     weights);
  enum status status = config ? read_config(fds[weights], &text, &bytes, error) : STATUS_OK;
  for (; status == STATUS_OK && files->count < weights; files->count++) {
    status = file_open(&files->file[files->count], fds[files->count], error);
    if (status == STATUS_OK)
      status = file_header(&files->file[files->count], &files->headers[files->count], error);
  }
  if (status == STATUS_OK)
    status = import_open(&files->model, files->headers, files->count, text, bytes, error);
  free(text);
  return status;
}

void files_close(struct files *files) {
  import_close(&files->model);
  for (size_t i = 0; i < files->count; i++)
    safetensors_free(&files->headers[i]);
  files->count = 0;
}
