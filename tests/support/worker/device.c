#include "device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define ARENA_BYTES ((uint64_t)DEVICE_ARENA_BYTES)
#define GUARD_BYTES DEVICE_GUARD_BYTES
/* A NaN of f32, f16 and bf16 that no arithmetic makes, so that an element nobody wrote shows even in a NaN row. */
#define POISON 0x7fed

static void check(enum status status, const struct error *error, const char *what) {
  if (status != STATUS_OK) {
    fail_msg("%s: %d, %s", what, (int)status, error->text);
  }
}

void device_open(struct device *device, const struct backend_ops *ops, int in_flight, uint64_t slab_bytes) {
  struct backend_config config = {
      .library_bytes = (uint64_t)64 << 20, .in_flight = in_flight, .state_dir = getenv("GEMMD_TEST_STATE")};
  struct backend_info info;
  struct error error = {0};
  *device = (struct device){.ops = ops, .slab_fd = -1};
  check(ops->open(&config, &device->backend, &error), &error, "open");
  ops->describe(device->backend, &info);
  assert_string_equal(info.name, ops->name);
  assert_true(info.slab_granularity > 0);
  device->base = mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_ptr_not_equal(device->base, MAP_FAILED);
  check(ops->arena_register(device->backend, device->base, ARENA_BYTES, &device->arena, &error), &error, "arena");
  if (slab_bytes > 0) {
    device->slab_bytes = (slab_bytes + info.slab_granularity - 1) / info.slab_granularity * info.slab_granularity;
    check(ops->slab_create(device->backend, device->slab_bytes, &device->slab_fd, &device->slab, &error), &error,
          "slab_create");
    assert_true(device->slab_fd >= 0);
  }
}

void device_import(struct device *device, int slab_fd, uint64_t slab_bytes) {
  struct error error = {0};
  device->slab_fd = slab_fd;
  device->slab_bytes = slab_bytes;
  check(device->ops->slab_import(device->backend, slab_fd, slab_bytes, &device->slab, &error), &error, "slab_import");
}

void device_close(struct device *device) {
  if (device->slab != NULL) {
    device->ops->slab_close(device->backend, device->slab);
  }
  device->ops->arena_unregister(device->backend, device->arena);
  device->ops->close(device->backend);
  munmap(device->base, ARENA_BYTES);
}

int device_kinds(const struct backend_ops *ops) {
  int count = 0;
  while (count < oracle_kinds_count && (ops->formats & 1u << oracle_kinds[count].format))
    count++;
  return count;
}

struct backend_weight *device_load(struct device *device, const struct oracle_weight *weight, uint64_t offset) {
  struct backend_plan plan = {0};
  struct backend_weight *handle = NULL;
  struct error error = {0};
  check(device->ops->weight_plan(device->backend, &weight->shape, &plan, &error), &error, "weight_plan");
  assert_true(plan.align > 0 && offset % plan.align == 0);
  assert_true(offset + plan.bytes <= device->slab_bytes);
  check(device->ops->weight_store(device->backend, &weight->shape, weight->canonical, device->slab, offset, &error),
        &error, "weight_store");
  check(device->ops->weight_attach(device->backend, &weight->shape, plan.layout, device->slab, offset, &handle, &error),
        &error, "weight_attach");
  return handle;
}

void *device_keep(struct device *device, const void *data, uint64_t bytes) {
  device->kept += gemm_round_up(bytes, GEMM_SECTION);
  assert_true(device->kept <= ARENA_BYTES / 8);
  return memcpy(device->base + ARENA_BYTES - device->kept, data, bytes);
}

/* The next tensor begins at an odd multiple of 16: what the contract promises, and no more. */
static uint64_t place(uint64_t *used, uint64_t bytes) {
  uint64_t offset = ((*used + GUARD_BYTES + 31) & ~(uint64_t)31) + 16;
  *used = offset + bytes + GUARD_BYTES;
  assert_true(*used <= ARENA_BYTES - ARENA_BYTES / 8);
  return offset;
}

void device_poison(void *at, uint64_t bytes) {
  for (uint8_t *p = at; p < (uint8_t *)at + bytes; p++) {
    *p = (uintptr_t)p % 2 == 0 ? POISON & 255 : POISON >> 8;
  }
}

int64_t device_rows(const struct device_request *request) {
  const struct backend_experts *experts = &request->experts;
  return experts->top > 0 && !experts->sum ? request->m * experts->top : request->m;
}

