#include "worker.h"

#include "../log.h"
#include "../transport.h"
#include "control/control.h"
#include "proof/prove.h"

#include <errno.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_NO_BACKEND = 3, EXIT_DEVICE_LOST = 4 };

static void copy_text(char *to, size_t bytes, const char *from) {
  snprintf(to, bytes, "%s", from);
}

static const char *given(const char *text) {
  return text != NULL && text[0] != '\0' ? text : NULL;
}

static const char *state_dir(const struct config *config) {
  return config->state_dir[0] != '\0' ? config->state_dir : given(getenv("STATE_DIRECTORY"));
}

static void warn(const char *text) {
  log_warning("%s", text);
}

static struct backend_config backend_config(const struct config *config, int device) {
  return (struct backend_config){.device = device,
                                 .threads = (int)config->cpu_threads,
                                 .pin = given(config->cpu_pin),
                                 .library_bytes = (uint64_t)config->cpu_library_bytes,
                                 .small_pages = config->cpu_huge_pages == 0,
                                 .in_flight = (int)config->in_flight,
                                 .cublaslt = given(config->cublaslt),
                                 .nvrtc = given(config->nvrtc),
                                 .state_dir = state_dir(config),
                                 .warn = warn};
}

static const struct backend_ops *open_backend(const struct config *config, int device, struct backend **backend,
                                              char *reason, size_t reason_bytes) {
  struct backend_config wanted = backend_config(config, device);
  wanted.tunes = strcmp(config->tune, "off") != 0;
  struct error error;
  const struct backend_ops *ops = backend_choose(config->backend, &wanted, reason, reason_bytes, &error);
  if (ops == NULL) {
    log_error("no backend: %s", error.text);
    return NULL;
  }
  if (ops->open(&wanted, backend, &error) != STATUS_OK) {
    log_error("backend %s: %s", ops->name, error.text);
    return NULL;
  }
  return ops;
}

enum status worker_check(const struct config *config, struct error *error) {
  struct backend_config wanted = backend_config(config, 0);
  struct backend *backend;
  char reason[256];
  const struct backend_ops *ops = backend_choose(config->backend, &wanted, reason, sizeof reason, error);
  if (ops == NULL)
    return error->status;
  if (!ops->on_cores)
    return STATUS_OK;
  enum status status = ops->open(&wanted, &backend, error);
  if (status == STATUS_OK)
    ops->close(backend);
  return status;
}

static bool announce(const struct control_options *options, const char *reason) {
  struct message_head head = {.kind = MESSAGE_EVENT, .code = EVENT_worker_ready};
  struct backend_info info;
  struct error error;
  uint8_t bytes[2048];
  size_t length;
  options->ops->describe(options->backend, &info);
  struct message_worker_ready ready = {.devices = (uint32_t)info.devices,
                                       .memory_total = info.memory_total,
                                       .slab_granularity = info.slab_granularity,
                                       .formats = options->ops->formats &
                                                  ((1u << GEMM_FORMATS) - (1u << (GEMM_FORMAT_NONE + 1)))};
  copy_text(ready.backend, sizeof ready.backend, info.name);
  copy_text(ready.reason, sizeof ready.reason, reason);
  copy_text(ready.device_name, sizeof ready.device_name, info.device_name);
  memcpy(ready.device_uuid, info.uuid, sizeof ready.device_uuid);
  log_info("backend %s has %s", info.name, info.device_name);
  if (message_encode(&head, &message_worker_ready_type, &ready, bytes, sizeof bytes, &length, &error) == STATUS_OK &&
      transport_send(options->socket, bytes, length, NULL, 0, &error) == STATUS_OK)
    return true;
  log_error("to the supervisor: %s", error.text);
  return false;
}

/* False where it has closed the socket instead. */
static bool supervisor_speaks(int socket) {
  struct pollfd fd = {.fd = socket, .events = POLLIN | POLLRDHUP};
  while (poll(&fd, 1, -1) < 0 && errno == EINTR)
    ;
  return (fd.revents & (POLLRDHUP | POLLHUP | POLLERR)) == 0;
}

