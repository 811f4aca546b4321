/* Matrices of GGUF files (ggml, docs/gguf.md; blocks as in ggml-common.h and gguf-py's quants.py):
 *   F32, F16, BF16  as they are
 *   Q8_0            blocks of 32: F16 d, 32 signed bytes q; d * q. Numbers, which are quantized anew
 *   TQ2_0           blocks of 256: 64 bytes of codes, F16 d. Byte m of each half holds elements m, m + 32, m + 64 and
 *                   m + 96 of the half's 128, the first in the lowest bits
 *   TQ1_0           blocks of 256: 48 + 4 bytes of five or four codes in base 3, F16 d. The number of byte b is
 *                   ceil(b * 256 / 243); digit j is (b * 3^j mod 256) * 3 / 256. 32 bytes hold elements 32 j + m of
 *                   160, 16 bytes 160 + 16 j + m, the last four 240 + 4 j + m
 *   Q4_0            blocks of 32: F16 d, 16 bytes of codes q: byte m holds elements m and m + 16, the first in the low
 *                   bits; d * (q - 8)
 *   MXFP4           blocks of 32: e8m0 d, 16 bytes of e2m1 codes in the same order
 * Codes c of TQ1_0 and TQ2_0 stand for c - 1, and two groups of 128 have the scale of their block.
 * Q4_1 and the K types add a minimum that is a number of its own: a zero point of f16 times the scale is hardly ever
 * the same number. */
#include "importer.h"

#include "../../number.h"
#include "../gguf.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 256, TQ1_BYTES = 54, TQ2_BYTES = 66, Q8_BLOCK = 32, Q8_BYTES = 34, Q4_BYTES = 18 };

static uint32_t heads_of(const struct safetensors *file, const char *name) {
  if (import_ends(name, ".self_attn.q_proj.weight"))
    return file->heads;
  return import_ends(name, ".self_attn.k_proj.weight") ? file->kv_heads : 0;
}

static enum status take_type(struct import_weight *out, struct error *error) {
  enum safetensors_dtype dtype = out->tensor->tensor->dtype;
  out->real = true;
  switch ((int)dtype) {
  case DTYPE_F32:
    out->pack_bytes = 4;
    return STATUS_OK;
  case DTYPE_F16:
  case DTYPE_BF16:
    out->format = dtype == DTYPE_F16 ? GEMM_FORMAT_F16 : GEMM_FORMAT_BF16;
    out->pack_bytes = 2;
    return STATUS_OK;
  case DTYPE_GGUF + GGUF_Q8_0:
    out->pack = Q8_BLOCK;
    out->pack_bytes = Q8_BYTES;
    return STATUS_OK;
  case DTYPE_GGUF + GGUF_TQ1_0:
  case DTYPE_GGUF + GGUF_TQ2_0:
    out->real = false;
    out->format = GEMM_FORMAT_INT2;
    out->scale = GEMM_SCALE_GROUP;
    out->pack = BLOCK;
    out->pack_bytes = dtype == DTYPE_GGUF + GGUF_TQ1_0 ? TQ1_BYTES : TQ2_BYTES;
    return STATUS_OK;
  case DTYPE_GGUF + GGUF_Q4_0:
  case DTYPE_GGUF + GGUF_MXFP4:
    out->real = false;
    out->format = dtype == DTYPE_GGUF + GGUF_Q4_0 ? GEMM_FORMAT_INT4 : GEMM_FORMAT_MXFP4;
    out->scale = GEMM_SCALE_GROUP32;
    out->pack = Q8_BLOCK;
    out->pack_bytes = dtype == DTYPE_GGUF + GGUF_Q4_0 ? Q4_BYTES : Q4_BYTES - 1;
    return STATUS_OK;
  case DTYPE_GGUF + GGUF_Q4_1:
  case DTYPE_GGUF + GGUF_Q4_K:
    return error_set(error, STATUS_UNSUPPORTED,
                     "tensor '%s' is %s, whose groups have a minimum of their own, which scale and zero point do not "
                     "give exactly: convert it to Q4_0, Q8_0 or F16, or leave it out",
                     IMPORT_SHOW(out->name), safetensors_dtype_name(dtype));
  default:
    return error_set(error, STATUS_UNSUPPORTED,
                     "tensor '%s' is %s, for which gemmd has no format; F32, F16, BF16, Q8_0, Q4_0, MXFP4, TQ1_0 and "
                     "TQ2_0 are taken: convert it to one of these, or leave it out",
                     IMPORT_SHOW(out->name), safetensors_dtype_name(dtype));
  }
}

