/* For processes that compute themselves: weight_borrow, weight_return, weight_hold, tunings_open, shapes_open,
 * tune_propose. */
#include "../context.h"
#include "../session/publishing.h"
#include "../weights/lend.h"
#include "../weights/loading/loads.h"
#include "../weights/store.h"
#include "../workers/fleet.h"
#include "cmd.h"

#include "../../../proto/shm/published.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum status check_right(const struct session *session, struct error *error) {
  const char *direct = session->supervisor->config->direct;
  if (session->may_borrow)
    return STATUS_OK;
  return error_set(error, STATUS_PERMISSION,
                   "to borrow weights is for the user that gemmd runs as%s%.64s (option direct)",
                   strcmp(direct, "off") == 0 ? "" : " and the group ", strcmp(direct, "off") == 0 ? "" : direct);
}

/* Its slabs are lent from now on, which a gemmd that takes this one's place has to know before anybody has them. */
static enum status lend(struct supervisor *supervisor, const struct catalog_weight *weight, struct error *error) {
  if (catalog_lend(&supervisor->catalog, weight))
    store_catalog(supervisor);
  if (store_is_current(supervisor))
    return STATUS_OK;
  return error_set(error, STATUS_BUSY, "the service manager does not take note of what is lent at the moment");
}

static enum status add_borrow(struct session *session, struct catalog_weight *weight, uint32_t *borrow,
                              struct error *error) {
  enum status status = borrows_add(&session->borrows, weight, borrow, error);
  if (status == STATUS_OK)
    weight->borrows++;
  return status;
}

/* ---- weight_borrow */

struct borrowing {
  struct session *session; /* waits */
  uint32_t id;
  bool moved;
  struct message_weight_borrow request;
};

/* What is to be told, but for slabs and borrow. */
static void describe(const struct supervisor *supervisor, const struct catalog_name *name,
                     struct message_weight_borrowed *out) {
  const struct catalog_weight *weight = name->weight;
  *out = (struct message_weight_borrowed){.n = weight->shape.n,
                                          .k = weight->shape.k,
                                          .format = weight->shape.format,
                                          .scale = weight->shape.scale,
                                          .input = weight->shape.input,
                                          .experts = (uint32_t)weight->shape.experts,
                                          .bytes = catalog_weight_bytes(weight),
                                          .owner = name->owner,
                                          .mode = name->mode,
                                          .placement = weight->placement,
                                          .epoch = supervisor->catalog.epoch,
                                          .parts_count = weight->part_count};
  memcpy(out->hash, weight->hash, sizeof out->hash);
  for (uint32_t i = 0; i < weight->part_count; i++) {
    const struct catalog_part *part = &weight->parts[i];
    out->parts[i] =
        (struct message_borrowed_part){.device = part->device,
                                       .n_begin = part->n_begin,
                                       .n_count = part->n_count,
                                       .slab = part->slab,
                                       .slab_bytes = catalog_slab_find(&supervisor->catalog, part->slab)->bytes,
                                       .offset = part->offset,
                                       .bytes = part->bytes,
                                       .layout = part->layout,
                                       .checksum = part->checksum};
    memcpy(out->parts[i].device_uuid, supervisor->fleet->workers[part->device].ready.device_uuid,
           sizeof out->parts[i].device_uuid);
  }
}

/* Adds a slab and, where the session has not been given it, its descriptor. No two parts share a device, nor a slab. */
static enum status add_slab(struct session *session, uint32_t slab, struct message_weight_borrowed *reply, int *fds,
                            size_t *fd_count, struct error *error) {
  bool fresh = !borrows_given(&session->borrows, slab);
  if (fresh && *fd_count == LIMIT_MESSAGE_FDS) {
    reply->more = true;
    return STATUS_OK;
  }
  const struct catalog_slab *there = catalog_slab_find(&session->supervisor->catalog, slab);
  enum status status = fresh ? lend_descriptor(there->fd, &fds[*fd_count], error) : STATUS_OK;
  if (status != STATUS_OK)
    return status;
  *fd_count += fresh;
  reply->slabs[reply->slabs_count++] = (struct message_slab_given){.slab = slab, .fresh = fresh};
  return STATUS_OK;
}

