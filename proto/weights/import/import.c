#include "import.h"
#include "config.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static int compare_names(const void *left, const void *right) {
  const struct import_entry *a = left, *b = right;
  return strcmp(a->tensor->name, b->tensor->name);
}

static enum status list_entries(struct import_model *model, struct error *error) {
  size_t count = 0;
  for (size_t i = 0; i < model->file_count; i++)
    count += model->files[i].count;
  model->entries = malloc((count > 0 ? count : 1) * sizeof *model->entries);
  if (model->entries == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for the list of tensors");
  for (size_t i = 0; i < model->file_count; i++)
    for (size_t j = 0; j < model->files[i].count; j++)
      model->entries[model->count++] =
          (struct import_entry){.tensor = &model->files[i].tensors[j], .file = (uint32_t)i};
  qsort(model->entries, model->count, sizeof *model->entries, compare_names);
  for (size_t i = 1; i < model->count; i++)
    if (compare_names(&model->entries[i - 1], &model->entries[i]) == 0)
      return error_set(error, STATUS_BAD_FILE, "tensor '%s' is in two of the files",
                       IMPORT_SHOW(model->entries[i].tensor->name));
  return STATUS_OK;
}

enum status import_open(struct import_model *model, const struct safetensors *files, size_t file_count,
                        const char *config, size_t config_bytes, struct error *error) {
  *model = (struct import_model){.files = files, .file_count = file_count};
  enum status status = list_entries(model, error);
  if (status == STATUS_OK && config != NULL)
    status = import_config_parse(model, config, config_bytes, error);
  if (status != STATUS_OK)
    import_close(model);
  return status;
}

void import_close(struct import_model *model) {
  free(model->entries);
  json_decref(model->config);
  *model = (struct import_model){.files = NULL};
}

/* In order: the first that says that a tensor is its own, or part of what is, has it. */
static const struct importer *const importers[] = {&import_gguf,   &import_awq,     &import_gptq,
                                                   &import_packed, &import_blocks4, &import_torchao,
                                                   &import_bitnet, &import_trirun,  &import_plain};

enum import_claim import_take(const struct import_model *model, const struct import_entry *tensor,
                              const struct import_wish *wish, struct import_weight *out, struct error *error) {
  error->status = STATUS_OK;
  for (size_t i = 0; i < sizeof importers / sizeof *importers; i++) {
    enum import_claim claim = importers[i]->take(model, tensor, wish, out, error);
    if (claim != IMPORT_NOT_MINE)
      return claim;
  }
  return IMPORT_PART;
}
