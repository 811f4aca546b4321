/* export: what gemmd holds, as a safetensors file that it loads as it is. */
#include "../ctl.h"

#include "../../../proto/weights/safetensors.h"
#include "../../tool/print.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct list {
  gemmd_weight_info *infos; /* owned */
  size_t count, room;
};

static bool append(void *user, const gemmd_weight_info *info) {
  struct list *list = user;
  if (list->count == list->room) {
    size_t more = list->room == 0 ? 64 : 2 * list->room;
    gemmd_weight_info *grown = realloc(list->infos, more * sizeof *grown);
    if (grown == NULL)
      return false;
    list->infos = grown;
    list->room = more;
  }
  list->infos[list->count++] = *info;
  return true;
}

/* ---- names in the file: "experts.up" with experts is "experts.0.up", "experts.1.up" .. there, one for each */

enum { NAME_ROOM = sizeof((gemmd_weight_info *)NULL)->name + 32 /* a number, and what is appended */ };

/* Where the number of an expert goes: behind the first "experts." that is a part of the name; 0: nowhere. */
static size_t number_place(const char *name) {
  static const char before[] = "experts.";
  for (const char *at = strstr(name, before); at != NULL; at = strstr(at + 1, before)) {
    const char *behind = at + sizeof before - 1;
    bool digits = behind[0] >= '0' && behind[0] <= '9';
    if ((at == name || at[-1] == '.') && behind[0] != '\0' && !digits)
      return (size_t)(behind - name);
  }
  return 0;
}

/* Matrices that stand by themselves. */
static uint32_t matrices(const gemmd_weight_info *info) {
  return info->experts > 0 ? info->experts : 1;
}

static void name_in_file(const gemmd_weight_info *info, uint32_t expert, char out[NAME_ROOM]) {
  size_t place = number_place(info->name);
  if (info->experts == 0)
    snprintf(out, NAME_ROOM, "%s", info->name);
  else
    snprintf(out, NAME_ROOM, "%.*s%u.%s", (int)place, info->name, expert, info->name + place);
}

/* ---- what stands in the file: rows without padding, then scales under the name with _scale, zero points under that
 * with _zero, factors of rows under that with _factor, then what is done to x under names with _input_scale,
 * _input_order and _input_rotation */

static const struct gemm_format_facts *format_of(const gemmd_weight_info *info) {
  return gemm_format_facts((enum gemm_format)info->format);
}

static const struct gemm_scale_facts *scale_of(const gemmd_weight_info *info) {
  return gemm_scale_facts((enum gemm_scale)info->scale);
}

static uint64_t row_bytes(const gemmd_weight_info *info) {
  return (uint64_t)info->k * (uint64_t)format_of(info)->bits / 8;
}

/* Elements of W in one of codes, which are U8 or U16. */
static uint64_t packed(const gemmd_weight_info *info) {
  return format_of(info)->bits < 8 ? 4 : 1;
}

static enum gemm_type scale_type(const gemmd_weight_info *info) {
  return gemm_scale_type(
      &(struct gemm_weight){.format = (enum gemm_format)info->format, .scale = (enum gemm_scale)info->scale});
}

static uint64_t groups(int64_t count, int64_t group) {
  return group > 0 ? (uint64_t)((count + group - 1) / group) : 1;
}

static json_t *scale_shape(const gemmd_weight_info *info, uint64_t *elements) {
  uint64_t rows = groups(info->n, scale_of(info)->n);
  uint64_t columns = groups(info->k, scale_of(info)->k);
  *elements = info->scale == GEMMD_SCALE_ONE ? 1 : rows * columns;
  return info->scale == GEMMD_SCALE_ONE ? json_pack("[i]", 1)
                                        : json_pack("[I, I]", (json_int_t)rows, (json_int_t)columns);
}

static bool announce(json_t *header, const char *name, const char *type, json_t *shape, uint64_t bytes,
                     uint64_t *offset) {
  json_t *tensor = json_pack("{s:s, s:o, s:[I, I]}", "dtype", type, "shape", shape, "data_offsets", (json_int_t)*offset,
                             (json_int_t)(*offset + bytes));
  *offset += bytes;
  return json_object_get(header, name) == NULL && json_object_set_new(header, name, tensor) == 0;
}

/* Elements of x that are rotated together, the first power of 4 being GEMMD_INPUT_ROTATE; 0: x is not. */
static int32_t rotation(uint32_t input) {
  uint32_t power = input / GEMMD_INPUT_ROTATE;
  return power > 0 ? (int32_t)(1u << 2 * power) : 0;
}

