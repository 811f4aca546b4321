#include "device.h"

#include "../subject.h"
#include "../turns.h"
#include "client/tool/print.h"
#include "kernels/cuda/passes/quantize.h"
#include "kernels/cuda/runtime/driver.h"
#include "results.h"
#include "roof.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LAUNCHES_MOST = 2000, VARIANTS_MOST = 64, VARIANTS_ALL = 4096 };

struct bench {
  const struct tool_call *call;
  const struct settings *settings;
  struct subject subject;
  struct rivals rivals;
  bool compares; /* with the rivals */
  double read_gb_per_s;
  struct results results;
};

/* ---- rooflines */

/* Operations that Hopper's tensor cores do on paper, a microsecond. */
static double operations_per_us(enum gemm_format format) {
  return gemm_quantizes_x(format) ? 1979e6 : 989e6;
}

/* Every byte once at the speed of reading, or every operation at the speed on paper. */
static double roof_us(const struct bench *bench, const struct data_weight *weight, const struct result *row) {
  const struct gemm_weight *shape = &weight->shape;
  double m = (double)row->m, n = (double)shape->n, k = (double)shape->k;
  double bytes =
      (double)weight->layout.total_bytes + m * k * gemm_type_bytes(row->x_type) + m * n * gemm_type_bytes(row->y_type);
  return fmax(bytes / (bench->read_gb_per_s * 1e3), 2 * m * n * k / operations_per_us(shape->format));
}

struct memory {
  uint8_t *from, *to;
  uint64_t each; /* bytes of a launch */
  int copies;
  cudaStream_t stream;
  enum gemm_type x_type;
  enum gemm_format format;
  int64_t m, k;
  float *scales;
};

static enum status queue_read(void *what, int i, struct error *error) {
  const struct memory *memory = what;
  const uint8_t *from = memory->from + memory->each * (uint64_t)(i % memory->copies);
  return runtime_check(roof_read_launch(memory->stream, from, memory->each, memory->to), "reading memory", error);
}

static enum status queue_halve(void *what, int i, struct error *error) {
  const struct memory *memory = what;
  uint64_t at = memory->each * (uint64_t)(i % memory->copies);
  cudaError_t result = roof_halve_launch(memory->stream, memory->from + 2 * at, memory->each, memory->to + at);
  return runtime_check(result, "reading and writing memory", error);
}

static enum status queue_quantize(void *what, int i, struct error *error) {
  const struct memory *memory = what;
  uint64_t at = memory->each * (uint64_t)(i % memory->copies);
  const struct quantize_pass pass = {.x = memory->from + 2 * at,
                                     .x_type = memory->x_type,
                                     .x_stride = memory->k * (int64_t)gemm_type_bytes(memory->x_type),
                                     .rows = memory->m,
                                     .k = memory->k,
                                     .k_padded = memory->k,
                                     .e4m3 = memory->format == GEMM_FORMAT_FP8,
                                     .codes = memory->to + at,
                                     .scales = memory->scales};
  return runtime_check(launch_quantize_rows(memory->stream, &pass), "quantizing", error);
}

/* The median of the rounds. */
static enum status replay_rounds(const struct settings *settings, struct memory *memory, int launches,
                                 enum status (*queue)(void *, int, struct error *), double *us, struct error *error) {
  double turns[SETTINGS_ROUNDS];
  struct replay replay;
  enum status status = replay_make(memory->stream, launches, queue, memory, &replay, error);
  for (int i = 0; status == STATUS_OK && i <= settings->rounds; i++) { /* the first one wakes the device */
    status = replay_time(&replay, memory->stream, &turns[i > 0 ? i - 1 : 0], error);
  }
  replay_free(&replay);
  *us = status == STATUS_OK ? turns_median(turns, settings->rounds) : 0;
  return status;
}

