/* Products of operands that are made to do harm (tests/support/reference/adversary.h), by every kernel that can be
 * chosen, against float64 and the bounds that NUMERICS.md states. What fails is made smaller before it is told.
 *
 * Arguments as for test_conformance. GEMMD_ADVERSARIAL_SECONDS: so long instead of a few hundred products;
 * GEMMD_ADVERSARIAL_SEED: where to begin; GEMMD_ADVERSARIAL_ONLY: groups whose names begin so;
 * GEMMD_ADVERSARIAL_MEASURE: says what was seen, and fails nothing. */
#include "kernels/backend.h"
#include "tests/support/reference/adversary.h"
#include "tests/support/worker/device.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define SLAB_BYTES ((uint64_t)64 << 20)

enum {
  CASES = 40, /* of each format and scale mode, where no time is given */
  VARIANTS_MOST = 160,
  TRIED_MOST = 8, /* kernels of one case, beside the backend's choice */
  FAMILIES = 24,
  CHOSEN = 0, /* the backend's own choice, */
  TENSORS,    /* and that for W which comes with its product */
  OTHERS
};

static struct device device; /* of the group that runs */
static int kinds;            /* of weights, that it tries */

/* What was seen of one family of kernels. */
static struct seen {
  int64_t products, broken;
  double narrow, wide, sums; /* off / |y| where magnitudes add up to 16 times that, or 256; and beyond rounding / sum */
  double share;              /* off / what the bound allows */
  struct adversary_case worst;
  struct variant variant;
} seen[GEMM_FORMATS][GEMM_S32 + 1][FAMILIES];

/* A case as it is asked: its operands in the arena. */
struct trial {
  struct adversary_case what;
  struct oracle_weight weight;
  struct oracle_x x;
  float *bias;
  struct adversary_reference reference;
  struct adversary_bound bound;
  struct backend_operand operand;
  struct backend_job job;
};

static bool fits(const struct adversary_case *what) {
  uint64_t x = (uint64_t)(what->m * what->shape.k) * 4, w = (uint64_t)(what->shape.n * what->shape.k) * 2;
  return x + w + (uint64_t)(what->m * what->shape.n) * 8 + (1 << 20) < DEVICE_ARENA_BYTES;
}

static uint8_t *lay(uint64_t *used, const void *data, uint64_t bytes) {
  uint8_t *at = device.base + *used;
  *used = (*used + bytes + 255) / 256 * 256;
  assert_true(*used <= DEVICE_ARENA_BYTES);
  return data != NULL ? memcpy(at, data, bytes) : at;
}

/* `tensors`: W comes with the product. */
static void trial_begin(struct trial *trial, const struct adversary_case *what, bool tensors) {
  const struct gemm_weight *shape = &what->shape;
  uint64_t used = 0, m = (uint64_t)what->m;
  *trial = (struct trial){.what = *what};
  trial->bound = adversary_bound(strcmp(device.ops->name, "cpu") != 0, shape, what->y_type);
  adversary_weight(what, &trial->weight);
  adversary_x(what, &trial->x);
  trial->bias = adversary_bias(what);
  adversary_compute(what, &trial->weight, &trial->x, trial->bias, &trial->reference);
  struct backend_job *job = &trial->job;
  *job = (struct backend_job){.tag = 1,
                              .arena = device.arena,
                              .m = what->m,
                              .x_type = what->x_type,
                              .y_type = what->y_type,
                              .bias_type = what->bias_type,
                              .x_stride = (uint64_t)shape->k * gemm_type_bytes(what->x_type),
                              .y_stride = (uint64_t)shape->n * gemm_type_bytes(what->y_type)};
  job->x = lay(&used, trial->x.data, m * job->x_stride);
  job->y = lay(&used, NULL, m * job->y_stride);
  if (trial->bias != NULL)
    job->bias = lay(&used, trial->bias, (uint64_t)shape->n * sizeof(float));
  if (trial->x.scales != NULL && what->y_type != GEMM_S32)
    job->x_scale = (const float *)(void *)lay(&used, trial->x.scales, m * (uint64_t)trial->x.scale_columns * 4);
  if (tensors) {
    trial->operand = (struct backend_operand){
        .shape = *shape,
        .w = lay(&used, trial->weight.canonical, trial->weight.layout.codes_bytes),
        .stride = trial->weight.layout.row_bytes,
    };
    job->operand = &trial->operand;
  } else {
    job->weight = device_load(&device, &trial->weight, 0);
  }
}

