/* The session arena: one sealed memfd, mapped by the client and by every worker, that holds a header, one pair of
 * rings a device, and the tensors. Layout and both ends' operations; no system calls.
 *
 *   offset 0                      struct ring_header (RING_HEADER_BYTES)
 *   ring_queue_offset(e, d)       struct ring_queue of device d: shared words, submissions[e], completions[e]
 *   header.tensor_offset .. end   tensors, at offsets that the client chooses
 *
 * Everything in here may be rewritten by a hostile client at any time. The worker copies an entry out before it
 * checks it, and steers by its private indices only.
 *
 * Indices are free-running 32-bit counters, masked with entries - 1 on access.
 *
 * Generations. When a worker dies, the supervisor reaps it and then raises queue.worker_generation. The client sees
 * worker_generation != client_generation, takes the completions that the dead worker had published, resets its own
 * indices to 0, stores client_generation = worker_generation (release), and submits again what had not completed.
 * The successor starts at index 0 and touches the rings only while client_generation equals its own generation. */
#pragma once

#include "../gemm.h"
#include "../status.h"
#include "../tensors.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define RING_MAGIC 0x646d6d67u /* "gmmd" */
#define RING_VERSION 1u
#define RING_HEADER_BYTES 4096u
#define RING_LINE 64 /* bytes: what one core owns at a time */

enum ring_worker_state { RING_WORKER_STARTING = 0, RING_WORKER_READY = 1, RING_WORKER_FAILED = 2 };
enum ring_opcode {
  RING_OP_NOP = 0,
  RING_OP_PRODUCT = 1,
  RING_OP_CANCEL = 2,  /* the product of the same tag, if it has not begun; gets no completion of its own */
  RING_OP_PLAN = 3,    /* a sequence of products: see plan.h */
  RING_OP_TENSORS = 4, /* a product whose W is no stored weight but a tensor: [n, k] of x's type, F16 or BF16 */
  RING_OP_EXPERTS = 5, /* over a weight with experts: a product, or a plan where `steps` says so */
};
/* Which products go first. Every RING_TURN_BELOW-th start goes to the last class that waits, so that none starves. */
enum ring_priority { RING_PRIORITY_NORMAL = 0, RING_PRIORITY_URGENT = 1, RING_PRIORITY_BACKGROUND = 2 };
enum { RING_PRIORITIES = 3, RING_TURN_BELOW = 16 };

/* Written once by the supervisor before anybody else maps the arena. */
struct ring_header {
  uint32_t magic, version;
  uint32_t devices; /* queues in this arena */
  uint32_t entries; /* of each ring; a power of two */
  uint64_t arena_bytes;
  uint64_t tensor_offset; /* first byte that tensors may use */
  uint8_t reserved[RING_HEADER_BYTES - 32];
};

/* EXPERTS: struct gemm_choice of gemm.h. */
struct ring_choice {
  uint32_t top;
  uint8_t x_pairs, sum, routed; /* 0 or 1 */
  uint8_t reserved;             /* 0 */
};

/* TENSORS: struct tensors_form of tensors.h. Zeros: one product, all row-major, y is written. */
struct ring_form {
  uint8_t flags;    /* a sum of enum ring_form_flag */
  uint8_t reserved; /* 0 */
  uint16_t batch;   /* 0 and 1: one */
};
enum ring_form_flag { RING_X_TURNED = 1, RING_W_TURNED = 2, RING_ADD = 4 };

