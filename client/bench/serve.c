#include "serve.h"

#include "../tool/print.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* All clients together. */
struct serve {
  struct tool_call *call;
  struct serve_settings settings;
  struct serve_start *start;    /* shared with the clients */
  struct serve_client *clients; /* the same */
  pid_t *processes;
  int started;
  struct histogram latency, overhead, device;
  uint64_t failures;
  double seconds; /* from the first counted product to the last */
};

static enum tool_exit parse_options(struct tool_call *call, struct serve_settings *settings) {
  int64_t m, clients, in_flight, requests;
  double seconds, warmup;
  int x_type, y_type;
  if (!tool_integer(call, "m", 1, 1 << 20, 1, &m) ||
      !tool_integer(call, "clients", 1, SERVE_CLIENTS_MAX, 1, &clients) ||
      !tool_integer(call, "in-flight", 1, SERVE_IN_FLIGHT_MAX, 1, &in_flight) ||
      !tool_integer(call, "requests", 1, INT64_MAX, 0, &requests) ||
      !tool_number(call, "seconds", 0.001, 1e6, 5, &seconds) || !tool_number(call, "warmup", 0, 1e6, 0.5, &warmup) ||
      !tool_word(call, "x-type", words_type, GEMMD_F32, &x_type) ||
      !tool_word(call, "y-type", words_type, GEMMD_F32, &y_type))
    return TOOL_USAGE;
  if (requests > 0 && tool_value(call, "seconds") != NULL)
    return tool_fail(call, TOOL_USAGE, "--seconds and --requests exclude each other");
  *settings = (struct serve_settings){.weight = tool_value(call, "weight"),
                                      .m = (uint32_t)m,
                                      .clients = (int)clients,
                                      .in_flight = (int)in_flight,
                                      .x_type = (enum gemmd_type)x_type,
                                      .y_type = (enum gemmd_type)y_type,
                                      .warmup_ns = (uint64_t)(warmup * 1e9),
                                      .run_ns = (uint64_t)(seconds * 1e9),
                                      .requests = (uint64_t)requests};
  return TOOL_OK;
}

/* Before any client starts: a session's memory is fixed, so the weight's size has to be known when it connects. */
static enum tool_exit look_at_weight(const struct tool_call *call, struct serve_settings *settings) {
  const gemmd_options options = {.arena_bytes = (size_t)1 << 20, .entries = 1, .name = "gemm-bench"};
  gemmd_session *session;
  enum tool_exit code = tool_connect(call, &options, &session);
  if (code != TOOL_OK)
    return code;
  gemmd_daemon_info daemon;
  int status = gemmd_daemon_status(session, &daemon);
  if (status == GEMMD_OK)
    status = gemmd_weight_stat(session, settings->weight, &settings->info);
  if (status != GEMMD_OK)
    code = tool_refused(call, session, status);
  else
    memcpy(settings->backend, daemon.backend, sizeof settings->backend);
  gemmd_disconnect(session);
  return code;
}

/* ---- processes */

static void *shared_memory(size_t bytes) {
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? NULL : memory;
}

static enum tool_exit start_clients(struct serve *serve, int ready[2], int gate[2]) {
  fflush(NULL);
  for (int i = 0; i < serve->settings.clients; i++) {
    pid_t process = fork();
    if (process < 0)
      return tool_fail(serve->call, TOOL_REFUSED, "cannot start client %d: %s", i, strerror(errno));
    if (process == 0) {
      close(ready[0]);
      close(gate[1]);
      struct tool_call call = *serve->call;
      call.json = false; /* the one object is the parent's */
      enum tool_exit code =
          serve_client_run(&call, &serve->settings, i, serve->start, &serve->clients[i], ready[1], gate[0]);
      fflush(NULL);
      _exit((int)code);
    }
    serve->processes[serve->started++] = process;
  }
  return TOOL_OK;
}