static enum status read_measure(struct bench *bench, struct error *error) {
  struct memory memory = {.each = (uint64_t)2 << 30, .copies = 1, .stream = bench->rivals.stream};
  double us = 0;
  cudaError_t result = cudaMalloc((void **)&memory.from, memory.each * (uint64_t)memory.copies);
  result = result == cudaSuccess ? cudaMalloc((void **)&memory.to, 16) : result;
  result = result == cudaSuccess ? cudaMemset(memory.from, 0x5a, memory.each * (uint64_t)memory.copies) : result;
  enum status status = runtime_check(result, "taking memory", error);
  for (int i = 0; i < 4 && status == STATUS_OK; i++) { /* until the clocks have risen */
    status = replay_rounds(bench->settings, &memory, 8, queue_read, &us, error);
  }
  bench->read_gb_per_s = us > 0 ? (double)memory.each / us / 1e3 : 0;
  (void)cudaFree(memory.from);
  (void)cudaFree(memory.to);
  return status;
}

/* ---- the row quantizer */

static enum status quantizer_one(const struct bench *bench, struct memory *memory, struct error *error) {
  const struct settings *settings = bench->settings;
  double ours = 0, plain = 0, bytes = 3 * (double)memory->each;
  int launches = 8 * memory->copies;
  enum status status = replay_rounds(settings, memory, launches, queue_quantize, &ours, error);
  status = status == STATUS_OK ? replay_rounds(settings, memory, launches, queue_halve, &plain, error) : status;
  if (status != STATUS_OK) {
    return status;
  }
  if (bench->call->json) {
    print_json(bench->call->out,
               json_pack("{s:s, s:s, s:I, s:I, s:f, s:f, s:f}", "quantizer", gemm_format_name(memory->format), "x_type",
                         gemm_type_name(memory->x_type), "m", (json_int_t)memory->m, "k", (json_int_t)memory->k, "us",
                         ours, "gb_per_s", bytes / ours / 1e3, "plain_us", plain));
  } else {
    fprintf(bench->call->out, "quantize %s to %-5sM %5lld K %6lld%9.2f us %7.0f GB/s  plain copy %.2f us x%.2f\n",
            gemm_type_name(memory->x_type), gemm_format_name(memory->format), (long long)memory->m,
            (long long)memory->k, ours, bytes / ours / 1e3, plain, plain / ours);
  }
  return STATUS_OK;
}

/* Rows of bf16, or f16, of random bits: any are numbers to a quantizer but those of an exponent of ones. */
static enum status quantizer_measure(const struct bench *bench, enum gemm_format format, int64_t m, int64_t k,
                                     struct error *error) {
  struct memory memory = {.each = (uint64_t)m * (uint64_t)k,
                          .stream = bench->rivals.stream,
                          .x_type = bench->settings->x_type == GEMM_F16 ? GEMM_F16 : GEMM_BF16,
                          .format = format,
                          .m = m,
                          .k = k};
  uint64_t all = 3 * memory.each;
  memory.copies = settings_copies(bench->settings, all);
  uint64_t elements = memory.each * (uint64_t)memory.copies;
  uint16_t *x = malloc(elements * sizeof(*x));
  if (x == NULL) {
    return error_set(error, STATUS_NOMEM, "no memory for x");
  }
  uint32_t state = 1;
  for (uint64_t i = 0; i < elements; i++) {
    state = state * 1664525 + 1013904223;
    x[i] = (uint16_t)((state >> 16 & 0x83ff) | 0x3c00);
  }
  cudaError_t result = cudaMalloc((void **)&memory.from, 2 * elements);
  result = result == cudaSuccess ? cudaMalloc((void **)&memory.to, elements) : result;
  result = result == cudaSuccess ? cudaMalloc((void **)&memory.scales, (uint64_t)m * sizeof(float)) : result;
  result = result == cudaSuccess ? cudaMemcpy(memory.from, x, 2 * elements, cudaMemcpyHostToDevice) : result;
  free(x);
  enum status status = runtime_check(result, "taking memory", error);
  status = status == STATUS_OK ? quantizer_one(bench, &memory, error) : status;
  (void)cudaFree(memory.from);
  (void)cudaFree(memory.to);
  (void)cudaFree(memory.scales);
  return status;
}

/* ---- ours */

static enum gemm_type usual_x(enum gemm_format format) {
  return format == GEMM_FORMAT_FP8    ? GEMM_E4M3
         : format == GEMM_FORMAT_INT8 ? GEMM_INT8
         : format == GEMM_FORMAT_BF16 ? GEMM_BF16
                                      : GEMM_F16;
}

