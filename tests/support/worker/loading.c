#include "loading.h"

#include "daemon/loader/load.h"
#include "daemon/memfd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* Adds a tensor of `rank` 0, 1 or 2. */
void loading_add(struct loading_file *builder, const char *name, const char *dtype, int rank, int64_t rows,
                 int64_t columns, const void *values, size_t bytes) {
  char shape[64] = "";
  if (rank == 1)
    snprintf(shape, sizeof shape, "%lld", (long long)rows);
  if (rank == 2)
    snprintf(shape, sizeof shape, "%lld,%lld", (long long)rows, (long long)columns);
  if (rank == 3) /* as many matrices as the bytes of F32 are */
    snprintf(shape, sizeof shape, "%lld,%lld,%lld", (long long)bytes / 4 / rows / columns, (long long)rows,
             (long long)columns);
  builder->json_length +=
      (size_t)snprintf(builder->json + builder->json_length, sizeof builder->json - builder->json_length,
                       "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
                       builder->json_length ? "," : "{", name, dtype, shape, builder->bytes, builder->bytes + bytes);
  builder->data = realloc(builder->data, builder->bytes + bytes);
  assert_non_null(builder->data);
  memcpy(builder->data + builder->bytes, values, bytes);
  builder->bytes += bytes;
}

/* The finished file, open for reading and writing; the builder is empty again. */
int loading_finish(struct loading_file *builder) {
  int fd = memfd_create("file", MFD_CLOEXEC);
  assert_true(fd >= 0);
  uint64_t length = builder->json_length + 1;
  assert_int_equal(write(fd, &length, 8), 8);
  assert_int_equal(write(fd, builder->json, builder->json_length), builder->json_length);
  assert_int_equal(write(fd, "}", 1), 1);
  assert_int_equal(write(fd, builder->data, builder->bytes), builder->bytes);
  free(builder->data);
  *builder = (struct loading_file){0};
  return fd;
}

int loading_f32(const float *values, int64_t n, int64_t k) {
  struct loading_file builder = {0};
  loading_add(&builder, "w", "F32", 2, n, k, values, (size_t)(n * k) * sizeof *values);
  return loading_finish(&builder);
}

static uint64_t random_state = 7;

/* in -1..1 */
static float uniform(void) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return (float)((double)(int32_t)(random_state >> 32) / 2147483648.0);
}

float *loading_values(int64_t count) {
  float *values = malloc((size_t)count * sizeof *values);
  assert_non_null(values);
  for (int64_t i = 0; i < count; i++)
    values[i] = uniform() + uniform() * uniform();
  return values;
}

/* ---- loads */

struct message_weight_load loading_request(enum gemm_format format, enum gemm_scale scale) {
  return (struct message_weight_load){.name = "name", .tensor = "w", .format = format, .scale = scale};
}

struct loaded loading_run(int fd, const struct message_weight_load *request, unsigned threads) {
  struct loaded loaded;
  struct error error;
  int memfd = -1;
  if (load_run(request, &fd, 1, threads, NULL, NULL, &loaded.done, &memfd, &error) != STATUS_OK)
    fail_msg("%s", error.text);
  assert_int_equal(memfd_check(memfd, loaded.done.bytes, true, &error), STATUS_OK);
  struct gemm_weight weight = {.n = loaded.done.n,
                               .k = loaded.done.k,
                               .format = (enum gemm_format)loaded.done.format,
                               .scale = (enum gemm_scale)loaded.done.scale,
                               .experts = loaded.done.experts};
  assert_int_equal(gemm_layout_compute(&weight, &loaded.layout, &error), STATUS_OK);
  assert_int_equal(loaded.layout.total_bytes, loaded.done.bytes);
  loaded.bytes = memfd_map(memfd, loaded.done.bytes, false, &error);
  assert_non_null(loaded.bytes);
  close(memfd);
  return loaded;
}

void loading_free(struct loaded *loaded) {
  munmap(loaded->bytes, loaded->done.bytes);
}

const uint8_t *loading_row(const struct loaded *loaded, int64_t row) {
  return loaded->bytes + (uint64_t)row * loaded->layout.row_bytes;
}

float loading_scale(const struct loaded *loaded, int64_t index) {
  float value;
  memcpy(&value, loaded->bytes + loaded->layout.scales_offset + 4 * index, 4);
  return value;
}

void loading_refuse(int fd, const struct message_weight_load *request, enum status status, const char *reason) {
  struct message_load_done done;
  struct error error = {0};
  int memfd = -1;
  assert_int_equal(load_run(request, &fd, 1, 2, NULL, NULL, &done, &memfd, &error), status);
  assert_int_equal(error.status, status);
  assert_int_equal(memfd, -1);
  if (!strstr(error.text, reason))
    fail_msg("'%s' does not say '%s'", error.text, reason);
}
