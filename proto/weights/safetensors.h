/* The header of a safetensors file: 8 bytes of length (little endian), so many bytes of JSON, then the tensors' bytes.
 * A pure parser: no I/O, every number is checked before it is used. */
#pragma once

#include "../gemm.h"
#include "../status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  SAFETENSORS_LENGTH_BYTES = 8,
  SAFETENSORS_FILE_BYTES_LEAST = SAFETENSORS_LENGTH_BYTES + 2, /* the shortest header is {} */
};

/* SAFETENSORS_DTYPE(name in the file, bits an element) */
#define SAFETENSORS_DTYPES(row)                                                                                        \
  row(BOOL, 8) row(F4, 4) row(F6_E2M3, 6) row(F6_E3M2, 6) row(U8, 8) row(I8, 8) row(F8_E5M2, 8) row(F8_E4M3, 8)        \
      row(F8_E8M0, 8) row(I16, 16) row(U16, 16) row(F16, 16) row(BF16, 16) row(I32, 32) row(U32, 32) row(F32, 32)      \
          row(C64, 64) row(F64, 64) row(I64, 64) row(U64, 64)

enum safetensors_dtype {
#define ROW(name, bits) DTYPE_##name,
  SAFETENSORS_DTYPES(ROW)
#undef ROW
      DTYPE_GGUF, /* here and beyond: a type that GGUF alone has, DTYPE_GGUF + its number there (gguf_types.h) */
};

struct safetensors_tensor {
  char *name; /* owned by the struct safetensors */
  enum safetensors_dtype dtype;
  size_t rank;
  uint64_t shape[2]; /* the first two; 0 where rank is less */
  uint64_t elements;
  uint64_t begin, end; /* bytes from the beginning of the file; the tensor lies inside the file */
};

struct safetensors {
  struct safetensors_tensor *tensors; /* in order of begin */
  size_t count;
  char *quantization;       /* owned: _quantization_metadata of the header's metadata; NULL: none */
  bool gguf;                /* the file is of that format: gguf.h */
  uint32_t heads, kv_heads; /* GGUF: rows of q and of k are permuted, a head at a time; 0: they are not */
};

/* The first `have` bytes (8 are needed) say how long the header is; checked against the file and the limit. */
MUST_CHECK enum status safetensors_length(const uint8_t *first, size_t have, uint64_t file_bytes, uint64_t *json_bytes,
                                          struct error *error);
/* Reads the JSON behind the length. BAD_FILE with tensor and offset for anything that the format does not allow: the
 * tensors must cover the rest of the file without hole or overlap. Free *out with safetensors_free. */
MUST_CHECK enum status safetensors_parse(const char *json, uint64_t json_bytes, uint64_t file_bytes,
                                         struct safetensors *out, struct error *error);
void safetensors_free(struct safetensors *file);

/* NULL where there is none. */
const struct safetensors_tensor *safetensors_find(const struct safetensors *file, const char *name);

/* Elements of F32, F16 or BF16 as they lie in the file; exact. `raw` need not be aligned. */
void safetensors_to_f32(enum safetensors_dtype dtype, const uint8_t *raw, size_t count, float *out);

const char *safetensors_dtype_name(enum safetensors_dtype dtype);
/* What a file of gemmd's own calls the type of such numbers, and of a format's codes, of which those of less than a
 * byte are packed. */
const char *safetensors_type_name(enum gemm_type type);
const char *safetensors_codes_name(enum gemm_format format);

/* A file's text as it may stand in a sentence: printable ASCII, shortened. */
struct safetensors_shown {
  char text[73];
};
struct safetensors_shown safetensors_show(const char *text);
