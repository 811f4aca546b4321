/* The tuner: learns the fastest kernel for every shape that is served, on the engine's thread, when that has nothing
 * else to do. It works in bursts, so that a request waits for a few hundred microseconds at most, and seldom: while
 * requests come, bursts take a small share of the time, so that fewer than one request in a hundred meets one. What is
 * longer than a burst by itself waits until there was no request for a while, and so do kernels that no test has seen:
 * they run in a process of their own first, which a request ends.
 *
 * A kernel serves only after its results were compared with the plain one's in this process, also one that was kept,
 * imported or set by hand. */
#pragma once

#include "tuner_types.h"

struct tuner;

/* ---- other threads */

/* Before the engine starts; takes memory and reads what was kept. Where nothing can be kept, goes on without and logs
 * why. */
MUST_CHECK enum status tuner_open(const struct tuner_options *options, struct tuner **out, struct error *error);
/* After the engine has ended. NULL is fine. */
void tuner_close(struct tuner *tuner);

/* Between the two nothing is measured: while a driver takes memory or gives it back, whoever starts or ends anything
 * else waits, and so would the products behind a measurement. Returns when a step that is under way has ended, or after
 * a while. */
void tuner_hold(struct tuner *tuner);
void tuner_release(struct tuner *tuner);

/* ---- the engine's thread */

/* Chooses the kernel of a product of `rows` rows (a batch has more than `job`), asked for by `user`. Returns its shape;
 * NULL where there is no room for one more. */
struct book_entry *tuner_launch(struct tuner *tuner, uint32_t user, const struct engine_weight *weight,
                                struct backend_job *job, int64_t rows);
/* The same for a product that brings W itself. */
struct book_entry *tuner_launch_tensors(struct tuner *tuner, uint32_t user, struct backend_job *job);
/* A product that tuner_launch gave this entry for has ended. */
void tuner_finished(struct tuner *tuner, struct book_entry *entry, uint64_t device_ns);
void tuner_weight_gone(struct tuner *tuner, struct engine_weight *weight);

/* Works for one burst, or until `wanted` says that somebody waits. Nothing is in flight. Returns after how many ns it
 * wants to go on; 0: at once, UINT64_MAX: nothing to do. *lost as in serve_start. */
uint64_t tuner_step(struct tuner *tuner, uint64_t now_ns, bool (*wanted)(void *user), void *user, struct error *lost);

/* When it last had the device compute; 0: never. */
uint64_t tuner_worked_ns(const struct tuner *tuner);
/* Gives back the pages of x and y of trials, unless one is under way, or the device has them registered. */
void tuner_rest(struct tuner *tuner);

/* Any thread: whether there may be something to tune, allowed now or not. */
bool tuner_has_work(const struct tuner *tuner);

/* Messages that wait for their shape go back with CANCELLED. */
void tuner_stop(struct tuner *tuner);
