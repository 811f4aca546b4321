/* The supervisor's parts in one place; each part's header says what it does. */
#pragma once

#include "../../proto/wire/message.h"
#include "../config.h"
#include "counts.h"
#include "net/role.h"
#include "session/users.h"
#include "weights/catalog.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct idle;
struct packet;
struct session;
struct supervisor;
struct worker;

/* What parts ask of others that stand above them, so that their files need not know those; supervisor.c wires them. */
struct supervisor_hooks {
  /* Ends everything in order; the loop runs empty by itself. */
  void (*stop)(struct supervisor *supervisor, int exit_status);
  /* Stops, and then executes the program again in place, with the socket and the weights. */
  void (*upgrade)(struct supervisor *supervisor);
  /* The listener has a connected socket, which it hands over. */
  void (*connected)(struct supervisor *supervisor, int fd);
  /* A session has got a request; what is returned is dispatch_request's. */
  enum status (*requested)(struct session *session, const struct message_head *head, struct message_body body,
                           struct packet *packet, struct error *error);
  /* A session ends: all that was under way for it, and all that it held, is given back. */
  void (*session_left)(struct session *session);
  /* The first worker has told which backend there is, and how many devices. */
  void (*devices_known)(struct supervisor *supervisor);
  /* A worker runs, and must hear what the one before it knew. */
  void (*worker_started)(struct supervisor *supervisor, struct worker *worker);
  /* Its process is dead and reaped. */
  void (*worker_lost)(struct supervisor *supervisor, struct worker *worker);
  /* It sleeps: it has no process, and what is asked for starts one. */
  void (*worker_asleep)(struct supervisor *supervisor, struct worker *worker);
  /* There will be no successor. */
  void (*worker_failed)(struct supervisor *supervisor, struct worker *worker);
  /* A client has written into its rings what cannot be. */
  void (*session_broken)(struct supervisor *supervisor, const struct message_session_broken *message);
  void (*tuning_found)(struct supervisor *supervisor, uint32_t device, const struct message_tuning_found *found);
  /* A worker has become ready, or failed. */
  void (*devices_changed)(struct supervisor *supervisor);
  /* Every worker has been ready, or has failed, once. */
  void (*fleet_ready)(struct supervisor *supervisor);
};

struct supervisor {
  const struct supervisor_hooks *hooks;
  const struct config *config; /* not owned */
  const char *program;         /* what an upgrade executes; not owned */
  const char *children;        /* what workers and loaders are started from; not owned */
  char *const *arguments;      /* it was started with; not owned */
  uv_loop_t loop;
  struct role_rules rules;
  struct users users;
  struct catalog catalog;
  struct counts counts;
  /* Of these, a file includes the headers that it needs. */
  struct listener *listener;
  struct sessions *sessions;
  struct fleet *fleet;
  struct loads *loads;
  struct placer *placer;
  struct pins *pins;
  struct store *store;
  struct publishing *publishing;
  struct idle *idle;   /* owned */
  uint64_t started_ms; /* of the loop's clock */
  bool embedded;       /* one session, and its end is the daemon's */
  bool stopping;
};
