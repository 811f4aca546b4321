#include "vast.h"

#include "proto/number.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { GROUPS = VAST_K / GEMM_GROUP, ROW_BYTES_MOST = VAST_K * 2 };

static const struct kind {
  enum gemm_format format;
  enum gemm_scale scale;
  const char *dtype;
  int columns;        /* elements of a row in the file */
  int element_bytes;  /* of one of these */
  uint64_t keep, set; /* bits of codes, eight bytes of them: what stands for no finite number below 2 is not made */
} kinds[VAST_FORMATS] = {
    {GEMM_FORMAT_INT8, GEMM_SCALE_ROW, "I8", VAST_K, 1, UINT64_MAX, 0},
    {GEMM_FORMAT_FP8, GEMM_SCALE_ROW, "F8_E4M3", VAST_K, 1, 0xbfbfbfbfbfbfbfbfu, 0},
    {GEMM_FORMAT_F16, GEMM_SCALE_NONE, "F16", VAST_K, 2, 0x83ff83ff83ff83ffu, 0x3800380038003800u},
    {GEMM_FORMAT_BF16, GEMM_SCALE_NONE, "BF16", VAST_K, 2, 0x807f807f807f807fu, 0x3f003f003f003f00u},
    {GEMM_FORMAT_INT2, GEMM_SCALE_GROUP, "U8", VAST_K / 4, 1, UINT64_MAX, 0},
};

static const struct kind *kind_of(const struct vast *vast) {
  return &kinds[vast->index % VAST_FORMATS];
}

static uint64_t row_bytes(const struct kind *kind) {
  return (uint64_t)kind->columns * (uint64_t)kind->element_bytes;
}

static int scales_of_row(const struct kind *kind) {
  return kind->scale == GEMM_SCALE_NONE ? 0 : kind->scale == GEMM_SCALE_ROW ? 1 : GROUPS;
}

struct vast vast_make(int index, uint64_t bytes) {
  const struct kind *kind = &kinds[index % VAST_FORMATS];
  int64_t rows = (int64_t)(bytes / row_bytes(kind));
  return (struct vast){.shape = {.n = rows > 0 ? rows : 1, .k = VAST_K, .format = kind->format, .scale = kind->scale},
                       .index = index};
}

static uint64_t scales_bytes(const struct vast *vast) {
  const struct kind *kind = kind_of(vast);
  return (uint64_t)vast->shape.n * (uint64_t)scales_of_row(kind) * (kind->scale == GEMM_SCALE_ROW ? 4 : 2);
}

uint64_t vast_bytes(const struct vast *vast) {
  return (uint64_t)vast->shape.n * row_bytes(kind_of(vast)) + scales_bytes(vast);
}

/* A multiple of 1/64, which every type holds. */
static float scale_at(int64_t row, int group) {
  return (float)(1 + (row + group) % 7) / 64;
}

static void make_row(const struct vast *vast, int64_t row, uint8_t codes[ROW_BYTES_MOST]) {
  const struct kind *kind = kind_of(vast);
  uint64_t state = ((uint64_t)vast->index << 40 | (uint64_t)row) * 0x9e3779b97f4a7c15u + 0xbf58476d1ce4e5b9u;
  for (uint64_t i = 0; i < row_bytes(kind); i += 8) {
    state ^= state << 13; /* xorshift64 (Marsaglia, 2003) */
    state ^= state >> 7;
    state ^= state << 17;
    uint64_t word = (state & kind->keep) | kind->set;
    memcpy(codes + i, &word, sizeof word);
  }
}

static double element(const struct kind *kind, const uint8_t *codes, int column) {
  uint16_t half;
  memcpy(&half, codes + (kind->element_bytes == 2 ? 2 * column : 0), sizeof half);
  switch (kind->format) {
  case GEMM_FORMAT_INT8:
    return (double)(int8_t)codes[column];
  case GEMM_FORMAT_FP8:
    return (double)number_from_e4m3(codes[column]);
  case GEMM_FORMAT_F16:
    return (double)number_from_f16(half);
  case GEMM_FORMAT_BF16:
    return (double)number_from_bf16(half);
  default:
    return (double)(codes[column / 4] >> (column % 4 * 2) & 3) - 1;
  }
}

