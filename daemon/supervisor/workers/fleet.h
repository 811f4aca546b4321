/* All workers: which backend, how many devices, and when serving may begin. */
#pragma once

#include "doorbells.h"
#include "worker_proxy.h"

struct supervisor;

struct fleet {
  struct config config; /* what workers are started with: the backend is explicit once it is known */
  struct worker workers[LIMIT_DEVICES];
  struct doorbells *doorbells[LIMIT_DEVICES]; /* owned; of devices whose worker is asleep, else NULL */
  uint32_t count;
  char reason[256]; /* why this backend */
  bool known;       /* the backend, and with it the number of devices */
  bool ready;       /* every worker has been ready, or has failed, once */
};

/* Starts the first worker; what it says about the machine decides about the others. */
MUST_CHECK enum status fleet_start(struct supervisor *supervisor, struct error *error);
/* What is submitted to the device's worker is its own to hear. */
void fleet_ignore_doorbells(struct fleet *fleet, uint32_t device);
void fleet_stop(struct supervisor *supervisor);
/* After a worker's state has changed: serving begins once all have one. */
void fleet_changed(struct supervisor *supervisor);
