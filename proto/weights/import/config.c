/* What the files beside a model's tensors say about quantization:
 *   config.json            "quantization_config" of transformers (docs: Quantization, quantization_config)
 *   quantize_config.json   AutoGPTQ's and GPTQModel's own, the same keys at the top
 *   hf_quant_config.json   ModelOpt's: {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", ...}}
 */
#include "config.h"

#include <jansson.h>
#include <string.h>

static enum status unsupported(struct error *error, const char *key, const char *value) {
  return error_set(error, STATUS_UNSUPPORTED, "the model's configuration has %s '%s', which is not understood", key,
                   IMPORT_SHOW(value));
}

/* Codes that are packed are of 4 bits, all of them. */
static enum status check_packed(const json_t *config, struct error *error) {
  json_t *groups = json_object_get(config, "config_groups");
  const char *key;
  json_t *group;
  json_int_t first = 0;
  json_object_foreach(groups, key, group) {
    const json_t *bits = json_object_get(json_object_get(group, "weights"), "num_bits");
    if (!json_is_integer(bits))
      continue;
    if (first != 0 && json_integer_value(bits) != first)
      return error_set(error, STATUS_UNSUPPORTED,
                       "the model has weights of %lld and of %lld bits; of one width is taken", (long long)first,
                       (long long)json_integer_value(bits));
    first = json_integer_value(bits);
    if (first != 4)
      return error_set(error, STATUS_UNSUPPORTED, "the model's packed weights have %lld bits; 4 are taken",
                       (long long)first);
  }
  return STATUS_OK;
}

/* Rotations and sparsity of compressed-tensors change what codes mean. */
static enum status check_compressed(const json_t *config, struct error *error) {
  const json_t *transform = json_object_get(config, "transform_config");
  const json_t *sparsity = json_object_get(config, "sparsity_config");
  const char *format = json_string_value(json_object_get(config, "format"));
  const char *sparse = json_string_value(json_object_get(sparsity, "format"));
  if (json_object_size(transform) > 0)
    return unsupported(error, "transform_config", "a transform");
  if (sparse != NULL && strcmp(sparse, "dense") != 0)
    return unsupported(error, "sparsity_config", sparse);
  static const char *const formats[] = {"float-quantized", "int-quantized",        "naive-quantized",
                                        "dense",           "mxfp4-pack-quantized", "nvfp4-pack-quantized"};
  if (format != NULL && strcmp(format, "pack-quantized") == 0)
    return check_packed(config, error);
  for (size_t i = 0; format != NULL && i < sizeof formats / sizeof *formats; i++)
    if (strcmp(format, formats[i]) == 0)
      return STATUS_OK;
  return format == NULL ? STATUS_OK : unsupported(error, "format", format);
}

static enum status check_modelopt(const json_t *config, struct error *error) {
  const char *algorithm = json_string_value(json_object_get(config, "quant_algo"));
  if (algorithm != NULL && strcmp(algorithm, "FP8") != 0 && strcmp(algorithm, "NVFP4") != 0)
    return unsupported(error, "quant_algo", algorithm);
  return STATUS_OK;
}

static enum status check_gptq(const json_t *config, struct error *error) {
  const char *format = json_string_value(json_object_get(config, "checkpoint_format"));
  if (format != NULL && strcmp(format, "gptq") != 0 && strcmp(format, "gptq_v2") != 0)
    return unsupported(error, "checkpoint_format", format);
  return STATUS_OK;
}

static enum status check_fp8(const json_t *config, struct error *error) {
  const char *format = json_string_value(json_object_get(config, "fmt"));
  const json_t *block = json_object_get(config, "weight_block_size");
  if (format != NULL && strcmp(format, "e4m3") != 0)
    return unsupported(error, "fmt", format);
  for (size_t i = 0; i < json_array_size(block); i++)
    if (json_integer_value(json_array_get(block, i)) != GEMM_GROUP)
      return error_set(error, STATUS_UNSUPPORTED, "weight_block_size is not [%d, %d]", GEMM_GROUP, GEMM_GROUP);
  return STATUS_OK;
}