/* Copies ids and routing to where the request's x lies, behind all else. */
static void stage_experts(struct device *device, const struct device_request *request, uint64_t *used) {
  const struct backend_experts *from = &request->experts;
  uint64_t pairs = (uint64_t)(request->m * from->top), ids_at = place(used, pairs * sizeof(*from->ids));
  uint64_t routing_at = place(used, from->routing != NULL ? pairs * sizeof(*from->routing) : 0);
  device->experts = *from;
  device->experts.ids = memcpy(device->base + ids_at, from->ids, pairs * sizeof(*from->ids));
  if (from->routing != NULL) {
    device->experts.routing = memcpy(device->base + routing_at, from->routing, pairs * sizeof(*from->routing));
  }
}

struct backend_job device_stage(struct device *device, const struct device_request *request) {
  const struct oracle_x *x = request->x;
  uint64_t n = (uint64_t)request->shape->n, m = (uint64_t)request->m, used = 0;
  uint64_t x_size = gemm_type_bytes(x->type), y_size = gemm_type_bytes(request->y_type);
  uint64_t x_row = (uint64_t)x->k * x_size, y_rows = (uint64_t)device_rows(request);
  uint64_t x_rows = request->experts.x_pairs ? m * (uint64_t)request->experts.top : m;
  uint64_t matrices = request->experts.top > 0 ? (uint64_t)gemm_matrices(request->shape) : 1;
  struct backend_job job = {.tag = m << 32 | n,
                            .weight = request->weight,
                            .arena = device->arena,
                            .m = request->m,
                            .x_type = x->type,
                            .y_type = request->y_type,
                            .bias_type = request->bias_type,
                            .variant = request->variant,
                            .steps = request->steps,
                            .step_count = request->step_count,
                            .x_stride = x_row + (uint64_t)request->x_extra * x_size,
                            .y_stride = (n + (uint64_t)request->y_extra) * y_size};
  uint64_t bias_bytes = request->bias != NULL ? matrices * n * gemm_type_bytes(request->bias_type) : 0;
  uint64_t scale_bytes = x->scales != NULL ? m * (uint64_t)x->scale_columns * sizeof(float) : 0;
  uint64_t x_at = place(&used, x_rows * job.x_stride), bias_at = place(&used, bias_bytes);
  uint64_t scale_at = place(&used, scale_bytes), y_at = place(&used, y_rows * job.y_stride);
  device_poison(device->base, used / 2 * 2);
  if (request->experts.top > 0) {
    stage_experts(device, request, &used);
    job.experts = &device->experts;
  }
  for (uint64_t row = 0; row < x_rows; row++) {
    memcpy(device->base + x_at + row * job.x_stride, (const uint8_t *)x->data + row * x_row, x_row);
  }
  job.x = device->base + x_at;
  job.y = device->base + y_at;
  if (request->bias != NULL) {
    job.bias = memcpy(device->base + bias_at, request->bias, bias_bytes);
  }
  if (x->scales != NULL && request->y_type != GEMM_S32) {
    job.x_scale = memcpy(device->base + scale_at, x->scales, scale_bytes);
  }
  return job;
}

void device_finish(struct device *device, const struct backend_job *job) {
  struct backend_done done = {0};
  struct error error = {0};
  check(device->ops->submit(device->backend, job, &error), &error, "submit");
  while (device->ops->poll(device->backend, &done, 1) == 0) {
  }
  assert_int_equal(done.tag, job->tag);
  assert_int_equal(done.status, STATUS_OK);
  device->skipped = done.skipped;
}

static void check_untouched(const uint8_t *begin, const uint8_t *end, const char *where) {
  for (const uint8_t *p = begin; p < end; p++) {
    if (*p != ((uintptr_t)p % 2 == 0 ? POISON & 255 : POISON >> 8)) {
      fail_msg("a byte was written %s", where);
    }
  }
}

static void check_written(const uint8_t *row, uint64_t n, uint64_t size, uint64_t row_index) {
  static const uint16_t poison[2] = {POISON, POISON};
  for (uint64_t i = 0; i < n; i++) {
    if (memcmp(row + i * size, poison, size) == 0) {
      fail_msg("y[%llu, %llu] was not written", (unsigned long long)row_index, (unsigned long long)i);
    }
  }
}

