/* A client's files of weights. Read with pread into private memory, never mapped: their owner may change or truncate
 * them at any moment, and then that load alone fails. */
#pragma once

#include "../../proto/weights/import/import.h"

enum { FILES_CONFIG_BYTES = 1 << 20 };

struct file {
  int fd;         /* the caller's */
  uint64_t bytes; /* when the load began */
};

/* The files of one load, with what their headers say. */
struct files {
  struct file file[IMPORT_FILES];
  struct safetensors headers[IMPORT_FILES];
  size_t count;
  struct import_model model;
};

/* Reads exactly so many bytes. BAD_FILE with the offset where the file has become shorter. Any thread. */
MUST_CHECK enum status file_read(const struct file *file, uint64_t offset, void *out, size_t bytes,
                                 struct error *error);

/* Reads the headers of all files, and of the last of `fds` the model's configuration where `config` is set. The
 * descriptors stay the caller's. Close it, whatever is returned. */
MUST_CHECK enum status files_open(struct files *files, const int *fds, size_t count, bool config, struct error *error);

/* Numbers that lie in memory without a header: n dense rows of k. */
struct file_matrix {
  const char *name;
  enum gemm_type type; /* F32, F16 or BF16 */
  uint64_t offset;
  int64_t n, k;
};
/* As files_open, of one such matrix, as the tensor `name`. */
MUST_CHECK enum status files_open_matrix(struct files *files, int fd, const struct file_matrix *matrix,
                                         struct error *error);
void files_close(struct files *files);