static void trial_end(struct trial *trial) {
  if (trial->job.weight != NULL)
    device.ops->weight_detach(device.backend, trial->job.weight);
  adversary_reference_free(&trial->reference);
  free(trial->bias);
  oracle_x_free(&trial->x);
  oracle_weight_free(&trial->weight);
}

static bool measures(void) {
  return getenv("GEMMD_ADVERSARIAL_MEASURE") != NULL;
}

static void note_worst(const struct seen *notes) {
  char text[256], name[VARIANT_TEXT_BYTES];
  if (!measures() || notes->sums < 1e-5)
    return;
  adversary_text(&notes->worst, text);
  print_message("  # %.2e of the sum: %s, by %s\n", notes->sums, text, variant_text(&notes->variant, name));
}

/* Computes it by one kernel; the row that is off by more than the bound, -1: none is. */
static int64_t trial_run(struct trial *trial, const struct variant *variant, struct seen *notes) {
  const struct adversary_case *what = &trial->what;
  uint64_t row_bytes = trial->job.y_stride;
  int64_t failed = -1;
  trial->job.variant = variant;
  device_poison(trial->job.y, (uint64_t)what->m * row_bytes);
  device_finish(&device, &trial->job);
  for (int64_t m = 0; m < what->m; m++) {
    const struct adversary_bound *bound = &trial->bound;
    struct adversary_row row =
        adversary_judge(what, bound, &trial->reference, m, (const uint8_t *)trial->job.y + (uint64_t)m * row_bytes);
    if (!(row.off <= adversary_allowed(bound, &row)))
      failed = m;
    if (notes == NULL || row.value == 0)
      continue;
    if (isinf(row.off)) {
      notes->broken++;
      continue;
    }
    notes->share = fmax(notes->share, row.off / adversary_allowed(bound, &row));
    double off = row.off / row.value, sums = fmax(0, row.off - bound->value * row.value) / row.size;
    notes->narrow = row.size <= 16 * row.value ? fmax(notes->narrow, off) : notes->narrow;
    notes->wide = row.size <= 256 * row.value ? fmax(notes->wide, off) : notes->wide;
    if (sums > notes->sums) {
      notes->sums = sums;
      notes->worst = *what;
      notes->variant = variant != NULL ? *variant : (struct variant){.family = NULL};
      note_worst(notes);
    }
  }
  return failed;
}

/* Whether a smaller case fails by the same kernel; *row: where. */
static bool still_fails(const struct adversary_case *what, const struct variant *variant, bool tensors, int64_t *row) {
  struct trial trial;
  struct variant_problem problem = {.weight = what->shape,
                                    .m = variant_bucket(what->m),
                                    .x_type = what->x_type,
                                    .y_type = what->y_type,
                                    .bias_type = what->bias_type};
  struct variant copy = variant != NULL ? *variant : (struct variant){.family = NULL};
  struct error error;
  bool can = variant == NULL || device.ops->variant_check(device.backend, &problem, &copy, NULL, &error) == STATUS_OK;
  if (!can || what->shape.n < 1 || what->shape.k < 1)
    return false;
  trial_begin(&trial, what, tensors);
  *row = trial_run(&trial, variant != NULL ? &copy : NULL, NULL);
  trial_end(&trial);
  return *row >= 0;
}

