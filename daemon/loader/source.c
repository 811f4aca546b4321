#include "source.h"

#include "trirun.h"

#include <stdio.h>
#include <string.h>

#define SHOW(text_) safetensors_show(text_).text

static bool is_real(enum safetensors_dtype dtype) {
  return dtype == DTYPE_F32 || dtype == DTYPE_F16 || dtype == DTYPE_BF16;
}

/* The format whose codes a type holds; NONE for a type of real numbers or one that no format takes. */
static enum gemm_format stored_format(enum safetensors_dtype dtype) {
  switch (dtype) {
  case DTYPE_I8:
    return GEMM_FORMAT_INT8;
  case DTYPE_F8_E4M3:
    return GEMM_FORMAT_FP8;
  case DTYPE_U8:
  case DTYPE_I32:
    return GEMM_FORMAT_INT2;
  default:
    return GEMM_FORMAT_NONE;
  }
}

/* True if scales of this shape are scales of this mode for the weight. */
static bool scale_fits(enum gemm_scale scale, const struct safetensors_tensor *tensor, const struct gemm_weight *to) {
  uint64_t n = (uint64_t)to->n, groups = gemm_ceil_div((uint64_t)to->k, GEMM_GROUP);
  uint64_t rows = tensor->shape[0], columns = tensor->rank < 2 ? 1 : tensor->shape[1];
  if (scale == GEMM_SCALE_ONE)
    return tensor->elements == 1;
  if (tensor->rank < 1 || tensor->rank > 2)
    return false;
  switch (scale) {
  case GEMM_SCALE_ROW:
    return rows == n && columns == 1;
  case GEMM_SCALE_BLOCK:
    return rows == gemm_ceil_div(n, GEMM_GROUP) && columns == groups;
  case GEMM_SCALE_GROUP:
    return rows == n && columns == groups;
  default:
    return false;
  }
}

/* The mode that the shape of the scales stands for; one that the request names must fit. */
static enum status choose_stored_scale(enum gemm_scale wanted, const struct safetensors_tensor *scales,
                                       struct gemm_weight *to, struct error *error) {
  static const enum gemm_scale order[] = {GEMM_SCALE_ONE, GEMM_SCALE_GROUP, GEMM_SCALE_ROW, GEMM_SCALE_BLOCK};
  for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
    if (wanted != GEMM_SCALE_NONE && wanted != order[i])
      continue;
    if (gemm_takes_scale(to->format, order[i]) && scale_fits(order[i], scales, to)) {
      to->scale = order[i];
      return STATUS_OK;
    }
  }
  return error_set(error, STATUS_UNSUPPORTED,
                   "scale tensor '%s' of %zu dimensions [%llu, %llu] is no %s%s%s scale of a %s weight %lld x %lld",
                   SHOW(scales->name), scales->rank, (unsigned long long)scales->shape[0],
                   (unsigned long long)scales->shape[1], wanted ? "'" : "", wanted ? gemm_scale_name(wanted) : "known",
                   wanted ? "'" : "", gemm_format_name(to->format), (long long)to->n, (long long)to->k);
}

static const struct safetensors_tensor *find_scales(const struct safetensors *file, const char *tensor) {
  static const char *const behind_tensor[] = {"_scale", "_scale_inv", ".scale"};
  static const char *const behind_stem[] = {".weight_scale", ".weight_scale_inv", ".scale", ".scales", ".scale_weight"};
  const char *dot = strrchr(tensor, '.');
  int stem = dot ? (int)(dot - tensor) : 0;
  char name[LIMIT_NAME_BYTES + 32];
  const struct safetensors_tensor *found = NULL;
  for (size_t i = 0; !found && i < sizeof behind_tensor / sizeof behind_tensor[0]; i++) {
    snprintf(name, sizeof name, "%s%s", tensor, behind_tensor[i]);
    found = safetensors_find(file, name);
  }
  for (size_t i = 0; dot && !found && i < sizeof behind_stem / sizeof behind_stem[0]; i++) {
    snprintf(name, sizeof name, "%.*s%s", stem, tensor, behind_stem[i]);
    found = safetensors_find(file, name);
  }
  return found;
}

/* "s" beside "B". */
static const struct safetensors_tensor *find_trirun_scales(const struct safetensors *file, const char *tensor) {
  char name[LIMIT_NAME_BYTES + 32];
  snprintf(name, sizeof name, "%.*ss", (int)strlen(tensor) - 1, tensor);
  return safetensors_find(file, name);
}

