/* ComfyUI's markers of quantized layers. A layer <stem> may have a tensor <stem>.comfy_quant of U8, whose bytes are a
 * JSON object, or a member of "layers" in the header's metadata _quantization_metadata (ComfyUI, QUANTIZATION.md and
 * comfy/ops.py): "format" names the layout of <stem>.weight and <stem>.weight_scale. The INT8 toolkit (comfy_kitchen,
 * TensorWiseINT8Layout) adds "convrot" and "convrot_groupsize", 256 where it is absent: groups of so many neighbours of
 * each row of W were multiplied by the regular Hadamard matrix of that size (proto/rotate.h), and so must x be
 * (comfy_kitchen 0.2, tensor/int8_utils.py; ConvRot, arXiv 2512.03673).
 *
 * Only what is known to leave code * scale as the weight, or as the rotated weight, is taken. */
#include "comfy.h"

#include <jansson.h>
#include <string.h>

static const struct {
  const char *format;
  enum safetensors_dtype dtype;
} formats[] = {
    {"float8_e4m3fn", DTYPE_F8_E4M3},
    {"int8_tensorwise", DTYPE_I8},
    {"int8_rowwise", DTYPE_I8},
};

/* Keys that say nothing about the weight, or nothing where they are false or 0. */
static bool is_harmless(const char *key, const json_t *value) {
  if (strcmp(key, "format") == 0 || strcmp(key, "full_precision_matrix_mult") == 0 || strcmp(key, "orig_dtype") == 0 ||
      strcmp(key, "orig_shape") == 0 || strcmp(key, "per_row") == 0 || strcmp(key, "per_channel") == 0)
    return true;
  if (strcmp(key, "convrot_groupsize") == 0 || strcmp(key, "convrot") == 0)
    return true; /* looked at by themselves */
  return json_is_false(value) || json_is_null(value);
}

/* Weights with a scale a row alone are rotated, and INT8 alone. */
static enum status check_rotation(const json_t *layer, const struct safetensors_tensor *codes, uint32_t *input,
                                  struct error *error) {
  const json_t *rotated = json_object_get(layer, "convrot"), *group = json_object_get(layer, "convrot_groupsize");
  *input = GEMM_INPUT_NONE;
  if (rotated == NULL || json_is_false(rotated) || json_is_null(rotated))
    return STATUS_OK;
  if (!json_is_true(rotated) || (group != NULL && !json_is_integer(group)) || codes->dtype != DTYPE_I8)
    return error_set(error, STATUS_UNSUPPORTED, "tensor '%s': its comfy_quant has a 'convrot' that is not understood",
                     IMPORT_SHOW(codes->name));
  return import_rotation(codes, group != NULL ? json_integer_value(group) : 256, input, error);
}

static enum status check_layer(const json_t *layer, const struct safetensors_tensor *codes, uint32_t *input,
                               struct error *error) {
  const char *format = json_string_value(json_object_get(layer, "format")), *key;
  json_t *value;
  if (format == NULL)
    return error_set(error, STATUS_UNSUPPORTED, "tensor '%s': its comfy_quant names no format",
                     IMPORT_SHOW(codes->name));
  json_object_foreach((json_t *)(uintptr_t)layer, key, value) {
    if (!is_harmless(key, value))
      return error_set(error, STATUS_UNSUPPORTED, "tensor '%s': its comfy_quant has '%s', which is not understood",
                       IMPORT_SHOW(codes->name), IMPORT_SHOW(key));
  }
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
    if (strcmp(format, formats[i].format) == 0 && codes->dtype == formats[i].dtype)
      return check_rotation(layer, codes, input, error);
  return error_set(error, STATUS_UNSUPPORTED, "tensor '%s': comfy_quant says '%s' of %s, which is not understood",
                   IMPORT_SHOW(codes->name), IMPORT_SHOW(format), safetensors_dtype_name(codes->dtype));
}

enum status import_comfy_marker(const char *text, size_t bytes, const struct safetensors_tensor *codes, uint32_t *input,
                                struct error *error) {
  while (bytes > 0 && text[bytes - 1] == '\0')
    bytes--;
  json_t *layer = json_loadb(text, bytes, 0, NULL);
  enum status status = json_is_object(layer)
                           ? check_layer(layer, codes, input, error)
                           : error_set(error, STATUS_UNSUPPORTED, "tensor '%s': its comfy_quant is no JSON object",
                                       IMPORT_SHOW(codes->name));
  json_decref(layer);
  return status;
}

enum status import_comfy_metadata(const struct safetensors *file, const struct safetensors_tensor *codes,
                                  uint32_t *input, struct error *error) {
  *input = GEMM_INPUT_NONE;
  if (file->quantization == NULL)
    return STATUS_OK;
  char stem[LIMIT_NAME_BYTES] = "";
  const char *dot = strrchr(codes->name, '.');
  if (dot != NULL && (size_t)(dot - codes->name) < sizeof stem)
    memcpy(stem, codes->name, (size_t)(dot - codes->name));
  json_t *root = json_loads(file->quantization, 0, NULL);
  const json_t *layers = json_object_get(root, "layers"), *layer = json_object_get(layers, stem);
  enum status status = STATUS_OK;
  if (!json_is_object(layers))
    status = error_set(error, STATUS_UNSUPPORTED, "the header's _quantization_metadata lists no layers");
  else if (layer != NULL)
    status = check_layer(layer, codes, input, error);
  json_decref(root);
  return status;
}
