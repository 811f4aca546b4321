/* A worker in a process of its own, and bare internal messages to it: the test is its supervisor and its client. One
 * slab, one weight and one session are enough for what is tested so. */
#pragma once

#include "proto/shm/ring.h"
#include "proto/status.h"
#include "proto/wire/message.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
  BARE_ENTRIES = 8,
  BARE_N = 200, /* of the whole weight */
  BARE_K = 70,
  BARE_SLAB = 11,
  BARE_WEIGHT = 21,
  BARE_SESSION = 31,
  BARE_HANDLE = 1 << 16,
  BARE_LONGEST_WAIT_MS = 60000
};

struct bare_worker {
  pid_t pid;
  int socket;
  uint32_t next_id; /* of the next request */
  struct message_worker_ready ready;
};

/* On the CPU; returns when it has said that it is ready. "": no state_dir. */
void bare_start(struct bare_worker *worker, const char *state_dir);
/* With any backend, and does not wait. */
void bare_start_with(struct bare_worker *worker, const char *backend, const char *state_dir);
/* Waits for its end. */
int bare_exit_status(const struct bare_worker *worker);
/* Closes its socket; it must exit with 0. */
void bare_stop(struct bare_worker *worker);

/* ---- requests. Answers come in the order of the requests. */

/* Returns the id. */
uint32_t bare_ask(struct bare_worker *worker, uint32_t command, const void *body, const int *fds, size_t fd_count);
/* The next message must be the answer to this; its status. `reply` may be NULL. */
enum status bare_answer(struct bare_worker *worker, uint32_t id, uint32_t command, void *reply);
/* Both, without descriptors. */
enum status bare_call(struct bare_worker *worker, uint32_t command, const void *body);
/* The next message, whatever it is; the body lasts until the one after it. */
void bare_receive(struct bare_worker *worker, struct message_head *head, struct message_body *body);

extern const struct message_session_weight bare_open_weight;
extern const struct message_session_id bare_this_session;
extern const struct message_weight_id bare_this_weight;
extern const struct message_slab_free bare_this_slab;

/* ---- a weight: INT8 rows, each with a scale */

/* A memfd of all of it, the caller's; sealed against writing where it is frozen. */
int bare_canonical(bool frozen);
/* The place at the slab's beginning for n rows. */
struct message_weight_place bare_plan(struct bare_worker *worker, int64_t n);
uint64_t bare_slab_bytes(const struct bare_worker *worker);
/* Returns the slab's descriptor, the caller's. */
int bare_create_slab(struct bare_worker *worker);
enum status bare_store(struct bare_worker *worker, const struct message_weight_place *place, int canonical);

/* ---- a session */

struct bare_client {
  int fds[3]; /* arena, doorbell, wakeup */
  uint64_t bytes;
  uint8_t *base;
  struct ring_client ring;
};

void bare_client_make(struct bare_client *client);
void bare_client_free(struct bare_client *client);
/* Returns the request's id. */
uint32_t bare_ask_session_add(struct bare_worker *worker, const struct bare_client *client, uint32_t generation);
/* Waits; with a handle of the weight. */
void bare_add_session(struct bare_worker *worker, const struct bare_client *client);
void bare_submit(struct bare_client *client, struct ring_submission submission);
struct ring_completion bare_take(struct bare_client *client);
/* Of one row; fills x. */
struct ring_submission bare_product(const struct bare_client *client, int64_t n);
/* One product with a weight of the rows n_begin .. n_begin + n of the whole. */
void bare_expect_product(struct bare_client *client, int64_t n_begin, int64_t n);