static enum status note_given(struct session *session, const struct message_weight_borrowed *reply,
                              struct error *error) {
  enum status status = STATUS_OK;
  for (uint32_t i = 0; i < reply->slabs_count && status == STATUS_OK; i++)
    status = borrows_give(&session->borrows, reply->slabs[i].slab, error);
  return status;
}

static enum status reply_borrowed(struct borrowing *borrowing, const struct catalog_name *name, struct error *error) {
  struct session *session = borrowing->session;
  struct message_weight_borrowed reply;
  int fds[LIMIT_MESSAGE_FDS];
  size_t fd_count = 0;
  enum status status = lend(session->supervisor, name->weight, error);
  describe(session->supervisor, name, &reply);
  for (uint32_t i = 0; i < reply.parts_count && status == STATUS_OK; i++)
    status = add_slab(session, reply.parts[i].slab, &reply, fds, &fd_count, error);
  if (status == STATUS_OK)
    status = note_given(session, &reply, error);
  if (status == STATUS_OK && !reply.more)
    status = add_borrow(session, name->weight, &reply.borrow, error);
  if (status == STATUS_OK)
    session_reply(session, borrowing->id, &message_weight_borrowed_type, &reply, fds, fd_count);
  while (fd_count > 0)
    close(fds[--fd_count]);
  return status;
}

static void fail(struct borrowing *borrowing, const struct error *error) {
  struct session *session = borrowing->session;
  session_fail(session, borrowing->id, error);
  free(borrowing);
  session_continue(session);
}

static void go_on(struct borrowing *borrowing);

static void on_moved(void *user, const struct error *error) {
  struct borrowing *borrowing = user;
  borrowing->moved = true;
  if (error != NULL)
    fail(borrowing, error);
  else
    go_on(borrowing);
}

/* The name is looked up again whenever something has been waited for. */
static void go_on(struct borrowing *borrowing) {
  struct session *session = borrowing->session;
  struct catalog *catalog = &session->supervisor->catalog;
  const struct catalog_name *name;
  struct error error;
  enum status status = catalog_look_up(catalog, borrowing->request.name, session->user, &name, &error);
  if (status == STATUS_OK && !catalog_lendable(catalog, name->weight, catalog_class_of(name))) {
    status = borrowing->moved ? error_set(&error, STATUS_BUSY, "the name \"%.160s\" has changed hands meanwhile",
                                          borrowing->request.name)
                              : loads_move(session, name->weight, catalog_class_of(name), borrowing->request.name,
                                           on_moved, borrowing, &error);
    if (status == STATUS_OK)
      return;
  } else if (status == STATUS_OK && !session->ending) {
    status = reply_borrowed(borrowing, name, &error);
  }
  if (status != STATUS_OK) {
    fail(borrowing, &error);
    return;
  }
  free(borrowing);
  session_continue(session);
}

enum status cmd_weight_borrow(struct session *session, struct call *call) {
  const struct message_weight_borrow *request = call->body;
  enum status status = check_right(session, &call->error);
  struct borrowing *borrowing = status == STATUS_OK ? malloc(sizeof *borrowing) : NULL;
  if (status == STATUS_OK && borrowing == NULL)
    status = error_set(&call->error, STATUS_NOMEM, "no memory for the request");
  if (status != STATUS_OK)
    return call->error.status;
  for (uint32_t i = 0; i < request->lost_count; i++)
    borrows_lose(&session->borrows, request->lost[i].slab);
  *borrowing = (struct borrowing){.session = session, .id = call->id, .request = *request};
  session_wait(session);
  go_on(borrowing);
  return STATUS_OK;
}

/* ---- weight_return */

enum status cmd_weight_return(struct session *session, struct call *call) {
  const struct message_weight_return *request = call->body;
  struct catalog_weight *weight = borrows_remove(&session->borrows, request->borrow);
  if (weight == NULL)
    return error_set(&call->error, STATUS_NOT_FOUND, "borrow %u stands for nothing", request->borrow);
  lend_return(session->supervisor, weight);
  return call_done(session, call);
}

