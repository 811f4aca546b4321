/* The index of sharded checkpoints (transformers, modeling_utils: save_pretrained):
 * {"metadata": {...}, "weight_map": {"<tensor>": "<file>", ...}}. */
#include "index.h"
#include "../../proto/limits.h"
#include "../../proto/weights/import/importer.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* A file of the index's own folder, and nothing else. */
static bool is_plain(const char *name) {
  size_t length = strlen(name);
  return length > 0 && length < LIMIT_NAME_BYTES && name[0] != '.' && strchr(name, '/') == NULL;
}

static enum status find_file(struct model_index *index, const char *name, size_t *out, struct error *error) {
  for (*out = 0; *out < index->file_count; ++*out)
    if (strcmp(index->files[*out], name) == 0)
      return STATUS_OK;
  char **grown = realloc(index->files, (index->file_count + 1) * sizeof *grown);
  if (grown == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for the index");
  index->files = grown;
  index->files[index->file_count] = strdup(name);
  if (index->files[index->file_count] == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for the index");
  index->file_count++;
  return STATUS_OK;
}

static enum status take_entry(struct model_index *index, const char *tensor, const json_t *value, struct error *error) {
  const char *name = json_string_value(value);
  if (name == NULL || !is_plain(name))
    return error_set(error, STATUS_BAD_FILE, "the index says that '%s' is in '%s', which is no file of its folder",
                     IMPORT_SHOW(tensor), name != NULL ? IMPORT_SHOW(name) : "no text");
  struct model_index_entry *entry = &index->entries[index->count];
  enum status status = find_file(index, name, &entry->file, error);
  if (status != STATUS_OK)
    return status;
  entry->tensor = strdup(tensor);
  if (entry->tensor == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for the index");
  index->count++;
  return STATUS_OK;
}

static enum status take_map(struct model_index *index, json_t *map, struct error *error) {
  const char *tensor;
  json_t *value;
  if (!json_is_object(map) || json_object_size(map) == 0)
    return error_set(error, STATUS_BAD_FILE, "the index has no weight_map");
  index->entries = calloc(json_object_size(map), sizeof *index->entries);
  if (index->entries == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for the index");
  json_object_foreach(map, tensor, value) {
    enum status status = take_entry(index, tensor, value, error);
    if (status != STATUS_OK)
      return status;
  }
  return STATUS_OK;
}

enum status model_index_parse(const char *text, size_t bytes, struct model_index *out, struct error *error) {
  json_error_t reason;
  *out = (struct model_index){.count = 0};
  json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &reason);
  enum status status = root != NULL ? take_map(out, json_object_get(root, "weight_map"), error)
                                    : error_set(error, STATUS_BAD_FILE, "the index at byte %d: %s", reason.position,
                                                IMPORT_SHOW(reason.text));
  json_decref(root);
  return status;
}

void model_index_free(struct model_index *index) {
  for (size_t i = 0; i < index->count; i++)
    free(index->entries[i].tensor);
  for (size_t i = 0; i < index->file_count; i++)
    free(index->files[i]);
  free(index->entries);
  free(index->files);
  *index = (struct model_index){.count = 0};
}