struct ring_submission {
  uint64_t tag;    /* the client's; comes back in the completion */
  uint32_t opcode; /* enum ring_opcode */
  uint32_t event;  /* handle of an event of the client's that must have come before it begins; 0: none */
  uint32_t weight; /* handle of the session: generation << 16 | index; TENSORS: as x_tensor, for W */
  uint8_t x_type, y_type, bias_type;
  uint8_t priority; /* enum ring_priority */
  uint32_t m, n, k;
  union {
    uint32_t steps;        /* PLAN, EXPERTS: of the plan; else 0 */
    struct ring_form form; /* TENSORS */
  };
  uint64_t x_offset, y_offset, x_stride, y_stride;
  union {
    uint64_t bias_offset;
    uint64_t y_step; /* TENSORS of a batch of several, which have no bias: as in struct tensors_form */
  };
  union {
    uint64_t x_scale_offset;
    struct ring_choice choice; /* EXPERTS */
    uint64_t x_step;           /* TENSORS */
  };
  uint64_t deadline_ns; /* CLOCK_MONOTONIC; not begun by then, it ends with TIMEOUT; 0: none */
  union {
    uint64_t plan_offset; /* of a plan's first struct ring_step; else 0 */
    uint64_t w_step;      /* TENSORS */
  };
  union {
    struct {
      uint64_t w_offset, w_stride; /* TENSORS: W, bytes from one row to the next; else 0 */
    };
    struct {
      uint64_t ids_offset, routing_offset; /* EXPERTS: where x lies */
    };
  };
  uint32_t x_tensor, y_tensor; /* handles of memory of the client's own in which x or y lies; 0: in the arena */
};
_Static_assert(sizeof(struct ring_submission) == 128, "a submission is two lines");

struct ring_completion {
  uint64_t tag;
  uint16_t status;          /* enum status */
  uint16_t field;           /* enum field */
  uint32_t skipped;         /* EXPERTS: pairs whose id is no expert; saturates */
  int64_t value, low, high; /* as in struct error */
  uint32_t device_ns;       /* the backend's own time of the product, launch to finish; saturates */
  uint32_t queue_ns;        /* taken from the ring until handed to the backend; saturates */
  uint8_t reserved1[16];
};
_Static_assert(sizeof(struct ring_completion) == 64, "a completion is one line");

/* The shared words of one device's queue; each group on a line of its own, by who writes it. */
struct ring_queue {
  /* the supervisor */
  _Alignas(RING_LINE) _Atomic uint32_t worker_generation; /* starts at 1 */
  _Atomic uint32_t worker_state;                          /* enum ring_worker_state */
  /* the client */
  _Alignas(RING_LINE) _Atomic uint32_t submission_tail;
  _Alignas(RING_LINE) _Atomic uint32_t completion_head;
  _Atomic uint32_t client_generation; /* starts at 1 */
  _Atomic uint32_t client_sleeping;   /* 1: write the wakeup eventfd after publishing a completion */
  /* the worker */
  _Alignas(RING_LINE) _Atomic uint32_t submission_head;
  _Atomic uint32_t worker_sleeping; /* 1: write the doorbell eventfd after publishing a submission */
  _Alignas(RING_LINE) _Atomic uint32_t completion_tail;
  /* then: struct ring_submission submissions[entries]; struct ring_completion completions[entries]; */
};

/* Bytes of one queue, a multiple of 4096. `entries` has been checked. */
uint64_t ring_queue_bytes(uint32_t entries);
uint64_t ring_queue_offset(uint32_t entries, uint32_t device);
uint64_t ring_tensor_offset(uint32_t entries, uint32_t devices);

/* entries a power of two in 1..LIMIT_RING_ENTRIES, devices in 1..LIMIT_DEVICES, and at least one page of tensors. */
MUST_CHECK enum status ring_check(uint32_t devices, uint32_t entries, uint64_t arena_bytes, struct error *error);

/* Fills a zeroed, checked arena: header, generations 1, state STARTING. The supervisor. */
void ring_format(void *arena, uint32_t devices, uint32_t entries, uint64_t arena_bytes);
/* The header is one that this version reads and agrees with the arena's size as the caller knows it. The client. */
MUST_CHECK enum status ring_header_check(const struct ring_header *header, uint64_t arena_bytes, struct error *error);

struct ring_queue *ring_queue_at(void *arena, uint32_t entries, uint32_t device);

/* ---- the client's end; one thread */
struct ring_client {
  struct ring_queue *queue; /* not owned */
  struct ring_submission *submissions;
  const struct ring_completion *completions;
  uint32_t entries;
  uint32_t submission_tail, completion_head; /* private copies of what this side publishes */
  uint32_t in_flight;                        /* submitted, cancellations apart, and no completion taken */
  uint32_t generation;
};

