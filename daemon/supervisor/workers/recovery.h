/* Brings a worker to the state of the one before it: slabs, weights, sessions and their handles. The worker carries
 * commands out in order, so all are sent at once, and whatever is asked afterwards comes behind them. */
#pragma once

struct supervisor;
struct worker;

void recovery_begin(struct supervisor *supervisor, struct worker *worker);
/* The process is dead and reaped. Clients hear of it when the successor has all that they ask for, and never before
 * the old one is reaped, so that no late write lands in a y that they ask for again. */
void recovery_worker_lost(struct supervisor *supervisor, struct worker *worker);
/* There will be no successor. */
void recovery_worker_failed(struct supervisor *supervisor, struct worker *worker);
