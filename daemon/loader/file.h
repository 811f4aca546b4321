/* A client's file of weights. Read with pread into private memory, never mapped: its owner may change or truncate it
 * at any moment, and then that load alone fails. */
#ifndef LOADER_FILE_H
#define LOADER_FILE_H

#include "../../proto/weights/safetensors.h"

struct file {
  int fd;         /* the caller's */
  uint64_t bytes; /* when the load began */
};

/* BAD_DESCRIPTOR unless `fd` is a regular file. */
MUST_CHECK enum status file_open(struct file *file, int fd, struct error *error);
/* Reads exactly so many bytes. BAD_FILE with the offset where the file has become shorter. Any thread. */
MUST_CHECK enum status file_read(const struct file *file, uint64_t offset, void *out, size_t bytes,
                                 struct error *error);
/* Reads and checks the header; free with safetensors_free. */
MUST_CHECK enum status file_header(const struct file *file, struct safetensors *out, struct error *error);

#endif
