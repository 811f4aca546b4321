/* One process of a worker and its socket, from the start until nothing is left of either. */
#pragma once

#include "../../config.h"
#include "../net/channel.h"
#include "child.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct worker_process;

struct worker_process_events {
  void (*packet)(struct worker_process *process, struct packet *packet);
  /* The socket has ended: close the process then. Not after worker_process_close. */
  void (*end)(struct worker_process *process, const struct error *cause);
  /* The process is dead and reaped, not even a copy to the device can still land; it is freed after this. */
  void (*ended)(struct worker_process *process);
};

struct worker_process {
  const struct worker_process_events *events;
  void *owner;
  uv_loop_t *loop;
  struct child *child; /* NULL: it is dead */
  struct channel channel;
  uv_timer_t kill_timer; /* runs while it may still end by itself */
  unsigned open;         /* of child, channel and timer */
  bool kill_pending;
  uint32_t device, pid;
  int exit_status; /* -1 where a signal ended it */
  int exit_signal; /* 0: none */
};

enum {
  WORKER_PROCESS_NO_BACKEND = 3 /* exit status: see worker.h */
};

/* `standby`: it opens its device, says so, and then waits until it is asked for something. */
MUST_CHECK enum status worker_process_start(uv_loop_t *loop, const char *program, uint32_t device, bool standby,
                                            const struct config *config, const struct worker_process_events *events,
                                            void *owner, struct worker_process **out, struct error *error);
/* Closes its socket, by which it ends; and kills it, now or after some seconds. */
void worker_process_close(struct worker_process *process, bool now);
