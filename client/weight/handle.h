/* Open weights of a session; private. */
#pragma once

#include "../session/session.h"

struct gemmd_weight {
  struct gemmd_session *session;
  LIST_ENTRY(gemmd_weight) link;
  gemmd_weight_info info;
  struct gemm_weight shape;
  enum message_placement placement;
  uint32_t part_count;
  struct pending_part parts[LIMIT_PARTS];
  uint32_t next_handles[LIMIT_PARTS]; /* of the session with the next daemon */
  bool missing;                       /* the daemon that is there has it not; its handles are stand-ins */
};

/* The open weight with a part that is `handle` on `device`; NULL where it has been closed. */
struct gemmd_weight *weight_find(const struct gemmd_session *session, uint32_t device, uint32_t handle);
/* Frees the handle without telling the daemon. */
void weight_forget(struct gemmd_weight *weight);
/* What `handle` on `device` is called there; 0, which stands for nothing, where its weight has been closed: the number
 * may be another one's there. */
uint32_t weight_next_handle(const struct gemmd_session *session, uint32_t device, uint32_t handle);
/* The daemon knows a weight by a handle, its user by a name: puts that behind the sentence. */
void weight_name_error(const struct gemmd_weight *weight, struct error *error);
