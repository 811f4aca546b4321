#include "experts.h"

#include "client/tool/print.h"
#include "proto/clock.h"
#include "subject.h"
#include "turns.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Different choices of experts, taken in turn. */
enum { CHOICES = 16, LAUNCHES = 8 /* of one choice, where a device measures */ };

/* What a token's T experts are drawn from: expert e, in some order, as often as 1 / (1 + e) ^ skew. */
struct odds {
  double below[SETTINGS_EXPERTS + 1]; /* sums */
  int64_t experts;
};

struct pair_figures {
  double ours, dense; /* microseconds, medians; dense 0: not measured */
  double roof;        /* microseconds; 0: not known */
  double ratio;       /* of neighbours in time: bytes of hit experts a second over bytes of the dense weight */
  double hit;         /* experts, on average */
  uint64_t expert_bytes, dense_bytes;
  int64_t dense_n, dense_m;
};

/* One kind of products. */
struct side {
  struct subject subject;
  struct backend_experts choices[CHOICES]; /* ids NULL: dense */
  int next_copy, next_choice;
  bool sorted;
};

static uint64_t random_bits(uint64_t *state) {
  uint64_t z = (*state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

static struct odds odds_make(int64_t experts, double skew) {
  struct odds odds = {.experts = experts};
  for (int64_t e = 0; e < experts; e++) {
    odds.below[e + 1] = odds.below[e] + pow(1 + (double)e, -skew);
  }
  return odds;
}

static int32_t draw(const struct odds *odds, uint64_t *state) {
  double at = (double)(random_bits(state) >> 11) * 0x1p-53 * odds->below[odds->experts];
  int32_t e = 0;
  while (e + 1 < odds->experts && at >= odds->below[e + 1]) {
    e++;
  }
  return e;
}

static bool among(const int32_t *ids, int64_t count, int32_t id) {
  for (int64_t i = 0; i < count; i++) {
    if (ids[i] == id) {
      return true;
    }
  }
  return false;
}

/* T different experts a row; how many are hit in all. */
static int64_t choose(const struct odds *odds, int64_t m, int64_t top, int32_t *ids, uint64_t *state) {
  int64_t hit = 0;
  for (int64_t i = 0; i < m * top; i++) {
    int64_t row = i / top * top;
    do {
      ids[i] = draw(odds, state);
    } while (among(ids + row, i - row, ids[i]));
    hit += !among(ids, i, ids[i]);
  }
  return hit;
}

/* ---- laying out */

/* E times the expert: what it holds says nothing about how long it takes. */
static enum status repeat(struct data_weight *out, const struct data_weight *one, int64_t experts,
                          struct error *error) {
  *out = (struct data_weight){.shape = one->shape};
  out->shape.experts = experts;
  enum status status = gemm_layout_compute(&out->shape, &out->layout, error);
  if (status != STATUS_OK) {
    return status;
  }
  out->canonical = calloc(1, out->layout.total_bytes);
  if (out->canonical == NULL) {
    return error_set(error, STATUS_NOMEM, "no memory for a weight with experts");
  }
  for (int64_t e = 0; e < experts; e++) {
    memcpy(out->canonical + (uint64_t)e * one->layout.codes_bytes, one->canonical, one->layout.codes_bytes);
    memcpy(out->canonical + out->layout.scales_offset + (uint64_t)e * one->layout.scales_bytes,
           one->canonical + one->layout.scales_offset, one->layout.scales_bytes);
    memcpy(out->canonical + out->layout.zeros_offset + (uint64_t)e * one->layout.zeros_bytes,
           one->canonical + one->layout.zeros_offset, one->layout.zeros_bytes);
    memcpy(out->canonical + out->layout.factors_offset + (uint64_t)e * one->layout.factors_bytes,
           one->canonical + one->layout.factors_offset, one->layout.factors_bytes);
  }
  return STATUS_OK;
}

static enum gemm_type x_type_of(const struct settings *settings, enum gemm_format format) {
  return settings->x_type != GEMM_TYPE_NONE ? settings->x_type : format == GEMM_FORMAT_F16 ? GEMM_F16 : GEMM_BF16;
}

static enum status stage(struct side *side, const struct settings *settings, const struct data_weight *one, int64_t m,
                         struct error *error) {
  enum gemm_format format = one->shape.format;
  enum gemm_type y_type = settings->y_type != GEMM_TYPE_NONE ? settings->y_type : GEMM_BF16;
  struct data_x x;
  enum status status = data_x_make(&x, &one->shape, m, x_type_of(settings, format), error);
  if (status == STATUS_OK) {
    status = subject_stage(&side->subject, one, &x, y_type, error);
    data_x_free(&x);
  }
  return status;
}

/* Room for x, y of all pairs and ids. */
static uint64_t arena_bytes(const struct gemm_weight *shape, int64_t m, int64_t top) {
  uint64_t pairs = (uint64_t)(m * top);
  return gemm_round_up((uint64_t)m * (uint64_t)shape->k * 4 + pairs * ((uint64_t)shape->n + CHOICES) * 4 + 65536, 4096);
}

/* ---- measuring */

static enum status run(struct side *side, struct error *error) {
  side->next_copy = (side->next_copy + 1) % side->subject.copies;
  side->next_choice = (side->next_choice + 1) % CHOICES;
  const struct backend_experts *experts = &side->choices[side->next_choice];
  side->subject.job.experts = experts->ids != NULL ? experts : NULL;
  return subject_run(&side->subject, side->next_copy, error);
}

/* As turned.c has it: the other side's threads come to rest before, and the first products do not count. */
static enum status turn(struct side *side, uint64_t burst_ns, double *us, struct error *error) {
  enum status status = STATUS_OK;
  nanosleep(&(struct timespec){.tv_nsec = 15000000}, NULL);
  uint64_t begin = clock_ns(), warm = begin + burst_ns / 5, count = 0, end;
  do {
    status = run(side, error);
  } while (status == STATUS_OK && clock_ns() < warm);
  begin = clock_ns();
  do {
    status = status == STATUS_OK ? run(side, error) : status;
    count++;
    end = clock_ns();
  } while (status == STATUS_OK && (end < begin + burst_ns || count % CHOICES != 0));
  *us = (double)(end - begin) / 1000 / (double)count;
  return status;
}

/* By the device's clock, all choices. */
static enum status turn_of_device(struct side *side, uint64_t burst_ns, double *us, struct error *error) {
  const struct backend_timing timing = {.launches = LAUNCHES, .quantize = !side->sorted, .dependent = true};
  struct subject *subject = &side->subject;
  uint64_t end = clock_ns() + burst_ns, sum = 0, ns = 0, count = 0;
  enum status status = STATUS_OK;
  do {
    subject->job.experts = &side->choices[count % CHOICES];
    status = subject->ops->measure(subject->backend, &subject->job, subject->weights, (size_t)subject->copies, &timing,
                                   &ns, error);
    sum += ns;
    count++;
  } while (status == STATUS_OK && (count % CHOICES != 0 || clock_ns() < end));
  *us = (double)sum / 1000 / (double)count;
  return status;
}

/* The pairs of sampled rows, each of which takes the same expert's values. */
static enum status check(struct side *side, const struct settings *settings, const struct data_weight *one, int64_t m,
                         int64_t top, struct error *error) {
  const struct backend_job *job = &side->subject.job;
  const void *rows[DATA_SAMPLES];
  struct data_x x;
  enum status status = data_x_make(&x, &one->shape, m, x_type_of(settings, one->shape.format), error);
  if (status != STATUS_OK) {
    return status;
  }
  status = run(side, error);
  for (int i = 0; i < DATA_SAMPLES; i++) {
    rows[i] = (const uint8_t *)job->y + (uint64_t)(data_sample(m, i) * top + i % top) * job->y_stride;
  }
  double most = data_error_most(one->shape.format, job->y_type);
  double is = status == STATUS_OK ? data_error(one, &x, rows, job->y_type, false) : 0;
  data_x_free(&x);
  return status != STATUS_OK || is <= most
             ? status
             : error_set(error, STATUS_INTERNAL, "%s, %lld rows to %lld experts each: off by %.2e, more than %.2e",
                         gemm_format_name(one->shape.format), (long long)m, (long long)top, is, most);
}

static enum status open_experts(struct side *side, const struct settings *settings, const struct data_weight *one,
                                int64_t m, struct pair_figures *out, struct error *error) {
  int64_t experts = settings->experts, top = settings->top, hit = 0;
  struct odds odds = odds_make(experts, settings->skew);
  struct data_weight all;
  uint64_t state = 7;
  enum status status =
      subject_open(&side->subject, settings->ops, &settings->config, arena_bytes(&one->shape, m, top), error);
  if (status != STATUS_OK) {
    return status;
  }
  status = stage(side, settings, one, m, error);
  int32_t *ids = (int32_t *)(void *)(side->subject.base + side->subject.arena_bytes -
                                     (uint64_t)(CHOICES * m * top) * sizeof(*ids));
  for (int i = 0; i < CHOICES; i++, ids += m * top) {
    side->choices[i] = (struct backend_experts){.ids = ids, .top = top};
    hit += choose(&odds, m, top, ids, &state);
  }
  out->hit = (double)hit / CHOICES;
  out->expert_bytes = one->layout.codes_bytes + one->layout.scales_bytes;
  if (status == STATUS_OK) {
    status = repeat(&all, one, experts, error);
  }
  if (status == STATUS_OK) {
    status =
        subject_load(&side->subject, &all, settings_copies(settings, (uint64_t)out->hit * out->expert_bytes), error);
    free(all.canonical);
  }
  return status;
}

/* As many rows of W as the experts that are hit have, for as many of x as each gets. */
static enum status open_dense(struct side *side, const struct settings *settings, const struct data_weight *one,
                              int64_t m, struct pair_figures *out, struct error *error) {
  struct data_weight dense;
  struct gemm_weight shape = one->shape;
  out->dense_n = shape.n = one->shape.n * (int64_t)round(out->hit);
  out->dense_m = (int64_t)ceil((double)(m * settings->top) / out->hit);
  enum status status = data_weight_make(&dense, &shape, error);
  if (status != STATUS_OK) {
    return status;
  }
  out->dense_bytes = dense.layout.codes_bytes + dense.layout.scales_bytes;
  status = subject_open(&side->subject, settings->ops, &settings->config, arena_bytes(&shape, out->dense_m, 1), error);
  if (status == STATUS_OK) {
    status = stage(side, settings, &dense, out->dense_m, error);
    if (status == STATUS_OK) {
      status = subject_load(&side->subject, &dense, settings_copies(settings, out->dense_bytes), error);
    }
  }
  data_weight_free(&dense);
  return status;
}

static enum status measure(const struct settings *settings, struct side *ours, struct side *dense,
                           struct pair_figures *out, struct error *error) {
  double a[SETTINGS_ROUNDS] = {0}, b[SETTINGS_ROUNDS], ratio[SETTINGS_ROUNDS];
  enum status status = STATUS_OK;
  for (int i = 0; status == STATUS_OK && i < settings->rounds; i++) {
    status = (settings->ops->on_cores ? turn : turn_of_device)(ours, settings->burst_ns, &a[i], error);
    b[i] = 0;
    if (status == STATUS_OK && settings->ops->on_cores) {
      status = turn(dense, settings->burst_ns, &b[i], error);
    }
    ratio[i] = b[i] > 0 ? out->hit * (double)out->expert_bytes / a[i] / ((double)out->dense_bytes / b[i]) : 0;
  }
  if (status == STATUS_OK) {
    out->ours = turns_median(a, settings->rounds);
    out->dense = turns_median(b, settings->rounds);
    out->ratio = turns_median(ratio, settings->rounds);
  }
  return status;
}

static void side_close(struct side *side) {
  if (side->subject.backend != NULL) {
    if (side->subject.weights != NULL) {
      subject_unload(&side->subject);
    }
    subject_close(&side->subject);
  }
}

static void find_roof(const struct side *side, const struct settings *settings, const struct data_weight *one,
                      int64_t m, struct pair_figures *out) {
  struct backend_roof roof = {0};
  side->subject.ops->roof(side->subject.backend, &roof);
  double bytes = out->hit * (double)out->expert_bytes, operations = 2 * (double)(m * settings->top * one->shape.n);
  uint64_t a_second = roof.operations_per_s[one->shape.format];
  operations *= (double)one->shape.k;
  if (roof.bytes_per_s > 0) {
    out->roof = bytes / (double)roof.bytes_per_s * 1e6;
  }
  if (a_second > 0) {
    out->roof = fmax(out->roof, operations / (double)a_second * 1e6);
  }
}

static enum status measure_m(const struct settings *settings, const struct data_weight *one, int64_t m,
                             struct pair_figures *out, struct error *error) {
  struct side ours = {.sorted = settings->sorted}, dense = {.next_copy = 0};
  enum status status = open_experts(&ours, settings, one, m, out, error);
  if (status == STATUS_OK) {
    status = check(&ours, settings, one, m, settings->top, error);
  }
  if (status == STATUS_OK && settings->ops->on_cores) {
    status = open_dense(&dense, settings, one, m, out, error);
  }
  if (status == STATUS_OK) {
    find_roof(&ours, settings, one, m, out);
  }
  if (status == STATUS_OK) {
    status = measure(settings, &ours, &dense, out, error);
  }
  side_close(&ours);
  side_close(&dense);
  return status;
}

/* ---- all cases */

static void report(const struct tool_call *call, const struct settings *settings, const struct gemm_weight *shape,
                   int64_t m, const struct pair_figures *figures) {
  double gb_per_s = figures->hit * (double)figures->expert_bytes / figures->ours / 1e3;
  double dense_gb_per_s = figures->dense > 0 ? (double)figures->dense_bytes / figures->dense / 1e3 : 0;
  if (call->json) {
    print_json(call->out,
               json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:f, s:b, s:f, s:f, s:f, s:f, s:I, s:I, s:f, s:f, s:f}",
                         "format", gemm_format_name(shape->format), "scale", gemm_scale_name(shape->scale), "experts",
                         (json_int_t)settings->experts, "top", (json_int_t)settings->top, "n", (json_int_t)shape->n,
                         "k", (json_int_t)shape->k, "m", (json_int_t)m, "skew", settings->skew, "sorted",
                         (int)settings->sorted, "hit", figures->hit, "us", figures->ours, "roof_us", figures->roof,
                         "gb_per_s", gb_per_s, "dense_n", (json_int_t)figures->dense_n, "dense_m",
                         (json_int_t)figures->dense_m, "dense_us", figures->dense, "dense_gb_per_s", dense_gb_per_s,
                         "ratio", figures->ratio));
    return;
  }
  fprintf(call->out, "%-7s%-6s%4lld of%6lld x%6lld  T %2lld  M %5lld%7.1f hit%11.1f us%8.1f GB/s",
          gemm_format_name(shape->format), gemm_scale_name(shape->scale), (long long)settings->experts,
          (long long)shape->n, (long long)shape->k, (long long)settings->top, (long long)m, figures->hit, figures->ours,
          gb_per_s);
  if (figures->dense > 0) {
    fprintf(call->out, "   dense%7lld x%6lld  M %4lld%11.1f us%8.1f GB/s  ratio%6.2f\n", (long long)figures->dense_n,
            (long long)shape->k, (long long)figures->dense_m, figures->dense, dense_gb_per_s, figures->ratio);
  } else {
    fprintf(call->out, "   roof%11.1f us%6.2f\n", figures->roof, figures->roof / figures->ours);
  }
  fflush(call->out);
}

