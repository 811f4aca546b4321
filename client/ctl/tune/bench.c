/* tune --microbench: the fastest kernels for a linear of any size, with a weight of random data that goes again. */
#include "bench.h"
#include "options.h"

#include "../../../proto/gemm.h"
#include "../../tool/print.h"
#include "../../tool/words.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SIDE_MOST = 16384, K_MOST = 1 << 24 };

struct bench {
  struct tool_call *call;
  gemmd_session *session;
  const char *kernel;  /* by hand, or the manual parameters as they are if not given; NULL: none */
  bool given;          /* the former */
  const char *pattern; /* of weights that the winner is set for; NULL: none */
  bool manual_if_failed;
  uint32_t device;
  int64_t m, n, k;
  gemmd_tune_search search;
  int format;
  enum gemmd_type x_type, y_type;
  char name[64];
};

static bool sizes(const struct tool_call *call, const char *option, int64_t fallback, int64_t most, int64_t *out) {
  if (!tool_integer(call, option, 64, most, fallback, out))
    return false;
  if (*out % 64 == 0)
    return true;
  tool_fail(call, TOOL_USAGE, "--%s must be 64..%lld in steps of 64, got %lld", option, (long long)most,
            (long long)*out);
  return false;
}

/* What --pin and --on-failure ask for, once there is a result. */
static bool parse_ends(struct bench *bench) {
  static const struct word ends[] = {{"nothing", 0}, {"manual", 1}, {NULL, 0}};
  const struct tool_call *call = bench->call;
  bool pin = tool_value(call, "pin") != NULL;
  int end;
  if (!tool_word(call, "on-failure", ends, 0, &end))
    return false;
  bench->manual_if_failed = end == 1;
  bench->pattern = pin && call->count == 1 ? call->arguments[0] : NULL;
  if (pin && bench->pattern == NULL)
    tool_fail(call, TOOL_USAGE, "--microbench --pin needs one PATTERN of the weights that the winner is set for");
  else if (!pin && call->count > 0)
    tool_fail(call, TOOL_USAGE, "--microbench has a weight of its own, and takes no argument \"%s\" without --pin",
              call->arguments[0]);
  else if (!pin && bench->manual_if_failed)
    tool_fail(call, TOOL_USAGE, "--on-failure manual sets the manual parameters for the weights of --pin PATTERN");
  else
    return true;
  return false;
}

static bool parse(struct bench *bench) {
  const struct tool_call *call = bench->call;
  gemmd_tune_request request;
  if (!sizes(call, "bench-m", 2048, SIDE_MOST, &bench->m) || !sizes(call, "bench-k", 2048, K_MOST, &bench->k) ||
      !sizes(call, "bench-n", 4096, SIDE_MOST, &bench->n) || !tune_effort(call, &bench->search) || !parse_ends(bench) ||
      !tool_word(call, "format", words_format, GEMMD_FORMAT_INT8, &bench->format) || !tune_request(call, &request))
    return false;
  bench->x_type =
      bench->format == GEMMD_FORMAT_BF16 && tool_value(call, "x-type") == NULL ? GEMMD_BF16 : request.x_type;
  bench->y_type = request.y_type;
  return true;
}

/* ---- the weight: a safetensors file in memory with one tensor of bf16, which every format is made from */

static bool write_all(int fd, const void *data, size_t bytes) {
  for (const char *at = data; bytes > 0;) {
    ssize_t written = write(fd, at, bytes);
    if (written <= 0)
      return false;
    at += written;
    bytes -= (size_t)written;
  }
  return true;
}

/* Refuses what this machine has no memory for: what overcommits it would end somebody else's process. */
static enum tool_exit check_room(const struct bench *bench) {
  char needs[PRINT_UNIT_BYTES], has[PRINT_UNIT_BYTES], line[128];
  uint64_t bytes = (uint64_t)(bench->n * bench->k) * 2 + (uint64_t)(bench->m * bench->k) * type_bytes(bench->x_type) +
                   (uint64_t)(bench->m * bench->n) * type_bytes(bench->y_type);
  unsigned long long free_kib = 0;
  FILE *file = fopen("/proc/meminfo", "re");
  while (file != NULL && fgets(line, sizeof line, file) != NULL && sscanf(line, "MemAvailable: %llu", &free_kib) != 1)
    ;
  if (file != NULL)
    fclose(file);
  if (free_kib == 0 || bytes / 1024 < free_kib)
    return TOOL_OK;
  return tool_cannot(bench->call, GEMMD_NOMEM, "W, x and y of %lld x %lld x %lld take %s, %s are free on this machine",
                     (long long)bench->m, (long long)bench->n, (long long)bench->k, print_bytes(bytes, needs),
                     print_bytes((uint64_t)free_kib * 1024, has));
}

