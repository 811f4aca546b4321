#include "prove.h"

#include "../tune/tune_trial.h"
#include "throttle.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LINE_BYTES = VARIANT_TEXT_BYTES + 2 };

/* A device of its own, with one weight of random codes. */
struct stand {
  const struct backend_ops *ops;
  struct backend *backend;
  int slab_fd;
  struct backend_slab *slab;
  struct backend_weight *weight;
  struct trial trial;
  int share; /* of a core, for compiling, in thousandths */
};

/* ---- a weight of random codes */

static uint64_t next_random(uint64_t *state) { /* xorshift64 (Marsaglia, 2003) */
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

/* Any bits are a code of integers; floats stay below 2 and are finite. */
static void fill_codes(enum gemm_type element, uint8_t *codes, uint64_t bytes) {
  uint64_t state = 0x9e3779b97f4a7c15u, keep = UINT64_MAX, set = 0;
  if (element == GEMM_E4M3)
    keep = 0xbfbfbfbfbfbfbfbfu;
  if (element == GEMM_F16)
    keep = 0x83ff83ff83ff83ffu, set = 0x3800380038003800u;
  if (element == GEMM_BF16)
    keep = 0x807f807f807f807fu, set = 0x3f003f003f003f00u;
  for (uint64_t i = 0; i < bytes; i += 8) {
    uint64_t word = (next_random(&state) & keep) | set;
    memcpy(codes + i, &word, bytes - i < 8 ? bytes - i : 8);
  }
}

static void *make_canonical(const struct gemm_weight *weight, struct error *error) {
  struct gemm_layout layout;
  if (gemm_layout_compute(weight, &layout, error) != STATUS_OK)
    return NULL;
  uint8_t *canonical = calloc(1, layout.total_bytes);
  if (canonical == NULL) {
    (void)error_set(error, STATUS_NOMEM, "no memory for a random weight");
    return NULL;
  }
  fill_codes(gemm_format_facts(weight->format)->element, canonical, layout.codes_bytes);
  for (uint64_t i = 0; i < layout.scale_count; i++)
    gemm_scale_put(gemm_scale_type(weight), canonical + layout.scales_offset, i, 0.001f * (float)(1 + i % 7));
  if (layout.zeros_bytes > 0)
    memset(canonical + layout.zeros_offset, gemm_scale_facts(weight->scale)->zeros_f16 ? 0x47 : 7, layout.zeros_bytes);
  for (uint64_t i = 0; i < layout.factors_bytes / sizeof(float); i++)
    gemm_scale_put(GEMM_F32, canonical + layout.factors_offset, i, 0.25f * (float)(1 + i % 5));
  return canonical;
}

static enum status store(struct stand *stand, const struct gemm_weight *weight, const void *canonical,
                         struct error *error) {
  struct backend_plan plan;
  struct backend_info info;
  enum status status = stand->ops->weight_plan(stand->backend, weight, &plan, error);
  if (status != STATUS_OK)
    return status;
  stand->ops->describe(stand->backend, &info);
  uint64_t bytes = (plan.bytes + info.slab_granularity - 1) / info.slab_granularity * info.slab_granularity;
  status = stand->ops->slab_create(stand->backend, bytes, &stand->slab_fd, &stand->slab, error);
  if (status == STATUS_OK)
    status = stand->ops->weight_store(stand->backend, weight, canonical, stand->slab, 0, error);
  if (status == STATUS_OK)
    status = stand->ops->weight_attach(stand->backend, weight, plan.layout, stand->slab, 0, &stand->weight, error);
  return status;
}

/* ---- the stand */

static enum status run_trial(struct stand *stand, const struct variant *variant, bool *right, char *why,
                             size_t why_bytes, struct error *error) {
  bool done = false;
  enum status status = STATUS_OK;
  trial_compare(&stand->trial, variant);
  while (status == STATUS_OK && !done)
    status = trial_compare_next(&stand->trial, &done, right, why, why_bytes, error);
  return status;
}

/* All that is to be computed with, and the backend's own choice compared, which others are measured by. */
static enum status set_up(struct stand *stand, const struct variant_problem *problem, uint64_t arena_bytes,
                          struct error *error) {
  struct trial *trial = &stand->trial;
  const struct variant own = {.family = NULL};
  char why[128];
  bool ready = false, right = false;
  void *canonical = make_canonical(&problem->weight, error);
  if (canonical == NULL)
    return error->status;
  enum status status = store(stand, &problem->weight, canonical, error);
  free(canonical);
  if (status != STATUS_OK)
    return status;
  *trial = (struct trial){.ops = stand->ops, .backend = stand->backend, .bytes = arena_bytes};
  trial->base = mmap(NULL, arena_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (trial->base == MAP_FAILED)
    return error_set(error, STATUS_NOMEM, "no memory for x and y: %s", strerror(errno));
  status = stand->ops->arena_register(stand->backend, trial->base, arena_bytes, &trial->arena, error);
  if (status == STATUS_OK)
    status = trial_start(trial, problem, stand->weight, error);
  while (status == STATUS_OK && !ready)
    status = trial_prepare(trial, &ready, error);
  if (status == STATUS_OK)
    status = run_trial(stand, &own, &right, why, sizeof why, error);
  if (status == STATUS_OK && !right)
    status = error_set(error, STATUS_UNSUPPORTED, "the backend's own choice is wrong: %s", why);
  return status;
}

/* What was opened; a lost device keeps it, and the process ends anyway. */
static void put_away(struct stand *stand) {
  const struct backend_ops *ops = stand->ops;
  if (stand->trial.arena != NULL)
    ops->arena_unregister(stand->backend, stand->trial.arena);
  if (stand->weight != NULL)
    ops->weight_detach(stand->backend, stand->weight);
  if (stand->slab != NULL) {
    ops->slab_close(stand->backend, stand->slab);
    close(stand->slab_fd);
  }
  ops->close(stand->backend);
}

/* ---- one variant after the other */

static bool read_line(FILE *in, char line[LINE_BYTES]) {
  if (fgets(line, LINE_BYTES, in) == NULL)
    return false;
  line[strcspn(line, "\n")] = '\0';
  return line[0] != '\0';
}

/* The word on one variant. DEVICE_LOST, with no word, is the only failure: like death, it is blamed on this one. */
static enum status judge(struct stand *stand, const struct variant_problem *problem, const char *text, FILE *out) {
  struct variant variant;
  struct error error;
  char why[128] = "";
  bool right = false, computes = false;
  enum status status = variant_parse(stand->ops->families, text, &variant, &error);
  throttle_begin(stand->share);
  if (status == STATUS_OK)
    status = stand->ops->variant_build(stand->backend, problem, &variant, &error);
  throttle_end();
  if (status == STATUS_OK)
    status = stand->ops->variant_check(stand->backend, problem, &variant, NULL, &error);
  computes = status == STATUS_OK;
  if (computes)
    status = run_trial(stand, &variant, &right, why, sizeof why, &error);
  if (status == STATUS_DEVICE_LOST) {
    fprintf(stderr, "%s: %s\n", text, error.text);
    return status;
  }
  if (status == STATUS_OK && right)
    fprintf(out, "right\n");
  else if (status == STATUS_UNSUPPORTED && !computes)
    fprintf(out, "refused %s\n", error.text);
  else
    fprintf(out, "wrong %s\n", status == STATUS_OK ? why : error.text);
  fflush(out);
  return STATUS_OK;
}

int prove_run(const struct backend_ops *ops, const struct backend_config *config, uint64_t arena_bytes, FILE *in,
              FILE *out) {
  struct stand stand = {.ops = ops, .slab_fd = -1};
  struct variant_problem problem;
  struct error error;
  char line[LINE_BYTES];
  bool asked = read_line(in, line);
  enum status status =
      asked ? variant_problem_parse(line, &problem, &error) : error_set(&error, STATUS_INVALID, "nothing was asked");
  if (status == STATUS_OK && (!read_line(in, line) || (stand.share = atoi(line)) < 1))
    status = error_set(&error, STATUS_INVALID, "there is no share of a core");
  if (status == STATUS_OK && ops->variant_build == NULL)
    status = error_set(&error, STATUS_UNSUPPORTED, "backend %s builds no kernels", ops->name);
  if (status == STATUS_OK)
    status = ops->open(config, &stand.backend, &error);
  if (status == STATUS_OK)
    status = set_up(&stand, &problem, arena_bytes, &error);
  if (status != STATUS_OK) {
    fprintf(out, "cannot %s\n", error.text);
    fflush(out);
    return EXIT_FAILURE;
  }
  while (status == STATUS_OK && read_line(in, line))
    status = judge(&stand, &problem, line, out);
  if (status == STATUS_OK)
    put_away(&stand);
  return status == STATUS_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
