/* The CPU backend: the table of functions, and the queue of finished products.
 *
 * A product is computed by `submit` itself, with the pool: the engine thread would have nothing better to do, and a
 * hand-over to another thread would cost more than a small product. */
#include "../../proto/clock.h"
#include "../backend.h"
#include "../identity.h"
#include "pool.h"
#include "product/turns.h"
#include "product/unit.h"
#include "roof.h"
#include "variants.h"
#include "weight/checksum.h"
#include "weight/memory.h"
#include "weight/place.h"
#include "weight/slab.h"
#include "weight/weight.h"

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__GLIBC__)
#include <malloc.h>
#endif

enum { MOST_IN_FLIGHT = 64, MOST_THREADS = 256, MOST_DEVICE = 63 };

struct backend {
  struct cpu_unit unit;   /* of products that are computed whole, each when it is submitted */
  struct cpu_turns turns; /* of those that take long */
  _Atomic uint64_t working, longest_ns;
  bool small_pages;
  char *state_dir; /* owned; NULL: none */
  int in_flight;
  int64_t rows_most, pairs_most;            /* of a direct job; 0: this backend takes none */
  pthread_mutex_t alone;                    /* held while a direct job is computed: the pool is one */
  struct backend_done done[MOST_IN_FLIGHT]; /* finished and not yet reported, oldest first */
  int done_count;
};

static int cpu_devices(const struct backend_config *config, struct error *error) {
  return 1;
}

