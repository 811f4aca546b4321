/* The header of a GGUF file (github.com/ggml-org/ggml, docs/gguf.md), versions 2 and 3, as a list of tensors. A pure
 * parser: no I/O, every number is checked before it is used.
 *
 * Names of tensors become those that Hugging Face's models have (gguf-py, tensor_mapping.py), for architectures that
 * are known here. llama.cpp's converter permutes the rows of q and k of the architecture "llama"
 * (convert_hf_to_gguf.py, LlamaModel.permute): heads and kv_heads are then set, so that whoever reads the rows can undo
 * it. */
#pragma once

#include "gguf_types.h"
#include "safetensors.h"

#include <stdbool.h>

enum { GGUF_MAGIC_BYTES = 4 };
/* Whether a file that begins so is GGUF. */
bool gguf_is(const uint8_t *first, size_t have);

/* Reads the header out of the first `have` bytes of the file. *more: nothing is wrong, but the header goes on behind
 * them; UNSUPPORTED then, too. BAD_FILE with the byte for what the format does not allow; UNSUPPORTED for a version or
 * an architecture that is not known. Free *out with safetensors_free. */
MUST_CHECK enum status gguf_parse(const uint8_t *bytes, size_t have, uint64_t file_bytes, struct safetensors *out,
                                  bool *more, struct error *error);

/* The row of a permuted q or k [rows][..] in the file that row n of Hugging Face's lies in. */
uint64_t gguf_permuted_row(uint64_t n, uint64_t rows, uint32_t heads);
