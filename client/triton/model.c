/* What config.pbtxt says of a model. */
#include "gemmd_triton.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_ROWS = 1024, MOST_ROWS = 1 << 20 };

/* In the names of config.pbtxt. */
static const struct {
  const char *name;
  enum TRITONSERVER_datatype_enum type;
  enum gemmd_type gemmd;
  size_t bytes;
} types[] = {
    {"TYPE_FP32", TRITONSERVER_TYPE_FP32, GEMMD_F32, 4},
    {"TYPE_FP16", TRITONSERVER_TYPE_FP16, GEMMD_F16, 2},
    {"TYPE_BF16", TRITONSERVER_TYPE_BF16, GEMMD_BF16, 2},
};

enum { TYPES = sizeof types / sizeof types[0] };

enum gemmd_type type_convert(enum TRITONSERVER_datatype_enum type) {
  for (unsigned i = 0; i < TYPES; i++)
    if (types[i].type == type)
      return types[i].gemmd;
  return GEMMD_TYPE_NONE;
}

size_t type_bytes(enum TRITONSERVER_datatype_enum type) {
  for (unsigned i = 0; i < TYPES; i++)
    if (types[i].type == type)
      return types[i].bytes;
  return 0;
}

static failure text_copy(char *to, size_t bytes, const char *from, const char *what) {
  if (from == NULL || from[0] == '\0' || strlen(from) >= bytes)
    return error_make(TRITONSERVER_ERROR_INVALID_ARG, "%s must have 1..%zu bytes, got %s", what, bytes - 1,
                      from == NULL || from[0] == '\0' ? "none" : "more");
  memcpy(to, from, strlen(from) + 1);
  return NULL;
}

/* Name and type of the only input or output. */
static failure tensor_read(const json_t *config, const char *what, char *name, size_t bytes,
                           enum TRITONSERVER_datatype_enum *type) {
  const json_t *list = json_object_get(config, what), *tensor = json_array_get(list, 0);
  const char *said = json_string_value(json_object_get(tensor, "data_type"));
  if (json_array_size(list) != 1)
    return error_make(TRITONSERVER_ERROR_INVALID_ARG, "a model has one %s, got %zu", what, json_array_size(list));
  for (unsigned i = 0; i < TYPES; i++)
    if (said != NULL && strcmp(said, types[i].name) == 0) {
      *type = types[i].type;
      return text_copy(name, bytes, json_string_value(json_object_get(tensor, "name")), what);
    }
  return error_make(TRITONSERVER_ERROR_UNSUPPORTED, "data_type of %s must be TYPE_FP32, TYPE_FP16 or TYPE_BF16, got %s",
                    what, said != NULL ? said : "none");
}

static const char *parameter(const json_t *config, const char *name) {
  const json_t *value = json_object_get(json_object_get(config, "parameters"), name);
  return json_string_value(json_object_get(value, "string_value"));
}

static failure rows_read(const json_t *config, uint64_t *rows) {
  const char *said = parameter(config, "rows");
  char *end;
  *rows = DEFAULT_ROWS;
  if (said == NULL)
    return NULL;
  *rows = strtoull(said, &end, 10);
  if (*end != '\0' || *rows < 1 || *rows > MOST_ROWS)
    return error_make(TRITONSERVER_ERROR_INVALID_ARG, "parameter rows must be 1..%d, got %.40s", MOST_ROWS, said);
  return NULL;
}

static failure config_read(const json_t *config, struct model *model) {
  failure error = text_copy(model->weight, sizeof model->weight, parameter(config, "weight"), "parameter weight");
  if (error == NULL && parameter(config, "socket") != NULL)
    error = text_copy(model->socket, sizeof model->socket, parameter(config, "socket"), "parameter socket");
  if (error == NULL)
    error = rows_read(config, &model->rows);
  if (error == NULL)
    error = tensor_read(config, "input", model->x_name, sizeof model->x_name, &model->x_type);
  if (error == NULL)
    error = tensor_read(config, "output", model->y_name, sizeof model->y_name, &model->y_type);
  return error;
}

failure model_read(TRITONBACKEND_Model *from, struct model *model) {
  TRITONSERVER_Message *message;
  const char *text;
  size_t length;
  failure error = TRITONBACKEND_ModelConfig(from, 1, &message);
  if (error != NULL)
    return error;
  error = TRITONSERVER_MessageSerializeToJson(message, &text, &length);
  json_t *config = error == NULL ? json_loadb(text, length, 0, NULL) : NULL;
  if (error == NULL)
    error = config != NULL ? config_read(config, model)
                           : error_make(TRITONSERVER_ERROR_INTERNAL, "the model's configuration is no JSON");
  json_decref(config);
  TRITONSERVER_MessageDelete(message);
  return error;
}
