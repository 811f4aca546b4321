/* Tensors of ggml as weights of gemmd.
 *
 *   Q8_0   INT8 with a scale a row, quantized anew from the values: the scale of a row is coarser than ggml's of 32
 *          elements, the product's error stays below 1e-3
 *   TQ2_0  INT2: the same codes, and each scale of 256 elements twice; nothing is lost
 *   F16    as it is
 *
 * Names in gemmd end in a hash of the tensor's bytes, so that the next process finds the weight there. */
#include "gemmd_ggml.h"

#include <blake2.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* TQ2_0 holds 256 elements as 64 bytes of codes and a scale. In each half of the codes, 32 bytes, two bits of a byte
 * belong to elements that lie 32 apart. */
enum { BLOCK = 256, BLOCK_CODES = 64, BLOCK_BYTES = 66, HALF_CODES = 32, GROUP = 128 };

bool weight_type_supported(enum ggml_type type) {
  return type == GGML_TYPE_Q8_0 || type == GGML_TYPE_TQ2_0 || type == GGML_TYPE_F16;
}

/* ---- a safetensors file in memory */

struct file {
  int fd;
  uint8_t *map, *data; /* data: after the header */
  size_t bytes;
};

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

static void file_close(struct file *file) {
  munmap(file->map, file->bytes);
  close(file->fd);
}

static bool dense_file(const struct ggml_tensor *tensor, struct file *file) {
  char header[160];
  bool half = tensor->type == GGML_TYPE_F16;
  size_t bytes = (size_t)ggml_nelements(tensor) * (half ? 2 : 4);
  snprintf(header, sizeof header,
           "{\"weight\":{\"dtype\":\"%s\",\"shape\":[%" PRId64 ",%" PRId64 "],\"data_offsets\":[0,%zu]}}",
           half ? "F16" : "F32", tensor->ne[1], tensor->ne[0], bytes);
  if (!file_make(file, header, bytes))
    return false;
  if (half)
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

static bool ternary_file(const struct ggml_tensor *tensor, struct file *file) {
  char header[320];
  int64_t n = tensor->ne[1], k = tensor->ne[0];
  size_t blocks = (size_t)(n * k / BLOCK), codes = blocks * BLOCK_CODES, scales = blocks * 2 * sizeof(ggml_fp16_t);
  snprintf(header, sizeof header,
           "{\"weight\":{\"dtype\":\"U8\",\"shape\":[%" PRId64 ",%" PRId64 "],\"data_offsets\":[0,%zu]},"
           "\"weight_scale\":{\"dtype\":\"F16\",\"shape\":[%" PRId64 ",%" PRId64 "],\"data_offsets\":[%zu,%zu]}}",
           n, k / 4, codes, n, k / GROUP, codes, codes + scales);
  if (!file_make(file, header, codes + scales))
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

/* ---- names */

static void weight_name(const struct ggml_tensor *tensor, char *out, size_t bytes) {
  uint8_t hash[16];
  char readable[GGML_MAX_NAME], hex[2 * sizeof hash + 1];
  blake2b_state state;
  blake2b_init(&state, sizeof hash);
  blake2b_update(&state, (const uint8_t *)tensor->ne, 2 * sizeof tensor->ne[0]);
  blake2b_update(&state, tensor->data, ggml_nbytes(tensor));
  blake2b_final(&state, hash, sizeof hash);
  for (size_t i = 0; i < sizeof hash; i++)
    snprintf(hex + 2 * i, 3, "%02x", hash[i]);
  snprintf(readable, sizeof readable, "%s", tensor->name[0] != '\0' ? tensor->name : "tensor");
  for (char *at = readable; *at != '\0'; at++)
    *at = *at > ' ' && *at <= '~' ? *at : '_';
  snprintf(out, bytes, "ggml/%s.%s.%s", readable, ggml_type_name(tensor->type), hex);
}

/* ---- loading */

static int weight_load(struct device *device, const struct ggml_tensor *tensor, const char *name) {
  static const enum gemmd_format formats[] = {
      [GGML_TYPE_Q8_0] = GEMMD_FORMAT_INT8, [GGML_TYPE_TQ2_0] = GEMMD_FORMAT_INT2, [GGML_TYPE_F16] = GEMMD_FORMAT_F16};
  struct file file;
  gemmd_load load = {.name = name, .tensor = "weight", .format = formats[tensor->type], .device = -1};
  if (!(tensor->type == GGML_TYPE_TQ2_0 ? ternary_file(tensor, &file) : dense_file(tensor, &file))) {
    fprintf(stderr, "gemmd: no memory to hand %s over: %s\n", name, strerror(errno));
    return GEMMD_NOMEM;
  }
  int status = gemmd_weight_load(device->session, file.fd, &load, NULL);
  file_close(&file);
  return status;
}

static gemmd_weight *weight_open(struct device *device, const struct ggml_tensor *tensor) {
  char name[256];
  gemmd_weight *weight = NULL;
  weight_name(tensor, name, sizeof name);
  if (gemmd_weight_open(device->session, name, &weight) == GEMMD_OK)
    return weight;
  int status = weight_load(device, tensor, name);
  if (status == GEMMD_OK || status == GEMMD_EXISTS) /* somebody else was quicker */
    status = gemmd_weight_open(device->session, name, &weight);
  /* What is no weight of a model will not be asked for by the next process. */
  if (status == GEMMD_OK && tensor->buffer->usage != GGML_BACKEND_BUFFER_USAGE_WEIGHTS)
    (void)gemmd_weight_unload(device->session, name, NULL);
  return weight;
}

/* ---- what is open */

gemmd_weight *weight_get(struct device *device, const struct ggml_tensor *tensor) {
  struct memory *memory = tensor->buffer->context;
  size_t bytes = ggml_nbytes(tensor);
  for (size_t i = 0; i < memory->open_count; i++) {
    const struct open_weight *open = &memory->open[i];
    const gemmd_weight_info *info = gemmd_weight_get_info(open->weight);
    if (open->data == tensor->data && open->type == tensor->type && info->n == tensor->ne[1] &&
        info->k == tensor->ne[0])
      return open->weight;
  }
  if (memory->open_count == memory->open_capacity) {
    size_t capacity = memory->open_capacity * 2 + 16;
    struct open_weight *grown = realloc(memory->open, capacity * sizeof *grown);
    if (grown == NULL)
      return NULL;
    memory->open = grown;
    memory->open_capacity = capacity;
  }
  gemmd_weight *weight = weight_open(device, tensor);
  if (weight != NULL)
    memory->open[memory->open_count++] =
        (struct open_weight){.data = tensor->data, .bytes = bytes, .type = tensor->type, .weight = weight};
  return weight;
}

void weight_forget(struct device *device, struct memory *memory, const uint8_t *begin, size_t bytes) {
  pthread_mutex_lock(&device->lock);
  for (size_t i = memory->open_count; i-- > 0;) {
    struct open_weight *open = &memory->open[i];
    if (open->data < begin + bytes && begin < open->data + open->bytes) {
      gemmd_weight_close(open->weight);
      *open = memory->open[--memory->open_count];
    }
  }
  pthread_mutex_unlock(&device->lock);
}
