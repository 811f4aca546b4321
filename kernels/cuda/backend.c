#include "../identity.h"
#include "direct/capture.h"
#include "direct/direct.h"
#include "direct/measure.h"
#include "direct/open.h"
#include "exec/measure/cold.h"
#include "exec/measure/measure.h"
#include "exec/measure/measured.h"
#include "exec/predict.h"
#include "exec/submit.h"
#include "exec/turns/turns.h"
#include "families/select.h"
#include "families/sm90/int2/places.h"
#include "families/tuning.h"
#include "heuristics/roof.h"
#include "launch/graph.h"
#include "runtime/arena.h"
#include "runtime/ipc.h"
#include "runtime/load.h"
#include "runtime/slab.h"
#include "tensors/trial.h"
#include "weight/checksum.h"
#include "weight/convert.h"
#include "weight/weight.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of a slot: addresses set apart for staging, what one weight may ask for, cuBLASLt's workspace. The last is what
 * its documentation recommends, and Hopper's kernels want more. */
#define STAGING_ADDRESSES ((uint64_t)4 << 30)
#define STAGING_LOW ((uint64_t)32 << 20)
#define STAGING_HIGH ((uint64_t)512 << 20)
#define WORKSPACE_HOPPER ((uint64_t)32 << 20)
#define WORKSPACE_OLDER ((uint64_t)8 << 20)

static int cuda_devices(const struct backend_config *config, struct error *error) {
  struct cublaslt library;
  const struct driver *driver = driver_open(error);
  int count = driver ? driver_device_count(driver, error) : 0;
  if (count == 0 || cublaslt_open(config->cublaslt, &library, error) != STATUS_OK)
    return 0;
  cublaslt_close(&library);
  return count;
}

static enum status device_open(struct backend *backend, const struct backend_config *config, struct error *error) {
  backend->driver = driver_open(error);
  if (!backend->driver)
    return error->status;
  backend->devices = driver_device_count(backend->driver, error);
  if (backend->devices == 0)
    return error->status;
  enum status status =
      config->direct
          ? driver_device_own(backend->driver, config->device, &backend->device, &backend->runtime_ordinal, error)
          : driver_device_at(backend->driver, config->device, &backend->device, &backend->runtime_ordinal, error);
  backend->lanes.device = backend->runtime_ordinal;
  if (status == STATUS_OK)
    status = driver_capability(backend->driver, backend->device, &backend->gpu.capability, error);
  if (status == STATUS_OK)
    status = driver_multiprocessors(backend->driver, backend->device, &backend->gpu.multiprocessors, error);
  if (status == STATUS_OK)
    status = backend_enter(backend, error);
  if (status != STATUS_OK)
    return status;
  cudaError_t check = launch_check();
  if (check == cudaErrorNoKernelImageForDevice || check == cudaErrorInvalidDeviceFunction) {
    (void)cudaGetLastError();
    return error_set(error, STATUS_UNSUPPORTED, "this build has no code for compute capability %d.%d",
                     backend->gpu.capability / 10, backend->gpu.capability % 10);
  }
  return runtime_check(check, "starting the GPU", error);
}

/* An error that lasts shows in what is asked of the device next. */
static void places_open(struct backend *backend) {
  char text[256];
  if (backend->gpu.capability != 90)
    return;
  cudaError_t result = places_check(&backend->gpu.places);
  if (result != cudaSuccess)
    (void)cudaGetLastError();
  if (backend->gpu.places || !backend->warn)
    return;
  snprintf(text, sizeof text,
           "INT2 products take longer than they could: the GPU's sparse matrix instructions fail their check (%s)",
           result == cudaSuccess ? "wrong sums" : cudaGetErrorString(result));
  backend->warn(text);
}

static CUresult find_roof(struct backend *backend) {
  struct roof_device device = {.capability = backend->gpu.capability, .multiprocessors = backend->gpu.multiprocessors};
  const struct driver *driver = backend->driver;
  CUresult result = driver->cuDeviceGetAttribute(&device.clock_khz, CU_DEVICE_ATTRIBUTE_CLOCK_RATE, backend->device);
  if (result == CUDA_SUCCESS)
    result =
        driver->cuDeviceGetAttribute(&device.memory_clock_khz, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, backend->device);
  if (result == CUDA_SUCCESS)
    result = driver->cuDeviceGetAttribute(&device.memory_bus_bits, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH,
                                          backend->device);
  backend->bytes_per_s = roof_memory(&device);
  backend->operations_per_s = roof_operations(&device);
  return result;
}

