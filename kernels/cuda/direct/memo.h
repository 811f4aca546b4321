/* What a lane knows of products that it has queued before: their kernels with all parameters, so that the same product
 * by other tensors goes to the driver with its addresses set and nothing else asked or decided again.
 *
 * That an address is where it was found, and nowhere else, is not believed but seen: until a product has been queued
 * the long way with two different ones, and the parameters differed in just these words, it is repeated for the same
 * address only. */
#pragma once

#include "../../backend.h"
#include "../launch/record.h"

struct memo;       /* of a lane; one thread uses it at a time */
struct memo_entry; /* of one product */

/* NULL: no memory. */
struct memo *memo_open(const struct driver *driver);
void memo_close(struct memo *memo); /* NULL is fine */

/* The place of such a product by a weight of that serial number. `crowded`: as direct_crowded says. It stays until the
 * next call of the memo. */
struct memo_entry *memo_find(struct memo *memo, const struct backend_job *job, uint64_t serial, bool crowded);
/* Its kernels, with the job's tensors; NULL: how they go is not known. */
struct record *memo_recall(struct memo_entry *entry, const struct backend_job *job);
/* The job is queued the long way between the two. `good`: all of it was. */
void memo_begin(struct memo *memo);
void memo_end(struct memo *memo, struct memo_entry *entry, const struct backend_job *job, bool good);
