/* What stands beside a model's tensors: config.json and its like with a header of safetensors, and the index. The first
 * byte says which, 255 being a marker of ComfyUI's; of the first, four bytes follow that are the length of the data,
 * then a configuration up to a zero byte, then the header's JSON. */
#include "client/model/index.h"
#include "proto/weights/import/comfy.h"
#include "proto/weights/import/import.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_index(const char *text, size_t bytes) {
  struct model_index index;
  struct error error;
  if (model_index_parse(text, bytes, &index, &error) == STATUS_OK)
    for (size_t i = 0; i < index.count; i++)
      if (index.entries[i].file >= index.file_count || strchr(index.files[index.entries[i].file], '/') != NULL)
        abort();
  model_index_free(&index);
}

/* Tensors of any size: nothing is read of them. */
static void read_model(const char *config, size_t config_bytes, const char *header, size_t header_bytes,
                       uint32_t data_bytes) {
  struct safetensors file = {.count = 0};
  struct import_model model;
  struct import_weight weight;
  struct error error;
  if (safetensors_parse(header, header_bytes, SAFETENSORS_LENGTH_BYTES + header_bytes + data_bytes, &file, &error) !=
      STATUS_OK)
    file = (struct safetensors){.count = 0};
  if (import_open(&model, &file, 1, config, config_bytes, &error) == STATUS_OK) {
    static const struct import_wish wish = {.scale_tensor = ""};
    for (size_t i = 0; i < model.count; i++) {
      (void)import_take(&model, &model.entries[i], NULL, &weight, &error);
      error.status = STATUS_OK;
      if (import_take(&model, &model.entries[i], &wish, &weight, &error) == IMPORT_WEIGHT &&
          error.status == STATUS_OK && (weight.importer == NULL || weight.n < 0 || weight.k < 0 || weight.pack == 0))
        abort();
    }
    import_close(&model);
  }
  safetensors_free(&file);
}

/* What is said of x is something that a weight may have. */
static void read_marker(const char *text, size_t bytes) {
  char name[] = "w.weight";
  const struct safetensors_tensor codes = {.name = name, .dtype = DTYPE_I8};
  struct error error;
  uint32_t input;
  if (import_comfy_marker(text, bytes, &codes, &input, &error) == STATUS_OK) {
    struct gemm_weight weight = {
        .n = 1, .k = 1024, .format = GEMM_FORMAT_INT8, .scale = GEMM_SCALE_ROW, .input = input};
    if (gemm_weight_check(&weight, &error) != STATUS_OK)
      abort();
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  enum { HEAD = 5 };
  uint32_t data_bytes;
  if (size < HEAD || size > 1 << 16)
    return 0;
  const char *text = (const char *)data + HEAD;
  size_t bytes = size - HEAD;
  const char *end = memchr(text, '\0', bytes);
  memcpy(&data_bytes, data + 1, sizeof data_bytes);
  if (data[0] == UINT8_MAX)
    read_marker(text, bytes);
  else if (data[0] % 2 == 0)
    read_index(text, bytes);
  else if (end != NULL)
    read_model(text, (size_t)(end - text), end + 1, bytes - (size_t)(end - text) - 1, data_bytes);
  else
    read_model(text, bytes, "{}", 2, 0);
  return 0;
}
