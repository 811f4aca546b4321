#include "report.h"

#include "client/tool/print.h"

#include <math.h>

static double microseconds(const struct histogram *histogram, double quantile) {
  return (double)histogram_at(histogram, quantile) / 1e3;
}

static double ratio(const struct histogram *histogram) {
  return microseconds(histogram, 0.999) / microseconds(histogram, 0.5);
}

/* ---- JSON */

/* [[us, count], ...] of the buckets that hold something. */
static json_t *buckets_json(const struct histogram *histogram) {
  json_t *list = json_array();
  for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
    if (histogram->buckets[i] > 0)
      json_array_append_new(list,
                            json_pack("[f, I]", (double)histogram_value(i) / 1e3, (json_int_t)histogram->buckets[i]));
  return list;
}

static json_t *histogram_json(const struct histogram *histogram, bool buckets) {
  json_t *object = json_pack("{s:f, s:f, s:f, s:f, s:f}", "p50", microseconds(histogram, 0.5), "p99",
                             microseconds(histogram, 0.99), "p999", microseconds(histogram, 0.999), "mean",
                             histogram_mean(histogram) / 1e3, "max", (double)histogram->most / 1e3);
  if (buckets)
    json_object_set_new(object, "buckets", buckets_json(histogram));
  return object;
}

static json_t *compare_json(const struct report *report) {
  const struct compare *compare = report->compare;
  double own_us = microseconds(report->latency, 0.5);
  json_t *object = json_pack("{s:f, s:f}", "best_us", compare->best_us, "to_best", own_us / compare->best_us);
  if (compare->obvious_us > 0) {
    json_object_set_new(object, "obvious_us", json_real(compare->obvious_us));
    json_object_set_new(object, "to_obvious", json_real(own_us / compare->obvious_us));
  }
  if (compare->kernel_us > 0) {
    json_object_set_new(object, "kernel_us", json_real(compare->kernel_us));
    json_object_set_new(object, "over_kernel_us", json_real(own_us - compare->kernel_us));
  }
  if (compare->plan_us > 0) {
    json_object_set_new(object, "plan_us", json_real(compare->plan_us));
    json_object_set_new(object, "plan_to_kernel", json_real(compare->plan_us / compare->kernel_us));
  }
  return object;
}

/* One weight has its keys in the object itself, several are a list. */
static void weights_json(const struct mix *mix, json_t *object) {
  json_t *list = json_array();
  for (int i = 0; i < mix->weight_count; i++) {
    const gemmd_weight_info *info = &mix->weights[i];
    json_array_append_new(list, json_pack("{s:o, s:s, s:I, s:I}", "weight", print_json_text(info->name), "format",
                                          word_text(words_format, (int)info->format), "n", (json_int_t)info->n, "k",
                                          (json_int_t)info->k));
    if (mix->plan)
      json_object_set_new(json_array_get(list, (size_t)i), "activation", json_string(mix_step_word(mix, i)));
  }
  if (mix->weight_count == 1)
    json_object_update(object, json_array_get(list, 0));
  else
    json_object_set(object, "weights", list);
  json_decref(list);
}

void report_json(const struct report *report, FILE *out) {
  const struct serve_settings *settings = report->settings;
  json_t *object =
      json_pack("{s:s, s:s, s:s, s:i, s:i}", "backend", settings->backend, "x_type",
                word_text(words_type, (int)settings->x_type), "y_type", word_text(words_type, (int)settings->y_type),
                "clients", settings->clients, "in_flight", settings->in_flight);
  weights_json(&settings->mix, object);
  json_object_set_new(object, "m",
                      settings->mix.rows_count == 1 ? json_integer(settings->mix.rows[0])
                                                    : json_string(report->rows_text));
  if (settings->rate > 0)
    json_object_set_new(object, "rate", json_real(settings->rate));
  json_object_set_new(object, "seconds", json_real(report->seconds));
  json_object_set_new(object, "requests", json_integer((json_int_t)report->latency->count));
  json_object_set_new(object, "failures", json_integer((json_int_t)report->failures));
  json_object_set_new(object, "tensors", json_string(settings->gpu ? "gpu" : "host"));
  json_object_set_new(object, "checked",
                      json_pack("{s:I, s:f}", "products", (json_int_t)report->checked, "difference",
                                isfinite(report->difference) ? report->difference : 1e9));
  json_object_set_new(object, "rows_per_s", json_real(report->rows_per_s));
  json_object_set_new(object, "latency_us", histogram_json(report->latency, report->buckets));
  json_object_set_new(object, "overhead_us", histogram_json(report->overhead, report->buckets));
  json_object_set_new(object, "device_us", histogram_json(report->device, report->buckets));
  json_object_set_new(object, "socket_us", histogram_json(report->roundtrip, report->buckets));
  if (report->machine != NULL) {
    json_object_set_new(object, "machine_us", histogram_json(report->machine, report->buckets));
    json_object_set_new(object, "machine_taken", json_real(report->taken));
  }
  if (report->compare != NULL)
    json_object_set_new(object, "inprocess", compare_json(report));
  print_json(out, object);
}

