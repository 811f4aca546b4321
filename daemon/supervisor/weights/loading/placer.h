/* Puts loaded weights on devices and into the catalog, one after the other: so that two loads of one content or of
 * one name cannot cross, whatever their order of arrival. What fails is undone completely. */
#pragma once

#include "../../../../proto/wire/message.h"
#include "../catalog.h"
#include "load.h"

#include <stdbool.h>
#include <stdint.h>

struct session;
struct supervisor;

struct placer {
  struct load_list line;       /* owned; the first is the one at work */
  bool busy;                   /* the first one waits for an answer of a worker */
  struct catalog_weight draft; /* of the first; part_count parts are stored */
  uint32_t part_target;        /* how many parts there will be */
  struct catalog_class of;     /* of the slabs that it lies in */
  uint64_t plan_align;
  uint32_t slab; /* that was made for the part at work; 0: none */
  uint64_t slab_bytes;
  bool taken;   /* room for the part at work has been taken */
  bool spoiled; /* a worker died that had a stored part */
};

void placer_init(struct placer *placer);
/* The load has been read and waits for its place, a small one ahead of those that are not; ends with load->placed. */
void placer_add(struct supervisor *supervisor, struct load *load);
/* What the session asked for is undone instead of committed. */
void placer_session_left(struct supervisor *supervisor, struct session *session);
/* A worker is dead; requests to it have not been answered yet. */
void placer_worker_lost(struct supervisor *supervisor, uint32_t device);
/* A worker has become ready, or failed. */
void placer_devices_changed(struct supervisor *supervisor);

/* What a worker is told of a part. */
struct message_weight_place placer_place(const struct catalog_weight *weight, const struct catalog_part *part);
