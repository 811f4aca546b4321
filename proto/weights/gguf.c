#include "gguf.h"

#include "../gemm.h"
#include "../limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHOW(text_) safetensors_show(text_).text

enum { ALIGNMENT = 32, DEPTH_MOST = 2, DIMENSIONS_MOST = 4, SCALAR_MOST = 8 };

/* Types of values in the header; the numbers are the format's. */
enum value_type { VALUE_U32 = 4, VALUE_STRING = 8, VALUE_ARRAY = 9, VALUE_TYPES = 13 };

bool gguf_is(const uint8_t *first, size_t have) {
  return have >= GGUF_MAGIC_BYTES && memcmp(first, "GGUF", GGUF_MAGIC_BYTES) == 0;
}

/* ---- reading */

struct cursor {
  const uint8_t *bytes;
  size_t at, have;
  uint64_t file_bytes;
  bool more; /* the header goes on behind what there is */
  struct error *error;
};

static enum status skip(struct cursor *cursor, uint64_t count) {
  if (count > cursor->file_bytes - cursor->at)
    return error_set(cursor->error, STATUS_BAD_FILE, "GGUF: the header at byte %zu is longer than the file",
                     cursor->at);
  if (count > cursor->have - cursor->at) {
    cursor->more = true;
    return error_set(cursor->error, STATUS_UNSUPPORTED, "GGUF: the header has more than %zu bytes", cursor->have);
  }
  cursor->at += (size_t)count;
  return STATUS_OK;
}

/* Little endian. */
static enum status take_number(struct cursor *cursor, unsigned bytes, uint64_t *out) {
  size_t from = cursor->at;
  enum status status = skip(cursor, bytes);
  *out = 0;
  for (size_t i = cursor->at; status == STATUS_OK && i > from; i--)
    *out = *out << 8 | cursor->bytes[i - 1];
  return status;
}

struct text {
  const char *bytes;
  uint64_t length;
};

static enum status take_text(struct cursor *cursor, struct text *out) {
  enum status status = take_number(cursor, 8, &out->length);
  out->bytes = (const char *)cursor->bytes + cursor->at;
  return status == STATUS_OK ? skip(cursor, out->length) : status;
}

static bool text_is(struct text text, const char *expected) {
  return text.length == strlen(expected) && memcmp(text.bytes, expected, text.length) == 0;
}

/* ---- keys and values */

struct facts {
  uint64_t alignment, heads, kv_heads;
  char architecture[64];
};