double vast_product(const struct vast *vast, int64_t row, const double *x) {
  const struct kind *kind = kind_of(vast);
  uint8_t codes[ROW_BYTES_MOST];
  double sum = 0;
  make_row(vast, row, codes);
  for (int i = 0; i < VAST_K; i++) {
    double scale =
        kind->scale == GEMM_SCALE_NONE ? 1 : (double)scale_at(row, kind->scale == GEMM_SCALE_ROW ? 0 : i / GEMM_GROUP);
    sum += x[i] * element(kind, codes, i) * scale;
  }
  return sum;
}

/* ---- the file */

static bool write_header(FILE *file, const struct vast *vast) {
  const struct kind *kind = kind_of(vast);
  long long rows = (long long)vast->shape.n;
  unsigned long long codes = (unsigned long long)((uint64_t)rows * row_bytes(kind)), scales = scales_bytes(vast);
  char text[512];
  int length = snprintf(text, sizeof text, "{\"w\":{\"dtype\":\"%s\",\"shape\":[%lld,%d],\"data_offsets\":[0,%llu]}",
                        kind->dtype, rows, kind->columns, codes);
  if (kind->scale == GEMM_SCALE_ROW)
    length += snprintf(text + length, sizeof text - (size_t)length,
                       ",\"w_scale\":{\"dtype\":\"F32\",\"shape\":[%lld],\"data_offsets\":[%llu,%llu]}", rows, codes,
                       codes + scales);
  if (kind->scale == GEMM_SCALE_GROUP)
    length += snprintf(text + length, sizeof text - (size_t)length,
                       ",\"w_scale\":{\"dtype\":\"F16\",\"shape\":[%lld,%d],\"data_offsets\":[%llu,%llu]}", rows,
                       GROUPS, codes, codes + scales);
  length += snprintf(text + length, sizeof text - (size_t)length, "}");
  while (length % 8 != 0)
    text[length++] = ' ';
  uint64_t bytes = (uint64_t)length;
  return fwrite(&bytes, sizeof bytes, 1, file) == 1 && fwrite(text, 1, bytes, file) == bytes;
}

static bool write_scales(FILE *file, const struct vast *vast) {
  const struct kind *kind = kind_of(vast);
  for (int64_t row = 0; row < vast->shape.n; row++)
    for (int group = 0; group < scales_of_row(kind); group++) {
      float scale = scale_at(row, group);
      uint16_t half = number_to_f16(scale);
      bool wide = kind->scale == GEMM_SCALE_ROW;
      if (fwrite(wide ? (void *)&scale : (void *)&half, wide ? sizeof scale : sizeof half, 1, file) != 1)
        return false;
    }
  return true;
}

static bool write_all(FILE *file, const struct vast *vast) {
  uint8_t codes[ROW_BYTES_MOST];
  bool good = write_header(file, vast);
  for (int64_t row = 0; good && row < vast->shape.n; row++) {
    make_row(vast, row, codes);
    good = fwrite(codes, row_bytes(kind_of(vast)), 1, file) == 1;
  }
  return good && write_scales(file, vast) && fflush(file) == 0;
}

int vast_file(const struct vast *vast) {
  int fd = memfd_create("vast", MFD_CLOEXEC), copy = fd >= 0 ? dup(fd) : -1;
  FILE *file = copy >= 0 ? fdopen(copy, "w") : NULL;
  bool written = file != NULL && write_all(file, vast);
  if (file != NULL)
    written = fclose(file) == 0 && written;
  else if (copy >= 0)
    close(copy);
  if (written)
    return fd;
  if (fd >= 0)
    close(fd);
  return -1;
}
