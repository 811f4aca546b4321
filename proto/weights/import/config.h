/* What a model's configuration says about quantization. */
#pragma once

#include "importer.h"

/* What config.json says of the whole model: UNSUPPORTED for a method that is not understood. */
MUST_CHECK enum status import_config_parse(struct import_model *model, const char *text, size_t bytes,
                                           struct error *error);
/* A number of the model's configuration; `fallback` where it has none of that name. */
int64_t import_config_integer(const struct import_model *model, const char *key, int64_t fallback);
/* The group_size of compressed-tensors' config_groups; -1 where there is none, or several. */
int64_t import_config_group(const struct import_model *model);
/* A text of it; NULL where there is none. */
const char *import_config_text(const struct import_model *model, const char *key);
/* Whether it has something under that name that is not null, false or empty. */
bool import_config_has(const struct import_model *model, const char *key);
