#include "checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static bool complain(const char *path, const char *why) {
  fprintf(stderr, "demo: %s: %s\n", path, why);
  return false;
}

static enum tensor_type type_of(const char *name) {
  if (name == NULL)
    return TENSOR_OTHER;
  if (strcmp(name, "F32") == 0)
    return TENSOR_F32;
  if (strcmp(name, "F16") == 0)
    return TENSOR_F16;
  return strcmp(name, "BF16") == 0 ? TENSOR_BF16 : TENSOR_OTHER;
}

static size_t element_bytes(enum tensor_type type) {
  return type == TENSOR_F32 ? 4 : 2;
}

/* Fills what the demo can use of one entry of the header; the rest stays 0 x 0. */
static void read_entry(struct tensor *tensor, const char *name, const json_t *entry, const uint8_t *data,
                       uint64_t data_bytes) {
  const json_t *shape = json_object_get(entry, "shape"), *offsets = json_object_get(entry, "data_offsets");
  tensor->name = name;
  tensor->type = type_of(json_string_value(json_object_get(entry, "dtype")));
  size_t dimensions = json_array_size(shape);
  if (tensor->type == TENSOR_OTHER || dimensions < 1 || dimensions > 2)
    return;
  json_int_t rows = dimensions == 2 ? json_integer_value(json_array_get(shape, 0)) : 1;
  json_int_t columns = json_integer_value(json_array_get(shape, dimensions - 1));
  json_int_t begin = json_integer_value(json_array_get(offsets, 0)),
             end = json_integer_value(json_array_get(offsets, 1));
  uint64_t elements, bytes;
  if (rows < 1 || columns < 1 || begin < 0 || end < begin || (uint64_t)end > data_bytes ||
      __builtin_mul_overflow((uint64_t)rows, (uint64_t)columns, &elements) ||
      __builtin_mul_overflow(elements, element_bytes(tensor->type), &bytes) || bytes != (uint64_t)(end - begin))
    return;
  tensor->rows = rows;
  tensor->columns = columns;
  tensor->data = data + begin;
}

static bool read_header(struct checkpoint *checkpoint, const char *path) {
  uint64_t length;
  if (checkpoint->bytes < sizeof length)
    return complain(path, "too short for a safetensors file");
  memcpy(&length, checkpoint->map, sizeof length);
  if (length > checkpoint->bytes - sizeof length)
    return complain(path, "no safetensors file: its header would be longer than the file");
  json_error_t error;
  json_t *header =
      json_loadb((const char *)checkpoint->map + sizeof length, (size_t)length, JSON_REJECT_DUPLICATES, &error);
  checkpoint->header = header;
  if (!json_is_object(header))
    return complain(path, "no safetensors file: its header is no JSON object");
  checkpoint->tensors = calloc(json_object_size(header) + 1, sizeof *checkpoint->tensors);
  if (checkpoint->tensors == NULL)
    return complain(path, "out of memory");
  const uint8_t *data = checkpoint->map + sizeof length + length;
  const char *name;
  json_t *entry;
  json_object_foreach(header, name, entry) {
    if (strcmp(name, "__metadata__") != 0)
      read_entry(&checkpoint->tensors[checkpoint->count++], name, entry, data,
                 checkpoint->bytes - sizeof length - length);
  }
  return true;
}

static bool map_file(struct checkpoint *checkpoint, const char *path) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  struct stat stat;
  if (fd < 0)
    return complain(path, strerror(errno));
  if (fstat(fd, &stat) != 0 || stat.st_size == 0) {
    close(fd);
    return complain(path, "empty, or no file");
  }
  checkpoint->bytes = (size_t)stat.st_size;
  void *map = mmap(NULL, checkpoint->bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  close(fd);
  if (map == MAP_FAILED)
    return complain(path, strerror(errno));
  checkpoint->map = map;
  return true;
}

bool checkpoint_open(struct checkpoint *checkpoint, const char *path) {
  *checkpoint = (struct checkpoint){0};
  if (map_file(checkpoint, path) && read_header(checkpoint, path))
    return true;
  checkpoint_close(checkpoint);
  return false;
}

void checkpoint_close(struct checkpoint *checkpoint) {
  json_decref(checkpoint->header);
  if (checkpoint->map != NULL)
    munmap(checkpoint->map, checkpoint->bytes);
  free(checkpoint->tensors);
  *checkpoint = (struct checkpoint){0};
}

const struct tensor *checkpoint_find(const struct checkpoint *checkpoint, const char *name) {
  for (size_t i = 0; i < checkpoint->count; i++) {
    if (strcmp(checkpoint->tensors[i].name, name) == 0)
      return &checkpoint->tensors[i];
  }
  return NULL;
}

const struct tensor *checkpoint_find_suffix(const struct checkpoint *checkpoint, const char *suffix) {
  size_t length = strlen(suffix);
  for (size_t i = 0; i < checkpoint->count; i++) {
    const char *name = checkpoint->tensors[i].name;
    if (strlen(name) >= length && strcmp(name + strlen(name) - length, suffix) == 0)
      return &checkpoint->tensors[i];
  }
  return NULL;
}

static float from_f16(uint16_t bits) {
  int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  float magnitude;
  if (exponent == 31)
    magnitude = mantissa != 0 ? NAN : INFINITY;
  else if (exponent == 0)
    magnitude = ldexpf((float)mantissa, -24);
  else
    magnitude = ldexpf((float)(1024 + mantissa), exponent - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}

void tensor_row(const struct tensor *tensor, int64_t row, float *out) {
  size_t columns = (size_t)tensor->columns;
  const uint8_t *data = tensor->data + (size_t)row * columns * element_bytes(tensor->type);
  if (tensor->type == TENSOR_F32) {
    memcpy(out, data, columns * sizeof *out);
    return;
  }
  for (size_t i = 0; i < columns; i++) {
    uint16_t bits;
    memcpy(&bits, data + 2 * i, sizeof bits);
    uint32_t wide = (uint32_t)bits << 16;
    if (tensor->type == TENSOR_F16)
      out[i] = from_f16(bits);
    else
      memcpy(&out[i], &wide, sizeof wide);
  }
}

float *tensor_values(const struct tensor *tensor) {
  float *values = malloc((size_t)tensor->rows * (size_t)tensor->columns * sizeof *values);
  for (int64_t row = 0; values != NULL && row < tensor->rows; row++)
    tensor_row(tensor, row, values + row * tensor->columns);
  return values;
}
