/* The header of a GGUF file (github.com/ggml-org/ggml, docs/gguf.md), versions 2 and 3, as a list of tensors. A pure
 * parser: no I/O, every number is checked before it is used.
 *
 * Names of tensors become those that Hugging Face's models have (gguf-py, tensor_mapping.py), for architectures that
 * are known here. llama.cpp's converter permutes the rows of q and k of the architecture "llama"
 * (convert_hf_to_gguf.py, LlamaModel.permute): heads and kv_heads are then set, so that whoever reads the rows can undo
 * it. */
#ifndef WEIGHTS_GGUF_H
#define WEIGHTS_GGUF_H

#include "safetensors.h"

#include <stdbool.h>

/* GGUF_TYPE(number, name, elements of a block, bytes of a block): gguf-py, constants.py, GGML_QUANT_SIZES */
#define GGUF_TYPES(row)                                                                                                \
  row(0, F32, 1, 4) row(1, F16, 1, 2) row(2, Q4_0, 32, 18) row(3, Q4_1, 32, 20) row(6, Q5_0, 32, 22)                   \
      row(7, Q5_1, 32, 24) row(8, Q8_0, 32, 34) row(9, Q8_1, 32, 40) row(10, Q2_K, 256, 84) row(11, Q3_K, 256, 110)    \
          row(12, Q4_K, 256, 144) row(13, Q5_K, 256, 176) row(14, Q6_K, 256, 210) row(15, Q8_K, 256, 292)              \
              row(16, IQ2_XXS, 256, 66) row(17, IQ2_XS, 256, 74) row(18, IQ3_XXS, 256, 98) row(19, IQ1_S, 256, 50)     \
                  row(20, IQ4_NL, 32, 18) row(21, IQ3_S, 256, 110) row(22, IQ2_S, 256, 82) row(23, IQ4_XS, 256, 136)   \
                      row(24, I8, 1, 1) row(25, I16, 1, 2) row(26, I32, 1, 4) row(27, I64, 1, 8) row(28, F64, 1, 8)    \
                          row(29, IQ1_M, 256, 56) row(30, BF16, 1, 2) row(34, TQ1_0, 256, 54) row(35, TQ2_0, 256, 66)  \
                              row(39, MXFP4, 32, 17)

enum gguf_type {
#define ROW(number, name, block, bytes) GGUF_##name = number,
  GGUF_TYPES(ROW)
#undef ROW
};

const char *gguf_type_name(uint32_t type); /* "unknown" */

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

#endif
