/* Load on a daemon: clients, each a process with a session of its own, that ask for products as fast as they are
 * answered, or at a given rate. */
#pragma once

#include "client/tool/command.h"
#include "histogram.h"
#include "mix.h"

#include <stdatomic.h>

#define SERVE_CLIENTS_MAX 4096
#define SERVE_IN_FLIGHT_MAX 256

struct serve_settings {
  struct mix mix;
  char backend[16];
  int clients, in_flight;
  enum gemmd_type x_type, y_type;
  bool gpu;          /* x and y lie on the GPU */
  double rate;       /* products a second of all clients, asked for at random times; 0: as fast as they are answered */
  uint64_t pause_ns; /* of a client, after each answer */
  uint64_t warmup_ns, run_ns;
  uint64_t requests; /* of all clients together; 0: as many as run_ns allows */
};

/* What a client reports, in memory shared with the parent. The parent reads it when the client is gone. */
struct serve_client {
  uint64_t begin_ns, end_ns; /* of the counted part, CLOCK_MONOTONIC */
  uint64_t failures, rows;
  uint64_t checked;  /* of y, after the load */
  double difference; /* the largest of these, see check.h */
  struct histogram latency, overhead, device;
};

/* What a client waits for: written by the parent before it closes the gate. */
struct serve_start {
  _Atomic bool go; /* false: some client could not begin, so none does */
};

/* The life of client `number`: connects, opens the weight, says so through `ready` by one byte, waits until
 * `gate` is closed, and asks. Owns and closes both descriptors. */
enum tool_exit serve_client_run(const struct tool_call *call, const struct serve_settings *settings, int number,
                                const struct serve_start *start, struct serve_client *client, int ready, int gate);

enum tool_exit bench_serve(struct tool_call *call);
