#include "config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
  FRAGMENT = 16,        /* rows of a matrix instruction, and of W that are loaded at a time */
  FRAGMENT_BYTES = 32,  /* of K */
  ROW_PADDING = 16,     /* bytes behind a row in shared memory */
  STRIP_PADDING = 4,    /* sums behind a row of a strip */
  REGISTERS = 65536,    /* of a multiprocessor */
  REGISTERS_MOST = 255, /* of a thread */
  /* Of a thread beside sums and fragments, as compiled: addresses, the plan of copies, scales. */
  REGISTERS_OTHER = 48,
  REGISTERS_FP8 = 76, /* sums that leave the tensor core at once */
  /* The same where the instruction is made of others, which the compiler has all of a step's under way of. */
  REGISTERS_FP8_MADE = 100,
  REGISTERS_CODES = 40, /* codes, what is made of them, scales */
  UNIT_BYTES = 544,     /* of shared memory for 16 rows of 128 codes and their scales */
  CHANGES_MOST = 3,
  TILE_CODES = 4, /* elements from here on are with W of 2-bit codes */
};
#define BLOCKS_MOST ((int64_t)0x7fffffff) /* of a launch */

const struct variant_family tile_family = {
    .name = "tile",
    .count = 8,
    .parameters =
        {
            [TILE_BLOCK_M] = {"block_m", "rows of x in a tile", 16, 512, 16, 128},
            [TILE_BLOCK_N] = {"block_n", "rows of W in a tile", 16, 512, 16, 128},
            [TILE_BLOCK_K] = {"block_k", "elements of K in a step", 16, 512, 16, 64},
            [TILE_GROUP_SIZE_M] = {"group_size_m", "tiles along M that follow each other", 1, 64, 1, 8},
            [TILE_NUM_WARPS] = {"num_warps", "that share a tile", 1, 16, 1, 4},
            [TILE_NUM_STAGES] = {"num_stages", "steps of K in shared memory", 1, 8, 1, 4},
            [TILE_SPLIT_K] = {"split_k", "slices of K", 1, 128, 1, 1},
            [TILE_SPLIT_K_MODE] = {"split_k_mode", "0: serial, 1: parallel, 2: parallel in y's type", 0, 2, 1, 0},
        },
};

/* Of x. */
static int element_bytes(enum gemm_format format) {
  return gemm_quantizes_x(format) ? 1 : 2;
}

/* ELEMENT of tile/kernel.cuh. */
static int element_of(const struct kernel_problem *problem) {
  switch (problem->format) {
  case GEMM_FORMAT_INT8:
    return 0;
  case GEMM_FORMAT_FP8:
    return 1;
  case GEMM_FORMAT_F16:
    return 2;
  case GEMM_FORMAT_BF16:
    return 3;
  case GEMM_FORMAT_INT2:
    return problem->x_type == GEMM_F16 ? 4 : 5;
  default:
    return 6;
  }
}

/* Elements of K that an instruction takes, or that have one scale. */
static int element_step(enum gemm_format format) {
  return gemm_is_int2(format) ? GEMM_GROUP : FRAGMENT_BYTES / element_bytes(format);
}

/* Whether the kernel takes the weight at all, with any parameters. UNSUPPORTED with the reason. */
static enum status tile_takes(const struct kernel_problem *problem, struct error *error) {
  int capability = problem->device.capability;
  bool fp8 = problem->format == GEMM_FORMAT_FP8;
  if (gemm_is_packed(problem->format) && !gemm_is_int2(problem->format))
    return error_set(error, STATUS_UNSUPPORTED, "family tile does not take %s", gemm_format_name(problem->format));
  if (gemm_is_int2(problem->format) && !problem->tiled)
    return error_set(error, STATUS_UNSUPPORTED,
                     "family tile takes INT2 of 128 rows or more and INT2A8, on devices that have them in tiles");
  if (problem->format == GEMM_FORMAT_INT2 && problem->x_type != GEMM_F16 && problem->x_type != GEMM_BF16)
    return error_set(error, STATUS_UNSUPPORTED, "family tile takes x of f16 or bf16 with INT2 weights, not of %s",
                     gemm_type_name(problem->x_type));
  if (fp8 && problem->scale == GEMM_SCALE_BLOCK)
    return error_set(error, STATUS_UNSUPPORTED, "family tile takes FP8 with one scale or one a row, not with blocks");
  if (fp8 && capability < 89)
    return error_set(error, STATUS_UNSUPPORTED, "FP8 needs compute capability 8.9, this device has %d.%d",
                     capability / 10, capability % 10);
  return STATUS_OK;
}

