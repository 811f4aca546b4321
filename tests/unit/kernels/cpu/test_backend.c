/* What only the CPU backend promises: bits that do not depend on threads or on a row's company, slabs that are sealed
 * memfds. */
#include "kernels/backend.h"
#include "kernels/cpu/micro/micro.h"
#include "kernels/cpu/weight/checksum.h"
#include "kernels/cpu/weight/slab.h"
#include "tests/support/worker/device.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

extern const struct backend_ops cpu_backend;

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

static const struct gemm_weight shapes[] = {
    {.n = 200, .k = 1100, .format = GEMM_FORMAT_INT8, .scale = GEMM_SCALE_ROW},
    {.n = 9, .k = 1500, .format = GEMM_FORMAT_FP8, .scale = GEMM_SCALE_BLOCK},
    {.n = 200, .k = 1100, .format = GEMM_FORMAT_INT2, .scale = GEMM_SCALE_GROUP},
    {.n = 3, .k = 1100, .format = GEMM_FORMAT_BF16, .scale = GEMM_SCALE_NONE},
    {.n = 200, .k = 1100, .format = GEMM_FORMAT_FP8, .scale = GEMM_SCALE_ROW},
    {.n = 130, .k = 1100, .format = GEMM_FORMAT_INT2A8, .scale = GEMM_SCALE_GROUP},
    {.n = 130, .k = 1100, .format = GEMM_FORMAT_INT4, .scale = GEMM_SCALE_GROUP64_ZEROS},
    {.n = 200, .k = 1100, .format = GEMM_FORMAT_INT4A8, .scale = GEMM_SCALE_GROUP32},
    {.n = 70, .k = 1100, .format = GEMM_FORMAT_INT4A8, .scale = GEMM_SCALE_GROUP64_BF16_ZEROS_F16},
    {.n = 70, .k = 1100, .format = GEMM_FORMAT_MXFP4, .scale = GEMM_SCALE_GROUP32},
    {.n = 70, .k = 1100, .format = GEMM_FORMAT_NVFP4, .scale = GEMM_SCALE_GROUP16_FACTORS},
    {.n = 70, .k = 1101, .format = GEMM_FORMAT_F16, .scale = GEMM_SCALE_NONE},
};

static struct backend *open_cpu(int threads) {
  struct backend_config config = {.in_flight = 1, .threads = threads};
  struct backend *backend = NULL;
  struct error error = {0};
  assert_int_equal(cpu_backend.open(&config, &backend, &error), STATUS_OK);
  return backend;
}

static void test_bits_do_not_depend_on_threads(void **state) {
  static const int threads[] = {1, 2, 3, 7};
  for (int i = 0; i < COUNT(shapes); i++) {
    struct oracle_weight weight;
    struct oracle_x x;
    struct device device;
    void *first = NULL;
    oracle_weight_make(&weight, &shapes[i], 1);
    enum gemm_type x_type = shapes[i].format == GEMM_FORMAT_BF16  ? GEMM_BF16
                            : shapes[i].format == GEMM_FORMAT_F16 ? GEMM_F16
                                                                  : GEMM_F32;
    oracle_x_make(&x, 70, shapes[i].k, x_type, 1, 2);
    for (int t = 0; t < COUNT(threads); t++) {
      device_open(&device, &cpu_backend, 1, 1 << 20);
      cpu_backend.close(device.backend);
      device.backend = open_cpu(threads[t]);
      struct device_request request = {
          .weight = device_load(&device, &weight, 0), .shape = &shapes[i], .x = &x, .m = x.m, .y_type = GEMM_F32};
      void *y = device_run(&device, &request);
      if (first == NULL) {
        first = y;
      } else {
        assert_memory_equal(first, y, (size_t)(x.m * shapes[i].n) * sizeof(float));
        free(y);
      }
      cpu_backend.weight_detach(device.backend, request.weight);
      device_close(&device);
      close(device.slab_fd);
    }
    free(first);
    oracle_x_free(&x);
    oracle_weight_free(&weight);
  }
}