/* Counts the clients that are ready, until each has said so or ended: then nobody holds the pipe's other end. */
static int count_ready(int ready) {
  char bytes[64];
  int count = 0;
  for (;;) {
    ssize_t got = read(ready, bytes, sizeof bytes);
    if (got > 0)
      count += (int)got;
    else if (got == 0 || errno != EINTR)
      return count;
  }
}

/* Waits for all clients. The worst of their exit codes is the first that is not 0. */
static enum tool_exit reap(struct serve *serve) {
  enum tool_exit code = TOOL_OK;
  for (int i = 0; i < serve->started; i++) {
    int status = 0;
    while (waitpid(serve->processes[i], &status, 0) < 0 && errno == EINTR)
      ;
    enum tool_exit own = WIFEXITED(status) ? (enum tool_exit)WEXITSTATUS(status) : TOOL_REFUSED;
    if (WIFSIGNALED(status))
      tool_fail(serve->call, TOOL_REFUSED, "client %d was ended by signal %d", i, WTERMSIG(status));
    if (code == TOOL_OK)
      code = own;
  }
  return code;
}

static enum tool_exit run_clients(struct serve *serve) {
  int ready[2], gate[2];
  if (pipe(ready) != 0)
    return tool_fail(serve->call, TOOL_REFUSED, "cannot make a pipe: %s", strerror(errno));
  if (pipe(gate) != 0) {
    close(ready[0]);
    close(ready[1]);
    return tool_fail(serve->call, TOOL_REFUSED, "cannot make a pipe: %s", strerror(errno));
  }
  enum tool_exit code = start_clients(serve, ready, gate);
  close(ready[1]);
  close(gate[0]);
  int count = count_ready(ready[0]);
  atomic_store(&serve->start->go, code == TOOL_OK && count == serve->settings.clients);
  close(gate[1]);
  close(ready[0]);
  enum tool_exit worst = reap(serve);
  return code != TOOL_OK ? code : worst;
}

/* ---- the report */

static void add_up(struct serve *serve) {
  uint64_t begin = UINT64_MAX, end = 0;
  for (int i = 0; i < serve->settings.clients; i++) {
    const struct serve_client *client = &serve->clients[i];
    histogram_merge(&serve->latency, &client->latency);
    histogram_merge(&serve->overhead, &client->overhead);
    histogram_merge(&serve->device, &client->device);
    serve->failures += client->failures;
    if (client->latency.count > 0) {
      begin = client->begin_ns < begin ? client->begin_ns : begin;
      end = client->end_ns > end ? client->end_ns : end;
    }
  }
  serve->seconds = end > begin ? (double)(end - begin) / 1e9 : 0;
}

static double microseconds(const struct histogram *histogram, double quantile) {
  return (double)histogram_at(histogram, quantile) / 1e3;
}

static json_t *histogram_json(const struct histogram *histogram) {
  return json_pack("{s:f, s:f, s:f, s:f, s:f}", "p50", microseconds(histogram, 0.5), "p99",
                   microseconds(histogram, 0.99), "p999", microseconds(histogram, 0.999), "mean",
                   histogram_mean(histogram) / 1e3, "max", (double)histogram->most / 1e3);
}

static double rows_per_second(const struct serve *serve) {
  double rows = (double)serve->latency.count * serve->settings.m;
  return serve->seconds > 0 ? rows / serve->seconds : 0;
}

static void report_json(const struct serve *serve) {
  const struct serve_settings *settings = &serve->settings;
  const gemmd_weight_info *info = &settings->info;
  json_t *object =
      json_pack("{s:o, s:o, s:s, s:s, s:s, s:I, s:I, s:I, s:i, s:i}", "weight", print_json_text(info->name), "backend",
                print_json_text(settings->backend), "format", word_text(words_format, (int)info->format), "x_type",
                word_text(words_type, (int)settings->x_type), "y_type", word_text(words_type, (int)settings->y_type),
                "n", (json_int_t)info->n, "k", (json_int_t)info->k, "m", (json_int_t)settings->m, "clients",
                settings->clients, "in_flight", settings->in_flight);
  json_object_set_new(object, "seconds", json_real(serve->seconds));
  json_object_set_new(object, "requests", json_integer((json_int_t)serve->latency.count));
  json_object_set_new(object, "failures", json_integer((json_int_t)serve->failures));
  json_object_set_new(object, "rows_per_s", json_real(rows_per_second(serve)));
  json_object_set_new(object, "latency_us", histogram_json(&serve->latency));
  json_object_set_new(object, "overhead_us", histogram_json(&serve->overhead));
  json_object_set_new(object, "device_us", histogram_json(&serve->device));
  print_json(serve->call->out, object);
}

