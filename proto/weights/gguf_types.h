/* The types of tensors that GGUF has. */
#pragma once

#include <stdint.h>

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

struct gguf_type_info {
  const char *name;
  uint32_t block, bytes; /* elements and bytes of a block */
};

/* NULL for a number that is none. */
const struct gguf_type_info *gguf_type_find(uint64_t type);
const char *gguf_type_name(uint32_t type); /* "unknown" */
