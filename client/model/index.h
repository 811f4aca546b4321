/* model.safetensors.index.json, private. Pure. */
#pragma once

#include "../../proto/status.h"

#include <stddef.h>

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
