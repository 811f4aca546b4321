/* One worker as the supervisor sees it: the process that serves, the next one, requests that wait for their answer, and
 * the rule by which a worker that died is replaced. Knows nothing of sessions and weights: see recovery.h. */
#pragma once

#include "../../../proto/status.h"
#include "../../../proto/wire/message.h"
#include "../../config.h"
#include "../totals.h"
#include "parked.h"
#include "requests.h"
#include "restarts.h"
#include "watch.h"
#include "worker_process.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <uv.h>

enum { WORKER_WHY_BYTES = 160 };

enum worker_state {
  WORKER_STARTING,   /* the process has not said that it is ready; takes no requests */
  WORKER_RECOVERING, /* takes requests, in order, behind those that bring it to its predecessor's state */
  WORKER_READY,
  WORKER_DYING,  /* its socket is closed; the process may still live */
  WORKER_ASLEEP, /* closed because nobody asked for anything, and started when somebody does */
  WORKER_FAILED, /* waits for its next try, see restarts.h */
  WORKER_STOPPED /* ended because gemmd ends */
};

struct worker;

/* What happens to a worker, for the fleet. */
struct worker_hooks {
  void (*started)(struct worker *worker, const struct message_worker_ready *ready);
  void (*session_broken)(struct worker *worker, const struct message_session_broken *broken);
  void (*tuning_found)(struct worker *worker, const struct message_tuning_found *found);
  /* It has been dying for so long that nobody should wait for its end any more. */
  void (*stuck)(struct worker *worker);
  /* The process is dead and reaped; requests that waited have not been answered yet. */
  void (*lost)(struct worker *worker);
  /* Waits for its next try, or stopped. */
  void (*ended)(struct worker *worker);
  /* There is no process; worker_wake starts one. */
  void (*asleep)(struct worker *worker);
};

/* How a worker that nobody asks for anything goes, and comes back. */
enum worker_nap {
  NAP_NONE,
  NAP_FALLING, /* its process is being closed */
  NAP_ASLEEP,
  NAP_WAKING /* a process has been started, and has not said that it is ready */
};

struct worker {
  uint32_t device;
  enum worker_state state;
  const struct worker_hooks *hooks;
  void *owner;
  uv_loop_t *loop;
  const char *program;            /* see child_start */
  const struct config *config;    /* what the next process is started with */
  struct worker_process *process; /* owned; NULL: none lives */
  /* Owned: that which replaces it, started when the one before begins to die, or earlier (worker_spare). Gets nothing
   * before that one is reaped. NULL: there is none. */
  struct worker_process *next;
  bool next_ready; /* it has opened its device, and `next_says` is what it said */
  struct watch watch;
  unsigned open; /* of process and watch */
  struct requests requests;
  struct message_worker_ready ready, next_says; /* the first of the last process that said so */
  bool ever_ready, stopping;
  bool stuck;      /* see the hook; until it is reaped */
  int exit_status; /* of the last process; -1 where a signal ended it */
  /* What its device holds may have been damaged, and no process has come so far as to serve since. SIGKILL from outside
   * touches nothing; anything else that ends a process, or a gemmd, may have. */
  bool suspect;
  uint32_t faults; /* processes that ended so */
  uint32_t pid;
  uint32_t restarts;
  enum worker_nap nap;
  bool errand;          /* it was woken for work in the background alone; nobody waits */
  bool wanted;          /* woken while NAP_FALLING */
  struct parked parked; /* owned; while it naps */
  uint64_t asked_ms;    /* when a client last asked it for something */
  uint32_t naps;        /* how often it went to sleep */
  struct restarts policy;
  bool failed;                /* its device counts as out of order, from the first pause until a process serves */
  uv_timer_t retry;           /* while `waits` */
  bool waits;                 /* for its next try */
  uint64_t retry_ms;          /* when that is */
  uint64_t down_ms;           /* since when it does not serve; not looked at while it does */
  char why[WORKER_WHY_BYTES]; /* the last one ended; "" where none has */
  bool blamed;                /* `why` says so of the process that lives, or is being killed */
  uint64_t lost_ms;
  uint32_t recovering;               /* answers that recovery waits for */
  uint32_t verified;                 /* weights whose checksum recovery found to agree */
  uint64_t verified_bytes;           /* of these */
  struct message_worker_stats stats; /* of this process as last heard */
  struct totals past;                /* of those before it */
};

void worker_init(struct worker *worker, uint32_t device, uv_loop_t *loop, const char *program,
                 const struct config *config, const struct worker_hooks *hooks, void *owner);
MUST_CHECK enum status worker_start(struct worker *worker, struct error *error);
/* Sends a request; `done` is called with its answer. The descriptors stay the caller's. DEVICE_LOST where the worker
 * takes none now: `done` is not called then. One that is dying takes requests, which are answered DEVICE_LOST when it
 * is reaped, but for those that need not wait for that. */
MUST_CHECK enum status worker_ask(struct worker *worker, enum command command, const void *body, const int *fds,
                                  size_t fd_count, worker_done done, void *user, struct error *error);
/* Recovery is over. */
void worker_serves(struct worker *worker);
/* Closes its process, which takes its memory on the device but for the weights: these stay in slabs. False, and nothing
 * happens, where it does not serve, or somebody waits for it. */
bool worker_sleep(struct worker *worker);
/* Starts a process again; nothing where it does not sleep. `errand`: for work in the background, and where the process
 * cannot start it sleeps on. */
void worker_wake(struct worker *worker, bool errand);
/* It serves, or will as soon as it is asked. */
bool worker_usable(const struct worker *worker);
/* Kills the process because of what it did; a successor follows. */
void worker_kill(struct worker *worker, const char *why);
/* Tries again now where it waits for its next try, and forgets that it died; false where it does not wait. */
bool worker_retry(struct worker *worker);
/* Ends it for good: closes its socket, and kills it after five seconds. */
void worker_stop(struct worker *worker);
/* Of this process, as last heard, and those before it. */
struct totals worker_totals(const struct worker *worker);
/* Who decides where something is to lie need not wait to hear more of it. */
bool worker_settled(const struct worker *worker);
/* "starting", "ready", "asleep", "failed": as in device_status. */
const char *worker_state_name(const struct worker *worker);
