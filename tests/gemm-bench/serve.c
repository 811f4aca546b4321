#include "serve.h"

#include "bare.h"
#include "compare.h"
#include "report.h"
#include "roundtrip.h"

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
  struct histogram latency, overhead, device, roundtrip, machine;
  struct compare compare;
  bool compared;
  uint64_t failures, rows, checked;
  double difference, taken;
  double seconds; /* from the first counted product to the last */
};

static enum tool_exit parse_options(struct tool_call *call, struct serve_settings *settings) {
  int64_t clients, in_flight, requests;
  double seconds, warmup, rate, pause;
  const char *m = tool_value(call, "m"), *compare = tool_value(call, "compare"), *plan = tool_value(call, "plan");
  const char *where = tool_value(call, "tensors");
  int x_type, y_type;
  *settings = (struct serve_settings){.requests = 0};
  if (!mix_parse_weights(call, tool_value(call, "weight"), &settings->mix) ||
      (plan != NULL && !mix_parse_plan(call, plan, &settings->mix)) ||
      !mix_parse_rows(call, m != NULL ? m : "1", &settings->mix) ||
      !tool_integer(call, "clients", 1, SERVE_CLIENTS_MAX, 1, &clients) ||
      !tool_integer(call, "in-flight", 1, SERVE_IN_FLIGHT_MAX, 1, &in_flight) ||
      !tool_integer(call, "requests", 1, INT64_MAX, 0, &requests) ||
      !tool_number(call, "seconds", 0.001, 1e6, 5, &seconds) || !tool_number(call, "warmup", 0, 1e6, 0.5, &warmup) ||
      !tool_number(call, "rate", 0.001, 1e9, 0, &rate) || !tool_number(call, "pause", 0, 1e6, 0, &pause) ||
      !tool_word(call, "x-type", words_type, GEMMD_F32, &x_type) ||
      !tool_word(call, "y-type", words_type, GEMMD_F32, &y_type))
    return TOOL_USAGE;
  if (requests > 0 && tool_value(call, "seconds") != NULL)
    return tool_fail(call, TOOL_USAGE, "--seconds and --requests exclude each other");
  if (rate > 0 && pause > 0)
    return tool_fail(call, TOOL_USAGE, "--rate and --pause exclude each other");
  if (compare != NULL && strcmp(compare, "inprocess") != 0)
    return tool_fail(call, TOOL_USAGE, "--compare takes inprocess, got %s", compare);
  if (compare != NULL && ((settings->mix.weight_count > 1 && plan == NULL) || settings->mix.rows_count > 1))
    return tool_fail(call, TOOL_USAGE, "--compare takes one weight or one plan, and one M");
  if (where != NULL && strcmp(where, "host") != 0 && strcmp(where, "gpu") != 0)
    return tool_fail(call, TOOL_USAGE, "--tensors takes host or gpu, got %s", where);
  settings->gpu = where != NULL && strcmp(where, "gpu") == 0;
  settings->clients = (int)clients;
  settings->in_flight = (int)in_flight;
  settings->x_type = (enum gemmd_type)x_type;
  settings->y_type = (enum gemmd_type)y_type;
  settings->rate = rate;
  settings->pause_ns = (uint64_t)(pause * 1e3);
  settings->warmup_ns = (uint64_t)(warmup * 1e9);
  settings->run_ns = (uint64_t)(seconds * 1e9);
  settings->requests = (uint64_t)requests;
  return TOOL_OK;
}

