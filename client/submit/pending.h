/* Requests in flight and results not taken yet; private. A fixed table, no I/O.
 *
 * A request is one product of the caller. It has one part for each device that computes a piece of it; it is finished
 * when all parts are, whatever became of them, because until then its tensors are in use.
 *
 *   ticket  counter << 8 | slot        never 0, never reused
 *   tag     ticket << 4 | part         what travels through a ring */
#pragma once

#include "../../proto/limits.h"
#include "../../proto/shm/ring.h"
#include "../../proto/status.h"

#include <stdbool.h>
#include <stdint.h>

struct pending_part {
  uint32_t device, handle;
  uint32_t n_begin, n_count; /* columns of y that it computes */
  bool open;                 /* its completion has not come */
  uint32_t number;           /* of its submission in the ring */
  uint32_t losses;           /* workers that had taken it and died */
};

struct request {
  uint64_t ticket;                   /* 0: the slot is free */
  struct ring_submission submission; /* of the whole product */
  struct pending_part parts[LIMIT_PARTS];
  uint32_t part_count, open_parts;
  uint64_t finished;            /* order in which requests finished; 0 while in flight */
  struct error error;           /* of the first part that failed; status OK: none did */
  uint64_t device_ns, queue_ns; /* of the slowest part */
  uint32_t skipped;             /* pairs of a product over experts */
};

struct pending {
  struct request *requests;   /* owned; one a slot */
  uint32_t slots, used, done; /* `done` of the `used` ones are finished */
  uint64_t tickets, finishes; /* counters */
  uint32_t free_slots[LIMIT_RING_ENTRIES];
};

_Static_assert(LIMIT_RING_ENTRIES <= 256, "a slot takes 8 bits of a ticket");
_Static_assert(LIMIT_PARTS <= 16, "a part takes 4 bits of a tag");

MUST_CHECK enum status pending_init(struct pending *pending, uint32_t slots, struct error *error);
void pending_release(struct pending *pending);

/* Takes a slot; device, handle and columns of the parts are copied. NULL where all slots are taken. */
struct request *pending_add(struct pending *pending, const struct ring_submission *submission,
                            const struct pending_part *parts, uint32_t part_count);
/* Gives the slot back; a finished request, or one of which nothing has been sent. */
void pending_remove(struct pending *pending, struct request *request);

/* NULL where the ticket names nothing in the table. */
struct request *pending_find(const struct pending *pending, uint64_t ticket);
/* The request that finished first; NULL where none has. */
struct request *pending_finished(const struct pending *pending);
/* The open part that `tag` names on `device`; false where there is none such. */
bool pending_part(const struct pending *pending, uint64_t tag, uint32_t device, struct request **request,
                  uint32_t *part);

/* The tag of part `part`. */
uint64_t request_tag(const struct request *request, uint32_t part);
/* What part `part` asks its device for: its handle, its columns of y and bias. */
void request_submission(const struct request *request, uint32_t part, struct ring_submission *out);
/* Part `part` has ended: as the completion says, or with an error. */
void pending_complete(struct pending *pending, struct request *request, uint32_t part,
                      const struct ring_completion *completion);
void pending_fail(struct pending *pending, struct request *request, uint32_t part, const struct error *error);
