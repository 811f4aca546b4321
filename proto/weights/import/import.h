/* Readers of checkpoints. A weight is one or several tensors of a model's files; which, how they are packed, which are
 * its scales and what makes it unreadable is a row of one table, and a file here. Pure: whoever uses this reads the
 * files, and only what is asked for.
 *
 * A marker that changes what a tensor means and that no row understands makes the weight unreadable, and its name is in
 * the sentence. */
#pragma once

#include "importer.h"

/* `config` is the text of config.json, quantize_config.json (GPTQ) or hf_quant_config.json (ModelOpt); NULL: the model
 * comes without. BAD_FILE for text that is no JSON object, a tensor that two files have, and what is no quantization.
 */
MUST_CHECK enum status import_open(struct import_model *model, const struct safetensors *files, size_t file_count,
                                   const char *config, size_t config_bytes, struct error *error);
void import_close(struct import_model *model);

/* What a tensor is to the table. An error that is not OK: a weight that cannot be read, and why. */
enum import_claim import_take(const struct import_model *model, const struct import_entry *tensor,
                              const struct import_wish *wish, struct import_weight *out, struct error *error);