static enum status measure_shape(const struct tool_call *call, const struct settings *settings,
                                 const struct gemm_weight *shape, const struct cases *cases, struct error *error) {
  struct data_weight one;
  enum status status = data_weight_make(&one, shape, error);
  if (status != STATUS_OK) {
    return status;
  }
  for (int i = 0; status == STATUS_OK && i < cases->m_count; i++) {
    struct pair_figures figures = {0};
    status = measure_m(settings, &one, cases->m[i], &figures, error);
    if (status == STATUS_OK) {
      report(call, settings, shape, cases->m[i], &figures);
    }
  }
  data_weight_free(&one);
  return status;
}

enum status experts_measure(const struct tool_call *call, const struct settings *settings, struct error *error) {
  enum status status = STATUS_OK;
  for (int c = 0; c < settings->case_count; c++) {
    const struct cases *cases = &settings->cases[c];
    for (int i = 0; status == STATUS_OK && i < cases->format_count * cases->shape_count; i++) {
      enum gemm_format format = cases->formats[i / cases->shape_count];
      const struct gemm_weight shape = {.n = cases->n[i % cases->shape_count],
                                        .k = cases->k[i % cases->shape_count],
                                        .format = format,
                                        .scale = settings_scale(settings, format)};
      status = measure_shape(call, settings, &shape, cases, error);
    }
  }
  return status;
}