static int make_file(const struct bench *bench) {
  char header[256];
  uint64_t state = 1, elements = (uint64_t)(bench->n * bench->k);
  const char *type = bench->format == GEMMD_FORMAT_F16 ? "F16" : "BF16";
  int length =
      snprintf(header, sizeof header, "{\"w\":{\"dtype\":\"%s\",\"shape\":[%lld,%lld],\"data_offsets\":[0,%llu]}}",
               type, (long long)bench->n, (long long)bench->k, (unsigned long long)(2 * elements));
  uint64_t header_bytes = (uint64_t)length;
  int fd = memfd_create("microbench", MFD_CLOEXEC);
  uint16_t *row = malloc((size_t)bench->k * sizeof *row);
  bool written = fd >= 0 && row != NULL && write_all(fd, &header_bytes, sizeof header_bytes) &&
                 write_all(fd, header, header_bytes);
  for (int64_t n = 0; n < bench->n && written; n++) {
    for (int64_t k = 0; k < bench->k; k++) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      /* sign and mantissa at random, below 1 in both types */
      row[k] = (uint16_t)((state >> 48 & 0x807f) | (bench->format == GEMMD_FORMAT_F16 ? 0x3000 : 0x3d00));
    }
    written = write_all(fd, row, (size_t)bench->k * 2);
  }
  free(row);
  if (fd >= 0 && !written) {
    close(fd);
    return -1;
  }
  return fd;
}

static enum tool_exit load(const struct bench *bench, enum gemmd_scale scale) {
  gemmd_load request = {.name = bench->name,
                        .tensor = "w",
                        .format = (enum gemmd_format)bench->format,
                        .scale = scale,
                        .replace = true,
                        .device = (int)bench->device};
  int fd = make_file(bench);
  if (fd < 0)
    return tool_cannot(bench->call, GEMMD_NOMEM, "no memory for %lld x %lld random weights: %s", (long long)bench->n,
                       (long long)bench->k, strerror(errno));
  int status = gemmd_weight_load(bench->session, fd, &request, NULL);
  close(fd);
  return status == GEMMD_OK ? TOOL_OK : tool_refused(bench->call, bench->session, status);
}

/* ---- the whole linear, as a client sees it */

static int by_size(const void *left, const void *right) {
  uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
  return (a > b) - (a < b);
}

static enum tool_exit whole_linear(const struct bench *bench, gemmd_weight *weight, uint64_t *median) {
  size_t x_bytes = (size_t)(bench->m * bench->k) * type_bytes(bench->x_type);
  gemmd_product product = {.m = (uint32_t)bench->m,
                           .x = gemmd_alloc(bench->session, x_bytes),
                           .x_type = bench->x_type,
                           .y = gemmd_alloc(bench->session, (size_t)(bench->m * bench->n) * type_bytes(bench->y_type)),
                           .y_type = bench->y_type};
  uint64_t ns[100];
  if (product.x == NULL || product.y == NULL)
    return tool_cannot(bench->call, GEMMD_NOMEM, "no room for x and y in the session's shared memory");
  for (size_t i = 0; i < x_bytes; i++)
    ((uint8_t *)(uintptr_t)product.x)[i] = (uint8_t)(i % 2 ? 0x30 + i / 2 % 8 : i * 37);
  for (uint32_t i = 0; i < bench->search.warmup + bench->search.iterations; i++) {
    gemmd_result result;
    uint64_t ticket;
    int status = gemmd_submit(weight, &product, &ticket);
    if (status == GEMMD_OK)
      status = gemmd_wait(bench->session, ticket, -1, &result);
    if (status != GEMMD_OK)
      return tool_refused(bench->call, bench->session, status);
    if (i >= bench->search.warmup)
      ns[i - bench->search.warmup] = result.device_ns;
  }
  gemmd_free(bench->session, (void *)(uintptr_t)product.x);
  gemmd_free(bench->session, product.y);
  qsort(ns, (size_t)bench->search.iterations, sizeof *ns, by_size);
  *median = ns[bench->search.iterations / 2];
  return TOOL_OK;
}

