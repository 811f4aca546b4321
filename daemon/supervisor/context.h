/* The supervisor's parts in one place; each part's header says what it does. */
#ifndef SUPERVISOR_CONTEXT_H
#define SUPERVISOR_CONTEXT_H

#include "../config.h"
#include "metrics.h"
#include "net/listener.h"
#include "session/publishing.h"
#include "session/session.h"
#include "weights/catalog.h"
#include "weights/loads.h"
#include "weights/pins.h"
#include "weights/placer.h"
#include "weights/store.h"
#include "workers/fleet.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct idle;

struct supervisor {
  const struct config *config; /* not owned */
  const char *program;         /* what an upgrade executes; not owned */
  const char *children;        /* what workers and loaders are started from; not owned */
  char *const *arguments;      /* it was started with; not owned */
  uv_loop_t loop;
  uv_signal_t signals[2];
  struct listener listener;
  struct role_rules rules;
  struct users users;
  struct sessions sessions;
  struct fleet fleet;
  struct catalog catalog;
  struct loads loads;
  struct placer placer;
  struct pins pins;
  struct store store;
  struct publishing publishing;
  struct metrics metrics;
  struct idle *idle; /* owned */
  uv_timer_t watchdog;
  uint64_t watchdog_ms; /* 0: nobody wants to hear */
  uint64_t started_ms;  /* of the loop's clock */
  bool embedded;        /* one session, and its end is the daemon's */
  bool stopping;
  bool upgrading; /* another gemmd is executed when all has ended */
  int exit_status;
};

/* Ends everything in order; the loop runs empty by itself. */
void supervisor_stop(struct supervisor *supervisor, int exit_status);
/* Stops, and then executes the program again in place, with the socket and the weights. */
void supervisor_upgrade(struct supervisor *supervisor);

#endif
