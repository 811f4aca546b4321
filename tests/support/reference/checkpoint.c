#include "checkpoint.h"

#include "proto/weights/safetensors.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { HEADER_BYTES = 16384 };

static void *allocate(uint64_t bytes) {
  void *memory = malloc(bytes ? bytes : 1);
  assert_non_null(memory);
  return memory;
}

void checkpoint_add(struct checkpoint *checkpoint, const char *name, const char *dtype, int64_t rows, int64_t columns,
                    const void *data, uint64_t bytes) {
  assert_true(checkpoint->count < CHECKPOINT_TENSORS);
  struct checkpoint_tensor *tensor = &checkpoint->tensors[checkpoint->count++];
  *tensor = (struct checkpoint_tensor){.rows = rows, .columns = columns, .data = allocate(bytes), .bytes = bytes};
  snprintf(tensor->name, sizeof tensor->name, "%s", name);
  snprintf(tensor->dtype, sizeof tensor->dtype, "%s", dtype);
  memcpy(tensor->data, data, bytes);
}

void checkpoint_add_weight(struct checkpoint *checkpoint, const char *name, const struct oracle_weight *weight) {
  const struct gemm_weight *shape = &weight->shape;
  uint64_t bits = (uint64_t)gemm_format_facts(shape->format)->bits, pack = bits < 8 ? 4 : 1;
  assert_true(shape->k % (int64_t)pack == 0);
  uint64_t columns = (uint64_t)shape->k / pack, row_bytes = columns * pack * bits / 8;
  uint8_t *codes = allocate((uint64_t)shape->n * row_bytes);
  for (int64_t n = 0; n < shape->n; n++)
    memcpy(codes + (uint64_t)n * row_bytes, weight->canonical + (uint64_t)n * weight->layout.row_bytes, row_bytes);
  checkpoint_add(checkpoint, name, safetensors_codes_name(shape->format), shape->n, (int64_t)columns, codes,
                 (uint64_t)shape->n * row_bytes);
  free(codes);
  if (weight->layout.scale_count == 0)
    return;
  char beside[64];
  bool matrix = gemm_scale_facts(shape->scale)->k > 0;
  int64_t rows = (int64_t)weight->layout.scale_rows, groups = matrix ? (int64_t)weight->layout.scale_columns : 0;
  snprintf(beside, sizeof beside, "%s_scale", name);
  checkpoint_add(checkpoint, beside, safetensors_type_name(gemm_scale_type(shape)), rows, groups,
                 weight->canonical + weight->layout.scales_offset, weight->layout.scales_bytes);
  snprintf(beside, sizeof beside, "%s_zero", name);
  if (weight->layout.zeros_bytes > 0)
    checkpoint_add(checkpoint, beside, gemm_scale_facts(shape->scale)->zeros_f16 ? "F16" : "U8", rows, groups,
                   weight->canonical + weight->layout.zeros_offset, weight->layout.zeros_bytes);
  snprintf(beside, sizeof beside, "%s_factor", name);
  if (weight->layout.factors_bytes > 0)
    checkpoint_add(checkpoint, beside, "F32", rows, 0, weight->canonical + weight->layout.factors_offset,
                   weight->layout.factors_bytes);
}

void checkpoint_add_values(struct checkpoint *checkpoint, const char *name, const struct oracle_weight *weight) {
  uint64_t count = (uint64_t)(weight->shape.n * weight->shape.k);
  float *values = allocate(count * sizeof *values);
  for (uint64_t i = 0; i < count; i++)
    values[i] = (float)weight->values[i];
  checkpoint_add(checkpoint, name, "F32", weight->shape.n, weight->shape.k, values, count * sizeof *values);
  free(values);
}

void checkpoint_write(struct checkpoint *checkpoint, const char *path) {
  char header[HEADER_BYTES];
  uint64_t at = 0, length = 0;
  for (int i = 0; i < checkpoint->count; i++) {
    const struct checkpoint_tensor *tensor = &checkpoint->tensors[i];
    char columns[32] = "";
    if (tensor->columns > 0)
      snprintf(columns, sizeof columns, ",%" PRId64, tensor->columns);
    length += (uint64_t)snprintf(
        header + length, sizeof header - length,
        "%c\"%s\":{\"dtype\":\"%s\",\"shape\":[%" PRId64 "%s],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}",
        i == 0 ? '{' : ',', tensor->name, tensor->dtype, tensor->rows, columns, at, at + tensor->bytes);
    at += tensor->bytes;
    assert_true(length < sizeof header - 1);
  }
  header[length++] = '}';
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(&length, sizeof length, 1, file), 1);
  assert_int_equal(fwrite(header, 1, length, file), length);
  for (int i = 0; i < checkpoint->count; i++)
    assert_int_equal(fwrite(checkpoint->tensors[i].data, 1, checkpoint->tensors[i].bytes, file),
                     checkpoint->tensors[i].bytes);
  assert_int_equal(fclose(file), 0);
  for (int i = 0; i < checkpoint->count; i++)
    free(checkpoint->tensors[i].data);
  checkpoint->count = 0;
}

void checkpoint_write_one(const char *path, const char *name, const struct oracle_weight *weight) {
  struct checkpoint checkpoint = {.count = 0};
  checkpoint_add_weight(&checkpoint, name, weight);
  checkpoint_write(&checkpoint, path);
}
