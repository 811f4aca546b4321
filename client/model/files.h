/* The files of a model, private. Functions leave the sentence in *error. */
#pragma once

#include "../../proto/weights/import/import.h"

#include <sys/stat.h>

struct gemmd_session;

struct model_file {
  char *path; /* owned; for sentences */
  int fd;     /* owned */
  struct stat then;
};

struct model_files {
  struct model_file *files; /* owned */
  struct safetensors *headers;
  size_t count;
  struct model_file config; /* fd -1: there is none */
  struct import_model model;
};

/* Opens what the paths say and reads all headers. Close it, whatever is returned. */
MUST_CHECK enum status model_files_open(struct gemmd_session *session, const char *const *paths, unsigned count,
                                        struct model_files *out);
void model_files_close(struct model_files *files);
/* BAD_FILE where one of them is not what it was when it was opened. */
MUST_CHECK enum status model_files_unchanged(const struct model_files *files, struct error *error);