static bool announce_input(json_t *header, const gemmd_weight_info *info, uint64_t *offset) {
  const struct {
    const char *suffix, *type;
    bool there;
    int64_t elements;
  } parts[] = {{"_input_scale", "F32", (info->input & GEMMD_INPUT_SCALE) != 0, 1},
               {"_input_order", "I32", (info->input & GEMMD_INPUT_ORDER) != 0, info->k},
               {"_input_rotation", "I32", rotation(info->input) > 0, 1}};
  char name[NAME_ROOM];
  bool good = true;
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    snprintf(name, sizeof name, "%s%s", info->name, parts[i].suffix);
    if (parts[i].there)
      good = good && announce(header, name, parts[i].type, json_pack("[I]", (json_int_t)parts[i].elements),
                              (uint64_t)parts[i].elements * 4, offset);
  }
  return good;
}

static bool announce_matrix(json_t *header, const gemmd_weight_info *info, uint32_t expert, uint64_t *offset) {
  char name[NAME_ROOM], beside[NAME_ROOM + sizeof "_factor"];
  uint64_t elements, columns = (uint64_t)info->k / packed(info);
  name_in_file(info, expert, name);
  bool good = announce(header, name, safetensors_codes_name((enum gemm_format)info->format),
                       json_pack("[I, I]", (json_int_t)info->n, (json_int_t)columns),
                       (uint64_t)info->n * row_bytes(info), offset);
  if (info->scale != 0) {
    snprintf(beside, sizeof beside, "%s_scale", name);
    json_t *shape = scale_shape(info, &elements);
    good = good && announce(header, beside, safetensors_type_name(scale_type(info)), shape,
                            elements * gemm_type_bytes(scale_type(info)), offset);
  }
  if (scale_of(info)->zeros) {
    snprintf(beside, sizeof beside, "%s_zero", name);
    json_t *shape = scale_shape(info, &elements);
    bool f16 = scale_of(info)->zeros_f16;
    good = good && announce(header, beside, f16 ? "F16" : "U8", shape, elements * (f16 ? 2 : 1), offset);
  }
  if (scale_of(info)->factors) {
    snprintf(beside, sizeof beside, "%s_factor", name);
    json_t *shape = json_pack("[I]", (json_int_t)info->n);
    good = good && announce(header, beside, "F32", shape, (uint64_t)info->n * sizeof(float), offset);
  }
  return good;
}

static bool announce_weight(json_t *header, const gemmd_weight_info *info, uint64_t *offset) {
  bool good = true;
  for (uint32_t e = 0; e < matrices(info); e++)
    good = good && announce_matrix(header, info, e, offset);
  return good && announce_input(header, info, offset);
}

static enum tool_exit write_header(struct tool_call *call, const struct list *list, FILE *out) {
  uint64_t offset = 0;
  json_t *header = json_object();
  for (size_t i = 0; i < list->count; i++) {
    const gemmd_weight_info *info = &list->infos[i];
    enum tool_exit code = TOOL_OK;
    if ((uint64_t)info->k % packed(info) != 0)
      code = tool_cannot(call, GEMMD_UNSUPPORTED, "%s has K = %lld; %d-bit weights in files have a multiple of %d",
                         info->name, (long long)info->k, format_of(info)->bits, (int)packed(info));
    else if (info->experts > 0 && number_place(info->name) == 0)
      code =
          tool_cannot(call, GEMMD_UNSUPPORTED,
                      "%s has experts, and its name has no \"experts.\" for their numbers to stand behind", info->name);
    else if (!announce_weight(header, info, &offset))
      code = tool_cannot(call, GEMMD_INVALID, "%s cannot stand in a file: the name is taken, or no UTF-8", info->name);
    if (code != TOOL_OK) {
      json_decref(header);
      return code;
    }
  }
  char *text = json_dumps(header, JSON_COMPACT);
  json_decref(header);
  if (text == NULL)
    return tool_cannot(call, GEMMD_NOMEM, "no memory for the header");
  uint64_t length = strlen(text), padded = (length + 7) / 8 * 8;
  uint8_t first[8];
  for (size_t i = 0; i < sizeof first; i++)
    first[i] = (uint8_t)(padded >> (8 * i));
  bool good = fwrite(first, sizeof first, 1, out) == 1 && fprintf(out, "%s%*s", text, (int)(padded - length), "") >= 0;
  free(text);
  return good ? TOOL_OK : tool_cannot(call, GEMMD_SYSTEM, "writing the header: %s", strerror(errno));
}

/* ---- the weights */

static bool write_input(const gemmd_content *content, FILE *out) {
  int32_t group = rotation(content->input);
  size_t k = (size_t)content->k;
  return (content->x_scale == NULL || fwrite(content->x_scale, sizeof *content->x_scale, 1, out) == 1) &&
         (content->order == NULL || fwrite(content->order, sizeof *content->order, k, out) == k) &&
         (group == 0 || fwrite(&group, sizeof group, 1, out) == 1);
}

