#include "source.h"

#define SHOW(text_) safetensors_show(text_).text

const struct source_piece *source_piece_at(const struct source *source, uint64_t n) {
  uint32_t i = 0;
  while (i + 1 < source->count && (uint64_t)source->pieces[i + 1].begin <= n)
    i++;
  return &source->pieces[i];
}

/* ---- pieces */

/* One range of `count` equal ones, at multiples of `step`. */
static enum status cut(const struct source_piece *piece, const char *what, int64_t *count, int64_t *begin,
                       const struct message_weight_load *request, int64_t step, struct error *error) {
  if (request->parts < 2)
    return STATUS_OK;
  if (*count % request->parts != 0 || *count / request->parts % step != 0)
    return error_set(error, STATUS_UNSUPPORTED,
                     "'%s' has %lld %s; they cannot be cut into %u equal parts of a multiple of %lld",
                     SHOW(piece->from.name), (long long)*count, what, request->parts, (long long)step);
  *count /= request->parts;
  *begin = *count * request->part;
  return STATUS_OK;
}

static int64_t max_i64(int64_t a, int64_t b) {
  return a > b ? a : b;
}

/* Of what is packed or has scales of its own for so many rows or columns, whole ones must be taken. */
static int64_t row_step(const struct import_weight *from) {
  int64_t step = from->row_group;
  return from->real ? step : max_i64(step, gemm_scale_facts(from->scale)->n);
}

static int64_t column_step(const struct import_weight *from) {
  int64_t step = from->pack, packed = gemm_is_packed(from->format) ? gemm_format_facts(from->format)->align : 1;
  return from->real ? step : max_i64(max_i64(step, packed), gemm_scale_facts(from->scale)->k);
}

static enum status find_entry(const struct import_model *model, const struct message_weight_load *request,
                              const char *tensor, int64_t expert, struct source *out, const struct import_entry **entry,
                              struct error *error) {
  if (request->experts > 0)
    return expert_find(model, tensor, (int64_t)request->expert + expert, &out->slices[out->count], entry, error);
  *entry = import_find(model, tensor);
  return *entry != NULL ? STATUS_OK : error_set(error, STATUS_NOT_FOUND, "the file has no tensor '%s'", SHOW(tensor));
}

static enum status add_piece(const struct import_model *model, const struct message_weight_load *request,
                             const char *tensor, int64_t expert, struct source *out, int64_t *n, int64_t *k,
                             struct error *error) {
  const struct import_entry *entry;
  const struct import_wish wish = {.scale_tensor = request->scale_tensor, .scale = (enum gemm_scale)request->scale};
  struct source_piece *piece = &out->pieces[out->count];
  enum status status = find_entry(model, request, tensor, expert, out, &entry, error);
  if (status != STATUS_OK)
    return status;
  *piece = (struct source_piece){.begin = *n};
  (void)import_take(model, entry, &wish, &piece->from, error);
  if (error->status != STATUS_OK)
    return error->status;
  int64_t rows = piece->from.n, columns = piece->from.k;
  status = request->columns ? cut(piece, "columns", &columns, &piece->column, request, column_step(&piece->from), error)
                            : cut(piece, "rows", &rows, &piece->row, request, row_step(&piece->from), error);
  if (status != STATUS_OK)
    return status;
  if (out->count > 0 && columns != *k)
    return error_set(error, STATUS_UNSUPPORTED, "'%s' has %lld columns, '%s' %lld: they cannot be one weight",
                     SHOW(piece->from.name), (long long)columns, SHOW(out->pieces[0].from.name), (long long)*k);
  if (piece->begin % row_step(&piece->from) != 0)
    return error_set(error, STATUS_UNSUPPORTED, "'%s' begins at row %lld of the fused weight, no multiple of %lld",
                     SHOW(piece->from.name), (long long)piece->begin, (long long)row_step(&piece->from));
  if (__builtin_add_overflow(*n, rows, n))
    return error_field(error, STATUS_TOO_LARGE, FIELD_N, INT64_MAX, 1, LIMIT_N);
  piece->n = rows;
  *k = columns;
  out->count++;
  return STATUS_OK;
}

static enum status add_pieces(const struct import_model *model, const struct message_weight_load *request,
                              int64_t expert, struct source *out, struct error *error) {
  int64_t n = 0, k = 0;
  enum status status = add_piece(model, request, request->tensor, expert, out, &n, &k, error);
  for (uint32_t i = 0; status == STATUS_OK && i < request->more_count; i++)
    status = add_piece(model, request, request->more[i].tensor, expert, out, &n, &k, error);
  out->weight = (struct gemm_weight){.n = n, .k = k, .format = (enum gemm_format)request->format};
  return status;
}

