#include "turned.h"

#include "client/tool/print.h"
#include "peer.h"
#include "proto/clock.h"
#include "subject.h"
#include "turns.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct rivalry {
  const struct settings *settings;
  const struct peer_ops *peer_ops; /* NULL: none */
  struct peer *peer;               /* NULL: none */
  struct backend_roof roof;        /* of the backend */
};

/* Medians over the rounds (of processor time: the least), in microseconds a product. */
struct figures {
  double ours, peer; /* peer: 0 where there is none */
  double ratio;      /* of neighbours in time: peer / ours */
  char absent[256];  /* why there is none; "": none was asked for, or there is one */
};

/* One side: the backend's subject, or the library's weight. */
struct side {
  struct subject *subject; /* NULL: the library */
  const struct peer_ops *ops;
  struct peer_weight *weight;
  int copies, next;
};

static enum status side_run(struct side *side, struct error *error) {
  int copy = side->next;
  side->next = (copy + 1) % side->copies;
  if (side->subject != NULL) {
    return subject_run(side->subject, copy, error);
  }
  return side->ops->run(side->weight, copy) ? STATUS_OK : error_set(error, STATUS_INTERNAL, "the library failed");
}

/* What a turn is timed by: others on the machine add to the one, not to the other. */
static uint64_t turn_ns(const struct settings *settings) {
  struct timespec now;
  if (!settings->processor_time) {
    return clock_ns();
  }
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* A side's turn: microseconds a product. The other side's threads, which may spin for some milliseconds, come to rest
 * before; the first products wake this side's and do not count. */
static enum status side_turn(const struct settings *settings, struct side *side, double *us, struct error *error) {
  enum status status = STATUS_OK;
  nanosleep(&(struct timespec){.tv_nsec = 15000000}, NULL);
  uint64_t begin = turn_ns(settings), warm = begin + settings->burst_ns / 5, count = 0, end;
  do {
    status = side_run(side, error);
  } while (status == STATUS_OK && turn_ns(settings) < warm);
  begin = turn_ns(settings);
  do {
    status = status == STATUS_OK ? side_run(side, error) : status;
    count++;
    end = turn_ns(settings);
  } while (status == STATUS_OK && end < begin + settings->burst_ns);
  *us = (double)(end - begin) / 1000 / (double)count;
  return status;
}

static double least(const double *values, int count) {
  double value = values[0];
  for (int i = 1; i < count; i++) {
    value = fmin(value, values[i]);
  }
  return value;
}

static enum status measure(const struct settings *settings, struct side *ours, struct side *peer, struct figures *out,
                           struct error *error) {
  double a[SETTINGS_ROUNDS], b[SETTINGS_ROUNDS], ratio[SETTINGS_ROUNDS];
  enum status status = STATUS_OK;
  for (int i = 0; status == STATUS_OK && i < settings->rounds; i++) {
    status = side_turn(settings, ours, &a[i], error);
    if (status == STATUS_OK && peer->weight != NULL) {
      status = side_turn(settings, peer, &b[i], error);
      ratio[i] = b[i] / a[i];
    }
  }
  if (status != STATUS_OK) {
    return status;
  }
  if (settings->processor_time) {
    out->ours = least(a, settings->rounds);
    out->peer = peer->weight != NULL ? least(b, settings->rounds) : 0;
    out->ratio = out->peer / out->ours;
    return STATUS_OK;
  }
  out->ours = turns_median(a, settings->rounds);
  if (peer->weight != NULL) {
    out->peer = turns_median(b, settings->rounds);
    out->ratio = turns_median(ratio, settings->rounds);
  }
  return STATUS_OK;
}

/* ---- one weight, every M */

static enum gemm_type type_of(enum gemm_format format, enum gemm_type wanted) {
  return wanted != GEMM_TYPE_NONE     ? wanted
         : format == GEMM_FORMAT_F16  ? GEMM_F16
         : format == GEMM_FORMAT_BF16 ? GEMM_BF16
                                      : GEMM_F32;
}

static enum status stage(const struct settings *settings, struct subject *subject, const struct data_weight *weight,
                         int64_t m, struct error *error) {
  enum gemm_format format = weight->shape.format;
  enum gemm_type y_type = settings->y_type != GEMM_TYPE_NONE ? settings->y_type : GEMM_F32;
  struct data_x x;
  enum status status = data_x_make(&x, &weight->shape, m, type_of(format, settings->x_type), error);
  if (status != STATUS_OK) {
    return status;
  }
  status = subject_stage(subject, weight, &x, y_type, error);
  if (status == STATUS_OK) {
    status = subject_check(subject, weight, &x, error);
  }
  data_x_free(&x);
  return status;
}

/* A library that has nothing of this kind is no error: the row says so. */
static enum status prepare_peer(const struct rivalry *rivalry, const struct gemm_weight *shape, int64_t m,
                                struct side *peer, struct figures *out, struct error *error) {
  uint64_t bytes = peer->ops->bytes(rivalry->peer, shape->format, shape->n, shape->k);
  if (bytes == 0) {
    snprintf(out->absent, sizeof(out->absent), "%s has nothing alike", peer->ops->name);
    return STATUS_OK;
  }
  peer->copies = settings_copies(rivalry->settings, bytes);
  peer->weight = peer->ops->prepare(rivalry->peer, shape->format, m, shape->n, shape->k, peer->copies, error);
  if (peer->weight == NULL && error->status == STATUS_UNSUPPORTED) {
    snprintf(out->absent, sizeof(out->absent), "%s", error->text);
    return STATUS_OK;
  }
  return peer->weight != NULL ? STATUS_OK : error->status;
}

static enum status measure_m(const struct rivalry *rivalry, struct subject *subject, const struct data_weight *weight,
                             int64_t m, struct figures *out, struct error *error) {
  const struct settings *settings = rivalry->settings;
  const struct gemm_weight *shape = &weight->shape;
  struct side ours = {.subject = subject, .copies = subject->copies}, peer = {.ops = rivalry->peer_ops};
  enum status status = stage(settings, subject, weight, m, error);
  if (status != STATUS_OK) {
    return status;
  }
  status = rivalry->peer != NULL ? prepare_peer(rivalry, shape, m, &peer, out, error) : STATUS_OK;
  if (status != STATUS_OK) {
    return status;
  }
  status = measure(settings, &ours, &peer, out, error);
  if (peer.weight != NULL) {
    peer.ops->release(peer.weight);
  }
  return status;
}

/* Where memory or arithmetic delivers all it can, in us; 0: not known. */
static double roof_us(const struct backend_roof *roof, enum gemm_format format, double bytes, double operations) {
  if (roof->bytes_per_s == 0 || roof->operations_per_s[format] == 0) {
    return 0;
  }
  return 1e6 * fmax(bytes / (double)roof->bytes_per_s, operations / (double)roof->operations_per_s[format]);
}

static void report(const struct tool_call *call, const struct rivalry *rivalry, const struct gemm_weight *shape,
                   int64_t m, const struct figures *figures) {
  double operations = 2 * (double)m * (double)shape->n * (double)shape->k;
  struct gemm_layout layout;
  struct error error;
  double bytes = gemm_layout_compute(shape, &layout, &error) == STATUS_OK ? (double)layout.total_bytes : 0;
  const char *type = figures->peer > 0 ? rivalry->peer_ops->type(rivalry->peer, shape->format) : NULL;
  double roof = roof_us(&rivalry->roof, shape->format, bytes, operations);
  if (call->json) {
    json_t *row =
        json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:f, s:f, s:f, s:f}", "backend", rivalry->settings->ops->name,
                  "format", gemm_format_name(shape->format), "scale", gemm_scale_name(shape->scale), "n",
                  (json_int_t)shape->n, "k", (json_int_t)shape->k, "m", (json_int_t)m, "us", figures->ours, "gb_per_s",
                  bytes / figures->ours / 1e3, "gop_per_s", operations / figures->ours / 1e3, "roof_us", roof);
    if (row != NULL && type != NULL) {
      json_object_set_new(row, "peer", json_string(rivalry->peer_ops->name));
      json_object_set_new(row, "peer_type", json_string(type));
      json_object_set_new(row, "peer_us", json_real(figures->peer));
      json_object_set_new(row, "ratio", json_real(figures->ratio));
    }
    if (row != NULL && figures->absent[0] != 0) {
      json_object_set_new(row, "peer_absent", json_string(figures->absent));
    }
    print_json(call->out, row);
    return;
  }
  fprintf(call->out, "%-7s%-6s%6lld x%6lld  M %5lld%11.1f us%8.1f GB/s%9.1f GOP/s", gemm_format_name(shape->format),
          gemm_scale_name(shape->scale), (long long)shape->n, (long long)shape->k, (long long)m, figures->ours,
          bytes / figures->ours / 1e3, operations / figures->ours / 1e3);
  if (roof > 0) {
    fprintf(call->out, "%5.0f %% of roof", 100 * roof / figures->ours);
  }
  if (type != NULL) {
    fprintf(call->out, "   %s %-5s%11.1f us  ratio%6.2f", rivalry->peer_ops->name, type, figures->peer, figures->ratio);
  } else if (figures->absent[0] != 0) {
    fprintf(call->out, "   %s", figures->absent);
  }
  fprintf(call->out, "\n");
  fflush(call->out);
}