static void tell(const struct adversary_case *found, const struct variant *variant, bool tensors, int64_t row) {
  enum { TRIES_MOST = 200 };
  struct adversary_case what = *found, smaller;
  char text[256], name[VARIANT_TEXT_BYTES];
  for (int tries = 0, step = 0; tries < TRIES_MOST && adversary_smaller(&what, row, step, &smaller); tries++) {
    int64_t failed;
    bool same = memcmp(&smaller, &what, sizeof what) == 0;
    if (!same && still_fails(&smaller, variant, tensors, &failed)) {
      what = smaller;
      row = failed;
      step = 0;
    } else {
      step++;
    }
  }
  adversary_text(&what, text);
  struct trial trial;
  trial_begin(&trial, &what, tensors);
  (void)trial_run(&trial, variant, NULL);
  struct adversary_row off = adversary_judge(&what, &trial.bound, &trial.reference, row,
                                             (const uint8_t *)trial.job.y + (uint64_t)row * trial.job.y_stride);
  double first = oracle_element(trial.job.y, row * what.shape.n, what.y_type);
  double sum = trial.reference.sums[row * what.shape.n];
  trial_end(&trial);
  fail_msg(
      "%s%s, by %s: row %lld is off by %.3g, where |y| is %.3g and magnitudes add up to %.3g; y begins with %.9g in "
      "place of %.9g",
      text, tensors ? " (W with its product)" : "", variant != NULL ? variant_text(variant, name) : "what is chosen",
      (long long)row, off.off, off.value, off.size, first, sum);
}

static void one(struct trial *trial, const struct variant *variant, int family) {
  struct seen *notes = &seen[trial->what.shape.format][trial->what.y_type][family];
  int64_t row = trial_run(trial, variant, notes);
  notes->products++;
  if (row < 0 || measures())
    return;
  struct adversary_case what = trial->what;
  struct variant copy = variant != NULL ? *variant : (struct variant){.family = NULL};
  bool tensors = trial->job.operand != NULL;
  trial_end(trial);
  tell(&what, variant != NULL ? &copy : NULL, tensors, row);
}

static int family_place(const struct variant *variant) {
  int place = 0;
  while (device.ops->families[place] != NULL && device.ops->families[place] != variant->family)
    place++;
  return OTHERS + place < FAMILIES ? OTHERS + place : FAMILIES - 1;
}

/* What the tuner's own comparison refuses is not asked for: a library's FP8 sums but where y is bf16. */
static bool may_serve(const struct adversary_case *what, const struct variant *variant) {
  return !variant->family->library || strcmp(device.ops->name, "cpu") == 0 || what->shape.format != GEMM_FORMAT_FP8 ||
         what->y_type == GEMM_BF16 || measures();
}

/* One of each family that is not offered, because others are faster on this device. Returns how many there are then. */
static int add_unoffered(const struct variant_problem *problem, struct variant *variants, int count) {
  int offered = count;
  for (int i = 0; device.ops->families[i] && count < VARIANTS_MOST; i++) {
    struct variant variant = variant_default(device.ops->families[i]), nearest = {0};
    struct error error;
    bool has = device.ops->variant_foreign != NULL && device.ops->variant_foreign(&variant);
    for (int j = 0; j < offered && !has; j++)
      has = variants[j].family == variant.family;
    if (has)
      continue;
    if (device.ops->variant_check(device.backend, problem, &variant, &nearest, &error) == STATUS_OK)
      variants[count++] = variant;
    else if (nearest.family == variant.family)
      variants[count++] = nearest;
  }
  return count;
}

static void all_kernels(struct trial *trial, uint64_t *state) {
  const struct adversary_case *what = &trial->what;
  struct variant variants[VARIANTS_MOST];
  struct variant_problem problem = {.weight = what->shape,
                                    .m = variant_bucket(what->m),
                                    .x_type = what->x_type,
                                    .y_type = what->y_type,
                                    .bias_type = what->bias_type};
  struct error error;
  variants[0] = variant_default(&variant_plain);
  int count = 1 + device.ops->variants(device.backend, &problem, NULL, false, variants + 1, VARIANTS_MOST - 1);
  count = add_unoffered(&problem, variants, count);
  if (device.ops->library_variants != NULL && (gemm_is_wide(what->shape.format) || oracle_random(state) % 4 == 0))
    count += device.ops->library_variants(device.backend, &problem, false, variants + count, VARIANTS_MOST - count);
  for (int tried = 0; tried < TRIED_MOST && count > 0; tried++) {
    int place = tried < 2 ? 0 : (int)(oracle_random(state) % (uint64_t)count);
    struct variant variant = variants[place];
    variants[place] = variants[--count];
    if (may_serve(what, &variant) &&
        device.ops->variant_check(device.backend, &problem, &variant, NULL, &error) == STATUS_OK)
      one(trial, &variant, family_place(&variant));
  }
}

