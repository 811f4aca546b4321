/* A service manager for tests, as small as one can be that does for gemmd what systemd does: it makes the listening
 * socket, keeps descriptors that gemmd parks (FDSTORE, FDSTOREREMOVE), and starts gemmd again with all of them when it
 * dies by a signal. It runs as a process of its own. */
#pragma once

#include "daemon.h"

#include <stdint.h>

enum { MANAGER_FDS = 64 };

/* What a test has it do wrong. */
enum manager_mistake {
  MANAGER_KEEPS = 1,           /* takes nothing back that gemmd wants to be rid of */
  MANAGER_LOSES_SLABS = 2,     /* the next gemmd gets none */
  MANAGER_LOSES_LAST_SLAB = 4, /* the next gemmd gets all but that */
};

/* In memory that manager and test share. */
struct manager {
  pid_t pid;                 /* of the manager */
  _Atomic pid_t gemmd;       /* that runs now */
  _Atomic unsigned starts;   /* that have said READY=1, over execs too */
  _Atomic unsigned stored;   /* descriptors kept */
  _Atomic unsigned mistakes; /* mask of enum manager_mistake */
  /* In the catalog that the next gemmd gets, parts of so many rows lie in a layout that no gemmd knows; 0: none do. */
  _Atomic int64_t aged_rows;
};

/* Starts gemmd in the daemon's folder, which has been made, and returns when it is ready. */
struct manager *manager_start(struct daemon *daemon);
/* Waits for the start number `starts`. */
void manager_await(const struct manager *manager, unsigned starts);
/* SIGTERM to gemmd, which must exit with 0. */
void manager_stop(struct manager *manager);
