#include "metrics.h"

#include "../../proto/gemm.h"
#include "context.h"
#include "workers/fleet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the format */

static void head(FILE *out, const char *name, const char *type, const char *help) {
  fprintf(out, "# HELP gemmd_%s %s\n# TYPE gemmd_%s %s\n", name, help, name, type);
}

static void sample(FILE *out, const char *name, const char *type, const char *help, double value) {
  head(out, name, type, help);
  fprintf(out, "gemmd_%s %.17g\n", name, value);
}

/* A label's value: backslash, quote and line feed are escaped. */
static void label(FILE *out, const char *text) {
  for (; *text != '\0'; text++) {
    if (*text == '\\' || *text == '"')
      fputc('\\', out);
    if (*text == '\n')
      fputs("\\n", out);
    else
      fputc(*text, out);
  }
}

/* `labels` without braces. Buckets of Prometheus hold all that is at most their bound. `scale`: of bound 0. */
static void histogram(FILE *out, const char *name, const char *labels, const uint64_t *tally, double scale,
                      double sum) {
  uint64_t count = 0;
  for (uint32_t i = 0; i < TALLY_BUCKETS; i++) {
    count += tally[i];
    if (i < TALLY_BUCKETS - 1)
      fprintf(out, "gemmd_%s_bucket{%s,le=\"%.9g\"} %llu\n", name, labels, scale * (double)(1u << i),
              (unsigned long long)count);
  }
  fprintf(out, "gemmd_%s_bucket{%s,le=\"+Inf\"} %llu\ngemmd_%s_sum{%s} %.17g\ngemmd_%s_count{%s} %llu\n", name, labels,
          (unsigned long long)count, name, labels, sum, name, labels, (unsigned long long)count);
}

/* ---- devices */

/* What is known of one device. */
struct device {
  const struct message_device_status *status;
  const struct message_worker_stats *now;
  struct totals totals;
};

struct device_metric {
  const char *name, *type, *help;
  double (*value)(const struct device *device);
};

#define VALUE(function, expression)                                                                                    \
  static double function(const struct device *device) {                                                                \
    return (double)(expression);                                                                                       \
  }
VALUE(is_ready, strcmp(device->status->state, "ready") == 0 || strcmp(device->status->state, "asleep") == 0)
VALUE(restarts, device->status->restarts)
VALUE(down, (double)device->status->down_ms / 1e3)
VALUE(retry, (double)device->status->retry_ms / 1e3)
VALUE(longest, (double)device->status->longest_ns / 1e9)
VALUE(memory_total, device->status->memory_total)
VALUE(memory_slabs, device->status->memory_slabs)
VALUE(memory_used, device->status->memory_used)
VALUE(memory_lent, device->status->memory_lent)
VALUE(memory_copies, device->status->memory_copies)
VALUE(memory_working, device->status->memory_working)
VALUE(memory_own, device->status->memory_own)
VALUE(is_asleep, strcmp(device->status->state, "asleep") == 0)
VALUE(naps, device->status->naps)
VALUE(quiet_s, (double)device->status->quiet_ms / 1e3)
VALUE(untuned, device->status->untuned)
VALUE(verified, device->status->verified)
VALUE(damaged, device->status->damaged)
VALUE(waiting, device->now->waiting)
VALUE(stuck, (double)device->now->stuck_ns / 1e9)
VALUE(requests, device->totals.requests)
VALUE(rows, device->totals.rows)
VALUE(products, device->totals.products)
VALUE(failures, device->totals.failures)
VALUE(busy, (double)device->totals.device_ns / 1e9)