/* Rows that are batched with others get what they would get alone. */
static void test_bits_do_not_depend_on_company(void **state) {
  struct device device;
  device_open(&device, &cpu_backend, 1, 1 << 20);
  for (int i = 0; i < COUNT(shapes); i++) {
    struct oracle_weight weight;
    struct oracle_x x;
    oracle_weight_make(&weight, &shapes[i], 1);
    oracle_x_make(&x, 67, shapes[i].k, shapes[i].format == GEMM_FORMAT_BF16 ? GEMM_BF16 : GEMM_F16, 1, 2);
    struct device_request request = {
        .weight = device_load(&device, &weight, 0), .shape = &shapes[i], .x = &x, .y_type = GEMM_F32, .m = x.m};
    void *all = device_run(&device, &request);
    for (request.m = 1; request.m < 12; request.m++) {
      void *some = device_run(&device, &request);
      assert_memory_equal(all, some, (size_t)(request.m * shapes[i].n) * sizeof(float));
      free(some);
    }
    free(all);
    cpu_backend.weight_detach(device.backend, request.weight);
    oracle_x_free(&x);
    oracle_weight_free(&weight);
  }
  device_close(&device);
  close(device.slab_fd);
}

/* A NaN in a row that is quantized makes its y NaN, wherever in the row it is; also by the plain loops. */
static void test_plain_keeps_nan(void **state) {
  static const int64_t places[] = {0, 100, 1099};
  struct device device;
  const struct variant plain = variant_default(cpu_backend.families[0]);
  device_open(&device, &cpu_backend, 1, 1 << 20);
  for (int i = 0; i < COUNT(shapes); i++) {
    struct oracle_weight weight;
    struct oracle_x x;
    if (!gemm_quantizes_x(shapes[i].format))
      continue;
    oracle_weight_make(&weight, &shapes[i], 1);
    oracle_x_make(&x, COUNT(places), shapes[i].k, GEMM_F16, 1, 2);
    for (int row = 0; row < COUNT(places); row++)
      oracle_x_set(&x, row, places[row], NAN);
    struct device_request request = {.weight = device_load(&device, &weight, 0),
                                     .shape = &shapes[i],
                                     .x = &x,
                                     .m = x.m,
                                     .y_type = GEMM_F32,
                                     .variant = &plain};
    struct backend_job job = device_stage(&device, &request);
    device_finish(&device, &job);
    for (int64_t row = 0; row < x.m; row++)
      for (int64_t n = 0; n < shapes[i].n; n++)
        assert_true(isnan(((float *)((uint8_t *)job.y + (uint64_t)row * job.y_stride))[n]));
    cpu_backend.weight_detach(device.backend, request.weight);
    oracle_x_free(&x);
    oracle_weight_free(&weight);
  }
  device_close(&device);
  close(device.slab_fd);
}

/* y fits f32 although the sums on the way, before the scale, do not. */
static void test_int2_sums_do_not_overflow_midway(void **state) {
  struct device device;
  struct oracle_weight weight;
  struct oracle_x x;
  const int64_t k = 1024;
  device_open(&device, &cpu_backend, 1, 1 << 20);
  oracle_weight_make(&weight, &(struct gemm_weight){4, k, GEMM_FORMAT_INT2, GEMM_SCALE_ROW, 0, 0}, 1);
  memset(weight.canonical, 0xff, weight.layout.codes_bytes); /* 2 everywhere */
  for (uint64_t i = 0; i < weight.layout.scale_count; i++) {
    ((uint16_t *)(weight.canonical + weight.layout.scales_offset))[i] = 0x1400; /* 2^-10 */
  }
  oracle_x_make(&x, 1, k, GEMM_F32, 1, 1);
  for (int64_t i = 0; i < k; i++) {
    oracle_x_set(&x, 0, i, i < k / 2 ? 3e38f : -2e38f);
  }
  struct device_request request = {
      .weight = device_load(&device, &weight, 0), .shape = &weight.shape, .x = &x, .m = 1, .y_type = GEMM_F32};
  float *y = device_run(&device, &request);
  for (int64_t n = 0; n < 4; n++) {
    assert_true(fabsf(y[n] - 1e38f) < 3e34f); /* 512 * (3 - 2) * 2 / 1024, within the gate */
  }
  free(y);
  cpu_backend.weight_detach(device.backend, request.weight);
  oracle_x_free(&x);
  oracle_weight_free(&weight);
  device_close(&device);
  close(device.slab_fd);
}

static void test_open_refuses(void **state) {
  static const struct backend_config bad[] = {
      {.in_flight = 1, .device = -1}, {.in_flight = 1, .device = 64}, {.in_flight = 0}, {.in_flight = 65}};
  for (int i = 0; i < COUNT(bad); i++) {
    struct backend *backend = NULL;
    struct error error = {0};
    assert_int_equal(cpu_backend.open(&bad[i], &backend, &error), STATUS_INVALID);
    assert_int_equal(error.status, STATUS_INVALID);
    assert_true(error.text[0] != 0);
    assert_null(backend);
  }
}