static enum status measure_weight(const struct tool_call *call, const struct rivalry *rivalry, struct subject *subject,
                                  const struct gemm_weight *shape, const struct cases *cases, struct error *error) {
  struct data_weight weight;
  enum status status = data_weight_make(&weight, shape, error);
  if (status != STATUS_OK) {
    return status;
  }
  weight.biased = rivalry->settings->bias;
  status = subject_load(subject, &weight, settings_copies(rivalry->settings, weight.layout.total_bytes), error);
  for (int i = 0; status == STATUS_OK && i < cases->m_count; i++) {
    struct figures figures = {0};
    status = measure_m(rivalry, subject, &weight, cases->m[i], &figures, error);
    if (status == STATUS_OK) {
      report(call, rivalry, shape, cases->m[i], &figures);
    }
  }
  subject_unload(subject);
  data_weight_free(&weight);
  return status;
}

static enum status measure_cases(const struct tool_call *call, const struct rivalry *rivalry, struct subject *subject,
                                 const struct cases *cases, struct error *error) {
  enum status status = STATUS_OK;
  for (int i = 0; status == STATUS_OK && i < cases->format_count * cases->shape_count; i++) {
    enum gemm_format format = cases->formats[i / cases->shape_count];
    struct gemm_weight shape = {.n = cases->n[i % cases->shape_count],
                                .k = cases->k[i % cases->shape_count],
                                .format = format,
                                .scale = settings_scale(rivalry->settings, format)};
    status = measure_weight(call, rivalry, subject, &shape, cases, error);
  }
  return status;
}