static enum status device_describe(struct backend *backend, struct error *error) {
  size_t total = 0;
  CUresult result =
      backend->driver->cuDeviceGetName(backend->device_name, sizeof backend->device_name, backend->device);
  if (result == CUDA_SUCCESS)
    result = backend->driver->cuDeviceTotalMem_v2(&total, backend->device);
  if (result == CUDA_SUCCESS)
    result = find_roof(backend);
  backend->memory_total = total;
  enum status status = driver_check(backend->driver, result, "describing the GPU", error);
  if (status != STATUS_OK)
    return status;
  return memory_granularity(backend->driver, backend->device, &backend->granularity, error);
}

static enum status words_open(struct backend *backend, struct error *error) {
  cudaError_t result = cudaHostAlloc(&backend->words, SLOTS_MAX * WORD_BYTES, cudaHostAllocMapped);
  if (result == cudaSuccess)
    memset(backend->words, 0, SLOTS_MAX * WORD_BYTES);
  else
    backend->words = NULL;
  return runtime_check(result, "taking pinned memory", error);
}

static enum status slot_open(struct backend *backend, struct slot *slot, int streams, struct error *error) {
  uint64_t place = WORD_BYTES * (uint64_t)(slot - backend->slots);
  void *words = NULL;
  cudaError_t result = cudaStreamCreateWithFlags(&slot->stream, cudaStreamNonBlocking);
  if (result == cudaSuccess)
    result = cudaHostGetDevicePointer(&words, backend->words, 0);
  launches_open(&slot->launches, &graph_ops, slot->stream, streams);
  slot->word = (uint32_t *)((uint8_t *)backend->words + place);
  slot->word_device = (CUdeviceptr)(uintptr_t)words + place;
  enum status status = runtime_check(result, "making a stream", error);
  if (status == STATUS_OK)
    status = region_open(backend->driver, STAGING_ADDRESSES, backend->granularity, &slot->staging, error);
  if (status == STATUS_OK)
    status = region_open(backend->driver, OPERAND_ADDRESSES, backend->granularity, &slot->operand, error);
  uint64_t workspace = backend->library.workspace_bytes;
  if (status == STATUS_OK)
    status = region_open(backend->driver, workspace, backend->granularity, &slot->workspace, error);
  if (status == STATUS_OK)
    status = region_grow(backend->driver, backend->device, &slot->workspace, workspace, backend->granularity, error);
  return status;
}

static void slot_close(struct backend *backend, struct slot *slot) {
  if (slot->stream) {
    (void)cudaStreamSynchronize(slot->stream);
    launches_close(&slot->launches);
    (void)cudaStreamDestroy(slot->stream);
  }
  if (slot->bounce)
    (void)cudaFreeHost(slot->bounce);
  if (slot->int2_sums)
    (void)cudaFree(slot->int2_sums);
  region_close(backend->driver, &slot->staging);
  region_close(backend->driver, &slot->operand);
  region_close(backend->driver, &slot->workspace);
}

static void side_close(struct side *side) {
  if (side->stream) {
    (void)cudaStreamSynchronize(side->stream);
    (void)cudaStreamDestroy(side->stream);
  }
  if (side->heard)
    (void)cudaFreeHost(side->heard);
  if (side->answer)
    (void)cudaFree(side->answer);
}

static void cuda_close(struct backend *backend) {
  struct error ignored;
  if (!backend)
    return;
  if (backend->driver && backend_enter(backend, &ignored) == STATUS_OK) {
    library_warm_end(&backend->warmer);
    if (backend->direct)
      direct_close(backend);
    for (int i = 0; i < SLOTS_MAX; i++)
      slot_close(backend, &backend->slots[i]);
    turns_close(backend);
    measured_close(backend);
    cold_close(backend);
    cuda_tensors_drop(backend);
    lanes_close(&backend->lanes);
    side_close(&backend->side);
    if (backend->words)
      (void)cudaFreeHost(backend->words);
    if (!backend->direct)
      library_close(&backend->catalog);
    library_close(&backend->library);
    tile_table_close(&backend->tiles);
    if (backend->context)
      (void)backend->driver->cuDevicePrimaryCtxRelease_v2(backend->device);
    (void)cudaGetLastError();
  }
  selector_close(backend->selector);
  free(backend);
}

static enum status tiles_open(struct backend *backend, const struct backend_config *config, struct error *error) {
  CUresult result = backend->driver->cuDeviceGetAttribute(
      &backend->gpu.shared_most, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, backend->device);
  tile_table_open(&backend->tiles, backend->driver, &backend->gpu, config->nvrtc, config->state_dir);
  return driver_check(backend->driver, result, "asking a GPU its shared memory", error);
}

