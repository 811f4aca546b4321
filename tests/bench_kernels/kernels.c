/* gemm-bench kernels: a backend's own products and those of the library beside it, in one process and in turn, because
 * machines that are shared drift within minutes. */
#include "client/bench/kernels.h"
#include "client/tool/print.h"
#include "peer.h"
#include "subject.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 16, MOST_ROUNDS = 99 };

struct settings {
  const struct backend_ops *ops;
  const struct peer_ops *peer_ops; /* NULL: none */
  struct backend_config config;
  struct peer *peer; /* NULL: none */
  enum gemm_format formats[MOST];
  int format_count;
  int64_t n[MOST], k[MOST], m[MOST];
  int shape_count, m_count;
  int rounds;
  uint64_t burst_ns;   /* a side's turn */
  uint64_t cold_bytes; /* copies of a weight are taken in turn, so many bytes of them */
};

/* Medians over the rounds, in microseconds a product. */
struct figures {
  double ours, peer; /* peer: 0 where there is none */
  double ratio;      /* of neighbours in time: peer / ours */
};

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int order(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *values, int count) {
  qsort(values, (size_t)count, sizeof(*values), order);
  return count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

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

/* A side's turn: microseconds a product. The other side's threads, which may spin for some milliseconds, come to rest
 * before; the first products wake this side's and do not count. */
static enum status side_turn(struct side *side, uint64_t burst_ns, double *us, struct error *error) {
  enum status status = STATUS_OK;
  nanosleep(&(struct timespec){.tv_nsec = 15000000}, NULL);
  uint64_t begin = now_ns(), warm = begin + burst_ns / 5, count = 0, end;
  do {
    status = side_run(side, error);
  } while (status == STATUS_OK && now_ns() < warm);
  begin = now_ns();
  do {
    status = status == STATUS_OK ? side_run(side, error) : status;
    count++;
    end = now_ns();
  } while (status == STATUS_OK && end < begin + burst_ns);
  *us = (double)(end - begin) / 1000 / (double)count;
  return status;
}

static enum status measure(const struct settings *settings, struct side *ours, struct side *peer, struct figures *out,
                           struct error *error) {
  double a[MOST_ROUNDS], b[MOST_ROUNDS], ratio[MOST_ROUNDS];
  enum status status = STATUS_OK;
  for (int i = 0; status == STATUS_OK && i < settings->rounds; i++) {
    status = side_turn(ours, settings->burst_ns, &a[i], error);
    if (status == STATUS_OK && peer->weight != NULL) {
      status = side_turn(peer, settings->burst_ns, &b[i], error);
      ratio[i] = b[i] / a[i];
    }
  }
  if (status == STATUS_OK) {
    *out = (struct figures){.ours = median(a, settings->rounds)};
    if (peer->weight != NULL) {
      out->peer = median(b, settings->rounds);
      out->ratio = median(ratio, settings->rounds);
    }
  }
  return status;
}

/* ---- one weight, every M */

static int copies_of(const struct settings *settings, uint64_t bytes) {
  uint64_t copies = settings->cold_bytes / bytes + 1;
  return copies > 1024 ? 1024 : (int)copies;
}

static enum status measure_m(const struct settings *settings, struct subject *subject, const struct gemm_weight *shape,
                             int64_t m, struct figures *out, struct error *error) {
  struct side ours = {.subject = subject, .copies = subject->copies}, peer = {.ops = settings->peer_ops};
  enum status status = subject_stage(subject, shape, m, error);
  if (status != STATUS_OK) {
    return status;
  }
  if (settings->peer != NULL) {
    const char *type = peer.ops->type(shape->format);
    uint64_t element = strcmp(type, "f32") == 0 ? 4 : strcmp(type, "bf16") == 0 ? 2 : 1;
    peer.copies = copies_of(settings, (uint64_t)(shape->n * shape->k) * element);
    peer.weight = peer.ops->prepare(settings->peer, shape->format, m, shape->n, shape->k, peer.copies, error);
    if (peer.weight == NULL) {
      return error->status;
    }
  }
  status = measure(settings, &ours, &peer, out, error);
  if (peer.weight != NULL) {
    peer.ops->release(peer.weight);
  }
  return status;
}

static void report(const struct tool_call *call, const struct settings *settings, const struct gemm_weight *shape,
                   int64_t m, const struct figures *figures) {
  double operations = 2 * (double)m * (double)shape->n * (double)shape->k;
  struct gemm_layout layout;
  struct error error;
  double bytes = gemm_layout_compute(shape, &layout, &error) == STATUS_OK ? (double)layout.total_bytes : 0;
  const char *type = settings->peer != NULL ? settings->peer_ops->type(shape->format) : NULL;
  if (call->json) {
    json_t *row = json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:f, s:f, s:f}", "backend", settings->ops->name, "format",
                            gemm_format_name(shape->format), "scale", gemm_scale_name(shape->scale), "n",
                            (json_int_t)shape->n, "k", (json_int_t)shape->k, "m", (json_int_t)m, "us", figures->ours,
                            "gb_per_s", bytes / figures->ours / 1e3, "gop_per_s", operations / figures->ours / 1e3);
    if (row != NULL && type != NULL) {
      json_object_set_new(row, "peer", json_string(settings->peer_ops->name));
      json_object_set_new(row, "peer_type", json_string(type));
      json_object_set_new(row, "peer_us", json_real(figures->peer));
      json_object_set_new(row, "ratio", json_real(figures->ratio));
    }
    print_json(call->out, row);
    return;
  }
  fprintf(call->out, "%-7s%-6s%6lld x%6lld  M %5lld%11.1f us%8.1f GB/s%9.1f GOP/s", gemm_format_name(shape->format),
          gemm_scale_name(shape->scale), (long long)shape->n, (long long)shape->k, (long long)m, figures->ours,
          bytes / figures->ours / 1e3, operations / figures->ours / 1e3);
  if (type != NULL) {
    fprintf(call->out, "   %s %-5s%11.1f us  ratio%6.2f", settings->peer_ops->name, type, figures->peer,
            figures->ratio);
  }
  fprintf(call->out, "\n");
  fflush(call->out);
}

