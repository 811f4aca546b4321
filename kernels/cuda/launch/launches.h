/* Kernels on their way to a stream. They are held back until something else has to be queued behind them; where they
 * are two or more that have been queued in this order before, they start as one graph, which costs the host one launch.
 *
 * A graph holds numbers and is never trusted: each time, what it would launch is compared with what is held, and what
 * differs (addresses, rows, the grid) is set anew. So nothing has to be dropped where a weight goes, a kernel is
 * replaced, or memory moves; what is not used any more is the first to give up its place.
 *
 * Pure: what a device does is behind struct launch_ops. */
#pragma once

#include "launch.h"

#include <stdatomic.h>

enum {
  LAUNCHES_HELD = 24,                /* kernels at a time */
  LAUNCHES_BYTES = 4 * LAUNCH_BYTES, /* of their parameters */
  LAUNCHES_GRAPHS = 64,              /* of a stream, at most */
  LAUNCHES_GRAPHS_ALL = 256,         /* of all streams, */
  LAUNCHES_GRAPHS_LEAST = 4,         /* but for these of each */
  LAUNCHES_GRAPH_BYTES = 112 << 10,  /* of device memory, that one takes; of the host's it takes 37 KB */
  LAUNCHES_SEEN = 256,               /* what was queued of late */
  LAUNCHES_PATIENCE = 512,           /* a graph that was not used that often may make room */
};

struct launch_graph;

/* All but `drop` return 0 or what a failure is; `values` are the parameters'. */
struct launch_ops {
  int (*launch)(void *stream, const struct launch *launch, void **values);
  int (*make)(void *stream, const struct launch *launches, void *const *const *values, int count,
              struct launch_graph **out);
  int (*set)(struct launch_graph *graph, int place, const struct launch *launch, void **values);
  int (*run)(struct launch_graph *graph, void *stream);
  void (*drop)(struct launch_graph *graph);
};

/* A graph, and what it would launch. */
struct launches_known {
  struct launch_graph *graph; /* NULL: free */
  uint64_t used_at;
  int count;
  struct launch *launches;
  uint8_t *bytes;
};

/* Of one stream. One thread uses it. */
struct launches {
  const struct launch_ops *ops;
  void *stream;
  bool refused; /* a graph could not be made: none is any more */
  int result;   /* the first failure since launches_hold */
  uint64_t key;
  int count;
  uint32_t used;
  struct launch held[LAUNCHES_HELD];
  void *values[LAUNCHES_HELD][LAUNCH_PARAMETERS]; /* into `bytes` */
  int graphs_most;
  _Atomic uint32_t graphs; /* now; other threads may read it */
  uint64_t clock;
  uint64_t seen[LAUNCHES_SEEN];
  unsigned seen_next;
  uint64_t keys[LAUNCHES_GRAPHS];
  struct launches_known known[LAUNCHES_GRAPHS];
  _Alignas(LAUNCH_ALIGN) uint8_t bytes[LAUNCHES_BYTES];
};

/* One of `streams`, which share what graphs there may be: 1..64. */
void launches_open(struct launches *launches, const struct launch_ops *ops, void *stream, int streams);
void launches_close(struct launches *launches);

/* What is added from here on is for `key`: graphs that differ in it are kept apart, so that little has to be set anew.
 */
void launches_hold(struct launches *launches, uint64_t key);
/* One more is held; where there is no room for it, those ahead are started. `values` are copied. */
void launches_add(struct launches *launches, const struct launch *launch, void **values);
/* Starts what is held: something else is to be queued behind it. A failure is release's to return. */
void launches_start(struct launches *launches);
/* Starts what is held. What failed since launches_hold, or 0. */
int launches_release(struct launches *launches);