static enum status check_bitnet(const json_t *config, struct error *error) {
  const char *kind = json_string_value(json_object_get(config, "linear_class"));
  const char *mode = json_string_value(json_object_get(config, "quantization_mode"));
  if (kind != NULL && strcmp(kind, "bitlinear") != 0 && strcmp(kind, "autobitlinear") != 0)
    return unsupported(error, "linear_class", kind);
  if (mode != NULL && strcmp(mode, "offline") != 0)
    return unsupported(error, "quantization_mode", mode);
  return STATUS_OK;
}

/* All that it says, the tensors say, or their importer looks at. */
static enum status check_nothing(const json_t *config, struct error *error) {
  return STATUS_OK;
}

static const struct {
  const char *name;
  enum status (*check)(const json_t *config, struct error *error);
} methods[] = {
    {"compressed-tensors", check_compressed},
    {"modelopt", check_modelopt},
    {"gptq", check_gptq},
    {"fp8", check_fp8},
    {"bitnet", check_bitnet},
    {"torchao", check_nothing},
    {"awq", check_nothing},
    {"mxfp4", check_nothing},
};

static enum status check_method(struct import_model *model, struct error *error) {
  for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
    if (strcmp(model->method, methods[i].name) == 0)
      return methods[i].check(model->config, error);
  return unsupported(error, "quant_method", model->method);
}

/* The object that is about quantization, and the method where its own key does not say it. */
static json_t *find_config(json_t *root, const char **method) {
  json_t *config = json_object_get(root, "quantization_config");
  *method = NULL;
  if (json_is_object(config))
    return config;
  config = json_object_get(root, "quantization");
  if (json_is_object(config) && json_object_get(config, "quant_algo") != NULL) {
    *method = "modelopt";
    return config;
  }
  if (json_object_get(root, "bits") != NULL && json_object_get(root, "group_size") != NULL) {
    *method = "gptq";
    return root;
  }
  return NULL;
}

enum status import_config_parse(struct import_model *model, const char *text, size_t bytes, struct error *error) {
  json_error_t reason;
  json_t *root = json_loadb(text, bytes, 0, &reason);
  const char *implied;
  if (!json_is_object(root)) {
    json_decref(root);
    return error_set(error, STATUS_BAD_FILE, "the model's configuration is no JSON object: %s",
                     root == NULL ? IMPORT_SHOW(reason.text) : "another value");
  }
  json_t *config = find_config(root, &implied);
  model->config = json_incref(config);
  json_decref(root);
  if (model->config == NULL)
    return STATUS_OK;
  const char *method = json_string_value(json_object_get(model->config, "quant_method"));
  model->method = method != NULL ? method : implied;
  if (model->method == NULL)
    return error_set(error, STATUS_UNSUPPORTED, "the model's quantization_config names no quant_method");
  return check_method(model, error);
}

int64_t import_config_integer(const struct import_model *model, const char *key, int64_t fallback) {
  const json_t *value = json_object_get(model->config, key);
  return json_is_integer(value) ? json_integer_value(value) : fallback;
}

int64_t import_config_group(const struct import_model *model) {
  json_t *groups = json_object_get(model->config, "config_groups");
  const json_t *size = NULL;
  const char *key;
  json_t *group;
  json_object_foreach(groups, key, group) {
    const json_t *own = json_object_get(json_object_get(group, "weights"), "group_size");
    if (size != NULL && json_integer_value(own) != json_integer_value(size))
      return -1;
    size = own;
  }
  return json_is_integer(size) ? json_integer_value(size) : -1;
}

const char *import_config_text(const struct import_model *model, const char *key) {
  return json_string_value(json_object_get(model->config, key));
}

bool import_config_has(const struct import_model *model, const char *key) {
  const json_t *value = json_object_get(model->config, key);
  return value != NULL && !json_is_null(value) && !json_is_false(value) &&
         !(json_is_object(value) && json_object_size(value) == 0);
}
