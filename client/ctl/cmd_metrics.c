/* metrics: the numbers of status in Prometheus' text format (version 0.0.4), for its textfile collector or any scraper
 * that runs a program. */
#include "ctl.h"

#include <string.h>

/* One family of samples: all devices of one number, or one number of the daemon. */
static void head(FILE *out, const char *name, const char *type, const char *help) {
  fprintf(out, "# HELP gemmd_%s %s\n# TYPE gemmd_%s %s\n", name, help, name, type);
}

static void sample(FILE *out, const char *name, const char *type, const char *help, double value) {
  head(out, name, type, help);
  fprintf(out, "gemmd_%s %.17g\n", name, value);
}

/* A label's value: backslash, quote and line feed are escaped. */
static void print_label(FILE *out, const char *text) {
  for (; *text != '\0'; text++) {
    if (*text == '\\' || *text == '"')
      fputc('\\', out);
    if (*text == '\n')
      fputs("\\n", out);
    else
      fputc(*text, out);
  }
}

struct device_metric {
  const char *name, *type, *help;
  double (*value)(const gemmd_device_info *device);
};

static double is_ready(const gemmd_device_info *device) {
  return strcmp(device->state, "ready") == 0;
}

#define FIELD_VALUE(function, expression)                                                                              \
  static double function(const gemmd_device_info *device) {                                                            \
    return (double)(expression);                                                                                       \
  }
FIELD_VALUE(restarts, device->restarts)
FIELD_VALUE(memory_total, device->memory_total)
FIELD_VALUE(memory_slabs, device->memory_slabs)
FIELD_VALUE(memory_used, device->memory_used)
FIELD_VALUE(requests, device->requests)
FIELD_VALUE(rows, device->rows)
FIELD_VALUE(failures, device->failures)
FIELD_VALUE(busy, (double)device->device_ns / 1e9)

static const struct device_metric device_metrics[] = {
    {"device_ready", "gauge", "1 where the device serves.", is_ready},
    {"device_restarts_total", "counter", "Workers that were replaced.", restarts},
    {"device_memory_bytes", "gauge", "Memory of the device.", memory_total},
    {"device_slab_bytes", "gauge", "Device memory taken for weights.", memory_slabs},
    {"device_weight_bytes", "gauge", "Of that, holding a weight.", memory_used},
    {"device_requests_total", "counter", "Products completed, whatever their status.", requests},
    {"device_rows_total", "counter", "Rows of products that went well.", rows},
    {"device_failures_total", "counter", "Products completed with another status than OK.", failures},
    {"device_busy_seconds_total", "counter", "Time that the device was busy with products.", busy},
};

static void write_devices(FILE *out, const gemmd_daemon_info *info) {
  uint32_t count = info->devices < 64 ? info->devices : 64;
  for (size_t m = 0; m < sizeof device_metrics / sizeof *device_metrics; m++) {
    const struct device_metric *metric = &device_metrics[m];
    head(out, metric->name, metric->type, metric->help);
    for (uint32_t i = 0; i < count; i++) {
      fprintf(out, "gemmd_%s{device=\"%u\",name=\"", metric->name, i);
      print_label(out, info->device[i].name);
      fprintf(out, "\"} %.17g\n", metric->value(&info->device[i]));
    }
  }
}

enum tool_exit ctl_metrics(struct tool_call *call) {
  gemmd_session *session;
  static gemmd_daemon_info info;
  enum tool_exit code = ctl_connect(call, &session);
  if (code != TOOL_OK)
    return code;
  int status = gemmd_daemon_status(session, &info);
  if (status != GEMMD_OK) {
    code = tool_refused(call, session, status);
  } else {
    FILE *out = call->out;
    sample(out, "uptime_seconds", "gauge", "Since this gemmd was started, or took over.", (double)info.uptime_ms / 1e3);
    sample(out, "sessions", "gauge", "Clients that are connected, this one included.", info.sessions);
    sample(out, "names", "gauge", "Names of weights.", info.names);
    sample(out, "weights", "gauge", "Distinct contents.", info.weights);
    sample(out, "weight_bytes", "gauge", "Of all weights on all devices.", (double)info.weight_bytes);
    sample(out, "arena_bytes", "gauge", "Shared memory of all sessions.", (double)info.arena_bytes);
    write_devices(out, &info);
  }
  gemmd_disconnect(session);
  return code;
}