/* What serves: places for products under way, and what other threads load weights with. */
static enum status serving_open(struct backend *backend, const struct backend_config *config, struct error *error) {
  backend->selector = selector_open();
  if (!backend->selector)
    return error_set(error, STATUS_NOMEM, "no memory for the choices of kernels");
  enum status status = library_open(config->cublaslt, backend->library.workspace_bytes, &backend->catalog, error);
  if (status == STATUS_OK)
    status = side_open(&backend->side, error);
  if (status == STATUS_OK)
    status = words_open(backend, error);
  int slots = config->in_flight < SLOTS_MAX ? config->in_flight + 1 : SLOTS_MAX;
  backend->in_flight = config->in_flight;
  for (int i = 0; i < slots && status == STATUS_OK; i++, backend->slot_count++)
    status = slot_open(backend, &backend->slots[i], slots, error);
  uint64_t share = backend->memory_total / 32 / (uint64_t)slots;
  backend->staging_most = share < STAGING_LOW ? STAGING_LOW : share > STAGING_HIGH ? STAGING_HIGH : share;
  if (status == STATUS_OK && config->tunes)
    cold_open(backend);
  return status;
}

static enum status parts_open(struct backend *backend, const struct backend_config *config, struct error *error) {
  size_t workspace = backend->gpu.capability >= 90 ? WORKSPACE_HOPPER : WORKSPACE_OLDER;
  backend->gpu.workspace_bytes = workspace;
  enum status status = library_open(config->cublaslt, workspace, &backend->library, error);
  if (status == STATUS_OK)
    status = config->direct ? direct_open(backend, config, error) : serving_open(backend, config, error);
  if (status == STATUS_OK)
    status = tiles_open(backend, config, error);
  if (config->direct)
    backend->catalog = backend->library; /* asked for what it has by one thread at a time */
  const void *anywhere = (const void *)(uintptr_t)backend->slots[0].workspace.address;
  backend->library.anywhere = anywhere;
  backend->catalog.anywhere = anywhere;
  return status;
}

static enum status cuda_open(const struct backend_config *config, struct backend **out, struct error *error) {
  if (config->in_flight < 1 || config->in_flight > SLOTS_MAX)
    return error_set(error, STATUS_INVALID, "in_flight must be 1..%d, got %d", SLOTS_MAX, config->in_flight);
  if (config->direct && config->rows_most < 1)
    return error_field(error, STATUS_INVALID, FIELD_M, config->rows_most, 1, INT64_MAX);
  struct backend *backend = calloc(1, sizeof *backend);
  if (!backend)
    return error_set(error, STATUS_NOMEM, "no memory for the cuda backend");
  backend->warn = config->warn;
  enum status status = device_open(backend, config, error);
  if (status == STATUS_OK)
    status = device_describe(backend, error);
  if (status == STATUS_OK) {
    places_open(backend);
    status = parts_open(backend, config, error);
  }
  if (status == STATUS_OK)
    load_kernels(backend->driver);
  if (status == STATUS_OK && !config->direct)
    library_warm_begin(config->cublaslt, &backend->library, backend->runtime_ordinal, &backend->warmer);
  if (status != STATUS_OK) {
    /* Without a driver nothing of the runtime may be called; without a device there is nothing to give back. */
    if (backend->granularity == 0)
      backend->driver = NULL;
    cuda_close(backend);
    return status;
  }
  *out = backend;
  return STATUS_OK;
}

static void cuda_describe(const struct backend *backend, struct backend_info *out) {
  memset(out, 0, sizeof *out);
  snprintf(out->name, sizeof out->name, "cuda");
  snprintf(out->device_name, sizeof out->device_name, "%.*s", (int)sizeof out->device_name - 1, backend->device_name);
  out->devices = backend->devices;
  out->memory_total = backend->memory_total;
  out->slab_granularity = backend->granularity;
  CUuuid uuid;
  if (backend->driver->cuDeviceGetUuid_v2(&uuid, backend->device) == CUDA_SUCCESS)
    memcpy(out->uuid, uuid.bytes, sizeof out->uuid);
  char parts[256];
  int driver = 0;
  (void)backend->driver->cuDriverGetVersion(&driver);
  snprintf(parts, sizeof parts, "cuda %.60s %d sms driver %d cublaslt %zu", backend->device_name,
           backend->gpu.multiprocessors, driver, backend->library.functions.cublasLtGetVersion());
  identity_make(parts, out->identity, sizeof out->identity);
}