void ring_client_init(struct ring_client *ring, void *arena, uint32_t entries, uint32_t device);
/* Publishes one entry. False where ring_client_room is false for it. *wake: write the doorbell. */
bool ring_client_submit(struct ring_client *ring, const struct ring_submission *submission, bool *wake);
/* How many more entries may be submitted now, cancellations and products alike: at most `entries` products have no
 * completion taken yet, and at most `entries` submissions wait for the worker. */
uint32_t ring_client_room(const struct ring_client *ring);
/* Asks that the product of this tag be cancelled. False where there is no room. */
bool ring_client_cancel(struct ring_client *ring, uint64_t tag, bool *wake);
/* True where the worker has taken the submission before which submission_tail was `number`. */
bool ring_client_taken(const struct ring_client *ring, uint32_t number);
/* Takes one completion. False where there is none. */
bool ring_client_take(struct ring_client *ring, struct ring_completion *out);
/* True where a completion waits, without taking it. */
bool ring_client_ready(const struct ring_client *ring);
/* The worker was replaced: ring_client_take until empty, then ring_client_reset, then submit again. */
bool ring_client_replaced(const struct ring_client *ring);
void ring_client_reset(struct ring_client *ring);
enum ring_worker_state ring_client_worker_state(const struct ring_client *ring);
/* Announces sleep (flag, full fence); false, and the flag is down again, where there is something to do first. */
bool ring_client_sleep(struct ring_client *ring);
void ring_client_awake(struct ring_client *ring);

/* ---- the worker's end; one thread */
struct ring_worker {
  struct ring_queue *queue; /* not owned */
  const struct ring_submission *submissions;
  struct ring_completion *completions;
  uint32_t entries;
  uint32_t submission_head, completion_tail; /* private; the shared words are never read back */
  uint32_t in_flight;                        /* taken and not yet completed, cancellations apart */
  uint32_t generation;
};

void ring_worker_init(struct ring_worker *ring, void *arena, uint32_t entries, uint32_t device, uint32_t generation);
/* Copies one entry out into *out. *taken says whether there was one. PROTOCOL where the client's indices cannot be
 * true, or leave no room for the completion: end the session. A cancellation is not to be completed. */
MUST_CHECK enum status ring_worker_take(struct ring_worker *ring, struct ring_submission *out, bool *taken,
                                        struct error *error);
/* Publishes a completion of a taken entry. *wake: write the wakeup eventfd. Always has room. */
void ring_worker_complete(struct ring_worker *ring, const struct ring_completion *completion, bool *wake);
/* Announces sleep; false, and the flag is down again, where a submission waits. */
bool ring_worker_sleep(struct ring_worker *ring);
void ring_worker_awake(struct ring_worker *ring);
/* False where the client has announced sleep. */
bool ring_worker_watched(const struct ring_worker *ring);
/* True where the client has asked this worker, not the one before it, for something that was not taken yet. */
bool ring_worker_wanted(const struct ring_worker *ring);

/* ---- the supervisor's end */
/* After the old worker has been reaped and before its successor maps the arena. State becomes STARTING. The caller
 * counts generations itself: what stands in the arena may have been rewritten. */
void ring_replace_worker(struct ring_queue *queue, uint32_t generation);
void ring_set_worker_state(struct ring_queue *queue, enum ring_worker_state state);
/* There is no worker, and none comes before it is asked for: from now on whatever the client submits rings the
 * doorbell. True where it has submitted something before. */
bool ring_rest_worker(struct ring_queue *queue);

/* ---- entries <-> products */
/* A PRODUCT, a PLAN, TENSORS or EXPERTS. Numbers are taken as they are (gemm_product_check and plan_call_check judge
 * them), but: opcode, flags and reserved bytes must be what this version knows, else INVALID. */
MUST_CHECK enum status ring_submission_product(const struct ring_submission *submission, struct gemm_product *out,
                                               struct error *error);
/* How the tensors of a TENSORS lie. INVALID as above. */
MUST_CHECK enum status ring_submission_form(const struct ring_submission *submission, struct tensors_form *out,
                                            struct error *error);
void ring_completion_from_error(struct ring_completion *completion, const struct error *error);
/* Composes the sentence. A status that is no row becomes INTERNAL. */
void ring_completion_to_error(const struct ring_completion *completion, struct error *out);
