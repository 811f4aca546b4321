#include "tile.h"

#include "../../runtime/nvrtc.h"
#include "code_cache.h"
#include "source.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { JOIN_THREADS = 256 };

struct tile_code {
  struct tile_code *next;
  char key[CODE_KEY_BYTES];
  CUmodule module;
  CUfunction product, join;
  int threads;
};

void tile_table_open(struct tile_table *table, const struct driver *driver, const struct kernel_device *device,
                     const char *nvrtc, const char *state_dir) {
  *table = (struct tile_table){.driver = driver, .device = *device, .nvrtc = nvrtc};
  if (state_dir && *state_dir && strlen(state_dir) + sizeof "/kernels" <= sizeof table->folder)
    snprintf(table->folder, sizeof table->folder, "%s/kernels", state_dir);
}

void tile_table_close(struct tile_table *table) {
  for (struct tile_code *each = table->list, *next; each; each = next) {
    next = each->next;
    (void)table->driver->cuModuleUnload(each->module);
    free(each);
  }
  table->list = NULL;
}

/* ---- making */

enum { HEADERS = 5 };
static const char *const header_names[HEADERS] = {"codes.cuh", "params.h", "kernels/cuda/families/sm90/int2/layout.h",
                                                  "kernels/cuda/families/sm90/int2/dense.cuh",
                                                  "kernels/cuda/families/sm90/int2/a8_layout.h"};
static const char *const headers[HEADERS] = {tile_source_codes, tile_source_params, tile_source_int2,
                                             tile_source_int2_dense, tile_source_int2a8};

/* Source, options and architecture: all that the code depends on but the compiler's version, which compiled code
 * outlives. */
static void key_of(const struct tile_options *options, char key[CODE_KEY_BYTES]) {
  uint64_t hash = code_hash(tile_source_kernel, strlen(tile_source_kernel), 0);
  for (int i = 0; i < HEADERS; i++)
    hash = code_hash(headers[i], strlen(headers[i]), hash);
  int used = snprintf(key, CODE_KEY_BYTES, "tile %016" PRIx64, hash);
  for (int i = 0; i < options->count && used < CODE_KEY_BYTES; i++)
    used += snprintf(key + used, CODE_KEY_BYTES - (size_t)used, " %s", options->text[i]);
}

static bool kept(const struct tile_table *table, const char *key) {
  void *code;
  size_t bytes;
  if (table->folder[0] == '\0' || !code_cache_load(table->folder, key, &code, &bytes))
    return false;
  free(code);
  return true;
}

bool tile_compiles(struct tile_table *table) {
  struct nvrtc nvrtc;
  struct error ignored;
  if (table->compiler == 0 && table->folder[0] != '\0') {
    table->compiler = nvrtc_open(table->nvrtc, &nvrtc, &ignored) == STATUS_OK ? 1 : -1;
    if (table->compiler > 0)
      nvrtc_close(&nvrtc);
  }
  return table->compiler > 0;
}

enum status tile_can_build(const struct tile_table *table, const struct variant *variant, const struct tile_plan *plan,
                           struct error *error) {
  struct tile_options options;
  struct nvrtc nvrtc;
  char key[CODE_KEY_BYTES];
  tile_options(&table->device, variant, plan, &options);
  key_of(&options, key);
  if (table->folder[0] == '\0')
    return error_set(error, STATUS_UNSUPPORTED,
                     "kernels that are not built in are compiled where the option state_dir gives them a place");
  if (kept(table, key))
    return STATUS_OK;
  enum status status = nvrtc_open(table->nvrtc, &nvrtc, error);
  if (status == STATUS_OK)
    nvrtc_close(&nvrtc);
  return status;
}

static enum status compile(const struct tile_table *table, const struct tile_options *options, const char *key,
                           struct error *error) {
  const char *words[TILE_OPTIONS + 1] = {"-std=c++17"};
  struct nvrtc nvrtc;
  void *code;
  size_t bytes;
  for (int i = 0; i < options->count; i++)
    words[1 + i] = options->text[i];
  struct nvrtc_program program = {.source = tile_source_kernel,
                                  .header_names = header_names,
                                  .headers = headers,
                                  .header_count = HEADERS,
                                  .options = words,
                                  .option_count = 1 + options->count};
  enum status status = nvrtc_open(table->nvrtc, &nvrtc, error);
  if (status != STATUS_OK)
    return status;
  status = nvrtc_compile(&nvrtc, &program, &code, &bytes, error);
  if (status == STATUS_OK) {
    status = code_cache_save(table->folder, key, code, bytes, error);
    free(code);
  }
  nvrtc_close(&nvrtc);
  return status;
}

