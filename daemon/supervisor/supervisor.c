#include "supervisor.h"

#include "../log.h"
#include "../transport.h"
#include "commands/cmd_hello.h"
#include "commands/dispatch.h"
#include "context.h"
#include "idle/idle.h"
#include "net/closing.h"
#include "net/descriptors.h"
#include "net/listener.h"
#include "net/notify.h"
#include "session/publishing.h"
#include "session/serving.h"
#include "session/session.h"
#include "weights/lend.h"
#include "weights/loading/loads.h"
#include "weights/loading/placer.h"
#include "weights/loading/stage.h"
#include "weights/pins.h"
#include "weights/store.h"
#include "workers/fleet.h"
#include "workers/recovery.h"
#include "workers/sleep.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The parts, and what only begin and end are concerned with; large, and one a process. */
static struct {
  struct supervisor supervisor;
  struct listener listener;
  struct sessions sessions;
  struct fleet fleet;
  struct loads loads;
  struct placer placer;
  struct pins pins;
  struct store store;
  struct publishing publishing;
  uv_signal_t signals[2];
  uv_timer_t watchdog;
  uint64_t watchdog_ms; /* 0: nobody wants to hear */
  bool upgrading;       /* another gemmd is executed when all has ended */
  int exit_status;
} process;

/* ---- the end */

static void stop(struct supervisor *supervisor, int exit_status) {
  if (supervisor->stopping)
    return;
  supervisor->stopping = true;
  process.exit_status = exit_status;
  notify_send(process.upgrading ? "RELOADING=1\nSTATUS=Upgrading" : "STOPPING=1\nSTATUS=Stopping");
  if (process.upgrading)
    listener_pause(supervisor->listener);
  else
    listener_close(supervisor->listener);
  if (process.watchdog_ms != 0)
    uv_close((uv_handle_t *)&process.watchdog, NULL);
  for (size_t i = 0; i < sizeof process.signals / sizeof *process.signals; i++)
    uv_close((uv_handle_t *)&process.signals[i], NULL);
  publishing_stop(supervisor);
  idle_stop(supervisor->idle);
  sessions_end(supervisor);
  fleet_stop(supervisor);
}

static void upgrade(struct supervisor *supervisor) {
  log_info("upgrade: %s takes over", supervisor->program);
  process.upgrading = true;
  stop(supervisor, 0);
}

/* exec waits for every thread, also for one that a client's file system holds up in a close for as long as it likes.
 * Then a child goes on, and this process ends: as soon as it can, and with nothing that anybody misses. The service
 * manager hears of the child before the child tells it anything. */
static void step_aside(void) {
  int told[2];
  char line[32], byte;
  if (closing_finish() || pipe2(told, O_CLOEXEC) != 0)
    return;
  pid_t child = fork();
  if (child > 0) {
    log_warning("upgrade: %u descriptors of clients are not closed yet; process %d goes on", closing_pending(),
                (int)child);
    snprintf(line, sizeof line, "MAINPID=%d", (int)child);
    notify_send(line);
    closing_abandon(STDERR_FILENO + 1);
    _exit(0);
  }
  close(told[1]);
  if (child == 0)
    (void)!read(told[0], &byte, 1);
  close(told[0]);
}

/* Returns only where it fails. The workers are gone by now, so that nothing writes into what clients bring along. */
static void become_successor(struct supervisor *supervisor) {
  struct error error;
  step_aside();
  if (store_leave(supervisor, &error) == STATUS_OK) {
    execv(supervisor->program, supervisor->arguments);
    (void)error_set(&error, STATUS_SYSTEM, "%.160s cannot be executed: %s", supervisor->program, strerror(errno));
  }
  log_error("upgrade: %s", error.text);
  process.exit_status = 1;
  listener_close(supervisor->listener);
}

static void on_signal(uv_signal_t *handle, int number) {
  log_info("signal %d: stopping", number);
  stop(handle->data, 0);
}

static void watch_signals(struct supervisor *supervisor) {
  static const int numbers[] = {SIGTERM, SIGINT};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    uv_signal_init(&supervisor->loop, &process.signals[i]);
    process.signals[i].data = supervisor;
    uv_signal_start(&process.signals[i], on_signal, numbers[i]);
  }
}

/* ---- the watchdog of systemd: fed by the loop, so that it hears when the loop stands still. Workers are looked after
 * by their proxies. */

static void on_watchdog(uv_timer_t *timer) {
  notify_send("WATCHDOG=1");
}