/* Until the supervisor closes the socket, or the device is lost. */
static int serve(struct control *control, const struct control_options *options, bool standby, const char *reason) {
  struct error error;
  /* What another process may still change, as what it tunes, is read only when that has ended. */
  if (standby && !announce(options, reason))
    return EXIT_FAILURE;
  if (standby && !supervisor_speaks(options->socket))
    return EXIT_SUCCESS;
  enum status status = control_start(control, options, &error);
  if (status != STATUS_OK) {
    log_error("%s", error.text);
    uv_run(options->loop, UV_RUN_DEFAULT);
    return EXIT_FAILURE;
  }
  if (!standby && !announce(options, reason))
    control_end(control);
  uv_run(options->loop, UV_RUN_DEFAULT);
  if (control->lost.status != STATUS_OK) {
    /* At once: the successor cannot start before this process is gone, and giving anything back to a lost device may
     * hang. */
    log_error("device lost: %s", control->lost.text);
    _exit(EXIT_DEVICE_LOST);
  }
  control_close(control);
  return EXIT_SUCCESS;
}

/* What the configuration says of the tuner. */
static struct tuner_options tuner_options(const struct config *config) {
  return (struct tuner_options){.mode = strcmp(config->tune, "off") == 0     ? TUNE_OFF
                                        : strcmp(config->tune, "eager") == 0 ? TUNE_EAGER
                                                                             : TUNE_BACKGROUND,
                                .burst_ns = (uint64_t)config->tune_burst_us * 1000,
                                .quiet_ns = (uint64_t)config->tune_quiet_ms * 1000000,
                                .share = (uint32_t)config->tune_share,
                                .budget_ns = (uint64_t)config->tune_budget_ms * 1000000,
                                .compile_ns = (uint64_t)config->tune_compile_ms * 1000000,
                                .compile_share = (uint32_t)config->tune_compile_share,
                                .arena_bytes = (uint64_t)config->tune_bytes,
                                .state_dir = state_dir(config)};
}

/* The command line of a process that proves: this one's, but for one word. The caller frees the array alone. */
static char **make_prover(char *const *words) {
  static char self[] = "/proc/self/exe", prove[] = "--prove";
  size_t count = 0;
  while (words[count] != NULL)
    count++;
  char **command = malloc((count + 1) * sizeof *command);
  for (size_t i = 0; command != NULL && i <= count; i++)
    command[i] = i == 0 ? self : words[i] != NULL && strcmp(words[i], "--worker") == 0 ? prove : words[i];
  return command;
}

int worker_prove(const struct config *config, int device) {
  struct backend_config wanted = backend_config(config, device);
  char reason[256];
  struct error error;
  wanted.in_flight = 1;
  const struct backend_ops *ops = backend_choose(config->backend, &wanted, reason, sizeof reason, &error);
  if (ops == NULL) {
    printf("cannot %s\n", error.text);
    return EXIT_NO_BACKEND;
  }
  return prove_run(ops, &wanted, (uint64_t)config->tune_bytes, stdin, stdout);
}

/* What products take goes back to the machine when it is freed, whatever the allocator has seen before. */
static void give_memory_back(void) {
#if defined(__GLIBC__)
  enum { MAPPED_BYTES = 256 << 10 };
  (void)mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES);
#endif
}

int worker_run(const struct config *config, int device, int control, bool standby, char *const *words) {
  struct backend *backend;
  char reason[256] = "";
  give_memory_back();
  const struct backend_ops *ops = open_backend(config, device, &backend, reason, sizeof reason);
  if (ops == NULL)
    return EXIT_NO_BACKEND;
  uv_loop_t loop;
  struct control_options options = {.loop = &loop,
                                    .socket = control,
                                    .device = device,
                                    .ops = ops,
                                    .backend = backend,
                                    .tune = tuner_options(config),
                                    .in_flight = (uint32_t)config->in_flight,
                                    .batch_rows = (uint32_t)config->batch_rows,
                                    .spin_us = (uint64_t)config->spin_us,
                                    .batch_window_us = (uint64_t)config->batch_window_us,
                                    .event_timeout_us = (uint64_t)config->event_timeout_ms * 1000};
  struct control *state = calloc(1, sizeof *state);
  char **prover = make_prover(words);
  int result = EXIT_FAILURE;
  if (state == NULL || prover == NULL || uv_loop_init(&loop) != 0) {
    log_error("no memory for the worker");
  } else {
    options.tune.prover = prover;
    options.tune.heir = standby;
    result = serve(state, &options, standby, reason);
    uv_loop_close(&loop);
  }
  free(prover);
  free(state);
  ops->close(backend);
  return result;
}