enum status tile_build(const struct tile_table *table, const struct variant *variant, const struct tile_plan *plan,
                       struct error *error) {
  struct tile_options options;
  char key[CODE_KEY_BYTES];
  enum status status = tile_can_build(table, variant, plan, error);
  tile_options(&table->device, variant, plan, &options);
  key_of(&options, key);
  if (status != STATUS_OK || kept(table, key))
    return status;
  return compile(table, &options, key, error);
}

/* ---- loading */

static enum status open_functions(const struct driver *driver, struct tile_code *code, int shared_bytes,
                                  struct error *error) {
  int spilled = 0;
  CUresult result = driver->cuModuleGetFunction(&code->product, code->module, "tile_product");
  if (result == CUDA_SUCCESS)
    result = driver->cuModuleGetFunction(&code->join, code->module, "tile_join");
  if (result == CUDA_SUCCESS)
    result = driver->cuFuncGetAttribute(&spilled, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, code->product);
  if (result == CUDA_SUCCESS && spilled > 0)
    return error_set(error, STATUS_UNSUPPORTED, "the compiled kernel spills %d bytes of a thread's registers", spilled);
  if (result == CUDA_SUCCESS)
    result = driver->cuFuncSetAttribute(code->product, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_bytes);
  return driver_check(driver, result, "loading a compiled kernel", error);
}

static enum status load_kept(struct tile_table *table, struct tile_code *code, int shared_bytes, struct error *error) {
  void *image;
  size_t bytes;
  if (!code_cache_load(table->folder, code->key, &image, &bytes))
    return STATUS_NOT_FOUND;
  CUresult result = table->driver->cuModuleLoadData(&code->module, image);
  free(image);
  enum status status = driver_check(table->driver, result, "loading a compiled kernel", error);
  if (status != STATUS_OK)
    return status == STATUS_SYSTEM ? error_set(error, STATUS_UNSUPPORTED, "the device refuses a compiled kernel")
                                   : status;
  status = open_functions(table->driver, code, shared_bytes, error);
  if (status != STATUS_OK)
    (void)table->driver->cuModuleUnload(code->module);
  return status;
}

enum status tile_load(struct tile_table *table, const struct variant *variant, const struct tile_plan *plan,
                      const struct tile_code **out, struct error *error) {
  struct tile_options options;
  struct tile_code made = {.threads = 32 * variant->values[TILE_NUM_WARPS]};
  *out = NULL;
  if (table->folder[0] == '\0')
    return STATUS_OK;
  tile_options(&table->device, variant, plan, &options);
  key_of(&options, made.key);
  for (const struct tile_code *each = table->list; each; each = each->next)
    if (strcmp(each->key, made.key) == 0) {
      *out = each;
      return STATUS_OK;
    }
  enum status status = load_kept(table, &made, plan->shared_bytes, error);
  if (status != STATUS_OK)
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
  struct tile_code *code = malloc(sizeof *code);
  if (!code) {
    (void)table->driver->cuModuleUnload(made.module);
    return error_set(error, STATUS_NOMEM, "no memory for a compiled kernel");
  }
  *code = made;
  code->next = table->list;
  table->list = code;
  *out = code;
  return STATUS_OK;
}

/* ---- launching */

enum status tile_launch(const struct tile_table *table, const struct tile_code *code, const struct tile_plan *plan,
                        const struct tile_params *params, CUstream stream, struct error *error) {
  const struct driver *driver = table->driver;
  struct tile_params copy = *params;
  void *arguments[] = {&copy};
  unsigned blocks = (unsigned)(plan->tiles_m * plan->tiles_n * params->split_k);
  bool joined = params->split_k > 1 && params->split_k_mode != TILE_SERIAL;
  CUresult result = CUDA_SUCCESS;
  if (plan->turns_bytes > 0)
    result = driver->cuMemsetD32Async((CUdeviceptr)(uintptr_t)params->turns, 0, plan->turns_bytes / 4, stream);
  if (result == CUDA_SUCCESS)
    result = driver->cuLaunchKernel(code->product, blocks, 1, 1, (unsigned)code->threads, 1, 1,
                                    (unsigned)plan->shared_bytes, stream, arguments, NULL);
  if (result == CUDA_SUCCESS && joined) {
    int64_t items = params->m * (params->sums_stride / 4);
    result = driver->cuLaunchKernel(code->join, (unsigned)((items + JOIN_THREADS - 1) / JOIN_THREADS), 1, 1,
                                    JOIN_THREADS, 1, 1, 0, stream, arguments, NULL);
  }
  return driver_check(driver, result, "computing a product", error);
}