static bool write_content(const gemmd_weight_info *info, const gemmd_content *content, FILE *out) {
  uint64_t bytes = row_bytes(info), all = info->scale != 0 ? content->scale_rows * content->scale_columns : 0;
  uint64_t count = all / matrices(info);
  uint32_t scale_bytes = gemm_type_bytes(scale_type(info));
  const uint8_t *row = content->codes, *scales = content->scales, *zeros = content->zeros;
  const float *factors = content->factors;
  size_t zero_bytes = scale_of(info)->zeros_f16 ? 2 : 1;
  for (uint32_t e = 0; e < matrices(info); e++) {
    for (int64_t i = 0; i < content->n; i++, row += content->row_bytes)
      if (fwrite(row, (size_t)bytes, 1, out) != 1)
        return false;
    if (count > 0 && fwrite(scales, scale_bytes, (size_t)count, out) != count)
      return false;
    scales += count * scale_bytes;
    if (zeros != NULL && fwrite(zeros, zero_bytes, (size_t)count, out) != count)
      return false;
    zeros += zeros != NULL ? count * zero_bytes : 0;
    if (factors != NULL && fwrite(factors, sizeof *factors, (size_t)content->n, out) != (size_t)content->n)
      return false;
    factors += factors != NULL ? content->n : 0;
  }
  return write_input(content, out);
}

static enum tool_exit write_weight(struct tool_call *call, gemmd_session *session, const gemmd_weight_info *info,
                                   FILE *out) {
  gemmd_content content;
  enum tool_exit code = TOOL_OK;
  int status = gemmd_weight_fetch(session, info->name, &content);
  if (status != GEMMD_OK)
    return tool_refused(call, session, status);
  if (content.n != info->n || content.k != info->k || content.format != info->format || content.scale != info->scale ||
      content.input != info->input || content.experts != info->experts)
    code = tool_cannot(call, GEMMD_EXISTS, "%s has been replaced meanwhile", info->name);
  else if (!write_content(info, &content, out))
    code = tool_cannot(call, GEMMD_SYSTEM, "writing %s: %s", info->name, strerror(errno));
  gemmd_content_free(&content);
  return code;
}

static enum tool_exit write_file(struct tool_call *call, gemmd_session *session, const struct list *list,
                                 const char *path) {
  char *part;
  if (asprintf(&part, "%s.part", path) < 0)
    return tool_cannot(call, GEMMD_NOMEM, "no memory for a path");
  FILE *out = fopen(part, "wbxe");
  if (out == NULL) {
    free(part);
    return tool_cannot(call, GEMMD_SYSTEM, "cannot make %s.part: %s", path, strerror(errno));
  }
  enum tool_exit code = write_header(call, list, out);
  for (size_t i = 0; code == TOOL_OK && i < list->count; i++)
    code = write_weight(call, session, &list->infos[i], out);
  bool written = fclose(out) == 0;
  if (code == TOOL_OK && (!written || rename(part, path) != 0))
    code = tool_cannot(call, GEMMD_SYSTEM, "writing %s: %s", path, strerror(errno));
  if (code != TOOL_OK)
    unlink(part);
  free(part);
  return code;
}

static enum tool_exit export(struct tool_call *call, gemmd_session *session) {
  struct list list = {.count = 0}; const char *pattern = call->arguments[0], *path = call->arguments[1];
  enum tool_exit code;
  int status = gemmd_weight_list(session, pattern, append, &list);
  if (status != GEMMD_OK) code = tool_refused(call, session, status);
  else if (list.count == 0) code = tool_cannot(call, GEMMD_NOT_FOUND, "no weight matches \"%s\"", pattern);
  else code = write_file(call, session, &list, path);
  if (code == TOOL_OK && call->json)
      print_json(call->out, json_pack("{s:o, s:I}", "file", print_json_text(path), "written", (json_int_t)list.count));
  else if (code == TOOL_OK)
      fprintf(call->out, "%zu weight%s written to %s\n", list.count, print_plural(list.count), path);
  free(list.infos);
  return code;
}

static enum tool_exit run_export(struct tool_call *call) {
  return ctl_in_session(call, export);
}

const struct tool_command ctl_export = {
    .name = "export",
    .arguments = "PATTERN FILE",
    .least = 2,
    .most = 2,
    .summary = "Writes weights as a safetensors file that `load --format stored` takes as they are, experts one by "
               "one for --join-experts. For admins.",
    .example = "gemmctl export 'llama.*' llama.safetensors",
    .keys = "  file, written: how many weights",
    .run = run_export,
};
