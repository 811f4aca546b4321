#include "file.h"

#include "../../proto/weights/header.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* BAD_DESCRIPTOR unless `fd` is a regular file. */
static enum status file_open(struct file *file, int fd, struct error *error) {
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

static enum status read_of_source(void *file, uint64_t offset, void *out, size_t bytes, struct error *error) {
  return file_read(file, offset, out, bytes, error);
}

/* Reads and checks the header of a safetensors or a GGUF file; free with safetensors_free. */
static enum status file_header(struct file *file, struct safetensors *out, struct error *error) {
  const struct header_source source = {.file = file, .bytes = file->bytes, .read = read_of_source};
  return header_read(&source, out, error);
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

static enum safetensors_dtype dtype_of(enum gemm_type type) {
  return type == GEMM_F32 ? DTYPE_F32 : type == GEMM_F16 ? DTYPE_F16 : DTYPE_BF16;
}

static enum status matrix_header(const struct file *file, const struct file_matrix *matrix, struct safetensors *out,
                                 struct error *error) {
  uint64_t n = (uint64_t)matrix->n, k = (uint64_t)matrix->k, bytes;
  if (matrix->n < 1 || matrix->k < 1 || __builtin_mul_overflow(n, k, &bytes) ||
      __builtin_mul_overflow(bytes, gemm_type_bytes(matrix->type), &bytes) || bytes > file->bytes ||
      matrix->offset > file->bytes - bytes)
    return error_set(error, STATUS_BAD_FILE, "%lld x %lld %s at byte %llu do not lie in %llu bytes",
                     (long long)matrix->n, (long long)matrix->k, gemm_type_name(matrix->type),
                     (unsigned long long)matrix->offset, (unsigned long long)file->bytes);
  struct safetensors_tensor *tensor = calloc(1, sizeof *tensor);
  char *name = strdup(matrix->name);
  if (tensor == NULL || name == NULL) {
    free(tensor);
    free(name);
    return error_set(error, STATUS_NOMEM, "no memory for an entry of a tensor");
  }
  *tensor = (struct safetensors_tensor){.name = name,
                                        .dtype = dtype_of(matrix->type),
                                        .rank = 2,
                                        .shape = {n, k},
                                        .elements = n * k,
                                        .begin = matrix->offset,
                                        .end = matrix->offset + bytes};
  *out = (struct safetensors){.tensors = tensor, .count = 1};
  return STATUS_OK;
}

enum status files_open_matrix(struct files *files, int fd, const struct file_matrix *matrix, struct error *error) {
  *files = (struct files){.count = 0};
  enum status status = file_open(&files->file[0], fd, error);
  if (status == STATUS_OK)
    status = matrix_header(&files->file[0], matrix, &files->headers[0], error);
  if (status != STATUS_OK)
    return status;
  files->count = 1;
  return import_open(&files->model, files->headers, 1, NULL, 0, error);
}

void files_close(struct files *files) {
  import_close(&files->model);
  for (size_t i = 0; i < files->count; i++)
    safetensors_free(&files->headers[i]);
  files->count = 0;
}
