/* Whole models, private: the files of one, what is in them, and what is to become of it. Functions leave the sentence
 * in *error. */
#ifndef CLIENT_MODEL_H
#define CLIENT_MODEL_H

#include "../../proto/weights/import/import.h"
#include "../session/session.h"

#include <sys/stat.h>

/* ---- files.c */

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

/* ---- index.c: model.safetensors.index.json. Pure. */

struct model_index {
  struct model_index_entry {
    char *tensor; /* owned */
    size_t file;
  } * entries; /* owned */
  size_t count;
  char **files; /* owned: names of files, plain ones, each once */
  size_t file_count;
};

/* BAD_FILE for text that is no index, or names what is no file of its own folder. Free it, whatever is returned. */
MUST_CHECK enum status model_index_parse(const char *text, size_t bytes, struct model_index *out, struct error *error);
void model_index_free(struct model_index *index);

/* ---- plan.c */

/* One weight that is to be: rows behind rows of one or several of the model's. */
struct model_item {
  char name[LIMIT_NAME_BYTES];     /* as gemmd is to know it */
  char base[LIMIT_NAME_BYTES];     /* in the model */
  struct import_weight *pieces[8]; /* owned */
  uint32_t count;
  enum gemm_format format;
  uint32_t scale, method;
  bool columns;
  uint64_t bytes;     /* of the files */
  struct error error; /* status not OK: it cannot be read */
};

struct model_plan {
  struct model_item *items; /* owned */
  size_t count, capacity;
  uint64_t bytes;
};

/* What of the model is to become which weight. NOT_FOUND, EXISTS, INVALID, UNSUPPORTED. Items that cannot be read stay
 * among them only where the caller keeps going. Free it, whatever is returned. */
MUST_CHECK enum status model_plan_make(const struct model_files *files, const gemmd_model *wanted,
                                       struct model_plan *plan, struct error *error);
void model_plan_free(struct model_plan *plan);

#endif
