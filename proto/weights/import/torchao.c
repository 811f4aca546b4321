/* torchao's safetensors (torchao 0.18, prototype/safetensors: flatten_tensor_state_dict; what transformers saves with
 * TorchAoConfig is the same). A quantized <stem>.weight is flattened to tensors <stem>._weight_<part>; of the
 * subclasses Int8Tensor and Float8Tensor (quantization/quantize_/workflows) the parts are qdata            I8 or
 * F8_E4M3 [N, K] scale            F32, F16 or BF16; one element, [N, 1] or [N/128, K/128], a factor zero_point I8, all
 * zeros where the weight is symmetric act_quant_scale  the static scale of x, one element act_quant_zero_point  of it,
 * all zeros Every other part, and codes of another type, are of a subclass that is not taken. */
#include "importer.h"
#include "scales.h"

#include <string.h>

static const char qdata[] = "._weight_qdata", mark[] = "._weight_";

/* Where "._weight_" begins in a name; NULL: it does not. */
static const char *find_mark(const char *name) {
  const char *found = NULL;
  for (const char *at = strstr(name, mark); at != NULL; at = strstr(at + 1, mark))
    found = at;
  return found;
}

/* The name without its last `drop` bytes, and what is behind them, in the model. */
static const struct import_entry *part_of(const struct import_model *model, const char *name, const char *suffix) {
  return import_beside(model, name, strlen(qdata), suffix);
}

static bool is_part(const struct import_model *model, const char *name) {
  const char *at = find_mark(name);
  return at != NULL && !import_ends(name, qdata) && import_beside(model, name, strlen(at), qdata) != NULL;
}

/* Parts that no row of the list above names change what the weight is. */
static enum status check_parts(const struct import_model *model, const struct import_weight *out, struct error *error) {
  static const char *const known[] = {"qdata", "scale", "zero_point", "act_quant_scale", "act_quant_zero_point"};
  const char *name = out->tensor->tensor->name;
  size_t stem = strlen(name) - strlen("qdata");
  const struct import_entry *each = out->tensor, *end = model->entries + model->count;
  while (each > model->entries && strncmp(each[-1].tensor->name, name, stem) == 0) /* they are in order */
    each--;
  for (; each < end && strncmp(each->tensor->name, name, stem) == 0; each++) {
    bool taken = false;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
      taken |= strcmp(each->tensor->name + stem, known[i]) == 0;
    if (!taken)
      return error_set(error, STATUS_UNSUPPORTED, "tensor '%s' has a marker that is not understood ('%s')",
                       IMPORT_SHOW(name), IMPORT_SHOW(each->tensor->name));
  }
  return STATUS_OK;
}

static enum status take_zeros(const struct import_entry *zeros, enum import_aux which, struct import_weight *out,
                              struct error *error) {
  if (zeros == NULL)
    return STATUS_OK;
  if (zeros->tensor->dtype != DTYPE_I8)
    return error_set(error, STATUS_UNSUPPORTED, "tensor '%s' is %s; zero points of I8 are taken",
                     IMPORT_SHOW(zeros->tensor->name), safetensors_dtype_name(zeros->tensor->dtype));
  return import_add(out, which, zeros, error);
}

static enum status take_x(const struct import_model *model, struct import_weight *out, struct error *error) {
  const struct import_entry *scale = part_of(model, out->tensor->tensor->name, "._weight_act_quant_scale");
  if (scale == NULL)
    return STATUS_OK;
  if (!import_is_real(scale->tensor->dtype) || scale->tensor->elements != 1 || out->scale == GEMM_SCALE_BLOCK)
    return error_set(error, STATUS_UNSUPPORTED, "tensor '%s': x is quantized by one scale of F32, F16 or BF16",
                     IMPORT_SHOW(scale->tensor->name));
  out->input = GEMM_INPUT_SCALE;
  return import_add(out, IMPORT_X_SCALE, scale, error);
}

