/* weight_load, weight_take, weight_commit, weight_abandon, weight_info, weight_unload; opening and closing are in
 * cmd_open.c, weight_list in cmd_list.c. */
#include "../context.h"
#include "../net/foreign.h"
#include "../weights/loading/loads.h"
#include "../weights/loading/stage.h"
#include "../weights/placement.h"
#include "../weights/reclaim.h"
#include "../weights/store.h"
#include "../workers/fleet.h"
#include "cmd.h"

#include "../../log.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- weight_load */

/* What every load says. */
static enum status check_wish(const struct message_weight_load *request, uint32_t devices, struct error *error) {
  if (request->name[0] == '\0')
    return error_set(error, STATUS_INVALID, "name must have 1..%u bytes, got 0", LIMIT_NAME_BYTES - 1);
  if (request->format < 1 || request->format >= GEMM_FORMATS)
    return error_field(error, STATUS_INVALID, FIELD_FORMAT, request->format, 1, GEMM_FORMATS - 1);
  if (request->scale >= GEMM_SCALES)
    return error_field(error, STATUS_INVALID, FIELD_SCALE, request->scale, GEMM_SCALE_NONE, GEMM_SCALES - 1);
  if (request->scale != GEMM_SCALE_NONE &&
      !gemm_takes_scale((enum gemm_format)request->format, (enum gemm_scale)request->scale))
    return error_set(error, STATUS_INVALID, "scale mode %s does not go with format %s",
                     gemm_scale_name((enum gemm_scale)request->scale),
                     gemm_format_name((enum gemm_format)request->format));
  if (request->method > GEMM_METHOD_TERNARY)
    return error_set(error, STATUS_INVALID, "method must be 0..%d, got %u", GEMM_METHOD_TERNARY, request->method);
  if (!gemm_takes_method((enum gemm_format)request->format, (enum gemm_method)request->method))
    return error_set(error, STATUS_INVALID, "method %s does not go with format %s",
                     gemm_method_name((enum gemm_method)request->method),
                     gemm_format_name((enum gemm_format)request->format));
  if (request->mode > MODE_ALL)
    return error_set(error, STATUS_INVALID, "mode must be 0..%d, got %u", MODE_ALL, request->mode);
  return placement_check(request, devices, error);
}

static enum status check_request(const struct message_weight_load *request, uint32_t devices, struct error *error) {
  if (request->tensor[0] == '\0')
    return error_set(error, STATUS_INVALID, "tensor must have 1..%u bytes, got 0", LIMIT_NAME_BYTES - 1);
  if (request->old_hash || request->raw || request->matrix_type != 0)
    return error_set(error, STATUS_INVALID, "%s is not for clients",
                     request->old_hash ? "old_hash"
                     : request->raw    ? "raw"
                                       : "matrix_type");
  if (request->experts > LIMIT_EXPERTS)
    return error_field(error, STATUS_INVALID, FIELD_EXPERTS, request->experts, 0, LIMIT_EXPERTS);
  if (request->experts > 0 && request->scale_tensor[0] != '\0')
    return error_set(error, STATUS_INVALID, "experts have scales of the usual names, got scale tensor '%.80s'",
                     request->scale_tensor);
  if (request->experts > 0 && request->placement == PLACEMENT_SPLIT)
    return error_set(error, STATUS_UNSUPPORTED, "a weight with experts is not split over devices by rows; load parts");
  return check_wish(request, devices, error);
}

enum status cmd_weight_load(struct session *session, struct call *call) {
  const struct message_weight_load *request = call->body;
  struct load_files files = {.count = 0};
  enum status status = check_request(request, session->supervisor->fleet->count, &call->error);
  for (size_t i = 0; status == STATUS_OK && i < call->packet->fd_count; i++)
    status = foreign_check_file(call->packet->fds[i], session->user.admin, &call->error);
  for (size_t i = 0; status == STATUS_OK && i < call->packet->fd_count; i++)
    files.fds[files.count++] = packet_take_fd(call->packet, i);
  if (status == STATUS_OK)
    status = loads_add(session, call->id, request, &files, &call->error);
  return status;
}