static const struct device_metric device_metrics[] = {
    {"device_ready", "gauge", "1 where the device serves, or will when it is asked.", is_ready},
    {"device_restarts_total", "counter", "Workers that were replaced.", restarts},
    {"device_down_seconds", "gauge", "For which the device has not served; 0 where it does.", down},
    {"device_retry_seconds", "gauge", "Until the worker of a failed device is started again.", retry},
    {"device_longest_seconds", "gauge", "For which a product has kept the device from others at a time, as predicted.",
     longest},
    {"device_memory_bytes", "gauge", "Memory of the device.", memory_total},
    {"device_slab_bytes", "gauge", "Device memory taken for weights.", memory_slabs},
    {"device_weight_bytes", "gauge", "Of that, holding a weight.", memory_used},
    {"device_lent_bytes", "gauge", "Device memory for weights that clients were given the descriptors of.",
     memory_lent},
    {"device_copy_bytes", "gauge", "Memory beside that, for weights in an order that a library wants.", memory_copies},
    {"device_working_bytes", "gauge", "Device memory beside that, which products under way need.", memory_working},
    {"device_own_bytes", "gauge", "Device memory of gemmd's process there beside all that; 0: none, or not known.",
     memory_own},
    {"device_asleep", "gauge", "1 where its worker is closed until it is asked for something.", is_asleep},
    {"device_naps_total", "counter", "How often that was done.", naps},
    {"device_quiet_seconds", "gauge", "Since when no direct client was seen to use it; 0: there are none.", quiet_s},
    {"device_untuned", "gauge", "Shapes that direct clients compute and that wait to be tuned.", untuned},
    {"device_verified_total", "counter", "Comparisons of lent weights with what was loaded, while it was quiet.",
     verified},
    {"device_damaged_total", "counter", "Lent weights that these found damaged, and that were withdrawn.", damaged},
    {"device_queue", "gauge", "Requests that have not begun.", waiting},
    {"device_stuck_seconds", "gauge",
     "For which the oldest product has been on the device, or nothing was done that should.", stuck},
    {"device_requests_total", "counter", "Requests completed, whatever their status.", requests},
    {"device_rows_total", "counter", "Rows of products that went well.", rows},
    {"device_products_total", "counter", "Products computed, each for one request or several.", products},
    {"device_failures_total", "counter", "Requests completed with another status than OK.", failures},
    {"device_busy_seconds_total", "counter", "Time that the device was busy with products.", busy},
};

static void write_numbers(FILE *out, const struct device *devices, uint32_t count) {
  for (size_t m = 0; m < sizeof device_metrics / sizeof *device_metrics; m++) {
    const struct device_metric *metric = &device_metrics[m];
    head(out, metric->name, metric->type, metric->help);
    for (uint32_t i = 0; i < count; i++) {
      fprintf(out, "gemmd_%s{device=\"%u\",name=\"", metric->name, i);
      label(out, devices[i].status->name);
      fprintf(out, "\"} %.17g\n", metric->value(&devices[i]));
    }
  }
}

static bool counted(const uint64_t tally[TALLY_BUCKETS]) {
  for (uint32_t i = 0; i < TALLY_BUCKETS; i++)
    if (tally[i] != 0)
      return true;
  return false;
}

static void write_waits(FILE *out, const struct device *devices, uint32_t count) {
  head(out, "request_seconds", "histogram", "From the ring to the end of the product, by the weight's format.");
  for (uint32_t i = 0; i < count; i++) {
    for (uint32_t format = 1; format < TOTALS_FORMATS; format++) {
      char labels[64];
      snprintf(labels, sizeof labels, "device=\"%u\",format=\"%s\"", i, gemm_format_name((enum gemm_format)format));
      if (counted(devices[i].totals.waits[format].tally))
        histogram(out, "request_seconds", labels, devices[i].totals.waits[format].tally, TALLY_NS / 1e9,
                  (double)devices[i].totals.waits[format].ns / 1e9);
    }
  }
}