static enum status take_matrix(const struct import_model *model, struct import_weight *out, struct error *error) {
  const struct safetensors_tensor *tensor = out->tensor->tensor;
  const struct import_entry *scale = import_beside(model, tensor->name, strlen(".weight"), ".scale");
  enum status status = import_matrix(out, error);
  if (status != STATUS_OK)
    return status;
  if (import_ends(tensor->name, ".weight") && scale != NULL)
    return error_set(error, STATUS_UNSUPPORTED, "tensor '%s' has a marker that is not understood ('%s')",
                     IMPORT_SHOW(tensor->name), IMPORT_SHOW(scale->tensor->name));
  out->parameter = heads_of(&model->files[out->tensor->file], tensor->name);
  if (out->parameter > 0 && tensor->shape[0] % (2 * (uint64_t)out->parameter) != 0)
    return error_set(error, STATUS_BAD_FILE, "tensor '%s' has %lld rows for %u heads", IMPORT_SHOW(tensor->name),
                     (long long)out->n, out->parameter);
  return take_type(out, error);
}

static enum import_claim take(const struct import_model *model, const struct import_entry *tensor,
                              const struct import_wish *wish, struct import_weight *out, struct error *error) {
  if (!model->files[tensor->file].gguf)
    return IMPORT_NOT_MINE;
  if (wish == NULL && (tensor->tensor->rank != 2 || tensor->tensor->elements == 0))
    return IMPORT_PART;
  import_begin(out, &import_gguf, tensor);
  (void)take_matrix(model, out, error);
  return IMPORT_WEIGHT;
}

static uint64_t file_row(const struct import_weight *weight, uint64_t n) {
  return weight->parameter > 0 ? gguf_permuted_row(n, (uint64_t)weight->n, weight->parameter) : n;
}

static float half_at(const uint8_t *bytes) {
  uint16_t half;
  memcpy(&half, bytes, sizeof half);
  return number_from_f16(half);
}

static void numbers(const struct import_weight *weight, const struct import_tile *tile, uint64_t row, float *out) {
  const uint8_t *from = tile->raw + row * tile->stride;
  if (weight->pack == 1) {
    safetensors_to_f32(weight->tensor->tensor->dtype, from, tile->columns, out);
    return;
  }
  for (uint64_t i = 0; i < tile->columns; i++) {
    const uint8_t *block = from + i / Q8_BLOCK * Q8_BYTES;
    out[i] = half_at(block) * (float)(int8_t)block[2 + i % Q8_BLOCK];
  }
}

static uint8_t digit(uint8_t byte, unsigned place) {
  static const uint8_t powers[] = {1, 3, 9, 27, 81};
  return (uint8_t)((uint32_t)(uint8_t)(byte * powers[place]) * 3 >> 8);
}

/* Code of element i of a block. */
static uint8_t code_tq1(const uint8_t *block, unsigned i) {
  if (i < 160)
    return digit(block[i % 32], i / 32);
  if (i < 240)
    return digit(block[32 + (i - 160) % 16], (i - 160) / 16);
  return digit(block[48 + (i - 240) % 4], (i - 240) / 4);
}

static uint8_t code_tq2(const uint8_t *block, unsigned i) {
  return (uint8_t)(block[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3);
}

/* Two halves of 16 side by side become pairs. */
static void codes4(const uint8_t *block, uint8_t *out) {
  for (unsigned i = 0; i < 16; i += 2) {
    out[i / 2] = (uint8_t)((block[i] & 15) | block[i + 1] << 4);
    out[8 + i / 2] = (uint8_t)(block[i] >> 4 | (block[i + 1] & 0xf0));
  }
}

static void codes(const struct import_weight *weight, const struct import_data *data, const struct import_tile *tile,
                  uint8_t *out, uint64_t row_bytes) {
  for (uint64_t row = 0; row < tile->rows; row++)
    for (uint64_t i = 0; i < tile->columns; i++) {
      const uint8_t *block = tile->raw + row * tile->stride + i / weight->pack * weight->pack_bytes;
      if (weight->pack == Q8_BLOCK) {
        codes4(block + weight->pack_bytes - 16, out + row * row_bytes + i / 2);
        i += Q8_BLOCK - 1;
        continue;
      }
      unsigned at = (unsigned)(i % BLOCK);
      uint8_t code = weight->pack_bytes == TQ1_BYTES ? code_tq1(block, at) : code_tq2(block, at);
      out[row * row_bytes + i / 4] |= (uint8_t)(code << i % 4 * 2);
    }
}

static void tile_scales(const struct import_weight *weight, const struct import_tile *tile, uint64_t row, float *out) {
  const uint8_t *from = tile->raw + row * tile->stride;
  if (weight->pack == Q8_BLOCK)
    for (uint64_t i = 0; i < tile->columns / Q8_BLOCK; i++) {
      const uint8_t *block = from + i * weight->pack_bytes;
      out[i] = weight->format == GEMM_FORMAT_MXFP4 ? number_from_e8m0(*block) : half_at(block);
    }
  else
    for (uint64_t i = 0; i < tile->columns / GEMM_GROUP; i++)
      out[i] = half_at(from + (i * GEMM_GROUP / BLOCK + 1) * weight->pack_bytes - 2);
}

const struct importer import_gguf = {
    .name = "GGUF", .take = take, .file_row = file_row, .numbers = numbers, .codes = codes, .tile_scales = tile_scales};