/* ---- codes */

/* The pieces have one kind of scales, or those of ROW and ONE, which are ROW's together. */
static enum status stored_scale(const struct source *source, enum gemm_scale *out, struct error *error) {
  *out = source->pieces[0].from.scale;
  for (uint32_t i = 1; i < source->count; i++) {
    enum gemm_scale scale = source->pieces[i].from.scale;
    bool rows =
        (scale == GEMM_SCALE_ROW || scale == GEMM_SCALE_ONE) && (*out == GEMM_SCALE_ROW || *out == GEMM_SCALE_ONE);
    if (scale != *out && !rows)
      return error_set(error, STATUS_UNSUPPORTED, "'%s' has scales of mode %s, '%s' of %s: they cannot be one weight",
                       SHOW(source->pieces[i].from.name), gemm_scale_name(scale), SHOW(source->pieces[0].from.name),
                       gemm_scale_name(*out));
    if (rows)
      *out = GEMM_SCALE_ROW;
  }
  return STATUS_OK;
}

static enum status resolve_stored(const struct message_weight_load *request, struct source *out, struct error *error) {
  out->stored = true;
  for (uint32_t i = 0; i < out->count; i++) {
    const struct import_weight *from = &out->pieces[i].from;
    const char *type = safetensors_dtype_name(from->tensor->tensor->dtype);
    if (from->real)
      return error_set(error, STATUS_UNSUPPORTED, "'%s' is %s and not quantized, as '%s' is: they cannot be one weight",
                       SHOW(from->name), type, SHOW(out->pieces[0].from.name));
    if (!gemm_stored_alike(out->weight.format, from->format))
      return error_set(error, STATUS_UNSUPPORTED, "tensor '%s' is %s, quantized already; it loads as %s, not as %s",
                       SHOW(from->tensor->tensor->name), type, gemm_format_name(from->format),
                       gemm_format_name(out->weight.format));
    if (request->method != GEMM_METHOD_DEFAULT)
      return error_set(error, STATUS_UNSUPPORTED, "tensor '%s' is %s, quantized already; it takes no method",
                       SHOW(from->tensor->tensor->name), type);
  }
  return stored_scale(out, &out->weight.scale, error);
}

/* ---- numbers */

static enum status resolve_method(enum gemm_format format, uint32_t wanted, enum gemm_method *out,
                                  struct error *error) {
  if (!gemm_takes_method(format, (enum gemm_method)wanted))
    return error_set(error, STATUS_UNSUPPORTED, "method %s does not make %s weights",
                     gemm_method_name((enum gemm_method)wanted), gemm_format_name(format));
  *out = wanted != GEMM_METHOD_DEFAULT ? (enum gemm_method)wanted : gemm_format_facts(format)->method_default;
  return STATUS_OK;
}

static enum status resolve_real(const struct message_weight_load *request, struct source *out, struct error *error) {
  for (uint32_t i = 0; i < out->count; i++) {
    const struct import_weight *from = &out->pieces[i].from;
    const char *type = safetensors_dtype_name(from->tensor->tensor->dtype);
    if (!from->real)
      return error_set(error, STATUS_UNSUPPORTED, "'%s' is %s and quantized, '%s' is not: they cannot be one weight",
                       SHOW(from->name), type, SHOW(out->pieces[0].from.name));
    if (request->scale_tensor[0])
      return error_set(error, STATUS_INVALID, "scale tensor '%s' is named, but '%s' is %s and has no scales",
                       SHOW(request->scale_tensor), SHOW(from->tensor->tensor->name), type);
  }
  out->weight.scale =
      request->scale ? (enum gemm_scale)request->scale : gemm_format_facts(out->weight.format)->scale_default;
  return resolve_method(out->weight.format, request->method, &out->method, error);
}

enum status source_resolve(const struct import_model *model, const struct message_weight_load *request, int64_t expert,
                           struct source *out, struct error *error) {
  *out = (struct source){.count = 0};
  if (request->format < 1 || request->format >= GEMM_FORMATS)
    return error_field(error, STATUS_INVALID, FIELD_FORMAT, request->format, 1, GEMM_FORMATS - 1);
  if (request->parts > 0 && request->part >= request->parts)
    return error_set(error, STATUS_INVALID, "part must be below parts (%u), got %u", request->parts, request->part);
  enum status status = add_pieces(model, request, expert, out, error);
  if (status != STATUS_OK)
    return status;
  status = out->pieces[0].from.real ? resolve_real(request, out, error) : resolve_stored(request, out, error);
  return status == STATUS_OK ? gemm_layout_compute(&out->weight, &out->layout, error) : status;
}