/* GEMMD_CPU names an instruction set; one that is not there is an error, not another set; empty: the best. */
static void test_set_by_name(void **state) {
  struct backend_config config = {.in_flight = 1, .threads = 1};
  struct backend *backend = NULL;
  struct backend_info info;
  struct error error = {0};
  setenv("GEMMD_CPU", "abacus", 1);
  assert_int_equal(cpu_backend.open(&config, &backend, &error), STATUS_UNSUPPORTED);
  assert_non_null(strstr(error.text, "abacus"));
  assert_null(backend);
  setenv("GEMMD_CPU", "generic", 1);
  assert_int_equal(cpu_backend.open(&config, &backend, &error), STATUS_OK);
  cpu_backend.describe(backend, &info);
  assert_non_null(strstr(info.device_name, "generic"));
  cpu_backend.close(backend);
  setenv("GEMMD_CPU", "", 1);
  assert_int_equal(cpu_backend.open(&config, &backend, &error), STATUS_OK);
  cpu_backend.describe(backend, &info);
  assert_non_null(strstr(info.device_name, micro_choose(NULL)->name));
  cpu_backend.close(backend);
  unsetenv("GEMMD_CPU");
}

static struct backend_roof roof_with(const char *state_dir) {
  const struct backend_config config = {.in_flight = 1, .threads = 2, .state_dir = state_dir};
  struct backend *backend = NULL;
  struct backend_roof roof;
  struct error error;
  memset(&roof, 0xff, sizeof(roof));
  assert_int_equal(cpu_backend.open(&config, &backend, &error), STATUS_OK);
  cpu_backend.roof(backend, &roof);
  cpu_backend.close(backend);
  return roof;
}

/* The only file of a folder. */
static void only_file(const char *folder, char *out, size_t bytes) {
  int count = 0;
  DIR *list = opendir(folder);
  assert_non_null(list);
  for (struct dirent *entry = readdir(list); entry != NULL; entry = readdir(list)) {
    if (entry->d_name[0] != '.') {
      snprintf(out, bytes, "%s/%s", folder, entry->d_name);
      count++;
    }
  }
  closedir(list);
  assert_int_equal(count, 1);
}

static void write_text(const char *path, const char *text) {
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fputs(text, file);
  fclose(file);
}

/* The roof is measured once and kept; a file that is not whole is written anew. Without a folder nothing is. */
static void test_roof_is_kept(void **state) {
  char folder[] = "/tmp/gemmd-roof-XXXXXX", path[600];
  assert_non_null(mkdtemp(folder));
  struct backend_roof measured = roof_with(folder), kept = roof_with(folder);
  only_file(folder, path, sizeof(path));
  assert_memory_equal(&measured, &kept, sizeof(kept));
  assert_true(measured.bytes_per_s > 1000000);
  for (int format = GEMM_FORMAT_INT8; format < GEMM_FORMATS; format++) {
    assert_true(measured.operations_per_s[format] > 1000000);
  }
  char text[256];
  for (int line = 0, used = snprintf(text, sizeof text, "7\n"); line < GEMM_FORMATS - 1; line++)
    used += snprintf(text + used, sizeof text - (size_t)used, "%d\n", line + 1);
  write_text(path, text);
  kept = roof_with(folder);
  assert_int_equal(kept.bytes_per_s, 7);
  assert_int_equal(kept.operations_per_s[GEMM_FORMAT_INT8], 1);
  assert_int_equal(kept.operations_per_s[GEMM_FORMAT_INT2A8], 6);
  write_text(path, "7\n1\n2\n");
  assert_true(roof_with(folder).bytes_per_s > 1000000);
  assert_true(roof_with(folder).operations_per_s[GEMM_FORMAT_INT8] > 1000000);
  assert_int_equal(unlink(path), 0);
  assert_int_equal(rmdir(folder), 0);
  assert_true(roof_with(NULL).bytes_per_s > 1000000);
}

/* A backend that lacks a format says who has it. */
static void test_formats_of_a_backend(void **state) {
  struct error error = {0};
  const struct backend_ops other = {.name = "cuda", .formats = 1u << GEMM_FORMAT_INT8};
  assert_int_equal(backend_takes(&other, GEMM_FORMAT_INT8, &error), STATUS_OK);
  assert_int_equal(backend_takes(&other, GEMM_FORMAT_INT4, &error), STATUS_UNSUPPORTED);
  const char *refused = "backend cuda has no kernels for weights of format int4; it is for ";
  assert_memory_equal(error.text, refused, strlen(refused));
  assert_non_null(strstr(error.text + strlen(refused), "cpu"));
  for (int format = 1; format < GEMM_FORMATS; format++) {
    assert_int_equal(backend_takes(&cpu_backend, (enum gemm_format)format, &error), STATUS_OK);
  }
}