static enum gemm_type usual_y(enum gemm_format format) {
  return format == GEMM_FORMAT_FP8 || format == GEMM_FORMAT_BF16 ? GEMM_BF16 : GEMM_F16;
}

static enum status ours_turn(struct bench *bench, const struct variant *variant, int launches, double *us,
                             struct error *error) {
  struct subject *subject = &bench->subject;
  struct backend_job job = subject->job;
  const struct backend_timing timing = {
      .launches = (uint32_t)launches, .quantize = true, .dependent = bench->settings->dependent};
  uint64_t ns = 0;
  job.variant = variant;
  job.weight = subject->weights[0];
  enum status status =
      subject->ops->measure(subject->backend, &job, subject->weights, (size_t)subject->copies, &timing, &ns, error);
  *us = (double)ns / 1000;
  return status;
}

static int launches_for(const struct bench *bench, double us) {
  double wanted = (double)bench->settings->burst_ns / 1e3 / (us > 0.5 ? us : 0.5);
  int copies = bench->subject.copies;
  return wanted > LAUNCHES_MOST ? LAUNCHES_MOST : wanted > copies ? (int)wanted : copies;
}

/* Of the family that is asked for, offered or not. */
static int list_family(const struct bench *bench, const struct variant_problem *problem,
                       struct variant out[VARIANTS_MOST]) {
  const struct subject *subject = &bench->subject;
  struct variant *all = calloc(VARIANTS_ALL, sizeof(*all));
  if (all == NULL) {
    return 0;
  }
  int found = subject->ops->variants(subject->backend, problem, NULL, true, all, VARIANTS_ALL), count = 0;
  for (int i = 0; i < found && count < VARIANTS_MOST; i++) {
    if (strcmp(all[i].family->name, bench->settings->family) == 0) {
      out[count++] = all[i];
    }
  }
  free(all);
  return count;
}

static int list(const struct bench *bench, const struct variant_problem *problem, struct variant out[VARIANTS_MOST]) {
  const struct subject *subject = &bench->subject;
  if (bench->settings->family != NULL) {
    return list_family(bench, problem, out);
  }
  int count = subject->ops->variants(subject->backend, problem, NULL, false, out, VARIANTS_MOST);
  if (subject->ops->library_variants != NULL) {
    count += subject->ops->library_variants(subject->backend, problem, false, out + count, VARIANTS_MOST - count);
  }
  return count;
}

/* The kernel to be measured, and about how long it takes. */
static enum status ours_choose(struct bench *bench, const struct data_weight *weight, struct result *row,
                               struct variant *out, double *us, struct error *error) {
  struct subject *subject = &bench->subject;
  const struct variant_problem problem = {.weight = weight->shape,
                                          .m = row->m,
                                          .x_type = row->x_type,
                                          .y_type = row->y_type,
                                          .bias_type = weight->biased ? GEMM_F32 : GEMM_TYPE_NONE};
  struct variant variants[VARIANTS_MOST];
  char text[VARIANT_TEXT_BYTES];
  int count = list(bench, &problem, variants);
  *us = INFINITY;
  *out = (struct variant){0};
  snprintf(row->kernel, sizeof(row->kernel), "%s", count > 0 ? variant_text(&variants[0], text) : "");
  if (bench->settings->dependent) /* what it is given in a row differs from what the list begins with */
    row->kernel[strcspn(row->kernel, " ")] = '\0';
  bool own = bench->settings->kernel == KERNEL_OWN;
  if (bench->settings->family == NULL && (own || count == 0)) {
    enum status status = ours_turn(bench, NULL, subject->copies, us, error);
    return status == STATUS_OK ? ours_turn(bench, NULL, launches_for(bench, *us), us, error) : status;
  }
  for (int i = 0; i < (own && count > 1 ? 1 : count); i++) {
    struct error ignored;
    double first, is;
    if (subject->ops->variant_check(subject->backend, &problem, &variants[i], NULL, &ignored) != STATUS_OK ||
        ours_turn(bench, &variants[i], subject->copies, &first, &ignored) != STATUS_OK ||
        ours_turn(bench, &variants[i], launches_for(bench, first), &is, &ignored) != STATUS_OK) {
      continue;
    }
    if (bench->settings->kernel == KERNEL_ALL && !bench->call->json) {
      fprintf(bench->call->out, "  %9.2f us  %s\n", is, variant_text(&variants[i], text));
    }
    if (is < *us) {
      *us = is;
      *out = variants[i];
      snprintf(row->kernel, sizeof(row->kernel), "%s", variant_text(&variants[i], text));
    }
  }
  return out->family != NULL ? STATUS_OK : error_set(error, STATUS_UNSUPPORTED, "no kernel takes this product");
}