static enum status skip_value(struct cursor *cursor, uint64_t type, int depth) {
  static const uint8_t widths[VALUE_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  struct text text;
  uint64_t inner, count;
  if (type >= VALUE_TYPES || depth > DEPTH_MOST)
    return error_set(cursor->error, STATUS_BAD_FILE, "GGUF: a value at byte %zu has type %llu", cursor->at,
                     (unsigned long long)type);
  if (type == VALUE_STRING)
    return take_text(cursor, &text);
  if (type != VALUE_ARRAY)
    return skip(cursor, widths[type]);
  enum status status = take_number(cursor, 4, &inner);
  if (status == STATUS_OK)
    status = take_number(cursor, 8, &count);
  if (status != STATUS_OK)
    return status;
  if (inner < VALUE_TYPES && widths[inner] > 0)
    return count > UINT64_MAX / SCALAR_MOST ? skip(cursor, UINT64_MAX) : skip(cursor, count * widths[inner]);
  for (uint64_t i = 0; status == STATUS_OK && i < count; i++)
    status = skip_value(cursor, inner, depth + 1);
  return status;
}

static bool key_ends(struct text key, const char *suffix) {
  size_t length = strlen(suffix);
  return key.length >= length && memcmp(key.bytes + key.length - length, suffix, length) == 0;
}

static enum status take_pair(struct cursor *cursor, struct facts *facts) {
  struct text key, text;
  uint64_t type, value;
  enum status status = take_text(cursor, &key);
  if (status == STATUS_OK)
    status = take_number(cursor, 4, &type);
  if (status != STATUS_OK)
    return status;
  if (type == VALUE_STRING && text_is(key, "general.architecture")) {
    status = take_text(cursor, &text);
    if (status == STATUS_OK && text.length < sizeof facts->architecture)
      memcpy(facts->architecture, text.bytes, text.length);
    return status;
  }
  uint64_t *number = text_is(key, "general.alignment")           ? &facts->alignment
                     : key_ends(key, ".attention.head_count")    ? &facts->heads
                     : key_ends(key, ".attention.head_count_kv") ? &facts->kv_heads
                                                                 : &value;
  return type == VALUE_U32 ? take_number(cursor, 4, number) : skip_value(cursor, type, 0);
}

/* ---- names */

static const struct {
  const char *name;
  bool permuted; /* q and k */
} architectures[] = {{"llama", true},   {"qwen2", false},  {"qwen3", false}, {"gemma", false},
                     {"gemma2", false}, {"gemma3", false}, {"phi3", false},  {"bitnet", false}};

static const struct {
  const char *from, *to;
} whole[] = {{"token_embd", "model.embed_tokens"}, {"output_norm", "model.norm"}, {"output", "lm_head"}},
  in_layer[] = {
      {"attn_q", "self_attn.q_proj"},      {"attn_k", "self_attn.k_proj"},     {"attn_v", "self_attn.v_proj"},
      {"attn_output", "self_attn.o_proj"}, {"attn_qkv", "self_attn.qkv_proj"}, {"attn_q_norm", "self_attn.q_norm"},
      {"attn_k_norm", "self_attn.k_norm"}, {"attn_norm", "input_layernorm"},   {"ffn_norm", "post_attention_layernorm"},
      {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},          {"ffn_down", "mlp.down_proj"}};

/* "blk.3.attn_q.weight" to "model.layers.3.self_attn.q_proj.weight"; what is not known stays as it is. */
static char *hugging_face_name(struct text name, const char *architecture) {
  char text[LIMIT_NAME_BYTES], *out = NULL;
  if (name.length >= sizeof text || memchr(name.bytes, '\0', name.length) != NULL)
    return NULL;
  memcpy(text, name.bytes, name.length);
  text[name.length] = '\0';
  unsigned layer;
  int begin = 0;
  bool inside = sscanf(text, "blk.%u.%n", &layer, &begin) == 1 && begin > 0;
  char *stem = text + (inside ? begin : 0), *dot = strrchr(stem, '.');
  if (dot == NULL)
    return strdup(text);
  *dot = '\0';
  const char *to = NULL;
  for (size_t i = 0; !inside && i < sizeof whole / sizeof *whole; i++)
    to = strcmp(stem, whole[i].from) == 0 ? whole[i].to : to;
  for (size_t i = 0; inside && i < sizeof in_layer / sizeof *in_layer; i++)
    to = strcmp(stem, in_layer[i].from) == 0 ? in_layer[i].to : to;
  if (to != NULL && strcmp(architecture, "phi3") == 0 && strcmp(stem, "ffn_up") == 0)
    to = "mlp.gate_up_proj";
  int written = to == NULL ? 0
                : inside   ? asprintf(&out, "model.layers.%u.%s.%s", layer, to, dot + 1)
                           : asprintf(&out, "%s.%s", to, dot + 1);
  *dot = '.';
  return to == NULL ? strdup(text) : written < 0 ? NULL : out;
}

/* ---- tensors */

static enum status take_shape(struct cursor *cursor, struct safetensors_tensor *out) {
  uint64_t dimensions, extents[DIMENSIONS_MOST] = {0};
  enum status status = take_number(cursor, 4, &dimensions);
  if (status == STATUS_OK && (dimensions < 1 || dimensions > DIMENSIONS_MOST))
    status = error_set(cursor->error, STATUS_BAD_FILE, "GGUF: tensor '%s' has %llu dimensions", SHOW(out->name),
                       (unsigned long long)dimensions);
  out->elements = 1;
  for (uint64_t i = 0; status == STATUS_OK && i < dimensions; i++) {
    status = take_number(cursor, 8, &extents[i]);
    if (status == STATUS_OK && __builtin_mul_overflow(out->elements, extents[i], &out->elements))
      status = error_set(cursor->error, STATUS_BAD_FILE, "GGUF: tensor '%s' has more elements than 64 bits hold",
                         SHOW(out->name));
  }
  if (status != STATUS_OK)
    return status;
  out->rank = (size_t)dimensions; /* the first is the innermost */
  for (size_t i = 0; i < 2 && i < out->rank; i++)
    out->shape[i] = extents[out->rank - 1 - i];
  return STATUS_OK;
}

static enum safetensors_dtype dtype_of(uint64_t type) {
  switch (type) {
  case GGUF_F32:
    return DTYPE_F32;
  case GGUF_F16:
    return DTYPE_F16;
  case GGUF_BF16:
    return DTYPE_BF16;
  default:
    return (enum safetensors_dtype)(DTYPE_GGUF + type);
  }
}

/* What lies behind begin is relative to the data until check_places. */
static enum status take_tensor(struct cursor *cursor, const struct facts *facts, struct safetensors_tensor *out) {
  struct text name;
  uint64_t type = 0, bytes = 0;
  enum status status = take_text(cursor, &name);
  if (status != STATUS_OK)
    return status;
  out->name = hugging_face_name(name, facts->architecture);
  if (out->name == NULL)
    return error_set(cursor->error, STATUS_BAD_FILE, "GGUF: a tensor's name before byte %zu is none", cursor->at);
  status = take_shape(cursor, out);
  if (status == STATUS_OK)
    status = take_number(cursor, 4, &type);
  if (status == STATUS_OK)
    status = take_number(cursor, 8, &out->begin);
  if (status != STATUS_OK)
    return status;
  const struct gguf_type_info *info = gguf_type_find(type);
  if (info == NULL)
    return error_set(cursor->error, STATUS_BAD_FILE, "GGUF: tensor '%s' has the unknown type %llu", SHOW(out->name),
                     (unsigned long long)type);
  uint64_t inner = out->rank == 1 ? out->shape[0] : out->elements > 0 ? out->shape[out->rank < 3 ? 1 : 0] : 0;
  if (out->elements % info->block != 0 || (out->rank <= 2 && inner % info->block != 0) ||
      __builtin_mul_overflow(out->elements / info->block, (uint64_t)info->bytes, &bytes) ||
      __builtin_add_overflow(out->begin, bytes, &out->end))
    return error_set(cursor->error, STATUS_BAD_FILE, "GGUF: tensor '%s' is no whole number of blocks of %s",
                     SHOW(out->name), info->name);
  out->dtype = dtype_of(type);
  return STATUS_OK;
}

static int compare_place(const void *left, const void *right) {
  const struct safetensors_tensor *a = left, *b = right;
  return (a->begin > b->begin) - (a->begin < b->begin);
}

static int compare_names(const void *left, const void *right) {
  return strcmp(*(char *const *)left, *(char *const *)right);
}

static enum status check_names(const struct safetensors *file, struct error *error) {
  char **names = malloc((file->count + 1) * sizeof *names);
  enum status status = STATUS_OK;
  if (names == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for the list of tensors");
  for (size_t i = 0; i < file->count; i++)
    names[i] = file->tensors[i].name;
  qsort(names, file->count, sizeof *names, compare_names);
  for (size_t i = 1; status == STATUS_OK && i < file->count; i++)
    if (strcmp(names[i - 1], names[i]) == 0)
      status = error_set(error, STATUS_BAD_FILE, "GGUF: tensor '%s' is there twice", SHOW(names[i]));
  free(names);
  return status;
}

static enum status check_places(const struct cursor *cursor, uint64_t alignment, struct safetensors *file) {
  uint64_t begin = gemm_round_up(cursor->at, alignment), end = 0;
  qsort(file->tensors, file->count, sizeof *file->tensors, compare_place);
  for (size_t i = 0; i < file->count; i++) {
    struct safetensors_tensor *tensor = &file->tensors[i];
    if (begin > cursor->file_bytes || tensor->end > cursor->file_bytes - begin)
      return error_set(cursor->error, STATUS_BAD_FILE, "GGUF: tensor '%s' ends behind the end of the file",
                       SHOW(tensor->name));
    if (tensor->begin < end || tensor->begin % alignment != 0)
      return error_set(cursor->error, STATUS_BAD_FILE, "GGUF: tensor '%s' at byte %llu of the data %s",
                       SHOW(tensor->name), (unsigned long long)tensor->begin,
                       tensor->begin < end ? "overlaps the one before it" : "is not aligned");
    end = tensor->end;
    tensor->begin += begin;
    tensor->end += begin;
  }
  return check_names(file, cursor->error);
}

static enum status take_architecture(const struct facts *facts, struct safetensors *out, struct error *error) {
  for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++) {
    if (strcmp(facts->architecture, architectures[i].name) != 0)
      continue;
    if (!architectures[i].permuted)
      return STATUS_OK;
    out->heads = (uint32_t)facts->heads;
    out->kv_heads = (uint32_t)(facts->kv_heads > 0 ? facts->kv_heads : facts->heads);
    return out->heads > 0 ? STATUS_OK
                          : error_set(error, STATUS_BAD_FILE, "GGUF: the header has no llama.attention.head_count");
  }
  return error_set(error, STATUS_UNSUPPORTED, "GGUF: the names of architecture '%s' are not known",
                   SHOW(facts->architecture));
}

static enum status take_all(struct cursor *cursor, struct safetensors *out) {
  struct facts facts = {.alignment = ALIGNMENT};
  uint64_t version, tensors, pairs;
  enum status status = skip(cursor, GGUF_MAGIC_BYTES);
  if (status == STATUS_OK)
    status = take_number(cursor, 4, &version);
  if (status == STATUS_OK && version != 2 && version != 3)
    return error_set(cursor->error, STATUS_UNSUPPORTED, "GGUF: version %llu; 2 and 3, little endian, are taken",
                     (unsigned long long)version);
  if (status == STATUS_OK)
    status = take_number(cursor, 8, &tensors);
  if (status == STATUS_OK)
    status = take_number(cursor, 8, &pairs);
  if (status == STATUS_OK && tensors > LIMIT_FILE_TENSORS)
    status = error_set(cursor->error, STATUS_BAD_FILE, "file has %llu tensors; the most is %u",
                       (unsigned long long)tensors, LIMIT_FILE_TENSORS);
  for (uint64_t i = 0; status == STATUS_OK && i < pairs; i++)
    status = take_pair(cursor, &facts);
  if (status == STATUS_OK && (facts.alignment == 0 || (facts.alignment & (facts.alignment - 1)) != 0))
    status = error_set(cursor->error, STATUS_BAD_FILE, "GGUF: general.alignment is %llu",
                       (unsigned long long)facts.alignment);
  if (status == STATUS_OK)
    status = take_architecture(&facts, out, cursor->error);
  if (status != STATUS_OK)
    return status;
  out->tensors = calloc((size_t)tensors + 1, sizeof *out->tensors);
  if (out->tensors == NULL)
    return error_set(cursor->error, STATUS_NOMEM, "no memory for the list of tensors");
  while (status == STATUS_OK && out->count < tensors)
    status = take_tensor(cursor, &facts, &out->tensors[out->count++]);
  return status == STATUS_OK ? check_places(cursor, facts.alignment, out) : status;
}

enum status gguf_parse(const uint8_t *bytes, size_t have, uint64_t file_bytes, struct safetensors *out, bool *more,
                       struct error *error) {
  struct cursor cursor = {.bytes = bytes, .have = have, .file_bytes = file_bytes, .error = error};
  *out = (struct safetensors){.gguf = true};
  enum status status = have <= file_bytes
                           ? take_all(&cursor, out)
                           : error_set(error, STATUS_BAD_FILE, "GGUF: the header is longer than the file");
  *more = cursor.more;
  if (status != STATUS_OK)
    safetensors_free(out);
  return status;
}

uint64_t gguf_permuted_row(uint64_t n, uint64_t rows, uint32_t heads) {
  uint64_t size = rows / heads, half = size / 2, within = n % size;
  return n / size * size + within % half * 2 + within / half;
}
