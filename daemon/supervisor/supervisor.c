#include "supervisor.h"

#include "../log.h"
#include "../transport.h"
#include "context.h"
#include "idle/idle.h"
#include "net/descriptors.h"
#include "net/foreign.h"
#include "net/notify.h"
#include "weights/lend.h"
#include "weights/store.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

/* ---- an upgrade */

void supervisor_upgrade(struct supervisor *supervisor) {
  log_info("upgrade: %s takes over", supervisor->program);
  supervisor->upgrading = true;
  supervisor_stop(supervisor, 0);
}

/* Returns only where it fails. The workers are gone by now, so that nothing writes into what clients bring along. */
static void become_successor(struct supervisor *supervisor) {
  struct error error;
  if (store_leave(supervisor, &error) == STATUS_OK) {
    execv(supervisor->program, supervisor->arguments);
    (void)error_set(&error, STATUS_SYSTEM, "%.160s cannot be executed: %s", supervisor->program, strerror(errno));
  }
  log_error("upgrade: %s", error.text);
  supervisor->exit_status = 1;
  listener_close(&supervisor->listener);
}

/* ---- the watchdog of systemd: fed by the loop, so that it hears when the loop stands still. Workers are looked after
 * by their proxies. */

static void on_watchdog(uv_timer_t *timer) {
  (void)timer;
  notify_send("WATCHDOG=1");
}

static void feed_watchdog(struct supervisor *supervisor) {
  supervisor->watchdog_ms = notify_watchdog_ms() / 2;
  if (supervisor->watchdog_ms == 0)
    return;
  uv_timer_init(&supervisor->loop, &supervisor->watchdog);
  uv_timer_start(&supervisor->watchdog, on_watchdog, 0, supervisor->watchdog_ms);
}

void supervisor_stop(struct supervisor *supervisor, int exit_status) {
  if (supervisor->stopping)
    return;
  supervisor->stopping = true;
  supervisor->exit_status = exit_status;
  notify_send(supervisor->upgrading ? "RELOADING=1\nSTATUS=Upgrading" : "STOPPING=1\nSTATUS=Stopping");
  if (supervisor->upgrading)
    listener_pause(&supervisor->listener);
  else
    listener_close(&supervisor->listener);
  if (supervisor->watchdog_ms != 0)
    uv_close((uv_handle_t *)&supervisor->watchdog, NULL);
  for (size_t i = 0; i < sizeof supervisor->signals / sizeof *supervisor->signals; i++)
    uv_close((uv_handle_t *)&supervisor->signals[i], NULL);
  publishing_stop(supervisor);
  idle_stop(supervisor->idle);
  sessions_end(supervisor);
  fleet_stop(supervisor);
}

static enum status take_over(struct supervisor *supervisor, struct error *error) {
  struct inherited inherited;
  enum status status = inherited_read(&inherited, error);
  if (status == STATUS_OK)
    status = listener_open(supervisor, &inherited, error);
  if (status == STATUS_OK)
    store_restore(supervisor, &inherited);
  inherited_free(&inherited);
  return status;
}

/* What options stand for beyond their words. */
static enum status read_options(const struct config *config, struct role_rules *rules, struct pins *pins,
                                struct error *error) {
  enum status status = role_rules_make(config, rules, error);
  return status == STATUS_OK ? pins_read(pins, config->tune_pins, error) : status;
}

enum status supervisor_check(const struct config *config, struct error *error) {
  static struct role_rules rules;
  static struct pins pins;
  enum status status = read_options(config, &rules, &pins, error);
  return status == STATUS_OK ? listener_check(config->socket, error) : status;
}

static enum status start(struct supervisor *supervisor, int embedded, struct error *error) {
  enum status status = read_options(supervisor->config, &supervisor->rules, &supervisor->pins, error);
  if (status == STATUS_OK && embedded < 0)
    status = take_over(supervisor, error);
  store_choose_epoch(&supervisor->catalog);
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

static const struct idle_hooks idle_hooks = {.damaged = lend_withdraw};

int supervisor_run(const struct config *config, const char *program, const char *children, char *const *arguments,
                   int embedded) {
  static struct supervisor supervisor; /* large, and one a process */
  struct error error;
  supervisor = (struct supervisor){
      .config = config, .program = program, .children = children, .arguments = arguments, .embedded = embedded >= 0};
  if (embedded >= 0)
    notify_nobody();
  descriptors_raise_limit();
  transport_close_by(foreign_close);
  int rc = uv_loop_init(&supervisor.loop);
  if (rc != 0) {
    log_error("the event loop cannot be made: %s", uv_strerror(rc));
    return 1;
  }
  supervisor.started_ms = uv_now(&supervisor.loop);
  listener_init(&supervisor.listener);
  sessions_init(&supervisor.sessions);
  users_init(&supervisor.users, config);
  catalog_init(&supervisor.catalog);
  loads_init(&supervisor.loads);
  placer_init(&supervisor.placer);
  publishing_init(&supervisor);
  supervisor.idle = idle_start(&supervisor, &idle_hooks);
  watch_signals(&supervisor);
  feed_watchdog(&supervisor);
  if (start(&supervisor, embedded, &error) != STATUS_OK) {
    log_error("%s", error.text);
    supervisor_stop(&supervisor, 1);
  }
  uv_run(&supervisor.loop, UV_RUN_DEFAULT);
  if (supervisor.upgrading)
    become_successor(&supervisor);
  publishing_free(&supervisor);
  idle_free(supervisor.idle);
  close_slabs(&supervisor.catalog);
  catalog_free(&supervisor.catalog);
  users_free(&supervisor.users);
  /* The loop ends empty when every handle is closed: a handle left over is a leak, and shows here. */
  rc = uv_loop_close(&supervisor.loop);
  if (rc != 0) {
    log_error("the event loop does not close: %s", uv_strerror(rc));
    return 1;
  }
  log_debug("ended");
  return supervisor.exit_status;
}