/* Sides take turns, so that what drifts meets all of them. */
static enum status race(struct bench *bench, const struct variant *variant, double us, struct result *row,
                        struct error *error) {
  int rounds = bench->settings->rounds, launches = launches_for(bench, us);
  double ours[SETTINGS_ROUNDS], theirs[RIVALS_MOST][SETTINGS_ROUNDS], first[RIVALS_MOST][SETTINGS_ROUNDS],
      ratio[RIVALS_MOST][SETTINGS_ROUNDS];
  struct rivals *rivals = &bench->rivals;
  enum status status = STATUS_OK;
  row->rival_count = bench->compares ? rivals->count : 0;
  for (int i = 0; i < rounds && status == STATUS_OK; i++) {
    status = ours_turn(bench, variant->family != NULL ? variant : NULL, launches, &ours[i], error);
    for (int r = 0; r < row->rival_count && status == STATUS_OK; r++) {
      struct rival *rival = &rivals->rivals[r];
      status = replay_time(&rival->best, rivals->stream, &theirs[r][i], error);
      first[r][i] = theirs[r][i];
      if (status == STATUS_OK && rival->first.graph != NULL) {
        status = replay_time(&rival->first, rivals->stream, &first[r][i], error);
      }
      ratio[r][i] = theirs[r][i] / ours[i];
    }
  }
  if (status != STATUS_OK) {
    return status;
  }
  row->us = turns_median(ours, rounds);
  for (int r = 0; r < row->rival_count; r++) {
    row->rivals[r].name = rivals->rivals[r].name;
    row->rivals[r].us = turns_median(theirs[r], rounds);
    row->rivals[r].first_us = turns_median(first[r], rounds);
    row->rivals[r].ratio = turns_median(ratio[r], rounds);
  }
  return status;
}

/* ---- one weight, every M */

static enum status measure_m(struct bench *bench, const struct data_weight *weight, const struct data_weight *rival,
                             struct result *row, struct error *error) {
  struct data_x x, rival_x;
  struct variant variant;
  double us;
  enum status status = data_x_make(&x, &weight->shape, row->m, row->x_type, error);
  if (status != STATUS_OK) {
    return status;
  }
  status = subject_stage(&bench->subject, weight, &x, row->y_type, error);
  status = status == STATUS_OK ? subject_check(&bench->subject, weight, &x, error) : status;
  status = status == STATUS_OK ? ours_choose(bench, weight, row, &variant, &us, error) : status;
  data_x_free(&x);
  if (status == STATUS_OK && bench->compares) {
    status =
        data_x_make(&rival_x, &rival->shape, row->m,
                    gemm_takes_x(rival->shape.format, row->x_type) ? row->x_type : usual_x(rival->shape.format), error);
    if (status == STATUS_OK) {
      status = rivals_stage(&bench->rivals, &rival_x, row->y_type, (double)bench->settings->burst_ns / 1e3, error);
      data_x_free(&rival_x);
    }
  }
  status = status == STATUS_OK ? race(bench, &variant, us, row, error) : status;
  if (bench->compares) {
    rivals_unstage(&bench->rivals);
  }
  return status;
}

static enum status measure_rows(struct bench *bench, const struct cases *cases, const struct data_weight *weight,
                                const struct data_weight *rival, struct error *error) {
  const struct settings *settings = bench->settings;
  enum gemm_format format = weight->shape.format;
  enum status status = STATUS_OK;
  for (int i = 0; status == STATUS_OK && i < cases->m_count; i++) {
    struct result row = {.shape = weight->shape, .m = cases->m[i]};
    row.x_type = settings->x_type != GEMM_TYPE_NONE ? settings->x_type : usual_x(format);
    row.y_type = settings->y_type != GEMM_TYPE_NONE ? settings->y_type : usual_y(format);
    status = measure_m(bench, weight, rival, &row, error);
    if (status == STATUS_OK) {
      row.roof_us = roof_us(bench, weight, &row);
      result_print(bench->call, &row);
      status = results_add(&bench->results, &row, error);
    }
  }
  return status;
}