/* ---- what a combination needs */

enum reason { FITS, STEP, WARPS, THREAD_REGISTERS, SHARED, SLICES, WORKSPACE, BLOCKS };

struct needs {
  enum reason reason;
  int registers, registers_most;
  struct tile_plan plan;
};

/* How warps share a tile: in whole fragments, so that the least is loaded twice. False where they cannot. */
static bool share_tile(int block_m, int block_n, int warps, struct tile_plan *plan) {
  int best = 0;
  for (int m = 1; m <= warps; m++) {
    int n = warps / m;
    if (m * n != warps || block_m / FRAGMENT % m != 0 || block_n / FRAGMENT % n != 0)
      continue;
    int loaded = block_m / m + block_n / n;
    if (best == 0 || loaded <= best) {
      best = loaded;
      plan->warps_m = m;
      plan->warps_n = n;
    }
  }
  return best > 0;
}

static int shared_bytes(const int32_t *values, int row_bytes, const struct tile_plan *plan) {
  bool codes = plan->element >= TILE_CODES;
  int w_bytes = codes ? values[TILE_BLOCK_N] / FRAGMENT * (values[TILE_BLOCK_K] / GEMM_GROUP) * UNIT_BYTES
                      : values[TILE_BLOCK_N] * (row_bytes + ROW_PADDING);
  int ring = values[TILE_NUM_STAGES] * (values[TILE_BLOCK_M] * (row_bytes + ROW_PADDING) + w_bytes);
  int strips = values[TILE_NUM_WARPS] * FRAGMENT * (values[TILE_BLOCK_N] / plan->warps_n + STRIP_PADDING) * 4;
  return ring > strips ? ring : strips;
}

static int registers_most(int warps) {
  int most = REGISTERS / (32 * warps) / 8 * 8;
  return most < REGISTERS_MOST ? most : REGISTERS_MOST;
}

/* Of a thread, about: as compiled. */
static int registers_of(const struct kernel_problem *problem, const int32_t *values, int rows) {
  int sums = values[TILE_BLOCK_M] * values[TILE_BLOCK_N] / (32 * values[TILE_NUM_WARPS]);
  bool fp8 = problem->format == GEMM_FORMAT_FP8;
  if (fp8 && problem->device.capability == 90)
    return sums * values[TILE_BLOCK_K] / FRAGMENT_BYTES + 4 * rows + REGISTERS_FP8_MADE;
  return sums + 4 * rows + REGISTERS_OTHER + (fp8 ? REGISTERS_FP8 : 0) +
         (gemm_is_int2(problem->format) ? 8 * rows + REGISTERS_CODES : 0);
}

static struct needs find_needs(const struct kernel_problem *problem, const int32_t *values) {
  struct needs needs = {.reason = FITS};
  struct tile_plan *plan = &needs.plan;
  int block_m = values[TILE_BLOCK_M], block_n = values[TILE_BLOCK_N], warps = values[TILE_NUM_WARPS];
  int row_bytes = values[TILE_BLOCK_K] * element_bytes(problem->format);
  plan->tiles_m = (problem->m + block_m - 1) / block_m;
  plan->tiles_n = (problem->n_padded + block_n - 1) / block_n;
  plan->steps = (problem->k_padded + values[TILE_BLOCK_K] - 1) / values[TILE_BLOCK_K];
  plan->element = element_of(problem);
  if (values[TILE_BLOCK_K] % element_step(problem->format) != 0)
    return (struct needs){.reason = STEP};
  if (!share_tile(block_m, block_n, warps, plan))
    return (struct needs){.reason = WARPS};
  int rows = block_m / plan->warps_m / FRAGMENT;
  needs.registers = registers_of(problem, values, rows);
  needs.registers_most = registers_most(warps);
  plan->shared_bytes = shared_bytes(values, row_bytes, plan);
  bool slices = values[TILE_SPLIT_K] > 1, serial = values[TILE_SPLIT_K_MODE] == TILE_SERIAL;
  if (slices && serial)
    plan->turns_bytes = (uint64_t)(plan->tiles_m * plan->tiles_n + 1) * sizeof(int);
  if (slices && (!serial || plan->element >= TILE_CODES))
    plan->sums_bytes =
        (uint64_t)(serial ? 1 : values[TILE_SPLIT_K]) * (uint64_t)problem->m * (uint64_t)problem->n_padded * 4;
  plan->sums_offset = gemm_round_up(plan->turns_bytes, GEMM_SECTION);
  if (needs.registers > needs.registers_most)
    needs.reason = THREAD_REGISTERS;
  else if (plan->shared_bytes > problem->device.shared_most)
    needs.reason = SHARED;
  else if (values[TILE_SPLIT_K] > plan->steps)
    needs.reason = SLICES;
  else if (plan->sums_bytes + plan->sums_offset > problem->device.workspace_bytes)
    needs.reason = WORKSPACE;
  else if (plan->tiles_m * plan->tiles_n * values[TILE_SPLIT_K] > BLOCKS_MOST)
    needs.reason = BLOCKS;
  return needs;
}