/* ---- text */

static void histogram_row(struct print_table *table, const char *name, const struct histogram *histogram) {
  print_cell(table, "%s", name);
  print_cell(table, "%.1f", microseconds(histogram, 0.5));
  print_cell(table, "%.1f", microseconds(histogram, 0.99));
  print_cell(table, "%.1f", microseconds(histogram, 0.999));
  print_cell(table, "%.1f", histogram_mean(histogram) / 1e3);
  print_cell(table, "%.1f", (double)histogram->most / 1e3);
}

/* A bar for each power of two, an eighth of it at a time where there is room for it. */
static void histogram_bars(const struct histogram *histogram, FILE *out) {
  enum { WIDTH = 60 };
  uint64_t counts[64] = {0}, most = 1;
  for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
    uint64_t value = histogram_value(i);
    unsigned power = value > 0 ? 63u - (unsigned)__builtin_clzll(value) : 0;
    counts[power] += histogram->buckets[i];
    most = counts[power] > most ? counts[power] : most;
  }
  fprintf(out, "\nlatency, us\n");
  for (unsigned power = 0; power < 64; power++) {
    if (counts[power] == 0)
      continue;
    int length = (int)((counts[power] * WIDTH + most - 1) / most);
    fprintf(out, "%12.3f .. %-12.3f %10llu  %.*s\n", (double)((uint64_t)1 << power) / 1e3,
            (double)((uint64_t)1 << power) / 500.0, (unsigned long long)counts[power], length,
            "############################################################");
  }
}

static void compare_text(const struct report *report, FILE *out) {
  const struct compare *compare = report->compare;
  double own_us = microseconds(report->latency, 0.5);
  fprintf(out, "\ninside one process, p50: best way %.1f us (gemmd takes %.2f times that)", compare->best_us,
          own_us / compare->best_us);
  if (compare->obvious_us > 0)
    fprintf(out, ",\nobvious way %.1f us (gemmd: %.2f); kernel alone %.1f us (gemmd: %.1f us over it)",
            compare->obvious_us, own_us / compare->obvious_us, compare->kernel_us, own_us - compare->kernel_us);
  if (compare->plan_us > 0)
    fprintf(out, ";\nits kernels one after the other %.1f us; the plan on the device %.1f us (%.3f times that)",
            compare->kernel_us, compare->plan_us, compare->plan_us / compare->kernel_us);
  fputc('\n', out);
}

void report_text(const struct report *report, FILE *out) {
  const struct serve_settings *settings = report->settings;
  if (settings->mix.plan)
    fprintf(out, "a plan of:\n");
  for (int i = 0; i < settings->mix.weight_count; i++) {
    const gemmd_weight_info *info = &settings->mix.weights[i];
    fprintf(out, "%s: N = %lld, K = %lld, %s on %s%s%s\n", info->name, (long long)info->n, (long long)info->k,
            word_text(words_format, (int)info->format), settings->backend, settings->mix.plan ? ", then " : "",
            settings->mix.plan ? mix_step_word(&settings->mix, i) : "");
  }
  fprintf(out, "M = %s, x %s, y %s; tensors on the %s; clients %d, in flight %d each", report->rows_text,
          word_text(words_type, (int)settings->x_type), word_text(words_type, (int)settings->y_type),
          settings->gpu ? "GPU" : "host", settings->clients, settings->in_flight);
  if (settings->rate > 0)
    fprintf(out, "; %.0f products/s asked for", settings->rate);
  fprintf(out, "\n%llu products in %.2f s, %llu failed; %.0f rows/s\n\n", (unsigned long long)report->latency->count,
          report->seconds, (unsigned long long)report->failures, report->rows_per_s);
  static const char *const heads[] = {"us", "p50", "p99", "p999", "mean", "max"};
  struct print_table table;
  print_table_begin(&table, "lrrrrr");
  for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
    print_cell(&table, "%s", heads[i]);
  histogram_row(&table, "latency", report->latency);
  histogram_row(&table, "overhead", report->overhead);
  histogram_row(&table, "device", report->device);
  histogram_row(&table, "socket", report->roundtrip);
  if (report->machine != NULL)
    histogram_row(&table, "machine", report->machine);
  print_table_end(&table, out);
  if (report->machine != NULL)
    fprintf(
        out,
        "\np99.9 is %.1f times p50. By itself the machine makes it %.1f times: it takes two threads that only read\n"
        "the clock %.2f %% of the time away from either, and who calls meanwhile waits for it\n",
        ratio(report->latency), ratio(report->machine), 100 * report->taken);
  if (report->checked > 0)
    fprintf(out, "%llu y compared with those of the same products alone, from host memory: off by %.2g at most\n",
            (unsigned long long)report->checked, report->difference);
  if (report->buckets)
    histogram_bars(report->latency, out);
  if (report->compare != NULL)
    compare_text(report, out);
}
