/* Whether a worker's process opens its device in time, answers from then on, and ends when it is killed. */
#pragma once

#include "../../config.h"

#include <stdbool.h>
#include <uv.h>

struct watch_hooks {
  /* Reads what it has sent: this process may have been held up itself, with the answer waiting. False: it dies. */
  bool (*read)(void *owner);
  void (*ask)(void *owner); /* something that it answers at once, whatever its device does: then watch_answered */
  void (*kill)(void *owner, const char *why);
  void (*stuck)(void *owner); /* killed, and does not end */
  void (*closed)(void *owner);
};

/* Zeroed: nothing is watched. */
struct watch {
  uv_timer_t timer;
  const struct watch_hooks *hooks;
  void *owner;
  const struct config *config;
  bool open;
  unsigned silent;   /* ticks since it was asked; 0: it was answered */
  unsigned patience; /* the most of these; 0: without end */
};

/* From the moment that it is to serve: first it has to open its device. False: the configuration wants no watch, or
 * else hooks->closed comes some time after watch_stop. */
bool watch_start(struct watch *watch, uv_loop_t *loop, const struct config *config, const struct watch_hooks *hooks,
                 void *owner);
/* It has opened its device. */
void watch_serving(struct watch *watch);
void watch_answered(struct watch *watch);
/* It is being killed, or asked to end. */
void watch_end(struct watch *watch);
void watch_stop(struct watch *watch);