static enum gemm_scale scale_of(enum gemm_format format) {
  switch (format) {
  case GEMM_FORMAT_INT2:
  case GEMM_FORMAT_INT2A8:
    return GEMM_SCALE_GROUP;
  case GEMM_FORMAT_F16:
  case GEMM_FORMAT_BF16:
    return GEMM_SCALE_NONE;
  default:
    return GEMM_SCALE_ROW;
  }
}

static enum status measure_weight(const struct tool_call *call, const struct settings *settings,
                                  struct subject *subject, const struct gemm_weight *shape, struct error *error) {
  struct gemm_layout layout;
  enum status status = gemm_layout_compute(shape, &layout, error);
  if (status == STATUS_OK) {
    status = subject_load(subject, shape, copies_of(settings, layout.total_bytes), error);
  }
  if (status != STATUS_OK) {
    return status;
  }
  for (int i = 0; status == STATUS_OK && i < settings->m_count; i++) {
    struct figures figures = {0};
    status = measure_m(settings, subject, shape, settings->m[i], &figures, error);
    if (status == STATUS_OK) {
      report(call, settings, shape, settings->m[i], &figures);
    }
  }
  subject_unload(subject);
  return status;
}

static uint64_t arena_bytes(const struct settings *settings) {
  uint64_t most = 0;
  for (int i = 0; i < settings->shape_count * settings->m_count; i++) {
    int shape = i / settings->m_count;
    uint64_t m = (uint64_t)settings->m[i % settings->m_count];
    uint64_t bytes = m * (uint64_t)(settings->n[shape] + settings->k[shape]) * sizeof(float) + 8192;
    most = bytes > most ? bytes : most;
  }
  return gemm_round_up(most, 4096);
}

static enum status measure_all(const struct tool_call *call, const struct settings *settings, struct error *error) {
  struct subject subject;
  struct backend_info info;
  enum status status = subject_open(&subject, settings->ops, &settings->config, arena_bytes(settings), error);
  if (status != STATUS_OK) {
    return status;
  }
  settings->ops->describe(subject.backend, &info);
  if (!call->json) {
    fprintf(call->out, "%s: %s\n", info.name, info.device_name);
  }
  for (int i = 0; status == STATUS_OK && i < settings->format_count * settings->shape_count; i++) {
    enum gemm_format format = settings->formats[i / settings->shape_count];
    struct gemm_weight shape = {.n = settings->n[i % settings->shape_count],
                                .k = settings->k[i % settings->shape_count],
                                .format = format,
                                .scale = scale_of(format)};
    status = measure_weight(call, settings, &subject, &shape, error);
  }
  subject_close(&subject);
  return status;
}

/* ---- options */

/* The items of "a,b,c", one a call: false at the end or where there are too many. */
static bool next_item(const char **list, char *out, size_t room) {
  size_t length = strcspn(*list, ",");
  if (length == 0 || length >= room) {
    return false;
  }
  memcpy(out, *list, length);
  out[length] = 0;
  *list += length + ((*list)[length] == ',');
  return true;
}