void *device_collect(struct device *device, const struct device_request *request, const struct backend_job *job) {
  uint64_t m = (uint64_t)device_rows(request), n = (uint64_t)request->shape->n, size = gemm_type_bytes(request->y_type);
  const uint8_t *y = job->y, *end = y + m * job->y_stride;
  uint8_t *out = malloc(m * n * size);
  assert_non_null(out);
  assert_true(end + GUARD_BYTES <= device->base + ARENA_BYTES);
  check_untouched(y - GUARD_BYTES, y, "before y");
  for (uint64_t row = 0; row < m; row++) {
    const uint8_t *begin = y + row * job->y_stride;
    check_untouched(begin + n * size, begin + job->y_stride, "between rows of y");
    check_written(begin, n, size, row);
    memcpy(out + row * n * size, begin, n * size);
  }
  check_untouched(end, end + GUARD_BYTES, "after y");
  return out;
}

void *device_run(struct device *device, const struct device_request *request) {
  struct backend_job job = device_stage(device, request);
  device_finish(device, &job);
  return device_collect(device, request, &job);
}

bool device_turn(struct device *device, struct backend_turns *turns, uint64_t budget_ns, struct backend_done *done) {
  struct error error = {.status = STATUS_OK};
  if (device->ops->turns_next != NULL)
    return !device->ops->turns_next(device->backend, turns, budget_ns, done, &error);
  enum status status = device->ops->turns_submit(device->backend, turns, budget_ns, &error);
  *done = (struct backend_done){.status = status};
  while (status == STATUS_OK && device->ops->poll(device->backend, done, 1) == 0) {
  }
  return done->goes_on;
}

int device_finish_by_turns(struct device *device, const struct backend_job *job, uint64_t budget_ns) {
  struct backend_turns *turns;
  struct backend_done done;
  struct error error = {0};
  int count = 1;
  check(device->ops->turns_begin(device->backend, job, 1, &turns, &error), &error, "turns_begin");
  while (device_turn(device, turns, budget_ns, &done)) {
    count++;
  }
  assert_int_equal(done.status, STATUS_OK);
  device->skipped = done.skipped;
  return count;
}

void *device_run_chain(struct device *device, const struct device_request *request, int64_t rows_most) {
  struct backend_job whole = device_stage(device, request);
  struct backend_job *parts = calloc((size_t)request->m, sizeof(*parts)), *odd = NULL, **odd_end = &odd, *last = NULL;
  assert_non_null(parts);
  int count = 0;
  for (int64_t row = 0; row < request->m; row += parts[count++].m) {
    struct backend_job *part = &parts[count];
    int64_t m = count % rows_most + 1;
    *part = whole;
    part->m = m < request->m - row ? m : request->m - row;
    part->x = (const uint8_t *)whole.x + (uint64_t)row * whole.x_stride;
    part->y = (uint8_t *)whole.y + (uint64_t)row * whole.y_stride;
    if (whole.x_scale != NULL) {
      part->x_scale = (const float *)whole.x_scale + row * request->x->scale_columns;
    }
    if (count % 2 == 1) {
      *odd_end = part;
      odd_end = (struct backend_job **)(void *)&part->next;
    } else {
      if (last != NULL) {
        last->next = part;
      }
      last = part;
    }
  }
  last->next = odd;
  device_finish(device, &parts[0]);
  void *y = device_collect(device, request, &whole);
  free(parts);
  return y;
}

static struct {
  struct device *device;
  const struct backend_ops *ops;
  uint64_t slab_bytes;
} group_now;

void device_group(struct device *device, const struct backend_ops *ops, uint64_t slab_bytes) {
  group_now.device = device;
  group_now.ops = ops;
  group_now.slab_bytes = slab_bytes;
}

int device_group_open(void **state) {
  enum { IN_FLIGHT = 4 };
  device_open(group_now.device, group_now.ops, IN_FLIGHT, group_now.slab_bytes);
  return 0;
}

int device_group_close(void **state) {
  device_close(group_now.device);
  return close(group_now.device->slab_fd);
}

int device_groups(int count, char **arguments, int (*group)(const struct backend_ops *ops)) {
  const char *only = count > 1 ? arguments[1] : getenv("GEMMD_TEST_BACKEND");
  int failed = 0, groups = 0;
  cmocka_set_test_filter(count > 2 ? arguments[2] : NULL);
  for (int i = 0; backend_table[i] != NULL; i++) {
    const struct backend_ops *ops = backend_table[i];
    struct backend_config config = {.in_flight = 1};
    struct error error = {0};
    if (only != NULL && strcmp(only, ops->name) != 0) {
      continue;
    }
    if (ops->devices(&config, &error) <= 0) {
      print_message("%s: not tested: %s\n", ops->name, error.text);
      continue;
    }
    groups++;
    failed += group(ops);
  }
  if (groups == 0) {
    print_message("no backend was tested (%s)\n", only != NULL ? only : "none has a device");
  }
  return failed > 0 || groups == 0;
}