/* ---- the report */

/* The best three, and what was set by hand. */
static bool shown(const gemmd_tune_result *result, uint32_t rank) {
  return rank < 3 || result->hand;
}

/* Of the manual parameters; 0: they were not timed. */
static uint64_t manual_ns(const gemmd_tune_report *report) {
  for (uint32_t i = 0; i < report->count; i++)
    if (report->results[i].hand)
      return report->results[i].ns;
  return 0;
}

/* How many times as fast as `than`; 0: one of them was not timed. */
static double times_as_fast(uint64_t than_ns, uint64_t ns) {
  return ns > 0 ? (double)than_ns / (double)ns : 0;
}

static json_t *result_json(const struct bench *bench, const gemmd_tune_report *report, const char *scale,
                           uint64_t linear_ns) {
  json_t *best = json_array();
  for (uint32_t i = 0; i < report->count; i++) {
    const gemmd_tune_result *result = &report->results[i];
    if (shown(result, i))
      json_array_append_new(best, json_pack("{s:o, s:I, s:f, s:I, s:b, s:f, s:f}", "kernel",
                                            print_json_text(result->kernel), "ns", (json_int_t)result->ns, "spread",
                                            result->spread, "samples", (json_int_t)result->samples, "hand",
                                            result->hand, "over_manual", times_as_fast(manual_ns(report), result->ns),
                                            "over_library", times_as_fast(report->library_first_ns, result->ns)));
  }
  return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "scale", scale, "m", (json_int_t)bench->m, "n",
                   (json_int_t)bench->n, "k", (json_int_t)bench->k, "linear_ns", (json_int_t)linear_ns, "roof_ns",
                   (json_int_t)report->roof_ns, "manual_ns", (json_int_t)manual_ns(report), "library_first_ns",
                   (json_int_t)report->library_first_ns, "why", print_json_text(report->why), "product", best);
}

static void ratio_cell(struct print_table *table, double ratio) {
  if (ratio > 0)
    print_cell(table, "%.2f", ratio);
  else
    print_cell(table, "-");
}

static void results_table(const struct bench *bench, const gemmd_tune_report *report, FILE *out) {
  static const char *const heads[] = {"TIME",    "SPREAD",      "TFLOPS",       "GB/S",
                                      "OF ROOF", "OVER MANUAL", "OVER LIBRARY", "KERNEL"};
  char time[PRINT_UNIT_BYTES];
  double operations = 2 * (double)bench->m * (double)bench->n * (double)bench->k;
  double bytes = (double)bench->n * (double)bench->k * gemm_format_facts((enum gemm_format)bench->format)->bits / 8 +
                 (double)bench->m * (double)bench->k * (double)type_bytes(bench->x_type) +
                 (double)bench->m * (double)bench->n * (double)type_bytes(bench->y_type);
  struct print_table table;
  print_table_begin(&table, "rrrrrrrl");
  for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
    print_cell(&table, "%s", heads[i]);
  for (uint32_t i = 0; i < report->count; i++) {
    if (!shown(&report->results[i], i))
      continue;
    const gemmd_tune_result *result = &report->results[i];
    double ns = result->ns > 0 ? (double)result->ns : INFINITY;
    print_cell(&table, "%s", print_duration(result->ns, time));
    print_cell(&table, "%.1f %%", result->spread * 100);
    print_cell(&table, "%.3f", operations / ns / 1e3);
    print_cell(&table, "%.1f", bytes / ns);
    if (report->roof_ns > 0)
      print_cell(&table, "%.0f %%", 100 * (double)report->roof_ns / ns);
    else
      print_cell(&table, "-");
    ratio_cell(&table, times_as_fast(manual_ns(report), result->ns));
    ratio_cell(&table, times_as_fast(report->library_first_ns, result->ns));
    print_cell(&table, "%s%s", result->kernel,
               !result->hand  ? ""
               : bench->given ? "  (by hand)"
                              : "  (manual, by default)");
  }
  print_table_end(&table, out);
}