/* ---- weight_take */

static struct message_weight_load wish_of_take(const struct message_weight_take *take) {
  struct message_weight_load request = {.format = take->format,
                                        .scale = take->scale,
                                        .method = take->method,
                                        .replace = take->replace,
                                        .placement = take->placement,
                                        .device = take->device,
                                        .devices = take->devices,
                                        .mode = take->mode,
                                        .staged = take->staged,
                                        .matrix_type = take->type,
                                        .matrix_offset = take->offset,
                                        .matrix_n = take->n,
                                        .matrix_k = take->k};
  snprintf(request.name, sizeof request.name, "%s", take->name);
  return request;
}

/* The matrix lies in the memory, and is a weight's. */
static enum status check_matrix(const struct message_weight_take *take, const struct tensor_slot *slot,
                                struct gemm_weight *weight, struct error *error) {
  const struct gemm_format_facts *facts = gemm_format_facts((enum gemm_format)take->format);
  if (take->type != GEMM_F32 && take->type != GEMM_F16 && take->type != GEMM_BF16)
    return error_set(error, STATUS_INVALID, "type must be %d..%d, got %u", GEMM_F32, GEMM_BF16, take->type);
  *weight = (struct gemm_weight){.n = take->n,
                                 .k = take->k,
                                 .format = (enum gemm_format)take->format,
                                 .scale = take->scale != 0 ? (enum gemm_scale)take->scale : facts->scale_default};
  enum status status = gemm_weight_check(weight, error);
  if (status != STATUS_OK)
    return status;
  uint64_t bytes = (uint64_t)take->n * (uint64_t)take->k * gemm_type_bytes((enum gemm_type)take->type);
  if (take->offset % GEMM_ALIGN != 0)
    return error_set(error, STATUS_INVALID, "offset must be a multiple of %d, got %llu", GEMM_ALIGN,
                     (unsigned long long)take->offset);
  if (bytes > slot->bytes || take->offset > slot->bytes - bytes)
    return error_set(error, STATUS_INVALID, "%llu bytes at %llu do not lie in memory of %llu bytes",
                     (unsigned long long)bytes, (unsigned long long)take->offset, (unsigned long long)slot->bytes);
  return STATUS_OK;
}

/* On the CPU backend numbers are quantized where files are read: by a process of their own, from the memfd. */
static enum status take_memfd(struct session *session, struct call *call, const struct message_weight_load *request,
                              const struct tensor_slot *slot) {
  struct load_files files = {.count = 1};
  files.fds[0] = fcntl(slot->fd, F_DUPFD_CLOEXEC, 0);
  if (files.fds[0] < 0)
    return error_set(&call->error, STATUS_BUSY, "gemmd has no descriptors for another load at the moment");
  return loads_add(session, call->id, request, &files, &call->error);
}

enum status cmd_weight_take(struct session *session, struct call *call) {
  const struct message_weight_take *take = call->body;
  struct fleet *fleet = session->supervisor->fleet;
  const struct message_weight_load request = wish_of_take(take);
  const struct tensor_slot *slot = tensors_find(&session->tensors, take->memory);
  struct gemm_weight weight;
  enum status status = check_wish(&request, fleet->count, &call->error);
  if (status == STATUS_OK && (slot == NULL || slot->kind == MESSAGE_IPC_EVENT))
    status = error_set(&call->error, STATUS_NOT_FOUND, "handle %u stands for no memory", take->memory);
  if (status == STATUS_OK)
    status = check_matrix(take, slot, &weight, &call->error);
  if (status != STATUS_OK)
    return status;
  if (strcmp(fleet->config.backend, "cpu") == 0)
    return take_memfd(session, call, &request, slot);
  enum gemm_method method =
      take->method != 0 ? (enum gemm_method)take->method : gemm_format_facts(weight.format)->method_default;
  const struct message_weight_make make = {.session = session->id,
                                           .memory = take->memory,
                                           .offset = take->offset,
                                           .type = take->type,
                                           .n = take->n,
                                           .k = take->k,
                                           .format = weight.format,
                                           .scale = weight.scale,
                                           .ternary = method == GEMM_METHOD_TERNARY};
  return loads_take(session, call->id, &request, &fleet->workers[slot->device], &make, &call->error);
}