static void write_batches(FILE *out, const struct device *devices, uint32_t count) {
  head(out, "product_rows", "histogram", "Rows of a product, of one request or several.");
  for (uint32_t i = 0; i < count; i++) {
    char labels[32];
    snprintf(labels, sizeof labels, "device=\"%u\"", i);
    histogram(out, "product_rows", labels, devices[i].totals.batches, TALLY_ROWS, (double)devices[i].totals.rows);
  }
}

static void write_refusals(FILE *out, const struct counts *counts, const struct device *devices, uint32_t count) {
  head(out, "refusals_total", "counter", "What was asked for and refused, by status; at: control, or the device.");
  for (uint32_t status = 1; status < COUNTS_STATUSES; status++) {
    const char *name = status_name((enum status)status);
    if (counts->refusals[status] != 0)
      fprintf(out, "gemmd_refusals_total{at=\"control\",reason=\"%s\"} %llu\n", name,
              (unsigned long long)counts->refusals[status]);
    for (uint32_t i = 0; i < count; i++)
      if (devices[i].totals.refusals[status] != 0)
        fprintf(out, "gemmd_refusals_total{at=\"%u\",reason=\"%s\"} %llu\n", i, name,
                (unsigned long long)devices[i].totals.refusals[status]);
  }
}

static void write_commands(FILE *out, const struct counts *counts) {
  head(out, "command_seconds", "histogram", "From a control request to its reply, by command.");
  for (uint32_t i = 0; i < counts->command_count; i++) {
    char labels[64];
    snprintf(labels, sizeof labels, "command=\"%s\"", counts->commands[i].command->name);
    histogram(out, "command_seconds", labels, counts->commands[i].tally, TALLY_NS / 1e9,
              (double)counts->commands[i].ns / 1e9);
  }
}

static void write_all(FILE *out, const struct supervisor *supervisor, const struct message_status_reply *status,
                      const struct device *devices) {
  const struct counts *counts = &supervisor->counts;
  sample(out, "uptime_seconds", "gauge", "Since this gemmd was started, or took over.",
         (double)status->uptime_ms / 1e3);
  sample(out, "sessions", "gauge", "Clients that are connected, whoever asks included.", status->sessions);
  sample(out, "sessions_total", "counter", "Clients that have connected.", (double)counts->sessions);
  sample(out, "cut_off_total", "counter", "Sessions that were ended because of what the client did.",
         (double)counts->cut_off);
  sample(out, "weights_withdrawn_total", "counter", "Weights that were damaged, or refused by a worker.",
         (double)counts->withdrawn);
  sample(out, "names", "gauge", "Names of weights.", status->names);
  sample(out, "weights", "gauge", "Distinct contents.", status->weights);
  sample(out, "weight_bytes", "gauge", "Of all weights on all devices.", (double)status->weight_bytes);
  sample(out, "arena_bytes", "gauge", "Shared memory of all sessions.", (double)status->arena_bytes);
  write_numbers(out, devices, status->devices_count);
  write_waits(out, devices, status->devices_count);
  write_batches(out, devices, status->devices_count);
  write_refusals(out, counts, devices, status->devices_count);
  write_commands(out, counts);
}

enum status metrics_write(const struct supervisor *supervisor, const struct message_status_reply *status, char **text,
                          size_t *bytes, struct error *error) {
  struct device *devices = calloc(status->devices_count + 1u, sizeof *devices);
  FILE *out = open_memstream(text, bytes);
  bool written = devices != NULL && out != NULL;
  for (uint32_t i = 0; written && i < status->devices_count; i++) {
    const struct worker *worker = &supervisor->fleet->workers[i];
    devices[i] = (struct device){.status = &status->devices[i], .now = &worker->stats, .totals = worker_totals(worker)};
  }
  if (written)
    write_all(out, supervisor, status, devices);
  free(devices);
  if (out != NULL && fclose(out) != 0)
    written = false;
  if (written)
    return STATUS_OK;
  if (out != NULL)
    free(*text);
  return error_set(error, STATUS_NOMEM, "no memory for the metrics");
}