static void result_text(const struct bench *bench, const gemmd_tune_report *report, const char *scale,
                        uint64_t linear_ns) {
  char time[PRINT_UNIT_BYTES];
  FILE *out = bench->call->out;
  fprintf(out,
          "%s, %lld x %lld x %lld, scale %s: whole linear %s (copies and quantization counted). The product alone:\n",
          word_text(words_format, bench->format), (long long)bench->m, (long long)bench->n, (long long)bench->k, scale,
          print_duration(linear_ns, time));
  results_table(bench, report, out);
  if (report->why[0] != '\0')
    fprintf(out, "What was set by hand cannot serve: %s\n", report->why);
  if (report->count > 0 && bench->pattern == NULL)
    fprintf(out, "To keep the first for weights of your own, in gemmd.conf:\n  tune_pins = PATTERN=%s\n",
            report->results[0].kernel);
}

/* ---- the search, and what follows from it */

/* Sets the kernel for the weights of --pin. */
static enum tool_exit pin(const struct bench *bench, const char *kernel) {
  uint32_t weights = 0;
  int status = gemmd_tune_pin(bench->session, bench->pattern, kernel, &weights);
  if (status != GEMMD_OK)
    return tool_refused(bench->call, bench->session, status);
  if (weights == 0)
    return tool_cannot(bench->call, GEMMD_NOT_FOUND, "no weight's name matches %s", bench->pattern);
  if (!bench->call->json)
    fprintf(bench->call->out, "%s is set for %u weight%s, once it has been checked\n", kernel, weights,
            print_plural(weights));
  return TOOL_OK;
}

/* The search has failed, which has been said: what was set by hand is what is left to use. */
static enum tool_exit fall_back(const struct bench *bench, enum tool_exit failure) {
  if (bench->kernel == NULL)
    return failure;
  if (!bench->manual_if_failed) {
    fprintf(stderr, "gemmctl: tune: what was set by hand is left to use: %s\n", bench->kernel);
    return failure;
  }
  fprintf(stderr, "gemmctl: tune: the manual parameters take the place of the search's result\n");
  return pin(bench, bench->kernel);
}

/* The search. Manual parameters that nobody gave and that the device does not take are left out. */
static int search(struct bench *bench, gemmd_tune_report *report) {
  gemmd_tune_request request = {.weight = bench->name,
                                .m = (uint32_t)bench->m,
                                .x_type = bench->x_type,
                                .y_type = bench->y_type,
                                .kernel = bench->kernel};
  int status = gemmd_tune_measured(bench->session, &request, &bench->search, report);
  if (status == GEMMD_OK || bench->given || (status != GEMMD_UNSUPPORTED && status != GEMMD_NOT_FOUND))
    return status;
  request.kernel = bench->kernel = NULL;
  return gemmd_tune_measured(bench->session, &request, &bench->search, report);
}

/* One scale mode. */
static enum tool_exit run(struct bench *bench, enum gemmd_scale scale, json_t *list, gemmd_tune_report *report) {
  gemmd_weight *weight = NULL;
  uint64_t linear_ns = 0;
  enum tool_exit code = load(bench, scale);
  if (code != TOOL_OK)
    return code;
  int status = search(bench, report);
  bool found = status == GEMMD_OK;
  if (!found)
    code = fall_back(bench, tool_refused(bench->call, bench->session, status));
  if (found) {
    status = gemmd_weight_open(bench->session, bench->name, &weight);
    code = status == GEMMD_OK ? whole_linear(bench, weight, &linear_ns)
                              : tool_refused(bench->call, bench->session, status);
  }
  gemmd_weight_close(weight);
  (void)gemmd_weight_unload(bench->session, bench->name, NULL);
  const char *mode = scale == GEMMD_SCALE_DEFAULT ? "as the format has it" : word_text(words_scale, (int)scale);
  if (!found || code != TOOL_OK)
    return code;
  if (list != NULL)
    json_array_append_new(list, result_json(bench, report, mode, linear_ns));
  else
    result_text(bench, report, mode, linear_ns);
  return TOOL_OK;
}

/* With one scale a row where there are scales, and with --bench-include-scalar by one of all, too. The winner of the
 * former is set for the weights of --pin. */