/* Before any client starts: a session's memory is fixed, so the weights' sizes have to be known when it connects. */
static enum tool_exit look_at_weights(const struct tool_call *call, struct serve_settings *settings) {
  const gemmd_options options = {.arena_bytes = (size_t)1 << 20, .entries = 1, .name = "gemm-bench"};
  gemmd_session *session;
  enum tool_exit code = tool_connect(call, &options, &session);
  if (code != TOOL_OK)
    return code;
  gemmd_daemon_info daemon;
  int status = gemmd_daemon_status(session, &daemon);
  for (int i = 0; i < settings->mix.weight_count && status == GEMMD_OK; i++)
    status = gemmd_weight_stat(session, settings->mix.names[i], &settings->mix.weights[i]);
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

/* What fails here and in run_clients is said in words alone: run has the object. */
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

static void add_up(struct serve *serve) {
  uint64_t begin = UINT64_MAX, end = 0;
  for (int i = 0; i < serve->settings.clients; i++) {
    const struct serve_client *client = &serve->clients[i];
    histogram_merge(&serve->latency, &client->latency);
    histogram_merge(&serve->overhead, &client->overhead);
    histogram_merge(&serve->device, &client->device);
    serve->failures += client->failures;
    serve->checked += client->checked;
    serve->difference = client->difference > serve->difference ? client->difference : serve->difference;
    serve->rows += client->rows;
    if (client->latency.count > 0) {
      begin = client->begin_ns < begin ? client->begin_ns : begin;
      end = client->end_ns > end ? client->end_ns : end;
    }
  }
  serve->seconds = end > begin ? (double)(end - begin) / 1e9 : 0;
}

static double rows_per_second(const struct serve *serve) {
  return serve->seconds > 0 ? (double)serve->rows / serve->seconds : 0;
}

/* ---- the command */

static enum tool_exit run(struct serve *serve) {
  const struct serve_settings *settings = &serve->settings;
  enum tool_exit code = TOOL_OK;
  if (tool_value(serve->call, "compare") != NULL) {
    code = compare_measure(serve->call, settings, &serve->compare);
    serve->compared = code == TOOL_OK;
  }
  if (code == TOOL_OK && !roundtrip_measure(settings->pause_ns, &serve->roundtrip))
    code = tool_cannot(serve->call, GEMMD_SYSTEM, "cannot measure a socket: %s", strerror(errno));
  if (code != TOOL_OK)
    return code;
  code = run_clients(serve);
  if (!atomic_load(&serve->start->go)) {
    enum tool_exit refused = tool_refuse(serve->call, "not all clients could begin, so none did", GEMMD_CANCELLED);
    return code != TOOL_OK ? code : refused;
  }
  add_up(serve);
  if (settings->rate > 0 && serve->latency.count > 0)
    bare_measure(histogram_at(&serve->latency, 0.5), (uint64_t)(serve->seconds * 1e9), &serve->machine, &serve->taken);
  const char *m = tool_value(serve->call, "m");
  struct report report = {.settings = &serve->settings,
                          .rows_text = m != NULL ? m : "1",
                          .latency = &serve->latency,
                          .overhead = &serve->overhead,
                          .device = &serve->device,
                          .roundtrip = &serve->roundtrip,
                          .compare = serve->compared ? &serve->compare : NULL,
                          .machine = serve->machine.count > 0 ? &serve->machine : NULL,
                          .taken = serve->taken,
                          .failures = serve->failures,
                          .checked = serve->checked,
                          .difference = serve->difference,
                          .seconds = serve->seconds,
                          .rows_per_s = rows_per_second(serve),
                          .buckets = tool_value(serve->call, "histogram") != NULL};
  if (serve->call->json)
    report_json(&report, serve->call->out);
  else
    report_text(&report, serve->call->out);
  return code;
}

enum tool_exit bench_serve(struct tool_call *call) {
  struct serve *serve = calloc(1, sizeof *serve);
  if (serve == NULL)
    return tool_cannot(call, GEMMD_NOMEM, "out of memory");
  serve->call = call;
  enum tool_exit code = parse_options(call, &serve->settings);
  if (code == TOOL_OK)
    code = look_at_weights(call, &serve->settings);
  size_t clients = (size_t)serve->settings.clients, bytes = clients * sizeof *serve->clients;
  if (code == TOOL_OK) {
    serve->start = shared_memory(sizeof *serve->start);
    serve->clients = shared_memory(bytes);
    serve->processes = calloc(clients, sizeof *serve->processes);
    if (serve->start == NULL || serve->clients == NULL || serve->processes == NULL)
      code = tool_cannot(call, GEMMD_NOMEM, "out of memory for %zu clients", clients);
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
