#include "supervisor.h"

#include "../log.h"
#include "context.h"
#include "notify.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

/* A session takes up to five descriptors and one a device. */
static void raise_descriptor_limit(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max)
    return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

static void on_signal(uv_signal_t *handle, int number) {
  log_info("signal %d: stopping", number);
  supervisor_stop(handle->data, 0);
}

static void watch_signals(struct supervisor *supervisor) {
  static const int numbers[] = {SIGTERM, SIGINT};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    uv_signal_init(&supervisor->loop, &supervisor->signals[i]);
    supervisor->signals[i].data = supervisor;
    uv_signal_start(&supervisor->signals[i], on_signal, numbers[i]);
  }
}

void supervisor_stop(struct supervisor *supervisor, int exit_status) {
  if (supervisor->stopping)
    return;
  supervisor->stopping = true;
  supervisor->exit_status = exit_status;
  notify_send("STOPPING=1\nSTATUS=Stopping");
  listener_close(&supervisor->listener);
  for (size_t i = 0; i < sizeof supervisor->signals / sizeof *supervisor->signals; i++)
    uv_close((uv_handle_t *)&supervisor->signals[i], NULL);
  sessions_end(supervisor);
  fleet_stop(supervisor);
}

static enum status start(struct supervisor *supervisor, int embedded, struct error *error) {
  enum status status = pins_read(&supervisor->pins, supervisor->config->tune_pins, error);
  if (status == STATUS_OK && embedded < 0)
    status = listener_open(supervisor, error);
  if (status == STATUS_OK)
    status = fleet_start(supervisor, error);
  if (status != STATUS_OK)
    return status;
  if (embedded >= 0) {
    fcntl(embedded, F_SETFD, FD_CLOEXEC);
    session_accept(supervisor, embedded);
    return supervisor->sessions.count > 0
               ? STATUS_OK
               : error_set(error, STATUS_BAD_DESCRIPTOR, "descriptor %d is no connected socket", embedded);
  }
  log_info("gemmd %s listens on %s", GEMMD_RELEASE,
           supervisor->listener.path[0] != '\0' ? supervisor->listener.path : "systemd's socket");
  return STATUS_OK;
}

static void close_slabs(struct catalog *catalog) {
  for (size_t i = 0; i < catalog->slab_count; i++)
    close(catalog->slabs[i]->fd);
}

int supervisor_run(const struct config *config, const char *self, int embedded) {
  static struct supervisor supervisor; /* large, and one a process */
  struct error error;
  supervisor = (struct supervisor){.config = config, .self = self, .embedded = embedded >= 0};
  raise_descriptor_limit();
  int rc = uv_loop_init(&supervisor.loop);
  if (rc != 0) {
    log_error("the event loop cannot be made: %s", uv_strerror(rc));
    return 1;
  }
  supervisor.started_ms = uv_now(&supervisor.loop);
  listener_init(&supervisor.listener);
  sessions_init(&supervisor.sessions);
  catalog_init(&supervisor.catalog);
  loads_init(&supervisor.loads);
  placer_init(&supervisor.placer);
  watch_signals(&supervisor);
  if (start(&supervisor, embedded, &error) != STATUS_OK) {
    log_error("%s", error.text);
    supervisor_stop(&supervisor, 1);
  }
  uv_run(&supervisor.loop, UV_RUN_DEFAULT);
  close_slabs(&supervisor.catalog);
  catalog_free(&supervisor.catalog);
  /* The loop ends empty when every handle is closed: a handle left over is a leak, and shows here. */
  rc = uv_loop_close(&supervisor.loop);
  if (rc != 0) {
    log_error("the event loop does not close: %s", uv_strerror(rc));
    return 1;
  }
  log_debug("ended");
  return supervisor.exit_status;
}