static enum tool_exit run_all(struct bench *bench, json_t *list) {
  gemmd_tune_report report = {.count = 0}, scalar;
  bool scaled = bench->format == GEMMD_FORMAT_INT8 || bench->format == GEMMD_FORMAT_FP8;
  enum tool_exit code = TOOL_OK;
  if (bench->pattern != NULL) { /* an admin's right, of which the search should not be in vain: the bench has no pin */
    int status = gemmd_tune_pin(bench->session, bench->name, NULL, NULL);
    code = status == GEMMD_OK ? TOOL_OK : tool_refused(bench->call, bench->session, status);
  }
  if (code == TOOL_OK)
    code = run(bench, scaled ? GEMMD_SCALE_ROW : GEMMD_SCALE_DEFAULT, list, &report);
  if (code == TOOL_OK && scaled && tool_value(bench->call, "bench-include-scalar") != NULL)
    code = run(bench, GEMMD_SCALE_ONE, list, &scalar);
  if (code == TOOL_OK && bench->pattern != NULL && report.count > 0)
    code = pin(bench, report.results[0].kernel);
  return code;
}

/* ---- a search takes long: who ends it from outside must not leave a weight behind */

struct sweeper {
  gemmd_session *session; /* of its own */
  char name[64];          /* the weight's */
  sigset_t ends;
  _Atomic bool over; /* the bench, by itself or by a signal */
};

static void *sweep(void *user) {
  struct sweeper *sweeper = user;
  int number;
  if (sigwait(&sweeper->ends, &number) != 0 || atomic_exchange(&sweeper->over, true))
    return NULL;
  (void)gemmd_weight_unload(sweeper->session, sweeper->name, NULL);
  _exit(128 + number);
}

static bool sweeper_start(struct sweeper *sweeper) {
  pthread_t thread;
  static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
  sigemptyset(&sweeper->ends);
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    struct sigaction now;
    if (sigaction(numbers[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN) /* as nohup has it */
      sigaddset(&sweeper->ends, numbers[i]);
  }
  pthread_sigmask(SIG_BLOCK, &sweeper->ends, NULL);
  return pthread_create(&thread, NULL, sweep, sweeper) == 0 && pthread_detach(thread) == 0;
}

/* The manual parameters where none are given, by the backend that computes. */
static enum tool_exit find_manual(struct bench *bench, const char *given) {
  static gemmd_daemon_info info; /* tens of KiB */
  bench->given = given != NULL;
  bench->kernel = given;
  if (given != NULL)
    return TOOL_OK;
  int status = gemmd_daemon_status(bench->session, &info);
  if (status != GEMMD_OK)
    return tool_refused(bench->call, bench->session, status);
  bench->kernel = strcmp(info.backend, "cuda") == 0 ? "tile" : strcmp(info.backend, "cpu") == 0 ? "cpu" : NULL;
  return TOOL_OK;
}

enum tool_exit tune_microbench(struct tool_call *call, gemmd_session *session, uint32_t device, const char *kernel) {
  struct bench bench = {.call = call, .device = device};
  static struct sweeper sweeper; /* its thread may outlive this */
  if (!parse(&bench))
    return TOOL_USAGE;
  size_t bytes = (size_t)(bench.m * bench.k) * type_bytes(bench.x_type) +
                 (size_t)(bench.m * bench.n) * type_bytes(bench.y_type) + ((size_t)1 << 20);
  gemmd_options options = {.arena_bytes = bytes, .entries = 1, .name = "gemmctl"};
  uint64_t number;
  enum tool_exit code = check_room(&bench);
  if (code == TOOL_OK)
    code = tool_random(call, &number);
  if (code == TOOL_OK)
    code = tool_connect(call, &options, &bench.session);
  if (code != TOOL_OK)
    return code;
  snprintf(bench.name, sizeof bench.name, "microbench.%016llx", (unsigned long long)number);
  sweeper.session = session;
  snprintf(sweeper.name, sizeof sweeper.name, "%s", bench.name);
  if (!sweeper_start(&sweeper)) {
    gemmd_disconnect(bench.session);
    return tool_cannot(call, GEMMD_SYSTEM, "no thread can be started");
  }
  json_t *list = call->json ? json_array() : NULL;
  code = find_manual(&bench, kernel);
  if (code == TOOL_OK)
    code = run_all(&bench, list);
  if (code == TOOL_OK && list != NULL)
    print_json(call->out, json_pack("{s:O, s:s?}", "results", list, "pinned", bench.pattern));
  json_decref(list);
  gemmd_disconnect(bench.session);
  while (atomic_exchange(&sweeper.over, true))
    pause(); /* the other thread ends the process */
  return code;
}