static void one_case(const struct adversary_case *what, uint64_t *state) {
  struct trial trial;
  bool tensors = gemm_is_wide(what->shape.format) && oracle_random(state) % 2 == 0;
  trial_begin(&trial, what, tensors);
  one(&trial, NULL, tensors ? TENSORS : CHOSEN);
  if (!tensors)
    all_kernels(&trial, state);
  trial_end(&trial);
}

static uint64_t number_of(const char *name, uint64_t fallback) {
  const char *text = getenv(name);
  return text != NULL ? strtoull(text, NULL, 10) : fallback;
}

static double now_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void adversarial(void **state) {
  const struct oracle_kind *kind = *state;
  double seconds = (double)number_of("GEMMD_ADVERSARIAL_SECONDS", 0) / kinds, begin = now_s();
  uint64_t seed = number_of("GEMMD_ADVERSARIAL_SEED", 1) << 32 | (uint64_t)(kind - oracle_kinds) << 28;
  for (int i = 0; seconds > 0 ? now_s() - begin < seconds : i < CASES; i++) {
    uint64_t random = ++seed;
    int64_t terms = seconds == 0
                        ? 1 << 18
                        : (int64_t)1 << (oracle_random(&random) % 64 == 0 ? 25 : 10 + oracle_random(&random) % 8);
    struct adversary_case what;
    adversary_draw(seed, kind->format, kind->scale, terms, &what);
    if (fits(&what))
      one_case(&what, &random);
  }
}

static void table(void) {
  print_message("%-6s %-4s %-10s %8s %6s %9s %9s %9s %6s\n", "W", "y", "by", "products", "broken", "/y (16)",
                "/y (256)", "/sum", "/bound");
  for (int i = 0; i < GEMM_FORMATS * (GEMM_S32 + 1) * FAMILIES; i++) {
    int format = i / FAMILIES / (GEMM_S32 + 1), y_type = i / FAMILIES % (GEMM_S32 + 1), family = i % FAMILIES;
    const struct seen *each = &seen[format][y_type][family];
    if (each->products == 0)
      continue;
    const char *by = family == CHOSEN    ? "chosen"
                     : family == TENSORS ? "tensors"
                                         : device.ops->families[family - OTHERS]->name;
    print_message("%-6s %-4s %-10s %8lld %6lld %9.2e %9.2e %9.2e %6.3f\n", gemm_format_name((enum gemm_format)format),
                  gemm_type_name((enum gemm_type)y_type), by, (long long)each->products, (long long)each->broken,
                  each->narrow, each->wide, each->sums, each->share);
  }
}

static int run_group(const struct backend_ops *ops) {
  enum { KINDS_MOST = GEMM_FORMATS * 4 };
  static char names[KINDS_MOST][32];
  const char *only = getenv("GEMMD_ADVERSARIAL_ONLY");
  struct CMUnitTest tests[KINDS_MOST];
  kinds = 0;
  for (int i = 0; i < device_kinds(ops); i++) {
    const struct oracle_kind *kind = &oracle_kinds[i];
    assert_true(i < KINDS_MOST);
    snprintf(names[i], sizeof *names, "%s_%s", gemm_format_name(kind->format), gemm_scale_name(kind->scale));
    if (only == NULL || strncmp(names[i], only, strlen(only)) == 0)
      tests[kinds++] =
          (struct CMUnitTest){.name = names[i], .test_func = adversarial, .initial_state = (void *)(uintptr_t)kind};
  }
  memset(seen, 0, sizeof seen);
  device_group(&device, ops, SLAB_BYTES);
  int failed = _cmocka_run_group_tests(ops->name, tests, (size_t)kinds, device_group_open, device_group_close);
  table();
  return failed;
}

int main(int count, char **arguments) {
  return device_groups(count, arguments, run_group);
}