/* ---- weight_hold */

static bool lies_so(const struct catalog_weight *weight, const struct message_weight_hold *request) {
  bool same = weight->part_count == request->parts_count;
  for (uint32_t i = 0; same && i < weight->part_count; i++)
    same = weight->parts[i].slab == request->parts[i].slab && weight->parts[i].offset == request->parts[i].offset;
  return same;
}

/* NULL: this gemmd has the memory that the client has. */
static const char *difference(const struct session *session, const struct message_weight_hold *request,
                              const struct catalog_name **name) {
  const struct catalog *catalog = &session->supervisor->catalog;
  struct error ignored;
  if (request->epoch != catalog->epoch)
    return "gemmd was started without the memory of the one before";
  if (catalog_look_up(catalog, request->name, session->user, name, &ignored) != STATUS_OK)
    return "no weight of that name is there any more";
  if (memcmp((*name)->weight->hash, request->hash, sizeof request->hash) != 0)
    return "the name stands for other content";
  if (!lies_so((*name)->weight, request) || !catalog_lendable(catalog, (*name)->weight, catalog_class_of(*name)))
    return "the weight lies elsewhere now";
  return NULL;
}

static enum status hold(struct session *session, const struct message_weight_hold *request,
                        struct message_weight_held *reply, struct error *error) {
  const struct catalog_name *name;
  enum status status = check_right(session, error);
  if (status != STATUS_OK)
    return status;
  const char *why = difference(session, request, &name);
  if (why != NULL) {
    snprintf(reply->why, sizeof reply->why, "%s", why);
    return STATUS_OK;
  }
  reply->same = true;
  status = lend(session->supervisor, name->weight, error);
  for (uint32_t i = 0; i < request->parts_count && status == STATUS_OK; i++)
    status = borrows_give(&session->borrows, request->parts[i].slab, error);
  return status == STATUS_OK ? add_borrow(session, name->weight, &reply->borrow, error) : status;
}

enum status cmd_weight_hold(struct session *session, struct call *call) {
  struct message_weight_held reply = {.same = false};
  enum status status = hold(session, call->body, &reply, &call->error);
  return status == STATUS_OK ? call_reply(session, call, &message_weight_held_type, &reply) : status;
}

/* ---- tunings_open, shapes_open, tune_propose */

enum status cmd_tunings_open(struct session *session, struct call *call) {
  const struct message_tunings_request *request = call->body;
  const struct message_memory_reply reply = {.bytes = published_bytes(PUBLISHED_ROWS)};
  int table, fd;
  enum status status = STATUS_OK;
  if (request->device >= session->supervisor->fleet->count)
    status = error_field(&call->error, STATUS_INVALID, FIELD_DEVICE, request->device, 0,
                         session->supervisor->fleet->count - 1);
  if (status == STATUS_OK)
    status = publishing_table(session->supervisor, request->device, &table, &call->error);
  if (status == STATUS_OK)
    status = lend_descriptor(table, &fd, &call->error);
  if (status != STATUS_OK)
    return call->error.status;
  session_reply(session, call->id, &message_memory_reply_type, &reply, &fd, 1);
  close(fd);
  return STATUS_OK;
}

enum status cmd_shapes_open(struct session *session, struct call *call) {
  const struct message_memory_reply reply = {.bytes = SEEN_BYTES};
  int fd;
  enum status status = check_right(session, &call->error);
  if (status == STATUS_OK)
    status = publishing_ring(session, &fd, &call->error);
  if (status == STATUS_OK)
    session_reply(session, call->id, &message_memory_reply_type, &reply, &fd, 1);
  return status;
}

enum status cmd_tune_propose(struct session *session, struct call *call) {
  enum status status = check_right(session, &call->error);
  if (status == STATUS_OK)
    status = publishing_propose(session, call->body, &call->error);
  return status == STATUS_OK ? call_done(session, call) : status;
}