static enum status refuse_zero_point(const struct safetensors *file, const char *tensor, struct error *error) {
  char name[LIMIT_NAME_BYTES + 32];
  snprintf(name, sizeof name, "%s_zero_point", tensor);
  if (!safetensors_find(file, name))
    return STATUS_OK;
  return error_set(error, STATUS_UNSUPPORTED, "tensor '%s' has zero points ('%s'); only symmetric weights are taken",
                   SHOW(tensor), SHOW(name));
}

/* n and k of what TriRun has packed, in place of those of the tensor. */
static enum status trirun_dimensions(struct source *out, struct error *error) {
  const char *name = out->tensor->name, *dot = strrchr(name, '.');
  if (strcmp(dot ? dot + 1 : name, "B") != 0)
    return error_set(error, STATUS_UNSUPPORTED,
                     "tensor '%s' is I32; that is taken as TriRun packs it alone, under the "
                     "name B",
                     SHOW(name));
  int64_t rows = out->weight.n;
  out->weight.n = out->weight.k;
  if (__builtin_mul_overflow(rows, TRIRUN_WORD_CODES, &out->weight.k))
    return error_field(error, STATUS_TOO_LARGE, FIELD_K, INT64_MAX, 1, LIMIT_K);
  if (out->weight.n % TRIRUN_N != 0 || out->weight.k % TRIRUN_K != 0)
    return error_set(error, STATUS_UNSUPPORTED,
                     "tensor '%s': TriRun packs N in multiples of %d and K of %d, got %lld x %lld", SHOW(name),
                     TRIRUN_N, TRIRUN_K, (long long)out->weight.n, (long long)out->weight.k);
  out->trirun = true;
  return STATUS_OK;
}

/* One scale a column of s, or one for each group. */
static enum status trirun_scale(enum gemm_scale wanted, struct source *out, struct error *error) {
  const struct safetensors_tensor *scales = out->scales;
  uint64_t n = (uint64_t)out->weight.n, groups = (uint64_t)out->weight.k / GEMM_GROUP;
  bool fits = scales->rank == 2 && scales->shape[1] == n && (scales->shape[0] == 1 || scales->shape[0] == groups);
  out->weight.scale = fits && scales->shape[0] == 1 ? GEMM_SCALE_ROW : GEMM_SCALE_GROUP;
  if (!fits || (wanted != GEMM_SCALE_NONE && wanted != out->weight.scale))
    return error_set(error, STATUS_UNSUPPORTED,
                     "scale tensor '%s' of %zu dimensions [%llu, %llu] is no %s%sscale of TriRun for %lld x %lld",
                     SHOW(scales->name), scales->rank, (unsigned long long)scales->shape[0],
                     (unsigned long long)scales->shape[1], wanted ? gemm_scale_name(wanted) : "", wanted ? " " : "",
                     (long long)out->weight.n, (long long)out->weight.k);
  return STATUS_OK;
}

static enum status resolve_stored(const struct safetensors *file, const struct message_weight_load *request,
                                  struct source *out, struct error *error) {
  const char *type = safetensors_dtype_name(out->tensor->dtype);
  enum gemm_format stored = stored_format(out->tensor->dtype);
  out->stored = true;
  if (out->weight.format != stored && !(gemm_is_int2(out->weight.format) && gemm_is_int2(stored)))
    return error_set(error, STATUS_UNSUPPORTED, "tensor '%s' is %s, quantized already; it loads as %s, not as %s",
                     SHOW(request->tensor), type, gemm_format_name(stored), gemm_format_name(out->weight.format));
  if (request->method != METHOD_DEFAULT)
    return error_set(error, STATUS_UNSUPPORTED, "tensor '%s' is %s, quantized already; it takes no method",
                     SHOW(request->tensor), type);
  enum status status = STATUS_OK;
  if (out->tensor->dtype == DTYPE_I32)
    status = trirun_dimensions(out, error);
  else if (gemm_is_int2(out->weight.format) && __builtin_mul_overflow(out->weight.k, 4, &out->weight.k))
    status = error_field(error, STATUS_TOO_LARGE, FIELD_K, INT64_MAX, 1, LIMIT_K);
  if (status != STATUS_OK)
    return status;
  out->scales = request->scale_tensor[0] ? safetensors_find(file, request->scale_tensor)
                : out->trirun            ? find_trirun_scales(file, request->tensor)
                                         : find_scales(file, request->tensor);
  if (!out->scales && request->scale_tensor[0])
    return error_set(error, STATUS_NOT_FOUND, "the file has no tensor '%s'", SHOW(request->scale_tensor));
  if (!out->scales)
    return error_set(error, STATUS_NOT_FOUND, "tensor '%s' is %s; the file has no scales of a usual name for it",
                     SHOW(request->tensor), type);
  bool takes = gemm_is_int2(out->weight.format) ? out->scales->dtype == DTYPE_F16 : is_real(out->scales->dtype);
  if (!takes)
    return error_set(error, STATUS_UNSUPPORTED, "scale tensor '%s' is %s; %s is needed", SHOW(out->scales->name),
                     safetensors_dtype_name(out->scales->dtype),
                     gemm_is_int2(out->weight.format) ? "F16" : "F32, F16 or BF16");
  status = refuse_zero_point(file, request->tensor, error);
  if (status != STATUS_OK)
    return status;
  if (out->trirun)
    return trirun_scale((enum gemm_scale)request->scale, out, error);
  return choose_stored_scale((enum gemm_scale)request->scale, out->scales, &out->weight, error);
}