static void feed_watchdog(uv_loop_t *loop) {
  process.watchdog_ms = notify_watchdog_ms() / 2;
  if (process.watchdog_ms == 0)
    return;
  uv_timer_init(loop, &process.watchdog);
  uv_timer_start(&process.watchdog, on_watchdog, 0, process.watchdog_ms);
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
  if (config->sessions_reserved >= config->sessions_max)
    log_warning("only admins are served: sessions_reserved is %lld of sessions_max %lld",
                (long long)config->sessions_reserved, (long long)config->sessions_max);
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
  enum status status = read_options(supervisor->config, &supervisor->rules, supervisor->pins, error);
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
    return supervisor->sessions->count > 0
               ? STATUS_OK
               : error_set(error, STATUS_BAD_DESCRIPTOR, "descriptor %d is no connected socket", embedded);
  }
  log_info("gemmd %s listens on %s", GEMMD_RELEASE,
           supervisor->listener->path[0] != '\0' ? supervisor->listener->path : "systemd's socket");
  return STATUS_OK;
}

static void close_slabs(struct catalog *catalog) {
  for (size_t i = 0; i < catalog->slab_count; i++)
    close(catalog->slabs[i]->fd);
}

/* ---- what the parts ask of each other */

static const struct idle_hooks idle_hooks = {.damaged = lend_withdraw};

static void on_arena_removed(struct session *session, const struct error *error) {
  (void)error; /* the workers have let go, whatever they said */
  session_release(session);
}

static void on_session_left(struct session *session) {
  session_hold(session);
  loads_session_left(session->supervisor, session);
  publishing_session_left(session);
  lend_session_left(session);
  stage_drop(session->supervisor, &session->stage);
  serving_remove(session, on_arena_removed);
}

static const struct supervisor_hooks hooks = {.stop = stop,
                                              .upgrade = upgrade,
                                              .connected = session_accept,
                                              .requested = dispatch_request,
                                              .session_left = on_session_left,
                                              .devices_known = store_check,
                                              .worker_started = recovery_begin,
                                              .worker_lost = recovery_worker_lost,
                                              .worker_asleep = sleep_begun,
                                              .worker_failed = recovery_worker_failed,
                                              .session_broken = session_broken,
                                              .tuning_found = publishing_found,
                                              .devices_changed = placer_devices_changed,
                                              .fleet_ready = cmd_hello_answer_all};

/* ---- the beginning */

static void make_parts(struct supervisor *supervisor) {
  supervisor->hooks = &hooks;
  supervisor->listener = &process.listener;
  supervisor->sessions = &process.sessions;
  supervisor->fleet = &process.fleet;
  supervisor->loads = &process.loads;
  supervisor->placer = &process.placer;
  supervisor->pins = &process.pins;
  supervisor->store = &process.store;
  supervisor->publishing = &process.publishing;
  supervisor->started_ms = uv_now(&supervisor->loop);
  listener_init(supervisor->listener);
  sessions_init(supervisor->sessions);
  users_init(&supervisor->users, supervisor->config);
  catalog_init(&supervisor->catalog);
  loads_init(supervisor->loads);
  placer_init(supervisor->placer);
  publishing_init(supervisor);
  supervisor->idle = idle_start(supervisor, &idle_hooks);
  watch_signals(supervisor);
  feed_watchdog(&supervisor->loop);
}

int supervisor_run(const struct config *config, const char *program, const char *children, char *const *arguments,
                   int embedded) {
  struct supervisor *supervisor = &process.supervisor;
  struct error error;
  supervisor->config = config;
  supervisor->program = program;
  supervisor->children = children;
  supervisor->arguments = arguments;
  supervisor->embedded = embedded >= 0;
  if (embedded >= 0)
    notify_nobody();
  descriptors_raise_limit();
  transport_close_by(closing_start);
  int rc = uv_loop_init(&supervisor->loop);
  if (rc != 0) {
    log_error("the event loop cannot be made: %s", uv_strerror(rc));
    return 1;
  }
  make_parts(supervisor);
  if (start(supervisor, embedded, &error) != STATUS_OK) {
    log_error("%s", error.text);
    stop(supervisor, 1);
  }
  uv_run(&supervisor->loop, UV_RUN_DEFAULT);
  if (process.upgrading)
    become_successor(supervisor);
  publishing_free(supervisor);
  idle_free(supervisor->idle);
  close_slabs(&supervisor->catalog);
  catalog_free(&supervisor->catalog);
  users_free(&supervisor->users);
  /* The loop ends empty when every handle is closed: a handle left over is a leak, and shows here. */
  rc = uv_loop_close(&supervisor->loop);
  if (rc != 0) {
    log_error("the event loop does not close: %s", uv_strerror(rc));
    return 1;
  }
  log_debug("ended");
  return process.exit_status;
}