static enum status take_weight(const struct import_model *model, const struct import_wish *wish,
                               struct import_weight *out, struct error *error) {
  const struct safetensors_tensor *tensor = out->tensor->tensor;
  enum status status = import_matrix(out, error);
  if (status == STATUS_OK)
    status = check_parts(model, out, error);
  if (status != STATUS_OK)
    return status;
  if (tensor->dtype != DTYPE_I8 && tensor->dtype != DTYPE_F8_E4M3)
    return error_set(error, STATUS_UNSUPPORTED, "tensor '%s' is torchao's, of %s; I8 and F8_E4M3 are taken",
                     IMPORT_SHOW(tensor->name), safetensors_dtype_name(tensor->dtype));
  out->format = tensor->dtype == DTYPE_I8 ? GEMM_FORMAT_INT8 : GEMM_FORMAT_FP8;
  const struct import_entry *scales = part_of(model, tensor->name, "._weight_scale");
  if (scales == NULL || !import_is_real(scales->tensor->dtype))
    return error_set(error, STATUS_NOT_FOUND, "tensor '%s' is torchao's, and has no scale of F32, F16 or BF16",
                     IMPORT_SHOW(tensor->name));
  status = import_add(out, IMPORT_SCALES, scales, error);
  if (status == STATUS_OK)
    status = take_zeros(part_of(model, tensor->name, "._weight_zero_point"), IMPORT_ZEROS, out, error);
  if (status == STATUS_OK)
    status = take_zeros(part_of(model, tensor->name, "._weight_act_quant_zero_point"), IMPORT_INDEX, out, error);
  if (status == STATUS_OK)
    status = import_scale_mode(wish != NULL ? wish->scale : GEMM_SCALE_NONE, out, error);
  return status == STATUS_OK ? take_x(model, out, error) : status;
}

static enum import_claim take(const struct import_model *model, const struct import_entry *tensor,
                              const struct import_wish *wish, struct import_weight *out, struct error *error) {
  const char *name = tensor->tensor->name;
  if (is_part(model, name))
    return wish == NULL ? IMPORT_PART : IMPORT_NOT_MINE;
  if (!import_ends(name, qdata))
    return IMPORT_NOT_MINE;
  import_begin(out, &import_torchao, tensor);
  size_t stem = strlen(out->name) - strlen(qdata);
  strcpy(out->name + stem, ".weight");
  (void)take_weight(model, wish, out, error);
  return IMPORT_WEIGHT;
}

static enum status check(const struct import_weight *weight, const struct import_data *data, struct error *error) {
  static const enum import_aux zeros[] = {IMPORT_ZEROS, IMPORT_INDEX};
  for (size_t i = 0; i < sizeof zeros / sizeof *zeros; i++) {
    const struct import_entry *entry = weight->aux[zeros[i]];
    for (uint64_t j = 0; entry != NULL && j < entry->tensor->elements; j++)
      if (data->aux[zeros[i]][j] != 0)
        return error_set(error, STATUS_UNSUPPORTED, "tensor '%s': element %llu is %d; only symmetric weights are taken",
                         IMPORT_SHOW(entry->tensor->name), (unsigned long long)j, (int)(int8_t)data->aux[zeros[i]][j]);
  }
  return STATUS_OK;
}

static enum status input(const struct import_weight *weight, const struct import_data *data, struct import_input *out,
                         struct error *error) {
  out->input = weight->input;
  if (weight->aux[IMPORT_X_SCALE] != NULL)
    safetensors_to_f32(weight->aux[IMPORT_X_SCALE]->tensor->dtype, data->aux[IMPORT_X_SCALE], 1, &out->scale);
  return STATUS_OK;
}

static void codes(const struct import_weight *weight, const struct import_data *data, const struct import_tile *tile,
                  uint8_t *out, uint64_t row_bytes) {
  for (uint64_t row = 0; row < tile->rows; row++)
    memcpy(out + row * row_bytes, tile->raw + row * tile->stride, tile->columns);
}

const struct importer import_torchao = {
    .name = "torchao", .take = take, .check = check, .input = input, .codes = codes, .scale = import_scale_at};