static enum status import(struct backend *backend, int fd, uint64_t bytes) {
  struct backend_slab *slab = NULL;
  struct error error = {0};
  enum status status = cpu_backend.slab_import(backend, fd, bytes, &slab, &error);
  if (status == STATUS_OK) {
    cpu_backend.slab_close(backend, slab);
  } else {
    assert_int_equal(error.status, status);
    assert_null(slab);
  }
  return status;
}

static void test_slab_descriptors(void **state) {
  struct backend *backend = open_cpu(1);
  struct backend_slab *slab = NULL;
  struct error error = {0};
  int fd = -1, unsealed = memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING), null = open("/dev/null", O_RDONLY);
  assert_int_equal(ftruncate(unsealed, 8192), 0);
  assert_int_equal(cpu_backend.slab_create(backend, 8192, &fd, &slab, &error), STATUS_OK);
  assert_int_equal(ftruncate(fd, 4096), -1);
  assert_int_equal(ftruncate(fd, 16384), -1);
  assert_int_equal(import(backend, fd, 8192), STATUS_OK);
  assert_int_equal(import(backend, fd, 4096), STATUS_BAD_DESCRIPTOR);
  assert_int_equal(import(backend, fd, 16384), STATUS_BAD_DESCRIPTOR);
  assert_int_equal(import(backend, unsealed, 8192), STATUS_BAD_DESCRIPTOR);
  assert_int_equal(import(backend, null, 8192), STATUS_BAD_DESCRIPTOR);
  cpu_backend.slab_close(backend, slab);
  assert_int_equal(cpu_backend.slab_create(backend, 0, &fd, &slab, &error), STATUS_INVALID);
  assert_int_equal(cpu_backend.slab_create(backend, (uint64_t)1 << 60, &fd, &slab, &error), STATUS_NOMEM);
  close(fd);
  close(unsealed);
  close(null);
  cpu_backend.close(backend);
}

/* A weight must lie in its slab, at a multiple of the plan's alignment. */
/* A weight whose pages are made large leaves what lies beside it on them as it is. */
static void test_prepared_pages(void **state) {
  enum { HUGE = 2 << 20, BYTES = 3 * HUGE, BEGIN = HUGE / 2 + 3, END = 2 * HUGE + HUGE / 2 + 5 };
  struct backend_slab *slab = NULL;
  struct error error = {0};
  int fd = -1;
  assert_int_equal(cpu_slab_create(BYTES, &fd, &slab, &error), STATUS_OK);
  uint8_t *beside = malloc(BYTES);
  assert_non_null(beside);
  for (int i = 0; i < BYTES; i++) {
    beside[i] = (uint8_t)(1 + i % 253);
  }
  assert_int_equal(cpu_slab_write(slab, 0, beside, BEGIN, &error), STATUS_OK);
  assert_int_equal(cpu_slab_write(slab, END, beside + END, BYTES - END, &error), STATUS_OK);
  cpu_slab_prepare(slab, BEGIN, END - BEGIN);
  const uint8_t *there = cpu_slab_read(slab, 0, BYTES, &error);
  assert_memory_equal(there, beside, BEGIN);
  assert_memory_equal(there + END, beside + END, BYTES - END);
  for (int i = BEGIN; i < END; i++) {
    assert_int_equal(there[i], 0);
  }
  assert_int_equal(cpu_slab_write(slab, BEGIN, beside + BEGIN, END - BEGIN, &error), STATUS_OK);
  assert_memory_equal(there, beside, BYTES);
  free(beside);
  cpu_slab_close(slab);
  close(fd);
}

static void test_weight_places(void **state) {
  struct device device;
  struct oracle_weight weight;
  struct backend_weight *handle = NULL;
  struct backend_plan plan;
  struct error error = {0};
  device_open(&device, &cpu_backend, 1, 8192);
  oracle_weight_make(&weight, &(struct gemm_weight){16, 64, GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 0, 0}, 1);
  assert_int_equal(cpu_backend.weight_plan(device.backend, &weight.shape, &plan, &error), STATUS_OK);
  assert_int_equal(plan.bytes, 16 * 64 + 16 * 4);
  const uint64_t refused[] = {16, 8192 - 1024, 8192, UINT64_MAX / 256 * 256};
  for (int i = 0; i < COUNT(refused); i++) {
    assert_int_equal(
        cpu_backend.weight_store(device.backend, &weight.shape, weight.canonical, device.slab, refused[i], &error),
        STATUS_INVALID);
    assert_int_equal(
        cpu_backend.weight_attach(device.backend, &weight.shape, plan.layout, device.slab, refused[i], &handle, &error),
        STATUS_INVALID);
    assert_null(handle);
  }
  handle = device_load(&device, &weight, 8192 - 1280);
  cpu_backend.weight_detach(device.backend, handle);
  oracle_weight_free(&weight);
  device_close(&device);
  close(device.slab_fd);
}