static enum status measure_all(const struct tool_call *call, struct rivalry *rivalry, struct error *error) {
  const struct settings *settings = rivalry->settings;
  struct subject subject;
  struct backend_info info;
  enum status status = subject_open(&subject, settings->ops, &settings->config, settings_arena_bytes(settings), error);
  if (status != STATUS_OK) {
    return status;
  }
  settings->ops->describe(subject.backend, &info);
  settings->ops->roof(subject.backend, &rivalry->roof);
  if (!call->json) {
    fprintf(call->out, "%s: %s\n", info.name, info.device_name);
  }
  for (int i = 0; status == STATUS_OK && i < settings->case_count; i++) {
    status = measure_cases(call, rivalry, &subject, &settings->cases[i], error);
  }
  subject_close(&subject);
  return status;
}

/* The backend's peer that `*path` names before a '=', which is then cut off, or the first. */
static const struct peer_ops *choose_peer(const char *backend, const char **path) {
  const struct peer_ops *first = NULL;
  for (int i = 0; peer_table[i] != NULL; i++) {
    const struct peer_ops *ops = peer_table[i];
    size_t length = strlen(ops->name);
    if (strcmp(ops->backend, backend) != 0) {
      continue;
    }
    if (*path != NULL && strncmp(*path, ops->name, length) == 0 && (*path)[length] == '=') {
      *path += length + 1;
      return ops;
    }
    first = first != NULL ? first : ops;
  }
  return first;
}

static void open_peer(struct rivalry *rivalry) {
  const struct settings *settings = rivalry->settings;
  const char *path = settings->peer;
  struct error error;
  rivalry->peer_ops = choose_peer(settings->ops->name, &path);
  if (rivalry->peer_ops == NULL || (path != NULL && strcmp(path, "none") == 0)) {
    return;
  }
  int cores = (int)sysconf(_SC_NPROCESSORS_ONLN), threads = settings->config.threads;
  rivalry->peer = rivalry->peer_ops->open(path, threads > 0 ? threads : cores, &error);
  if (rivalry->peer == NULL) {
    fprintf(stderr, "gemm-bench: kernels: no peer to compare with: %s\n", error.text);
  }
}

enum status turned_measure(const struct tool_call *call, const struct settings *settings, struct error *error) {
  struct rivalry rivalry = {.settings = settings};
  open_peer(&rivalry);
  enum status status = measure_all(call, &rivalry, error);
  if (rivalry.peer != NULL) {
    rivalry.peer_ops->close(rivalry.peer);
  }
  return status;
}
