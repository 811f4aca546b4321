#include "../session/argument.h"
#include "../session/control.h"
#include "borrowed.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- what the daemon says */

static enum status nonsense(struct gemmd_session *session, const char *what) {
  return session_end(session, STATUS_PROTOCOL, "a borrowed weight cannot be: %s", what);
}

static bool part_fits(const struct message_weight_borrowed *reply, const struct message_borrowed_part *part) {
  return part->n_begin >= 0 && part->n_count >= 1 && part->n_begin < reply->n &&
         part->n_count <= reply->n - part->n_begin && part->bytes > 0 && part->offset <= part->slab_bytes &&
         part->bytes <= part->slab_bytes - part->offset;
}

static enum status reply_check(struct gemmd_session *session, const struct message_weight_borrowed *reply) {
  const struct gemm_weight shape = {.n = reply->n,
                                    .k = reply->k,
                                    .format = (enum gemm_format)reply->format,
                                    .scale = (enum gemm_scale)reply->scale,
                                    .input = reply->input,
                                    .experts = reply->experts};
  struct error error;
  if (gemm_weight_check(&shape, &error) != STATUS_OK)
    return nonsense(session, error.text);
  if (reply->parts_count == 0 || reply->placement > PLACEMENT_SPLIT)
    return nonsense(session, "it has no parts");
  for (uint32_t i = 0; i < reply->parts_count; i++)
    if (!part_fits(reply, &reply->parts[i]))
      return nonsense(session, "a part does not lie in its slab");
  if (reply->borrow == 0 && !reply->more)
    return nonsense(session, "it has no number");
  return STATUS_OK;
}

/* The descriptors of fresh slabs, in order; all are taken over. What is not kept is asked for again one day. */
static enum status take_slabs(struct gemmd_session *session, const struct message_weight_borrowed *reply,
                              const int *fds, size_t fd_count) {
  enum status status = STATUS_OK;
  size_t at = 0;
  for (uint32_t i = 0; i < reply->slabs_count; i++) {
    if (!reply->slabs[i].fresh)
      continue;
    if (at == fd_count)
      status = error_set(&session->error, STATUS_BUSY, "this process has no room for the descriptors of a weight");
    else if (status == STATUS_OK)
      status = slab_keep(session, reply->epoch, reply->slabs[i].slab, fds[at++]);
    else
      close(fds[at++]);
  }
  if (at == fd_count)
    return status;
  while (at < fd_count)
    close(fds[at++]);
  return nonsense(session, "it came with descriptors of nothing");
}

/* ---- borrowing */

static void give_back(struct gemmd_session *session, uint32_t borrow) {
  const struct message_weight_return request = {.borrow = borrow};
  struct message_empty reply;
  struct call call = {.command = COMMAND_weight_return, .request = &request, .reply = &reply, .fd = -1, .once = true};
  struct error before = session->error;
  if (borrow != 0)
    (void)!control_call(session, &call);
  session->error = before;
}

/* Slabs of the reply that the daemon counts as given and that are not here. */
static uint32_t add_lost(const struct gemmd_session *session, const struct message_weight_borrowed *reply,
                         struct message_weight_borrow *request) {
  request->lost_count = 0;
  for (uint32_t i = 0; i < reply->slabs_count; i++)
    if (slab_find(session, reply->epoch, reply->slabs[i].slab) == NULL)
      request->lost[request->lost_count++].slab = reply->slabs[i].slab;
  return request->lost_count;
}

static enum status ask(struct gemmd_session *session, const struct message_weight_borrow *request,
                       struct message_weight_borrowed *reply) {
  int fds[LIMIT_MESSAGE_FDS];
  size_t fd_count = 0;
  struct call call = {.command = COMMAND_weight_borrow,
                      .request = request,
                      .reply = reply,
                      .fd = -1,
                      .reply_fds = fds,
                      .reply_fds_came = &fd_count,
                      .patient = true}; /* it may be copied first */
  enum status status = control_call(session, &call);
  if (status != STATUS_OK)
    return status;
  status = reply_check(session, reply);
  if (status == STATUS_OK)
    return take_slabs(session, reply, fds, fd_count);
  while (fd_count > 0)
    close(fds[--fd_count]);
  return status;
}