static enum status measure_weight(struct bench *bench, const struct cases *cases, const struct gemm_weight *shape,
                                  struct error *error) {
  const struct settings *settings = bench->settings;
  struct data_weight weight, rival = {0};
  const struct gemm_weight rival_shape = rivals_weight(shape);
  bool same = rival_shape.format == shape->format;
  enum status status = data_weight_make(&weight, shape, error);
  if (status != STATUS_OK) {
    return status;
  }
  weight.biased = settings->bias;
  status = subject_load(&bench->subject, &weight, settings_copies(settings, weight.layout.total_bytes), error);
  if (status == STATUS_OK && bench->compares && !same) {
    status = data_weight_make(&rival, &rival_shape, error);
    rival.biased = settings->bias;
  }
  const struct data_weight *theirs = same ? &weight : &rival;
  if (status == STATUS_OK && bench->compares) {
    status = rivals_load(&bench->rivals, theirs, settings_copies(settings, theirs->layout.codes_bytes), error);
  }
  if (status == STATUS_OK) {
    status = measure_rows(bench, cases, &weight, theirs, error);
  }
  rivals_unload(&bench->rivals);
  subject_unload(&bench->subject);
  data_weight_free(&rival);
  data_weight_free(&weight);
  return status;
}

static enum status measure_case(struct bench *bench, const struct cases *cases, struct error *error) {
  const struct settings *settings = bench->settings;
  enum status status = STATUS_OK;
  for (int i = 0; status == STATUS_OK && i < cases->format_count * cases->shape_count; i++) {
    enum gemm_format format = cases->formats[i / cases->shape_count];
    struct gemm_weight shape = {.n = cases->n[i % cases->shape_count],
                                .k = cases->k[i % cases->shape_count],
                                .format = format,
                                .scale = settings_scale(settings, format)};
    if (!settings->quantizer) {
      status = measure_weight(bench, cases, &shape, error);
      continue;
    }
    for (int m = 0; status == STATUS_OK && gemm_quantizes_x(format) && m < cases->m_count; m++) {
      status = quantizer_measure(bench, format, cases->m[m], shape.k, error);
    }
  }
  return status;
}

static void print_header(const struct bench *bench) {
  const struct settings *settings = bench->settings;
  struct backend_info info;
  settings->ops->describe(bench->subject.backend, &info);
  if (bench->call->json) {
    print_json(bench->call->out,
               json_pack("{s:s, s:f, s:b, s:b}", "device", info.device_name, "read_gb_per_s", bench->read_gb_per_s,
                         "dependent", settings->dependent, "bias", settings->bias));
    return;
  }
  fprintf(bench->call->out, "%s: %s; a plain kernel reads %.0f GB/s%s%s\n", info.name, info.device_name,
          bench->read_gb_per_s, settings->dependent ? "; ours launched dependently" : "",
          settings->bias ? "; with a bias" : "");
}

enum status device_measure(const struct tool_call *call, const struct settings *settings, struct error *error) {
  struct bench bench = {.call = call, .settings = settings};
  bench.compares = settings->peer == NULL || strcmp(settings->peer, "none") != 0;
  uint64_t arena = settings->quantizer ? 4096 : settings_arena_bytes(settings);
  enum status status = subject_open(&bench.subject, settings->ops, &settings->config, arena, error);
  if (status != STATUS_OK) {
    return status;
  }
  status = rivals_open(&bench.rivals, bench.compares ? settings->peer : NULL, error);
  if (status == STATUS_OK) {
    status = read_measure(&bench, error);
    if (status == STATUS_OK) {
      print_header(&bench);
    }
    for (int i = 0; status == STATUS_OK && i < settings->case_count; i++) {
      status = measure_case(&bench, &settings->cases[i], error);
    }
    results_print_means(call, &bench.results);
    if (status == STATUS_OK && settings->plot != NULL) {
      status = results_plot(&bench.results, settings->plot, error);
    }
    rivals_close(&bench.rivals);
  }
  results_free(&bench.results);
  subject_close(&bench.subject);
  return status;
}