static void test_submit_refuses_types(void **state) {
  struct device device;
  struct oracle_weight weight;
  struct oracle_x x;
  struct error error = {0};
  struct backend_done done;
  device_open(&device, &cpu_backend, 1, 8192);
  oracle_weight_make(&weight, &(struct gemm_weight){16, 64, GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 0, 0}, 1);
  oracle_x_make(&x, 2, 64, GEMM_F32, 1, 1);
  struct device_request request = {
      .weight = device_load(&device, &weight, 0), .shape = &weight.shape, .x = &x, .m = 2, .y_type = GEMM_F32};
  struct backend_job job = device_stage(&device, &request);
  job.x_type = GEMM_E4M3;
  assert_int_equal(cpu_backend.submit(device.backend, &job, &error), STATUS_UNSUPPORTED);
  assert_int_equal(error.field, FIELD_X_TYPE);
  job.x_type = GEMM_F32;
  job.y_type = GEMM_S32;
  assert_int_equal(cpu_backend.submit(device.backend, &job, &error), STATUS_UNSUPPORTED);
  assert_int_equal(error.field, FIELD_Y_TYPE);
  assert_int_equal(cpu_backend.poll(device.backend, &done, 1), 0);
  cpu_backend.weight_detach(device.backend, request.weight);
  oracle_weight_free(&weight);
  oracle_x_free(&x);
  device_close(&device);
  close(device.slab_fd);
}

/* Every byte counts, wherever it is, and so does the length. */
static void test_checksum(void **state) {
  uint8_t bytes[200] = {0};
  uint64_t seen[401];
  int count = 0;
  for (int length = 0; length <= 200; length++) {
    seen[count++] = cpu_checksum(bytes, (uint64_t)length);
  }
  for (int i = 0; i < 200; i++) {
    bytes[i] ^= 0x80;
    seen[count++] = cpu_checksum(bytes, 200);
    bytes[i] ^= 0x80;
  }
  for (int i = 0; i < count; i++) {
    for (int j = 0; j < i; j++) {
      assert_true(seen[i] != seen[j]);
    }
  }
  /* Catalogs keep what earlier builds computed. */
  for (int i = 0; i < 200; i++) {
    bytes[i] = (uint8_t)(i * 37 + 1);
  }
  assert_true(cpu_checksum(bytes, 200) == 0xafa48e196cf254d5u);
  assert_true(cpu_checksum(bytes, 192) == 0x4df67011a887f00bu);
  assert_true(cpu_checksum(bytes, 0) == 0xf1ce8d82a8ac80bdu);
}

static void test_choose(void **state) {
  struct backend_config config = {.in_flight = 1};
  char reason[256] = "";
  struct error error = {0};
  assert_ptr_equal(backend_choose("cpu", &config, reason, sizeof(reason), &error), &cpu_backend);
  assert_string_equal(reason, "asked for by name");
  assert_null(backend_choose("abacus", &config, reason, sizeof(reason), &error));
  assert_int_equal(error.status, STATUS_UNSUPPORTED);
  assert_non_null(strstr(error.text, "abacus"));
  reason[0] = 0;
  const struct backend_ops *best = backend_choose("auto", &config, reason, sizeof(reason), &error);
  assert_non_null(best);
  assert_true(best->devices(&config, &error) > 0);
  /* Which one it is stands beside it wherever it is shown. */
  assert_non_null(strstr(reason, best == backend_table[0] ? "the best of this build" : "has no usable device"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_bits_do_not_depend_on_threads),
      cmocka_unit_test(test_bits_do_not_depend_on_company),
      cmocka_unit_test(test_int2_sums_do_not_overflow_midway),
      cmocka_unit_test(test_open_refuses),
      cmocka_unit_test(test_set_by_name),
      cmocka_unit_test(test_roof_is_kept),
      cmocka_unit_test(test_formats_of_a_backend),
      cmocka_unit_test(test_slab_descriptors),
      cmocka_unit_test(test_prepared_pages),
      cmocka_unit_test(test_weight_places),
      cmocka_unit_test(test_submit_refuses_types),
      cmocka_unit_test(test_checksum),
      cmocka_unit_test(test_plain_keeps_nan),
      cmocka_unit_test(test_choose),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