static void report_row(struct print_table *table, const char *name, const struct histogram *histogram) {
  print_cell(table, "%s", name);
  print_cell(table, "%.1f", microseconds(histogram, 0.5));
  print_cell(table, "%.1f", microseconds(histogram, 0.99));
  print_cell(table, "%.1f", microseconds(histogram, 0.999));
  print_cell(table, "%.1f", histogram_mean(histogram) / 1e3);
  print_cell(table, "%.1f", (double)histogram->most / 1e3);
}

static void report_text(const struct serve *serve) {
  const struct serve_settings *settings = &serve->settings;
  const gemmd_weight_info *info = &settings->info;
  FILE *out = serve->call->out;
  fprintf(out, "%s: N = %lld, K = %lld, %s on %s; M = %u, x %s, y %s; clients %d, in flight %d each\n", info->name,
          (long long)info->n, (long long)info->k, word_text(words_format, (int)info->format), settings->backend,
          settings->m, word_text(words_type, (int)settings->x_type), word_text(words_type, (int)settings->y_type),
          settings->clients, settings->in_flight);
  fprintf(out, "%llu products in %.2f s, %llu failed; %.0f rows/s\n\n", (unsigned long long)serve->latency.count,
          serve->seconds, (unsigned long long)serve->failures, rows_per_second(serve));
  static const char *const heads[] = {"us", "p50", "p99", "p999", "mean", "max"};
  struct print_table table;
  print_table_begin(&table, "lrrrrr");
  for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
    print_cell(&table, "%s", heads[i]);
  report_row(&table, "latency", &serve->latency);
  report_row(&table, "overhead", &serve->overhead);
  report_row(&table, "device", &serve->device);
  print_table_end(&table, out);
}

/* ---- the command */

static enum tool_exit run(struct serve *serve) {
  enum tool_exit code = run_clients(serve);
  if (!atomic_load(&serve->start->go)) {
    enum tool_exit refused = tool_refuse(serve->call, "not all clients could begin, so none did", GEMMD_CANCELLED);
    return code != TOOL_OK ? code : refused;
  }
  add_up(serve);
  if (serve->call->json)
    report_json(serve);
  else
    report_text(serve);
  return code;
}

enum tool_exit bench_serve(struct tool_call *call) {
  struct serve *serve = calloc(1, sizeof *serve);
  if (serve == NULL)
    return tool_fail(call, TOOL_REFUSED, "out of memory");
  serve->call = call;
  enum tool_exit code = parse_options(call, &serve->settings);
  if (code == TOOL_OK)
    code = look_at_weight(call, &serve->settings);
  size_t clients = (size_t)serve->settings.clients, bytes = clients * sizeof *serve->clients;
  if (code == TOOL_OK) {
    serve->start = shared_memory(sizeof *serve->start);
    serve->clients = shared_memory(bytes);
    serve->processes = calloc(clients, sizeof *serve->processes);
    if (serve->start == NULL || serve->clients == NULL || serve->processes == NULL)
      code = tool_fail(call, TOOL_REFUSED, "out of memory for %zu clients", clients);
    else
      code = run(serve);
  }
  if (serve->start != NULL)
    munmap(serve->start, sizeof *serve->start);
  if (serve->clients != NULL)
    munmap(serve->clients, bytes);
  free(serve->processes);
  free(serve);
  return code;
}
