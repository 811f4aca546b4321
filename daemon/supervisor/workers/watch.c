#include "watch.h"

#include <stdio.h>

enum {
  START_TIMEOUTS = 6, /* worker_timeout_s, that a process has to open its device */
  TICKS = 2,          /* within worker_timeout_s or device_timeout_s, the shorter */
  END_MS = 10000,     /* that one has to end when it is killed; where its device hangs it never may */
};

static void on_tick(uv_timer_t *timer) {
  struct watch *watch = timer->data;
  char why[96];
  if (!watch->hooks->read(watch->owner))
    return;
  if (watch->patience != 0 && watch->silent >= watch->patience) {
    snprintf(why, sizeof why, "it has not answered for %lld s", (long long)watch->config->worker_timeout_s);
    watch->hooks->kill(watch->owner, why);
  } else if (watch->silent++ == 0) {
    watch->hooks->ask(watch->owner);
  }
}

static void on_start_over(uv_timer_t *timer) {
  struct watch *watch = timer->data;
  long long seconds = START_TIMEOUTS * watch->config->worker_timeout_s;
  char why[96];
  snprintf(why, sizeof why, "it has not opened its device for %lld s", seconds);
  watch->hooks->kill(watch->owner, why);
}

bool watch_start(struct watch *watch, uv_loop_t *loop, const struct config *config, const struct watch_hooks *hooks,
                 void *owner) {
  uint64_t timeout_ms = (uint64_t)config->worker_timeout_s * 1000;
  if (timeout_ms == 0 && config->device_timeout_s == 0)
    return false;
  *watch = (struct watch){.hooks = hooks, .owner = owner, .config = config, .open = true};
  uv_timer_init(loop, &watch->timer);
  watch->timer.data = watch;
  if (timeout_ms != 0)
    uv_timer_start(&watch->timer, on_start_over, START_TIMEOUTS * timeout_ms, 0);
  return true;
}

void watch_serving(struct watch *watch) {
  if (!watch->open)
    return;
  uint64_t silence_s = (uint64_t)watch->config->worker_timeout_s, hang_s = (uint64_t)watch->config->device_timeout_s;
  uint64_t shorter_s = hang_s == 0 || (silence_s != 0 && silence_s < hang_s) ? silence_s : hang_s;
  uint64_t tick_ms = shorter_s * 1000 / TICKS;
  watch->patience = (unsigned)(silence_s * 1000 / tick_ms);
  uv_timer_start(&watch->timer, on_tick, tick_ms, tick_ms);
}

void watch_answered(struct watch *watch) {
  watch->silent = 0;
}

static void on_end_over(uv_timer_t *timer) {
  struct watch *watch = timer->data;
  watch->hooks->stuck(watch->owner);
}

void watch_end(struct watch *watch) {
  if (watch->open)
    uv_timer_start(&watch->timer, on_end_over, END_MS, 0);
}

static void on_closed(uv_handle_t *handle) {
  struct watch *watch = handle->data;
  watch->hooks->closed(watch->owner);
}

void watch_stop(struct watch *watch) {
  if (watch->open)
    uv_close((uv_handle_t *)&watch->timer, on_closed);
  watch->open = false;
}