static int usable_cores(void) {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

static enum status cpu_open(const struct backend_config *config, struct backend **out, struct error *error) {
  struct cpu_cores cores;
  /* Any ordinal: an operator may configure several CPU workers, each a device of its own to the rest of gemmd. */
  if (config->device < 0 || config->device > MOST_DEVICE) {
    return error_field(error, STATUS_INVALID, FIELD_DEVICE, config->device, 0, MOST_DEVICE);
  }
  if (config->in_flight < 1 || config->in_flight > MOST_IN_FLIGHT) {
    return error_set(error, STATUS_INVALID, "products in flight must be 1..%d, got %d", MOST_IN_FLIGHT,
                     config->in_flight);
  }
  if (config->direct && config->rows_most < 1) {
    return error_field(error, STATUS_INVALID, FIELD_M, config->rows_most, 1, INT64_MAX);
  }
  enum status status = cpu_cores_choose(config->pin, config->device, NULL, &cores, error);
  if (status != STATUS_OK) {
    return status;
  }
  int threads = config->threads > 0 ? config->threads : cores.count > 0 ? cores.count : usable_cores();
  if (cores.count > 0 && threads > cores.count) {
    return error_set(error, STATUS_INVALID, "cpu_threads is %d, cpu_pin has processors for %d", threads, cores.count);
  }
  struct backend *backend = calloc(1, sizeof(*backend));
  if (backend == NULL) {
    return error_set(error, STATUS_NOMEM, "no memory for the cpu backend");
  }
  backend->in_flight = config->in_flight;
  backend->rows_most = config->direct ? config->rows_most : 0;
  backend->pairs_most = config->direct ? config->pairs_most : 0;
  pthread_mutex_init(&backend->alone, NULL);
  backend->small_pages = config->small_pages;
  backend->state_dir = config->state_dir != NULL ? strdup(config->state_dir) : NULL;
  const char *set = getenv("GEMMD_CPU");
  set = set != NULL && *set != 0 ? set : NULL;
  const struct product_options options = {.threads = threads < MOST_THREADS ? threads : MOST_THREADS,
                                          .cores = usable_cores(),
                                          .pins = &cores,
                                          .parallel = config->parallel,
                                          .parallel_context = config->parallel_context,
                                          .set = set,
                                          .library_bytes = config->library_bytes};
  status = cpu_product_open(&backend->unit.engine, &options, error);
  if (status != STATUS_OK) {
    pthread_mutex_destroy(&backend->alone);
    free(backend->state_dir);
    free(backend);
    return status;
  }
  if (cores.at_home) { /* threads that this one starts later, and memory that they touch first */
    sched_setaffinity(0, sizeof(cores.home), &cores.home);
  }
  *out = backend;
  return STATUS_OK;
}

static void cpu_close(struct backend *backend) {
  cpu_turns_rest(&backend->turns);
  cpu_unit_rest(&backend->unit);
  cpu_product_close(&backend->unit.engine);
  pthread_mutex_destroy(&backend->alone);
  free(backend->state_dir);
  free(backend);
}

/* The name that the processor has for itself. */
static void processor_name(char name[49]) {
  snprintf(name, 49, "processor");
#if defined(__x86_64__)
  unsigned words[12];
  for (unsigned i = 0; i < 3; i++) {
    if (!__get_cpuid(0x80000002u + i, &words[4 * i], &words[4 * i + 1], &words[4 * i + 2], &words[4 * i + 3])) {
      return;
    }
  }
  memcpy(name, words, sizeof(words));
  name[48] = 0;
  for (size_t length = strlen(name); length > 0 && name[length - 1] == ' '; length--) {
    name[length - 1] = 0;
  }
#endif
}

static void cpu_describe(const struct backend *backend, struct backend_info *out) {
  char name[49], library[CPU_LIBRARY_NAME_BYTES];
  uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
  processor_name(name);
  *out = (struct backend_info){.name = "cpu", .devices = 1, .slab_granularity = page};
  out->memory_total = (uint64_t)sysconf(_SC_PHYS_PAGES) * page;
  snprintf(out->device_name, sizeof(out->device_name), "%s, %d threads, %s", name,
           cpu_pool_threads(backend->unit.engine.pool), backend->unit.engine.micro->name);
  char parts[192];
  snprintf(parts, sizeof(parts), "cpu %s%s", out->device_name, cpu_library_name(backend->unit.engine.library, library));
  identity_make(parts, out->identity, sizeof(out->identity));
}

static void measured_roof(struct backend *backend, struct backend_roof *out) {
  struct backend_info info;
  cpu_describe(backend, &info);
  cpu_roof(backend->unit.engine.pool, backend->unit.engine.micro, backend->state_dir, info.identity, out);
}

static uint64_t cpu_copies(const struct backend *backend) {
  return cpu_library_used(backend->unit.engine.library);
}

static uint64_t cpu_working(const struct backend *backend) {
  return atomic_load_explicit(&backend->working, memory_order_relaxed);
}

static uint64_t cpu_longest_ns(const struct backend *backend) {
  return atomic_load_explicit(&backend->longest_ns, memory_order_relaxed);
}

static void count_longest(struct backend *backend, uint64_t ns) {
  if (ns > cpu_longest_ns(backend)) {
    atomic_store_explicit(&backend->longest_ns, ns, memory_order_relaxed);
  }
}

static void count_working(struct backend *backend) {
  uint64_t bytes = cpu_unit_bytes(&backend->unit) + cpu_turns_bytes(&backend->turns);
  atomic_store_explicit(&backend->working, bytes, memory_order_relaxed);
}

/* ---- slabs and weights */

static enum status cpu_create_slab(struct backend *backend, uint64_t bytes, int *fd, struct backend_slab **out,
                                   struct error *error) {
  return cpu_slab_create(bytes, fd, out, error);
}

static enum status cpu_import_slab(struct backend *backend, int fd, uint64_t bytes, struct backend_slab **out,
                                   struct error *error) {
  return cpu_slab_import(fd, bytes, out, error);
}

static void cpu_close_slab(struct backend *backend, struct backend_slab *slab) {
  cpu_slab_close(slab);
}

static uint32_t layout_number(const struct gemm_weight *weight) {
  return weight->input != 0 ? CPU_LAYOUT | BACKEND_LAYOUT_INPUT : CPU_LAYOUT;
}

static enum status cpu_weight_plan(struct backend *backend, const struct gemm_weight *weight, struct backend_plan *out,
                                   struct error *error) {
  struct cpu_layout layout;
  enum status status = cpu_layout_compute(weight, &layout, error);
  if (status == STATUS_OK) {
    *out = (struct backend_plan){.bytes = layout.total_bytes, .align = GEMM_SECTION, .layout = layout_number(weight)};
  }
  return status;
}

static enum status cpu_weight_store(struct backend *backend, const struct gemm_weight *weight, const void *canonical,
                                    struct backend_slab *slab, uint64_t offset, struct error *error) {
  return cpu_place_store(weight, canonical, slab, offset, !backend->small_pages,
                         cpu_pool_threads(backend->unit.engine.pool), error);
}

static enum status copy_slab(struct backend *backend, struct backend_slab *from, uint64_t from_offset,
                             struct backend_slab *to, uint64_t to_offset, uint64_t bytes, struct error *error) {
  const uint8_t *data = cpu_slab_read(from, from_offset, bytes, error);
  return data != NULL ? cpu_slab_write(to, to_offset, data, bytes, error) : error->status;
}

static enum status cpu_weight_attach(struct backend *backend, const struct gemm_weight *weight, uint32_t layout,
                                     struct backend_slab *slab, uint64_t offset, struct backend_weight **out,
                                     struct error *error) {
  if (layout != layout_number(weight)) {
    return error_set(error, STATUS_UNSUPPORTED, "the weight is stored in layout %" PRIu32 ", this build reads %" PRIu32,
                     layout, layout_number(weight));
  }
  return cpu_place_attach(weight, slab, offset, !backend->small_pages, out, error);
}

static void cpu_weight_detach(struct backend *backend, struct backend_weight *weight) {
  cpu_library_forget(backend->unit.engine.library, weight);
  cpu_place_detach(weight);
}

static enum status cpu_weight_checksum(struct backend *backend, struct backend_weight *weight, uint64_t *out,
                                       struct error *error) {
  *out = cpu_checksum(weight->panels, weight->layout.total_bytes);
  return STATUS_OK;
}

static enum status cpu_weight_read(struct backend *backend, struct backend_weight *weight, void *canonical,
                                   struct error *error) {
  cpu_place_read(weight, canonical);
  return STATUS_OK;
}

/* ---- arenas and products */

static enum status cpu_arena_register(struct backend *backend, void *base, uint64_t bytes, struct backend_arena **out,
                                      struct error *error) {
  *out = base; /* memory of the host needs no preparation: its address will do as the handle */
  return STATUS_OK;
}

static void cpu_arena_unregister(struct backend *backend, struct backend_arena *arena) {}

static enum status import_memory(struct backend *backend, int fd, uint64_t bytes, struct backend_arena **out,
                                 void **address, struct error *error) {
  return cpu_memory_import(fd, bytes, out, address, error);
}

static void close_memory(struct backend *backend, struct backend_arena *memory) {
  cpu_memory_close(memory);
}

static enum status run(struct backend *backend, const struct backend_job *job, struct error *error) {
  return cpu_unit_run(&backend->unit, job, error);
}

static enum status check_types(const struct backend_job *job, struct error *error) {
  if (job->operand == NULL && (job->weight->shape.experts > 0) != (job->experts != NULL)) {
    return error_set(error, STATUS_INVALID, "ids belong to a weight with experts, and to such a weight alone");
  }
  enum gemm_format format = job->operand != NULL ? job->operand->shape.format : job->weight->shape.format;
  if (!gemm_takes_x(format, job->x_type)) {
    return error_field(error, STATUS_UNSUPPORTED, FIELD_X_TYPE, job->x_type, 1, 0);
  }
  if (job->steps == NULL && !gemm_takes_y(format, job->x_type, job->y_type)) {
    return error_field(error, STATUS_UNSUPPORTED, FIELD_Y_TYPE, job->y_type, 1, 0);
  }
  return STATUS_OK;
}

static enum status cpu_submit(struct backend *backend, const struct backend_job *job, struct error *error) {
  if (backend->done_count == backend->in_flight) {
    return error_set(error, STATUS_BUSY, "%d products are in flight", backend->in_flight);
  }
  enum status status = check_types(job, error);
  if (status != STATUS_OK) {
    return status;
  }
  uint64_t begin = clock_ns();
  status = run(backend, job, error);
  count_working(backend);
  count_longest(backend, cpu_unit_predict_ns(&backend->unit, job));
  if (status == STATUS_OK) {
    uint64_t took_ns = clock_ns() - begin;
    backend->done[backend->done_count++] =
        (struct backend_done){.tag = job->tag,
                              .status = STATUS_OK,
                              .device_ns = took_ns,
                              .turn_ns = took_ns,
                              .skipped = job->experts != NULL ? backend->unit.experts.skipped : 0};
  }
  return status;
}

static int cpu_poll(struct backend *backend, struct backend_done *done, int most) {
  int count = backend->done_count < most ? backend->done_count : most;
  memcpy(done, backend->done, (size_t)count * sizeof(*done));
  backend->done_count -= count;
  memmove(backend->done, backend->done + count, (size_t)backend->done_count * sizeof(*done));
  return count;
}

/* ---- products that take long */

static uint64_t predict(const struct backend *backend, const struct backend_job *job) {
  return cpu_unit_predict_ns(&backend->unit, job);
}

static enum status begin_turns(struct backend *backend, const struct backend_job *job, uint32_t most,
                               struct backend_turns **out, struct error *error) {
  enum status status = check_types(job, error);
  return status == STATUS_OK ? cpu_turns_begin(&backend->turns, &backend->unit.engine, job, most, out, error) : status;
}

static bool next_turn(struct backend *backend, struct backend_turns *turns, uint64_t budget_ns,
                      struct backend_done *done, struct error *error) {
  bool ended = cpu_turns_next(turns, budget_ns, done, error);
  count_working(backend);
  count_longest(backend, cpu_turns_longest_ns(&backend->turns));
  return ended;
}

static void abandon_turns(struct backend *backend, struct backend_turns *turns) {
  cpu_pause_abandon(turns->pause);
}

static void cpu_rest(struct backend *backend) {
  cpu_turns_rest(&backend->turns);
  cpu_unit_rest(&backend->unit);
#if defined(__GLIBC__)
  malloc_trim(0); /* what was given back would stay with the process */
#endif
  count_working(backend);
}

static enum status cpu_enqueue(struct backend *backend, int lane, const struct backend_job *job, void *stream,
                               struct error *error) {
  if (backend->rows_most == 0) {
    return error_set(error, STATUS_WRONG_STATE, "this backend serves; it computes nothing for its caller");
  }
  if (lane < 0 || lane >= backend->in_flight) {
    return error_set(error, STATUS_INVALID, "lane must be 0..%d, got %d", backend->in_flight - 1, lane);
  }
  if (job->m < 1 || job->m > backend->rows_most) {
    return error_field(error, STATUS_INVALID, FIELD_M, job->m, 1, backend->rows_most);
  }
  if (job->experts != NULL && (job->experts->top < 1 || job->experts->top > backend->pairs_most / job->m)) {
    return error_field(error, STATUS_INVALID, FIELD_TOP, job->experts->top, 1, backend->pairs_most / job->m);
  }
  enum status status = check_types(job, error);
  if (status != STATUS_OK) {
    return status;
  }
  pthread_mutex_lock(&backend->alone);
  status = run(backend, job, error);
  if (status == STATUS_OK && job->experts != NULL && job->experts->skipped != NULL) {
    *job->experts->skipped += backend->unit.experts.skipped;
  }
  count_working(backend);
  pthread_mutex_unlock(&backend->alone);
  return status;
}

/* ---- tuning */

static int list_variants(struct backend *backend, const struct variant_problem *problem, const struct variant *base,
                         bool all, struct variant *out, int most) {
  return base == NULL ? cpu_variants(&backend->unit.engine, problem, all, out, most) : 0;
}

static int list_library_variants(struct backend *backend, const struct variant_problem *problem, bool all,
                                 struct variant *out, int most) {
  return cpu_library_variants(&backend->unit.engine, problem, out, most);
}

static enum status check_variant(struct backend *backend, const struct variant_problem *problem,
                                 struct variant *variant, struct variant *nearest, struct error *error) {
  return cpu_variant_check(&backend->unit.engine, problem, variant, nearest, error);
}

static enum status measure_alone(struct backend *backend, const struct backend_job *job,
                                 struct backend_weight *const *weights, size_t count,
                                 const struct backend_timing *timing, uint64_t *ns, struct error *error) {
  bool library = job->variant != NULL && job->variant->family == &cpu_family_onednn && job->steps == NULL;
  for (size_t i = 0; library && job->operand == NULL && i < count; i++) {
    struct backend_job one = *job;
    one.weight = weights[i];
    enum status status = one.weight->copy == NULL ? run(backend, &one, error) : STATUS_OK;
    if (status != STATUS_OK) {
      return status;
    }
  }
  uint64_t begin = clock_ns();
  for (uint32_t i = 0; i < timing->launches; i++) {
    struct backend_job one = *job;
    one.weight = one.steps == NULL && one.operand == NULL ? weights[i % count] : one.weight;
    enum status status = run(backend, &one, error);
    if (status != STATUS_OK) {
      return status;
    }
  }
  *ns = (clock_ns() - begin) / timing->launches;
  return STATUS_OK;
}

static enum status cpu_measure(struct backend *backend, const struct backend_job *job,
                               struct backend_weight *const *weights, size_t count, const struct backend_timing *timing,
                               uint64_t *ns, struct error *error) {
  bool direct = backend->rows_most > 0; /* other threads enqueue */
  if (direct) {
    pthread_mutex_lock(&backend->alone);
  }
  enum status status = measure_alone(backend, job, weights, count, timing, ns, error);
  if (direct) {
    count_working(backend);
    pthread_mutex_unlock(&backend->alone);
  }
  return status;
}

static enum status take_tensor(struct backend *backend, uint64_t bytes, void **out, struct error *error) {
  *out = aligned_alloc(GEMM_SECTION, gemm_round_up(bytes, GEMM_SECTION));
  return *out != NULL ? STATUS_OK : error_set(error, STATUS_NOMEM, "no memory to measure products with");
}

static void give_tensor(struct backend *backend, void *tensor) {
  free(tensor);
}

static enum status copy_tensor(struct backend *backend, void *to, const void *from, uint64_t bytes,
                               struct error *error) {
  memcpy(to, from, bytes);
  return STATUS_OK;
}

const struct backend_ops cpu_backend = {
    .name = "cpu",
    .formats = UINT32_MAX,
    .on_cores = true,
    .devices = cpu_devices,
    .open = cpu_open,
    .close = cpu_close,
    .describe = cpu_describe,
    .roof = measured_roof,
    .copies = cpu_copies,
    .working = cpu_working,
    .longest_ns = cpu_longest_ns,
    .slab_create = cpu_create_slab,
    .slab_import = cpu_import_slab,
    .slab_close = cpu_close_slab,
    .weight_plan = cpu_weight_plan,
    .weight_store = cpu_weight_store,
    .weight_attach = cpu_weight_attach,
    .weight_detach = cpu_weight_detach,
    .slab_copy = copy_slab,
    .weight_checksum = cpu_weight_checksum,
    .weight_read = cpu_weight_read,
    .arena_register = cpu_arena_register,
    .arena_unregister = cpu_arena_unregister,
    .memory_import = import_memory,
    .memory_close = close_memory,
    .submit = cpu_submit,
    .poll = cpu_poll,
    .predict_ns = predict,
    .turns_begin = begin_turns,
    .turns_next = next_turn,
    .turns_abandon = abandon_turns,
    .rest = cpu_rest,
    .enqueue = cpu_enqueue,
    .tensor_take = take_tensor,
    .tensor_give = give_tensor,
    .tensor_copy = copy_tensor,
    .families = cpu_families,
    .variants = list_variants,
    .library_variants = list_library_variants,
    .variant_check = check_variant,
    .measure = cpu_measure,
};