enum status tile_plan(const struct kernel_problem *problem, const struct variant *variant, struct tile_plan *out,
                      struct error *error) {
  enum status status = tile_takes(problem, error);
  if (status != STATUS_OK)
    return status;
  const int32_t *values = variant->values;
  struct needs needs = find_needs(problem, values);
  *out = needs.plan;
  switch (needs.reason) {
  case FITS:
    return STATUS_OK;
  case STEP:
    return error_set(error, STATUS_UNSUPPORTED, "block_k %d: %s %d elements of %s", values[TILE_BLOCK_K],
                     gemm_is_int2(problem->format) ? "a scale is of" : "an instruction takes",
                     element_step(problem->format), gemm_format_name(problem->format));
  case WARPS:
    return error_set(error, STATUS_UNSUPPORTED, "num_warps %d cannot share a tile of %d x %d in pieces of %d x %d",
                     values[TILE_NUM_WARPS], values[TILE_BLOCK_M], values[TILE_BLOCK_N], FRAGMENT, FRAGMENT);
  case THREAD_REGISTERS:
    return error_set(
        error, STATUS_UNSUPPORTED, "a tile of %d x %d takes about %d registers a thread of %d warps, there are %d",
        values[TILE_BLOCK_M], values[TILE_BLOCK_N], needs.registers, values[TILE_NUM_WARPS], needs.registers_most);
  case SHARED:
    return error_set(error, STATUS_UNSUPPORTED,
                     "num_stages %d of this tile take %d bytes of shared memory, a block has %d",
                     values[TILE_NUM_STAGES], needs.plan.shared_bytes, problem->device.shared_most);
  case SLICES:
    return error_set(error, STATUS_UNSUPPORTED, "split_k %d: K %lld has %lld steps of block_k %d", values[TILE_SPLIT_K],
                     (long long)problem->k_padded, (long long)needs.plan.steps, values[TILE_BLOCK_K]);
  case WORKSPACE:
    return error_set(error, STATUS_UNSUPPORTED, "split_k %d: sums of slices take %llu KiB, the workspace has %llu",
                     values[TILE_SPLIT_K],
                     (unsigned long long)(needs.plan.sums_bytes + needs.plan.sums_offset + 1023) >> 10,
                     (unsigned long long)problem->device.workspace_bytes >> 10);
  case BLOCKS:
    break;
  }
  return error_set(error, STATUS_UNSUPPORTED,
                   "block_m %d, block_n %d and split_k %d make more blocks than a launch may have",
                   values[TILE_BLOCK_M], values[TILE_BLOCK_N], values[TILE_SPLIT_K]);
}

/* ---- the nearest that can run */

struct nearest {
  const struct kernel_problem *problem;
  const struct variant *asked;
  struct variant best, current;
  double best_distance; /* negative: none yet */
};

static double distance(const struct variant *a, const struct variant *b) {
  double sum = 0;
  for (int i = 0; i < TILE_SPLIT_K_MODE; i++)
    sum += fabs(log2((double)a->values[i] / b->values[i]));
  return sum + (a->values[TILE_SPLIT_K_MODE] != b->values[TILE_SPLIT_K_MODE]);
}

/* All combinations that differ from the one asked for in `changes` parameters from `first` on. */
static void look_near(struct nearest *search, int changes, int first) {
  if (changes == 0) {
    double far = distance(&search->current, search->asked);
    if ((search->best_distance < 0 || far < search->best_distance) &&
        find_needs(search->problem, search->current.values).reason == FITS) {
      search->best = search->current;
      search->best_distance = far;
    }
    return;
  }
  for (int i = first; i < (int)tile_family.count; i++) {
    const struct variant_parameter *parameter = &tile_family.parameters[i];
    int32_t asked = search->asked->values[i];
    if (i == TILE_GROUP_SIZE_M) /* any will do */
      continue;
    for (int32_t value = parameter->low; value <= parameter->high; value += parameter->step) {
      search->current.values[i] = value;
      if (value != asked)
        look_near(search, changes - 1, i + 1);
    }
    search->current.values[i] = asked;
  }
}