/* Until all slabs are here. Sixteen parts take two answers, and what was closed here, or never came, one more. */
static enum status borrow(struct gemmd_session *session, struct message_weight_borrow *request,
                          struct message_weight_borrowed *reply) {
  enum { ANSWERS_MOST = 6 };
  for (int i = 0; i < ANSWERS_MOST; i++) {
    enum status status = ask(session, request, reply);
    if (status != STATUS_OK) {
      if (status == STATUS_BUSY || status == STATUS_NOMEM)
        give_back(session, reply->borrow);
      return status;
    }
    bool lost = add_lost(session, reply, request) > 0;
    if (!lost && !reply->more)
      return STATUS_OK;
    give_back(session, reply->borrow);
    reply->borrow = 0;
  }
  return nonsense(session, "its memory never comes");
}

static void fill(struct gemmd_borrowed *borrowed, const char *name, const struct message_weight_borrowed *reply) {
  borrowed->borrow = reply->borrow;
  borrowed->epoch = reply->epoch;
  borrowed->part_count = reply->parts_count;
  borrowed->info = (gemmd_weight_info){.n = reply->n,
                                       .k = reply->k,
                                       .format = (enum gemmd_format)reply->format,
                                       .scale = (int)reply->scale,
                                       .bytes = reply->bytes,
                                       .owner = reply->owner,
                                       .mode = (enum gemmd_mode)reply->mode,
                                       .devices = reply->parts_count,
                                       .input = reply->input,
                                       .experts = reply->experts};
  memcpy(borrowed->info.hash, reply->hash, sizeof borrowed->info.hash);
  strcpy(borrowed->info.name, name);
  for (uint32_t i = 0; i < reply->parts_count; i++) {
    const struct message_borrowed_part *from = &reply->parts[i];
    struct slab *slab = slab_find(borrowed->session, reply->epoch, from->slab);
    borrowed->parts[i] = (gemmd_borrowed_part){.device = from->device,
                                               .n_begin = from->n_begin,
                                               .n_count = from->n_count,
                                               .fd = slab->fd,
                                               .slab = from->slab,
                                               .slab_bytes = from->slab_bytes,
                                               .offset = from->offset,
                                               .bytes = from->bytes,
                                               .layout = from->layout,
                                               .checksum = from->checksum};
    memcpy(borrowed->parts[i].device_uuid, from->device_uuid, sizeof from->device_uuid);
    slab->uses++;
  }
}

static bool has_all(const struct gemmd_session *session, const struct message_weight_borrowed *reply) {
  for (uint32_t i = 0; i < reply->parts_count; i++)
    if (slab_find(session, reply->epoch, reply->parts[i].slab) == NULL)
      return false;
  return true;
}

int gemmd_weight_borrow(gemmd_session *session, const char *name, gemmd_borrowed **out) {
  struct message_weight_borrow request = {.name = ""};
  struct message_weight_borrowed reply = {.borrow = 0};
  *out = NULL;
  gemmd_borrowed *borrowed = calloc(1, sizeof *borrowed);
  if (borrowed == NULL)
    return session_result(error_set(&session->error, STATUS_NOMEM, "no memory for a borrowed weight"));
  enum status status = text_copy(session, request.name, sizeof request.name, name, "name");
  if (status == STATUS_OK)
    status = borrow(session, &request, &reply);
  if (status == STATUS_OK && !has_all(session, &reply))
    status = nonsense(session, "a part lies in a slab that was not given");
  if (status != STATUS_OK) {
    free(borrowed);
    slabs_close_unused(session);
    return session_result(status);
  }
  borrowed->session = session;
  fill(borrowed, request.name, &reply);
  LIST_INSERT_HEAD(&session->borrowed, borrowed, link);
  slabs_close_unused(session);
  *out = borrowed;
  return GEMMD_OK;
}

/* ---- giving back */

void gemmd_weight_return(gemmd_borrowed *borrowed) {
  if (borrowed == NULL)
    return;
  /* Where the next daemon is found meanwhile, its number is another one; what it does not count needs no return. */
  struct gemmd_session *session = borrowed->session;
  const struct message_weight_return *request = &(struct message_weight_return){.borrow = borrowed->borrow};
  struct message_empty reply;
  struct call call = {.command = COMMAND_weight_return, .request = request, .reply = &reply, .fd = -1, .once = true};
  enum status status = borrowed->borrow != 0 ? control_call(session, &call) : STATUS_OK;
  if (status == STATUS_DISCONNECTED && !session->ended)
    give_back(session, borrowed->borrow);
  borrowed_forget(borrowed);
}