static bool parse_number(const char *text, int64_t *out, const char **end) {
  char *stop;
  long long value = strtoll(text, &stop, 10);
  *out = value;
  *end = stop;
  return stop != text && value >= 1 && value <= 1 << 24;
}

static bool parse_lists(const struct tool_call *call, struct settings *settings) {
  const char *formats = tool_value(call, "formats"), *shapes = tool_value(call, "shapes"), *m = tool_value(call, "m");
  const char *end;
  char item[32];
  formats = formats != NULL ? formats : "int8,fp8,int2,int2a8,f16,bf16";
  shapes = shapes != NULL ? shapes : "4096x4096,11008x4096,1536x384";
  m = m != NULL ? m : "1,8,64,512";
  while (settings->format_count < MOST && next_item(&formats, item, sizeof(item))) {
    if (!gemm_format_parse(item, &settings->formats[settings->format_count++])) {
      return tool_fail(call, TOOL_USAGE, "--formats: %s is no format", item) == TOOL_OK;
    }
  }
  while (settings->shape_count < MOST && next_item(&shapes, item, sizeof(item))) {
    int i = settings->shape_count++;
    if (!parse_number(item, &settings->n[i], &end) || *end != 'x' || !parse_number(end + 1, &settings->k[i], &end) ||
        *end != 0) {
      return tool_fail(call, TOOL_USAGE, "--shapes: %s is no NxK of 1..16777216", item) == TOOL_OK;
    }
  }
  while (settings->m_count < MOST && next_item(&m, item, sizeof(item))) {
    if (!parse_number(item, &settings->m[settings->m_count++], &end) || *end != 0) {
      return tool_fail(call, TOOL_USAGE, "--m: %s is no number of 1..16777216", item) == TOOL_OK;
    }
  }
  if (*formats != 0 || *shapes != 0 || *m != 0) {
    return tool_fail(call, TOOL_USAGE, "a list has at most %d items, none of them empty", MOST) == TOOL_OK;
  }
  return true;
}

static bool parse_options(const struct tool_call *call, struct settings *settings) {
  int64_t rounds, burst, cold, threads;
  if (!tool_integer(call, "rounds", 1, MOST_ROUNDS, 7, &rounds) ||
      !tool_integer(call, "burst-ms", 1, 10000, 40, &burst) || !tool_integer(call, "cold-mib", 0, 65536, 160, &cold) ||
      !tool_integer(call, "threads", 0, 256, 0, &threads) || !parse_lists(call, settings)) {
    return false;
  }
  settings->rounds = (int)rounds;
  settings->burst_ns = (uint64_t)burst * 1000000u;
  settings->cold_bytes = (uint64_t)cold << 20;
  settings->config = (struct backend_config){.in_flight = 1, .threads = (int)threads};
  return true;
}

static void open_peer(const struct tool_call *call, struct settings *settings) {
  const char *path = tool_value(call, "peer");
  struct error error;
  for (int i = 0; peer_table[i] != NULL; i++) {
    if (strcmp(peer_table[i]->backend, settings->ops->name) == 0) {
      settings->peer_ops = peer_table[i];
    }
  }
  if (settings->peer_ops == NULL || (path != NULL && strcmp(path, "none") == 0)) {
    return;
  }
  int cores = (int)sysconf(_SC_NPROCESSORS_ONLN), threads = settings->config.threads;
  settings->peer = settings->peer_ops->open(path, threads > 0 ? threads : cores, &error);
  if (settings->peer == NULL) {
    fprintf(stderr, "gemm-bench: kernels: no peer to compare with: %s\n", error.text);
  }
}

enum tool_exit bench_kernels(struct tool_call *call) {
  struct settings settings = {0};
  struct error error = {0};
  char reason[256];
  const char *name = tool_value(call, "backend");
  if (!parse_options(call, &settings)) {
    return TOOL_USAGE;
  }
  settings.ops = backend_choose(name != NULL ? name : "auto", &settings.config, reason, sizeof(reason), &error);
  if (settings.ops == NULL) {
    return tool_fail(call, TOOL_REFUSED, "%s", error.text);
  }
  open_peer(call, &settings);
  enum status status = measure_all(call, &settings, &error);
  if (settings.peer != NULL) {
    settings.peer_ops->close(settings.peer);
  }
  return status == STATUS_OK ? TOOL_OK : tool_fail(call, TOOL_REFUSED, "%s", error.text);
}
