/* What outlives gemmd: the descriptors of slabs and an image of the catalog. Under systemd they are parked in its
 * descriptor store as they come about, so that a gemmd that is killed finds them when it is started again; over
 * `gemmd --upgrade` they pass by an exec.
 *
 * Whatever happens in between, the store holds an image all of whose slabs are there: a slab is parked before the first
 * image that names it, and taken out after the last. */
#pragma once

#include "../../../proto/wire/message.h"
#include "../net/inherited.h"
#include "catalog_image.h"

#include <stdbool.h>
#include <stdint.h>

struct supervisor;

struct store {
  uint64_t version;                    /* of the last image that was made; 0: none was */
  uint64_t parked;                     /* the version that is parked; 0: none is */
  bool behind;                         /* what is parked is not what there is */
  char backend[CATALOG_BACKEND_BYTES]; /* that the catalog was restored from; "" where it was not */
};

/* Takes catalog and slabs over from what an earlier gemmd left. What cannot be used is dropped with a warning. */
void store_restore(struct supervisor *supervisor, struct inherited *inherited);
/* Where the catalog has no epoch, as numbers of slabs begin anew: a random one. */
void store_choose_epoch(struct catalog *catalog);
/* The first worker has told what there is: drops what was restored where the backend or the devices are others. */
void store_check(struct supervisor *supervisor);

void store_add_slab(uint32_t id, int fd);
void store_remove_slab(uint32_t id);
/* After the names, or what they stand for, have changed. */
void store_catalog(struct supervisor *supervisor);
/* Whether the next gemmd would find the catalog as it is, or none of what it holds at all: tries again where the last
 * one could not be parked. */
bool store_is_current(struct supervisor *supervisor);

/* Leaves all of it, with the listening socket, to the program that is executed next. */
MUST_CHECK enum status store_leave(struct supervisor *supervisor, struct error *error);
