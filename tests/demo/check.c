#include "check.h"
#include "proto/clock.h"

#include "../../client/tool/words.h"
#include "reference.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TIMED_CALLS 21
#define GROUP 128 /* columns that share a scale in INT2 */
#define PROBE_OPERATIONS ((int64_t)1 << 32)
#define PROBE_ELEMENTS ((int64_t)1 << 24)

/* The contract: worst row against float64 on the dequantized operands, f32 out. */
static double gate_of(enum gemmd_format format) {
  return format == GEMMD_FORMAT_INT8 ? 1e-6 : 3e-4;
}

/* What quantizing may cost against the original numbers, over all rows. On all-MiniLM-L6-v2 it was measured:
 * 0.009..0.032 for INT8, 0.022..0.047 for FP8 and 0.31..0.46 for INT2, which has four levels. Of other weights nothing
 * is known but that least squares leave less than they started with; a product of the wrong rows or columns is at
 * about 1.4. */
static double bound_of(enum gemmd_format format, bool known) {
  if (!known)
    return 1;
  switch (format) {
  case GEMMD_FORMAT_INT8:
    return 0.05;
  case GEMMD_FORMAT_FP8:
    return 0.08;
  default:
    return 0.6;
  }
}

static bool fail(struct check *check, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool fail(struct check *check, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(check->why, sizeof check->why, format, arguments);
  va_end(arguments);
  return false;
}

/* ---- products */

/* Tensors in the arena for one matrix. */
struct products {
  gemmd_session *session;
  gemmd_weight *weight;
  int64_t n, k;
};

/* y [m, n] by gemmd, into the caller's memory; poisoned before, so that what gemmd leaves out shows as NaN. `times`
 * calls; *microseconds (may be NULL) is their median. */
static bool multiply(struct check *check, const struct products *products, const float *x, int64_t m, int times,
                     float *y, double *microseconds) {
  size_t x_bytes = (size_t)(m * products->k) * sizeof *x, y_bytes = (size_t)(m * products->n) * sizeof *y;
  float *shared_x = gemmd_alloc(products->session, x_bytes), *shared_y = gemmd_alloc(products->session, y_bytes);
  double samples[TIMED_CALLS];
  bool ok = shared_x != NULL && shared_y != NULL && times <= TIMED_CALLS;
  if (!ok)
    fail(check, "no room for %lld rows in the session's shared memory", (long long)m);
  else
    memcpy(shared_x, x, x_bytes);
  gemmd_product product = {.m = (uint32_t)m, .x = shared_x, .x_type = GEMMD_F32, .y = shared_y, .y_type = GEMMD_F32};
  for (int i = 0; ok && i < times; i++) {
    for (int64_t j = 0; j < m * products->n; j++)
      shared_y[j] = NAN;
    uint64_t begin = clock_ns();
    int status = gemmd_matmul(products->weight, &product);
    uint64_t end = clock_ns();
    if (status != GEMMD_OK)
      ok = fail(check, "%s (%s)", gemmd_error(products->session), gemmd_status_name(status));
    double sample = (double)(end - begin) / 1e3;
    int place = i;
    for (; place > 0 && samples[place - 1] > sample; place--)
      samples[place] = samples[place - 1];
    samples[place] = sample;
  }
  if (ok) {
    memcpy(y, shared_y, y_bytes);
    if (microseconds != NULL)
      *microseconds = samples[times / 2];
  }
  gemmd_free(products->session, shared_x);
  gemmd_free(products->session, shared_y);
  return ok;
}

/* ---- INT8 and FP8: the stored codes follow from the original numbers by a rule, so the demo makes them itself */

static bool exact_by_rule(struct check *check, const struct subject *subject, enum gemmd_format format,
                          const float *y) {
  int64_t m = subject->m, n = subject->n, k = subject->k;
  float *x_codes = malloc((size_t)(m * k) * sizeof *x_codes), *w_codes = malloc((size_t)(n * k) * sizeof *w_codes);
  double *x_scales = malloc((size_t)m * sizeof *x_scales), *w_scales = malloc((size_t)n * sizeof *w_scales);
  double *reference = malloc((size_t)(m * n) * sizeof *reference);
  bool ok = x_codes != NULL && w_codes != NULL && x_scales != NULL && w_scales != NULL && reference != NULL;
  if (ok) {
    void (*quantize)(const float *, int64_t, int64_t, float *, double *) =
        format == GEMMD_FORMAT_INT8 ? reference_quantize_int8 : reference_quantize_e4m3;
    quantize(subject->x, m, k, x_codes, x_scales);
    quantize(subject->w, n, k, w_codes, w_scales);
    reference_scaled_product(x_codes, x_scales, w_codes, w_scales, m, n, k, reference);
    check->dequantized = reference_worst_row(y, reference, m, n);
  } else {
    fail(check, "out of memory");
  }
  free(x_codes);
  free(w_codes);
  free(x_scales);
  free(w_scales);
  free(reference);
  return ok;
}

/* ---- INT2: products with unit rows give the dequantized columns of W, some groups of them where there are many */

struct probe {
  int64_t columns; /* of W that are looked at */
  int64_t *places; /* their numbers; whole groups */
  float *unit, *w; /* [columns, k], [columns, n] */
};

static int64_t probe_columns(int64_t n, int64_t k) {
  int64_t most = PROBE_OPERATIONS / (n * k);
  int64_t larger = n > k ? n : k;
  if (most > PROBE_ELEMENTS / larger)
    most = PROBE_ELEMENTS / larger;
  if (most >= k || k <= GROUP)
    return k;
  return most < GROUP ? GROUP : most / GROUP * GROUP;
}

static bool probe_make(struct probe *probe, int64_t n, int64_t k) {
  int64_t columns = probe_columns(n, k), groups = (k + GROUP - 1) / GROUP;
  *probe = (struct probe){.columns = columns};
  probe->places = malloc((size_t)columns * sizeof *probe->places);
  probe->unit = calloc((size_t)(columns * k), sizeof *probe->unit);
  probe->w = malloc((size_t)(columns * n) * sizeof *probe->w);
  if (probe->places == NULL || probe->unit == NULL || probe->w == NULL)
    return false;
  for (int64_t i = 0; i < columns; i++) {
    /* Evenly spaced groups; the last one, which may be short, only where all are taken. */
    int64_t group = columns == k ? i / GROUP : i / GROUP * groups / (columns / GROUP);
    probe->places[i] = group * GROUP + i % GROUP;
    probe->unit[i * k + probe->places[i]] = 1;
  }
  return true;
}

static void probe_free(struct probe *probe) {
  free(probe->places);
  free(probe->unit);
  free(probe->w);
}

static float *transposed(const float *matrix, int64_t rows, int64_t columns) {
  float *out = malloc((size_t)(rows * columns) * sizeof *out);
  for (int64_t i = 0; out != NULL && i < rows * columns; i++)
    out[i % columns * rows + i / columns] = matrix[i];
  return out;
}

/* x with the columns that are not looked at zeroed, [m, k], and without them, [m, columns]. */
static void probe_rows(const struct probe *probe, const struct subject *subject, float *masked, float *taken) {
  memset(masked, 0, (size_t)(subject->m * subject->k) * sizeof *masked);
  for (int64_t row = 0; row < subject->m; row++) {
    for (int64_t i = 0; i < probe->columns; i++) {
      float value = subject->x[row * subject->k + probe->places[i]];
      masked[row * subject->k + probe->places[i]] = value;
      taken[row * probe->columns + i] = value;
    }
  }
}

static bool probe_compare(struct check *check, const struct products *products, const struct subject *subject,
                          const struct probe *probe) {
  int64_t m = subject->m, n = subject->n, k = subject->k;
  float *masked = malloc((size_t)(m * k) * sizeof *masked);
  float *taken = malloc((size_t)(m * probe->columns) * sizeof *taken);
  float *y = malloc((size_t)(m * n) * sizeof *y), *w = transposed(probe->w, probe->columns, n);
  double *reference = malloc((size_t)(m * n) * sizeof *reference);
  bool ok = masked != NULL && taken != NULL && y != NULL && w != NULL && reference != NULL;
  if (!ok)
    fail(check, "out of memory");
  if (ok && !reference_is_int2(w, n, probe->columns))
    ok = fail(check, "a group of W has other values than -s, 0, s and 2s");
  if (ok) {
    probe_rows(probe, subject, masked, taken);
    ok = multiply(check, products, masked, m, 1, y, NULL);
  }
  if (ok) {
    reference_product(taken, w, m, n, probe->columns, reference);
    check->dequantized = reference_worst_row(y, reference, m, n);
  }
  free(masked);
  free(taken);
  free(y);
  free(w);
  free(reference);
  return ok;
}

static bool exact_by_probe(struct check *check, const struct products *products, const struct subject *subject) {
  struct probe probe;
  bool ok = probe_make(&probe, subject->n, subject->k);
  if (!ok)
    fail(check, "out of memory");
  ok = ok && multiply(check, products, probe.unit, probe.columns, 1, probe.w, NULL) &&
       probe_compare(check, products, subject, &probe);
  probe_free(&probe);
  return ok;
}

/* ---- all of it */

static bool measure(struct check *check, const struct products *products, const struct subject *subject,
                    enum gemmd_format format) {
  float *y = malloc((size_t)(subject->m * subject->n) * sizeof *y);
  if (y == NULL)
    return fail(check, "out of memory");
  bool ok = multiply(check, products, subject->x, subject->m, TIMED_CALLS, y, &check->microseconds);
  if (ok) {
    check->original = reference_error(y, subject->y, subject->m, subject->n);
    ok = format == GEMMD_FORMAT_INT2 ? exact_by_probe(check, products, subject)
                                     : exact_by_rule(check, subject, format, y);
  }
  free(y);
  return ok;
}

static bool judge(struct check *check, enum gemmd_format format, bool known) {
  /* Written so that NaN fails. */
  if (!(check->dequantized <= gate_of(format)))
    return fail(check, "error %.3g against the dequantized operands; at most %.0e is allowed", check->dequantized,
                gate_of(format));
  if (!(check->original <= bound_of(format, known)))
    return fail(check, "error %.3g against the original numbers; at most %.3g is allowed", check->original,
                bound_of(format, known));
  return true;
}

void check_run(gemmd_session *session, const struct subject *subject, enum gemmd_format format, struct check *check) {
  *check = (struct check){0};
  char name[256];
  snprintf(name, sizeof name, "%s.%s", subject->tensor->name, word_text(words_format, (int)format));
  struct products products = {.session = session, .n = subject->n, .k = subject->k};
  int status = gemmd_weight_open(session, name, &products.weight);
  if (status != GEMMD_OK) {
    fail(check, "%s (%s)", gemmd_error(session), gemmd_status_name(status));
    return;
  }
  const gemmd_weight_info *info = gemmd_weight_get_info(products.weight);
  check->bytes = info->bytes;
  if (info->n != subject->n || info->k != subject->k || info->format != format)
    fail(check, "gemmd has %lld x %lld as %s under this name", (long long)info->n, (long long)info->k,
         word_text(words_format, (int)info->format));
  else
    check->passed = measure(check, &products, subject, format) && judge(check, format, subject->known);
  gemmd_weight_close(products.weight);
}