bool tile_nearest(const struct kernel_problem *problem, const struct variant *variant, struct variant *out) {
  struct error ignored;
  struct nearest search = {.problem = problem, .asked = variant, .current = *variant, .best_distance = -1};
  if (tile_takes(problem, &ignored) != STATUS_OK)
    return false;
  for (int changes = 1; changes <= CHANGES_MOST && search.best_distance < 0; changes++)
    look_near(&search, changes, 0);
  *out = search.best;
  return search.best_distance >= 0;
}

/* ---- slices */

/* Blocks that share a multiprocessor. */
static int64_t resident(const struct kernel_device *device, const struct needs *needs, int warps) {
  int64_t by_registers = REGISTERS / ((needs->registers + 7) / 8 * 8 * 32 * warps);
  int64_t by_shared = device->shared_most / (needs->plan.shared_bytes + 1024);
  int64_t fit = by_registers < by_shared ? by_registers : by_shared;
  return fit < 1 ? 1 : fit;
}

int64_t tile_resident(const struct kernel_problem *problem, const struct variant *variant) {
  struct needs needs = find_needs(problem, variant->values);
  return needs.reason == FITS ? resident(&problem->device, &needs, variant->values[TILE_NUM_WARPS]) : 1;
}

int tile_split_filling(const struct kernel_problem *problem, const struct variant *variant) {
  struct variant whole = *variant;
  whole.values[TILE_SPLIT_K] = 1;
  struct needs needs = find_needs(problem, whole.values);
  if (needs.reason != FITS)
    return 1;
  int64_t room = problem->device.multiprocessors * resident(&problem->device, &needs, whole.values[TILE_NUM_WARPS]);
  int64_t slices = room / (needs.plan.tiles_m * needs.plan.tiles_n), most = tile_family.parameters[TILE_SPLIT_K].high;
  most = needs.plan.steps < most ? needs.plan.steps : most;
  return (int)(slices < 1 ? 1 : slices > most ? most : slices);
}

static int add_split(const struct kernel_problem *problem, const struct variant *base, int slices, int mode,
                     struct variant *out, int count, int most) {
  struct variant variant = *base;
  variant.values[TILE_SPLIT_K] = slices;
  variant.values[TILE_SPLIT_K_MODE] = mode;
  memset(variant.ready, 0, sizeof variant.ready);
  if (count == most || find_needs(problem, variant.values).reason != FITS)
    return count;
  out[count] = variant;
  return count + 1;
}

int tile_splits(const struct kernel_problem *problem, const struct variant *base, bool all, struct variant *out,
                int most) {
  static const double around[] = {1, 0.5, 2, 0.75, 1.5, 0.25};
  const struct variant_parameter *parameter = &tile_family.parameters[TILE_SPLIT_K];
  int count = add_split(problem, base, 1, TILE_SERIAL, out, 0, most);
  int filling = tile_split_filling(problem, base);
  for (int32_t slices = 2; all && slices <= parameter->high; slices++)
    for (int mode = TILE_SERIAL; mode <= TILE_PARALLEL_Y; mode++)
      count = add_split(problem, base, slices, mode, out, count, most);
  for (size_t i = 0; !all && i < sizeof around / sizeof *around; i++) {
    int slices = (int)lround(filling * around[i]);
    for (int mode = TILE_SERIAL; slices > 1 && slices <= parameter->high && mode <= TILE_PARALLEL_Y; mode++)
      count = add_split(problem, base, slices, mode, out, count, most);
  }
  return count;
}

/* ---- the compiler */

void tile_options(const struct kernel_device *device, const struct variant *variant, const struct tile_plan *plan,
                  struct tile_options *out) {
  const int32_t *values = variant->values;
  const struct {
    const char *name;
    int value;
  } macros[] = {{"BLOCK_M", values[TILE_BLOCK_M]}, {"BLOCK_N", values[TILE_BLOCK_N]},
                {"BLOCK_K", values[TILE_BLOCK_K]}, {"WARPS_M", plan->warps_m},
                {"WARPS_N", plan->warps_n},        {"STAGES", values[TILE_NUM_STAGES]},
                {"ELEMENT", plan->element}};
  out->count = 0;
  for (size_t i = 0; i < sizeof macros / sizeof *macros; i++)
    snprintf(out->text[out->count++], TILE_OPTION_BYTES, "-D%s=%d", macros[i].name, macros[i].value);
  snprintf(out->text[out->count++], TILE_OPTION_BYTES, "-arch=sm_%d", device->capability);
}
