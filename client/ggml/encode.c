/* Tensors of ggml as files that gemmd loads.
 *
 *   Q8_0       the values as f32, for gemmd to quantize: its scale of a row is coarser than ggml's of 32 elements
 *   Q4_0       the same codes and scales
 *   TQ2_0      the same codes, and each scale of 256 elements twice; nothing is lost
 *   F16, BF16  as they are */
#include "gemmd_ggml.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* TQ2_0 holds 256 elements as 64 bytes of codes and a scale. In each half of the codes, 32 bytes, two bits of a byte
 * belong to elements that lie 32 apart. */
enum { BLOCK = 256, BLOCK_CODES = 64, BLOCK_BYTES = 66, HALF_CODES = 32, GROUP = 128 };

/* Q4_0 holds 32 elements as a scale and 16 bytes: element i in the low bits of byte i, i + 16 in the high ones. */
enum { BLOCK4 = 32, BLOCK4_CODES = 16, BLOCK4_BYTES = 18 };

/* ---- a safetensors file in memory */

static bool file_make(struct file *file, const char *header, size_t data_bytes) {
  uint64_t length = (strlen(header) + 7) / 8 * 8;
  *file = (struct file){.fd = memfd_create("ggml", MFD_CLOEXEC), .bytes = sizeof length + length + data_bytes};
  if (file->fd < 0)
    return false;
  if (ftruncate(file->fd, (off_t)file->bytes) == 0)
    file->map = mmap(NULL, file->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file->fd, 0);
  if (file->map == NULL || file->map == MAP_FAILED) {
    close(file->fd);
    return false;
  }
  memcpy(file->map, &length, sizeof length);
  memset(file->map + sizeof length, ' ', length);
  memcpy(file->map + sizeof length, header, strlen(header));
  file->data = file->map + sizeof length + length;
  return true;
}

void encode_close(struct file *file) {
  munmap(file->map, file->bytes);
  close(file->fd);
}

static bool dense_file(const struct ggml_tensor *tensor, struct file *file) {
  char header[160];
  bool as_it_is = tensor->type != GGML_TYPE_Q8_0;
  size_t bytes = (size_t)ggml_nelements(tensor) * (as_it_is ? 2 : 4);
  snprintf(header, sizeof header,
           "{\"weight\":{\"dtype\":\"%s\",\"shape\":[%" PRId64 ",%" PRId64 "],\"data_offsets\":[0,%zu]}}",
           tensor->type == GGML_TYPE_F16    ? "F16"
           : tensor->type == GGML_TYPE_BF16 ? "BF16"
                                            : "F32",
           tensor->ne[1], tensor->ne[0], bytes);
  if (!file_make(file, header, bytes))
    return false;
  if (as_it_is)
    memcpy(file->data, tensor->data, bytes);
  else
    ggml_get_type_traits(tensor->type)->to_float(tensor->data, (float *)file->data, ggml_nelements(tensor));
  return true;
}

/* Codes of one block in ggml's order into the plain order: the element 4 i + j in bits 2 j of byte i. */
static void block_codes(const uint8_t *from, uint8_t *to) {
  memset(to, 0, BLOCK_CODES);
  for (unsigned element = 0; element < BLOCK; element++) {
    unsigned half = element / GROUP, bits = element % GROUP / HALF_CODES, byte = element % HALF_CODES;
    unsigned code = from[half * HALF_CODES + byte] >> (2 * bits) & 3;
    to[element / 4] |= (uint8_t)(code << (2 * (element % 4)));
  }
}

/* A file for codes [n, k/pack] of a type, and scales of f16 [n, k/group] behind them. */
static bool codes_file(const struct ggml_tensor *tensor, const char *type, int64_t pack, int64_t group, size_t codes,
                       struct file *file) {
  char header[320];
  int64_t n = tensor->ne[1], k = tensor->ne[0];
  size_t scales = (size_t)(n * k / group) * sizeof(ggml_fp16_t);
  snprintf(header, sizeof header,
           "{\"weight\":{\"dtype\":\"%s\",\"shape\":[%" PRId64 ",%" PRId64 "],\"data_offsets\":[0,%zu]},"
           "\"weight_scale\":{\"dtype\":\"F16\",\"shape\":[%" PRId64 ",%" PRId64 "],\"data_offsets\":[%zu,%zu]}}",
           type, n, k / pack, codes, n, k / group, codes, codes + scales);
  return file_make(file, header, codes + scales);
}

static bool ternary_file(const struct ggml_tensor *tensor, struct file *file) {
  size_t blocks = (size_t)ggml_nelements(tensor) / BLOCK, codes = blocks * BLOCK_CODES;
  if (!codes_file(tensor, "U8", 4, GROUP, codes, file))
    return false;
  const uint8_t *block = tensor->data;
  for (size_t i = 0; i < blocks; i++, block += BLOCK_BYTES) {
    uint8_t *scale = file->data + codes + i * 4;
    block_codes(block, file->data + i * BLOCK_CODES);
    memcpy(scale, block + BLOCK_CODES, 2);
    memcpy(scale + 2, block + BLOCK_CODES, 2);
  }
  return true;
}

static bool nibble_file(const struct ggml_tensor *tensor, struct file *file) {
  size_t blocks = (size_t)ggml_nelements(tensor) / BLOCK4, codes = blocks * BLOCK4_CODES;
  if (!codes_file(tensor, "U16", 4, BLOCK4, codes, file))
    return false;
  const uint8_t *block = tensor->data;
  for (size_t i = 0; i < blocks; i++, block += BLOCK4_BYTES) {
    const uint8_t *from = block + sizeof(ggml_fp16_t);
    uint8_t *low = file->data + i * BLOCK4_CODES, *high = low + BLOCK4_CODES / 2;
    memcpy(file->data + codes + i * sizeof(ggml_fp16_t), block, sizeof(ggml_fp16_t));
    for (int j = 0; j < BLOCK4_CODES; j += 2) {
      low[j / 2] = (uint8_t)((from[j] & 15) | (from[j + 1] & 15) << 4);
      high[j / 2] = (uint8_t)(from[j] >> 4 | (from[j + 1] & 0xf0));
    }
  }
  return true;
}

bool encode(const struct ggml_tensor *tensor, struct file *out) {
  return tensor->type == GGML_TYPE_TQ2_0  ? ternary_file(tensor, out)
         : tensor->type == GGML_TYPE_Q4_0 ? nibble_file(tensor, out)
                                          : dense_file(tensor, out);
}

double encode_error(const struct ggml_tensor *tensor) {
  double apart = 0, size = 0;
  int64_t k = tensor->ne[0];
  float *row = tensor->type == GGML_TYPE_Q8_0 ? malloc((size_t)k * sizeof *row) : NULL;
  for (int64_t n = 0; row != NULL && n < tensor->ne[1]; n++) {
    float largest = 0;
    ggml_get_type_traits(tensor->type)->to_float((const uint8_t *)tensor->data + (size_t)n * tensor->nb[1], row, k);
    for (int64_t i = 0; i < k; i++)
      largest = fmaxf(largest, fabsf(row[i]));
    float scale = largest > 0 ? largest / 127 : 1;
    for (int64_t i = 0; i < k; i++) {
      double off = (double)row[i] - (double)(rintf(row[i] / scale) * scale);
      apart += off * off;
      size += (double)row[i] * (double)row[i];
    }
  }
  free(row);
  return size > 0 ? sqrt(apart / size) : 0;
}
