/* The worker's engine with the real cpu backend, real rings in sealed memory and real threads; the test is the client
 * and the control thread. A wait that lasts a minute fails: it stands for a wake-up that was lost. */
#pragma once

#include "daemon/worker/control/mailbox.h"
#include "daemon/worker/serve/engine.h"
#include "daemon/worker/tune/tuner.h"
#include "proto/shm/ring.h"

#include <stdint.h>

enum { RIG_ENTRIES = 16, RIG_N = 48, RIG_K = 160, RIG_HANDLE = 3 << 16 | 5, RIG_ARENA_BYTES = 8 << 20 };

/* The device, with one weight [RIG_N, RIG_K] of int8. */
struct rig {
  const struct backend_ops *ops;
  struct backend *backend;
  struct backend_slab *slab;
  int slab_fd;
  struct engine_weight weight;
  uint8_t *canonical;
  struct gemm_layout layout;
};
extern struct rig rig;

/* For cmocka: before and after a group of tests. */
int rig_open(void **state);
int rig_close(void **state);

/* ---- the control thread's side */

struct rig_control {
  struct engine *engine;
  struct tuner *tuner;
  struct mailbox mail;
  int arrived; /* eventfd */
};

void rig_start(struct rig_control *control, uint64_t spin_us);
/* On `device`: the real one, perhaps with one of its functions replaced. */
void rig_start_on(struct rig_control *control, const struct backend_ops *device, uint64_t spin_us);
/* An engine that gives a product to `device` stays in that call until rig_let_go; rig_await_busy waits for it to be
 * there. */
void rig_keep_busy(struct backend_ops *device);
void rig_await_busy(void);
void rig_let_go(void);
void rig_start_batching(struct rig_control *control, const struct backend_ops *device, uint64_t spin_us, uint32_t rows,
                        uint64_t window_us);
/* Holds products for events so long. */
void rig_start_holding(struct rig_control *control, const struct backend_ops *device, uint64_t event_timeout_us);
void rig_stop(struct rig_control *control);
/* The next message from the engine must be this one; its status. */
enum status rig_expect_back(struct rig_control *control, const struct engine_message *message);
enum status rig_ask(struct rig_control *control, struct engine_message *message);
void rig_wait_readable(int fd);

/* ---- a session */

struct rig_client {
  struct engine_session session;
  int arena_fd;
  struct ring_client ring;
  uint64_t next_tag;
};

/* A session with the handle RIG_HANDLE of the weight. */
void rig_join(struct rig_control *control, struct rig_client *client);
void rig_join_with(struct rig_control *control, struct rig_client *client, uint32_t generation);
void rig_leave(struct rig_control *control, struct rig_client *client);
/* Where the engine has forgotten it already. */
void rig_free_client(struct rig_client *client);

void rig_ring_doorbell(struct rig_client *client);
/* Returns the tag. */
uint64_t rig_submit(struct rig_client *client, struct ring_submission submission);
/* Sleeps as the library does, without spinning before. */
struct ring_completion rig_take(struct rig_client *client);
struct ring_completion rig_call(struct rig_client *client, struct ring_submission submission);
void rig_expect_nop(struct rig_client *client);

/* ---- products: int8 x and s32 y, exact */

/* Place `slot` of 0..RIG_ENTRIES-1 has its own tensors, for up to 320 rows. */
struct ring_submission rig_product(const struct rig_client *client, unsigned slot, uint32_t m);
void rig_fill(const struct rig_client *client, const struct ring_submission *product, unsigned seed);
void rig_check(const struct rig_client *client, const struct ring_submission *product);
