/* weight_fetch: the content of a weight, out of the worker that has it. */
#include "../context.h"
#include "../weights/reclaim.h"
#include "../workers/fleet.h"
#include "cmd.h"

#include "../../memfd.h"

#include <stdlib.h>

struct fetching {
  struct session *session; /* waits */
  uint32_t id;
  struct catalog_weight *weight; /* held like an open one */
  struct message_weight_fetched reply;
};

static void answer_fetched(struct fetching *fetching, struct worker_answer *answer) {
  struct error error;
  enum status status = answer->status;
  if (status != STATUS_OK)
    error = answer->error;
  else
    status = memfd_check(answer->fd, fetching->reply.bytes, true, &error);
  if (status == STATUS_OK)
    session_reply(fetching->session, fetching->id, &message_weight_fetched_type, &fetching->reply, &answer->fd, 1);
  else
    session_fail(fetching->session, fetching->id, &error);
}

static void on_read(void *user, struct worker_answer *answer) {
  struct fetching *fetching = user;
  struct session *session = fetching->session;
  answer_fetched(fetching, answer);
  reclaim_handle(session->supervisor, fetching->weight);
  free(fetching);
  session_continue(session);
}

/* One that is whole, on a device that works. */
static const struct catalog_part *find_part(const struct supervisor *supervisor, const struct catalog_weight *weight,
                                            struct error *error) {
  if (weight->placement == PLACEMENT_SPLIT) {
    (void)error_set(error, STATUS_UNSUPPORTED, "a weight that is split over devices is not read back");
    return NULL;
  }
  for (uint32_t i = 0; i < weight->part_count; i++)
    if (worker_usable(&supervisor->fleet->workers[weight->parts[i].device]))
      return &weight->parts[i];
  (void)error_set(error, STATUS_DEVICE_LOST, "no device that holds the weight is ready");
  return NULL;
}

static enum status begin(struct session *session, uint32_t id, struct catalog_weight *weight, struct error *error) {
  struct supervisor *supervisor = session->supervisor;
  struct gemm_layout layout;
  const struct catalog_part *part = find_part(supervisor, weight, error);
  if (part == NULL)
    return error->status;
  enum status status = gemm_layout_compute(&weight->shape, &layout, error);
  if (status != STATUS_OK)
    return status;
  struct fetching *fetching = malloc(sizeof *fetching);
  if (fetching == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for the request");
  *fetching = (struct fetching){.session = session,
                                .id = id,
                                .weight = weight,
                                .reply = {.n = weight->shape.n,
                                          .k = weight->shape.k,
                                          .format = weight->shape.format,
                                          .scale = weight->shape.scale,
                                          .input = weight->shape.input,
                                          .experts = (uint32_t)weight->shape.experts,
                                          .bytes = layout.total_bytes}};
  struct message_weight_id body = {.weight = weight->id};
  status = worker_ask(&supervisor->fleet->workers[part->device], COMMAND_weight_read, &body, NULL, 0, on_read, fetching,
                      error);
  if (status != STATUS_OK) {
    free(fetching);
    return status;
  }
  weight->handles++;
  session_wait(session);
  return STATUS_OK;
}

enum status cmd_weight_fetch(struct session *session, struct call *call) {
  const struct message_weight_name *request = call->body;
  const struct catalog_name *name;
  enum status status =
      catalog_look_up(&session->supervisor->catalog, request->name, session->user, &name, &call->error);
  if (status == STATUS_OK)
    status = begin(session, call->id, name->weight, &call->error);
  return status;
}