static void cuda_roof(struct backend *backend, struct backend_roof *out) {
  *out = (struct backend_roof){.bytes_per_s = backend->bytes_per_s};
  for (int format = 1; format < GEMM_FORMATS; format++)
    out->operations_per_s[format] = backend->operations_per_s / (gemm_quantizes_x((enum gemm_format)format) ? 1 : 2);
}

static uint64_t cuda_working(const struct backend *backend) {
  uint64_t bytes = atomic_load_explicit(&backend->sums_bytes, memory_order_relaxed) + lanes_bytes(&backend->lanes);
  for (int i = 0; i < backend->slot_count; i++) {
    const struct slot *slot = &backend->slots[i];
    bytes += atomic_load_explicit(&slot->staging.bytes, memory_order_relaxed);
    bytes += atomic_load_explicit(&slot->operand.bytes, memory_order_relaxed);
    bytes += atomic_load_explicit(&slot->workspace.bytes, memory_order_relaxed);
    bytes += (uint64_t)LAUNCHES_GRAPH_BYTES * atomic_load_explicit(&slot->launches.graphs, memory_order_relaxed);
  }
  bytes += (uint64_t)LAUNCHES_GRAPH_BYTES * atomic_load_explicit(&backend->measured.graphs, memory_order_relaxed);
  return bytes + turns_bytes(backend);
}

static enum status measure(struct backend *backend, const struct backend_job *job,
                           struct backend_weight *const *weights, size_t count, const struct backend_timing *timing,
                           uint64_t *ns, struct error *error) {
  return (backend->direct ? direct_measure : cuda_measure)(backend, job, weights, count, timing, ns, error);
}

extern const struct backend_ops cuda_backend;
const struct backend_ops cuda_backend = {
    .name = "cuda",
    .formats = 1u << GEMM_FORMAT_INT8 | 1u << GEMM_FORMAT_FP8 | 1u << GEMM_FORMAT_INT2 | 1u << GEMM_FORMAT_F16 |
               1u << GEMM_FORMAT_BF16 | 1u << GEMM_FORMAT_INT2A8 | 1u << GEMM_FORMAT_INT4 | 1u << GEMM_FORMAT_INT4A8 |
               1u << GEMM_FORMAT_MXFP4 | 1u << GEMM_FORMAT_NVFP4,
    .devices = cuda_devices,
    .open = cuda_open,
    .close = cuda_close,
    .describe = cuda_describe,
    .roof = cuda_roof,
    .working = cuda_working,
    .longest_ns = cuda_longest_ns,
    .slab_create = cuda_slab_create,
    .slab_import = cuda_slab_import,
    .slab_close = cuda_slab_close,
    .weight_plan = cuda_weight_plan,
    .weight_store = cuda_weight_store,
    .weight_convert = cuda_weight_convert,
    .weight_attach = cuda_weight_attach,
    .weight_detach = cuda_weight_detach,
    .slab_copy = cuda_slab_copy,
    .weight_checksum = cuda_weight_checksum,
    .weight_read = cuda_weight_read,
    .arena_register = cuda_arena_register,
    .arena_unregister = cuda_arena_unregister,
    .memory_import = cuda_memory_import,
    .memory_open_ipc = cuda_memory_open_ipc,
    .memory_close = cuda_memory_close,
    .event_open = cuda_event_open,
    .event_close = cuda_event_close,
    .event_query = cuda_event_query,
    .submit = cuda_submit,
    .poll = cuda_poll,
    .predict_ns = cuda_predict_ns,
    .turns_begin = cuda_turns_begin,
    .turns_submit = cuda_turns_submit,
    .turns_abandon = cuda_turns_abandon,
    .rest = cuda_rest,
    .enqueue = cuda_enqueue,
    .tensor_take = cuda_tensor_take,
    .tensor_give = cuda_tensor_give,
    .tensor_copy = cuda_tensor_copy,
    .weight_held = cuda_weight_held,
    .held = cuda_held,
    .caller_save = cuda_caller_save,
    .caller_restore = cuda_caller_restore,
    .families = tuning_families,
    .variants = cuda_variants,
    .library_variants = cuda_library_variants,
    .compiled_variants = cuda_compiled_variants,
    .variant_check = cuda_variant_check,
    .variant_needs = cuda_variant_needs,
    .variant_foreign = cuda_variant_foreign,
    .variant_build = cuda_variant_build,
    .tensors_make = cuda_tensors_make,
    .tensors_drop = cuda_tensors_drop,
    .measure = measure,
};