/* ---- weight_commit, weight_abandon */

enum status cmd_weight_commit(struct session *session, struct call *call) {
  const struct message_weight_commit *request = call->body;
  struct message_weight_commit_reply reply = {.named = (uint32_t)session->stage.count};
  if (stage_commit(session->supervisor, &session->stage, session->user, request->instead_of, &reply.dropped,
                   &call->error) != STATUS_OK)
    return call->error.status;
  log_info("session %u (user %u): %u weights of a model have their names, %u name%s went", session->id,
           session->user.uid, reply.named, reply.dropped, plural(reply.dropped));
  return call_reply(session, call, &message_weight_commit_reply_type, &reply);
}

enum status cmd_weight_abandon(struct session *session, struct call *call) {
  stage_drop(session->supervisor, &session->stage);
  return call_done(session, call);
}

/* ---- weight_info */

static void add_borrowers(struct supervisor *supervisor, const struct catalog_weight *weight,
                          struct message_weight_info *out) {
  enum { MOST = sizeof out->borrowers / sizeof *out->borrowers };
  const struct session *each;
  for (each = TAILQ_FIRST(&supervisor->sessions->list); each != NULL; each = TAILQ_NEXT(each, link))
    if (out->borrowers_count < MOST && borrows_of(&each->borrows, weight) != 0)
      out->borrowers[out->borrowers_count++] =
          (struct message_weight_borrower){.pid = each->pid, .user = each->user.uid};
}

enum status cmd_weight_info(struct session *session, struct call *call) {
  const struct message_weight_name *request = call->body;
  const struct catalog_name *name;
  if (catalog_look_up(&session->supervisor->catalog, request->name, session->user, &name, &call->error) != STATUS_OK)
    return call->error.status;
  struct message_weight_info reply;
  catalog_describe(name, &reply);
  add_borrowers(session->supervisor, name->weight, &reply);
  return call_reply(session, call, &message_weight_info_type, &reply);
}

/* ---- weight_unload */

struct unloading {
  struct session *session; /* waits */
  uint32_t id;
  uint64_t bytes;
};

static void on_reclaimed(void *user) {
  struct unloading *unloading = user;
  struct session *session = unloading->session;
  struct message_weight_unload_reply reply = {.references = 0, .freed = unloading->bytes};
  session_reply(session, unloading->id, &message_weight_unload_reply_type, &reply, NULL, 0);
  free(unloading);
  session_continue(session);
}

enum status cmd_weight_unload(struct session *session, struct call *call) {
  const struct message_weight_name *request = call->body;
  struct supervisor *supervisor = session->supervisor;
  struct catalog_weight *weight;
  struct unloading *unloading = malloc(sizeof *unloading);
  enum status status = unloading == NULL
                           ? error_set(&call->error, STATUS_NOMEM, "no memory for the request")
                           : catalog_unname(&supervisor->catalog, request->name, session->user, &weight, &call->error);
  if (status != STATUS_OK) {
    free(unloading);
    return call->error.status;
  }
  store_catalog(supervisor);
  log_info("unloaded \"%s\" for user %u: %u name%s, %u handle%s and %u borrow%s left", request->name, session->user.uid,
           weight->names, plural(weight->names), weight->handles, plural(weight->handles), weight->borrows,
           plural(weight->borrows));
  if (!catalog_unused(weight)) {
    struct message_weight_unload_reply reply = {.references = weight->names, .freed = 0};
    free(unloading);
    session_reply(session, call->id, &message_weight_unload_reply_type, &reply, NULL, 0);
    return STATUS_OK;
  }
  *unloading = (struct unloading){.session = session, .id = call->id, .bytes = catalog_weight_bytes(weight)};
  session_wait(session);
  reclaim_weight(supervisor, weight, on_reclaimed, unloading);
  return STATUS_OK;
}