static enum status resolve_method(enum gemm_format format, uint32_t wanted, enum message_method *out,
                                  struct error *error) {
  bool int2 = gemm_is_int2(format), quantized = int2 || format == GEMM_FORMAT_INT8 || format == GEMM_FORMAT_FP8;
  bool fits = wanted == METHOD_DEFAULT || (wanted == METHOD_ABSMAX && quantized && !int2) ||
              (wanted == METHOD_LEAST_SQUARES && int2) || (wanted == METHOD_TERNARY && int2);
  if (!fits)
    return error_set(error, STATUS_UNSUPPORTED, "method %u does not make %s weights", wanted, gemm_format_name(format));
  *out = (enum message_method)wanted;
  if (quantized && wanted == METHOD_DEFAULT)
    *out = int2 ? METHOD_LEAST_SQUARES : METHOD_ABSMAX;
  return STATUS_OK;
}

static enum status resolve_real(const struct message_weight_load *request, struct source *out, struct error *error) {
  if (request->scale_tensor[0])
    return error_set(error, STATUS_INVALID, "scale tensor '%s' is named, but '%s' is %s and has no scales",
                     SHOW(request->scale_tensor), SHOW(request->tensor), safetensors_dtype_name(out->tensor->dtype));
  out->weight.scale =
      request->scale ? (enum gemm_scale)request->scale : gemm_format_facts(out->weight.format)->scale_default;
  return resolve_method(out->weight.format, request->method, &out->method, error);
}

enum status source_resolve(const struct safetensors *file, const struct message_weight_load *request,
                           struct source *out, struct error *error) {
  *out = (struct source){.tensor = safetensors_find(file, request->tensor)};
  if (!out->tensor)
    return error_set(error, STATUS_NOT_FOUND, "the file has no tensor '%s'", SHOW(request->tensor));
  const struct safetensors_tensor *tensor = out->tensor;
  if (tensor->rank != 2)
    return error_set(error, STATUS_UNSUPPORTED, "tensor '%s' has %zu dimension%s; a weight is a matrix [N, K]",
                     SHOW(request->tensor), tensor->rank, plural(tensor->rank));
  if (request->format < 1 || request->format >= GEMM_FORMATS)
    return error_field(error, STATUS_INVALID, FIELD_FORMAT, request->format, 1, GEMM_FORMATS - 1);
  if (tensor->shape[0] > INT64_MAX || tensor->shape[1] > INT64_MAX)
    return error_field(error, STATUS_TOO_LARGE, FIELD_N, INT64_MAX, 1, LIMIT_N);
  out->weight = (struct gemm_weight){
      .n = (int64_t)tensor->shape[0], .k = (int64_t)tensor->shape[1], .format = (enum gemm_format)request->format};
  enum status status = STATUS_OK;
  if (is_real(tensor->dtype))
    status = resolve_real(request, out, error);
  else if (stored_format(tensor->dtype) != GEMM_FORMAT_NONE)
    status = resolve_stored(file, request, out, error);
  else
    status = error_set(error, STATUS_UNSUPPORTED,
                       "tensor '%s' is %s; F32, F16, BF16, I8, F8_E4M3, U8 and I32 (INT2) are taken",
                       SHOW(request->tensor), safetensors_dtype_name(tensor->dtype));
  if (status != STATUS_OK)
    return status;
  return gemm_layout_compute(&out->weight, &out->layout, error);
}
