/* weight_load, weight_commit, weight_abandon, weight_list, weight_info, weight_unload; opening and closing are in
 * cmd_open.c. */
#include "../context.h"
#include "../net/foreign.h"
#include "../weights/placement.h"
#include "../weights/reclaim.h"
#include "../weights/stage.h"
#include "cmd.h"

#include "../../log.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

/* ---- weight_load */

static enum status check_request(const struct message_weight_load *request, uint32_t devices, struct error *error) {
  if (request->name[0] == '\0')
    return error_set(error, STATUS_INVALID, "name must have 1..%u bytes, got 0", LIMIT_NAME_BYTES - 1);
  if (request->tensor[0] == '\0')
    return error_set(error, STATUS_INVALID, "tensor must have 1..%u bytes, got 0", LIMIT_NAME_BYTES - 1);
  if (request->format < 1 || request->format >= GEMM_FORMATS)
    return error_field(error, STATUS_INVALID, FIELD_FORMAT, request->format, 1, GEMM_FORMATS - 1);
  if (request->scale >= GEMM_SCALES)
    return error_field(error, STATUS_INVALID, FIELD_SCALE, request->scale, GEMM_SCALE_NONE, GEMM_SCALES - 1);
  if (request->scale != GEMM_SCALE_NONE &&
      !gemm_takes_scale((enum gemm_format)request->format, (enum gemm_scale)request->scale))
    return error_set(error, STATUS_INVALID, "scale mode %s does not go with format %s",
                     gemm_scale_name((enum gemm_scale)request->scale),
                     gemm_format_name((enum gemm_format)request->format));
  if (!gemm_takes_method((enum gemm_format)request->format, (enum gemm_method)request->method))
    return error_set(error, STATUS_INVALID, "method %u does not go with format %s", request->method,
                     gemm_format_name((enum gemm_format)request->format));
  if (request->old_hash)
    return error_set(error, STATUS_INVALID, "old_hash is not for clients");
  if (request->mode > MODE_ALL)
    return error_set(error, STATUS_INVALID, "mode must be 0..%d, got %u", MODE_ALL, request->mode);
  return placement_check(request, devices, error);
}

void cmd_weight_load(struct session *session, uint32_t id, const void *body, struct packet *packet) {
  const struct message_weight_load *request = body;
  struct error error;
  struct load_files files = {.count = 0};
  enum status status = check_request(request, session->supervisor->fleet.count, &error);
  for (size_t i = 0; status == STATUS_OK && i < packet->fd_count; i++)
    status = foreign_check_file(packet->fds[i], &error);
  for (size_t i = 0; status == STATUS_OK && i < packet->fd_count; i++)
    files.fds[files.count++] = packet_take_fd(packet, i);
  if (status == STATUS_OK)
    status = loads_add(session, id, request, &files, &error);
  if (status != STATUS_OK)
    session_fail(session, id, &error);
}

/* ---- weight_commit, weight_abandon */

void cmd_weight_commit(struct session *session, uint32_t id, const void *body, struct packet *packet) {
  const struct message_weight_commit *request = body;
  struct message_weight_commit_reply reply = {.named = (uint32_t)session->stage.count};
  struct error error;
  (void)packet;
  if (stage_commit(session->supervisor, session, request->instead_of, &reply.dropped, &error) == STATUS_OK)
    session_reply(session, id, &message_weight_commit_reply_type, &reply, NULL, 0);
  else
    session_fail(session, id, &error);
}

void cmd_weight_abandon(struct session *session, uint32_t id, const void *body, struct packet *packet) {
  const struct message_empty reply = {0};
  (void)body;
  (void)packet;
  stage_drop(session->supervisor, &session->stage);
  session_reply(session, id, &message_empty_type, &reply, NULL, 0);
}

/* ---- weight_list, weight_info */

/* Bytes of one item on the wire, at most. */
static size_t item_bytes(const struct catalog_name *name) {
  return 220 + strlen(name->text) + 64 * (size_t)name->weight->part_count;
}

void cmd_weight_list(struct session *session, uint32_t id, const void *body, struct packet *packet) {
  const struct message_weight_list_request *request = body;
  const struct catalog *catalog = &session->supervisor->catalog;
  (void)packet;
  struct message_weight_list_reply reply = {.weights_count = 0};
  size_t room = LIMIT_MESSAGE_BYTES - 1024;
  size_t at = request->after[0] == '\0' ? 0 : catalog_after(catalog, request->after);
  for (; at < catalog->name_count; at++) {
    const struct catalog_name *name = &catalog->names[at];
    if (!catalog_may_use(name, session->user) ||
        (request->pattern[0] != '\0' && fnmatch(request->pattern, name->text, 0) != 0))
      continue;
    if (reply.weights_count == LIMIT_PAGE_ITEMS || item_bytes(name) > room) {
      reply.more = true;
      break;
    }
    room -= item_bytes(name);
    catalog_describe(name, &reply.weights[reply.weights_count++]);
  }
  session_reply(session, id, &message_weight_list_reply_type, &reply, NULL, 0);
}

static void add_borrowers(struct supervisor *supervisor, const struct catalog_weight *weight,
                          struct message_weight_info *out) {
  enum { MOST = sizeof out->borrowers / sizeof *out->borrowers };
  const struct session *each;
  for (each = TAILQ_FIRST(&supervisor->sessions.list); each != NULL; each = TAILQ_NEXT(each, link))
    if (out->borrowers_count < MOST && borrows_of(&each->borrows, weight) != 0)
      out->borrowers[out->borrowers_count++] =
          (struct message_weight_borrower){.pid = each->pid, .user = each->user.uid};
}

void cmd_weight_info(struct session *session, uint32_t id, const void *body, struct packet *packet) {
  const struct message_weight_name *request = body;
  (void)packet;
  const struct catalog_name *name;
  struct error error;
  if (catalog_look_up(&session->supervisor->catalog, request->name, session->user, &name, &error) != STATUS_OK) {
    session_fail(session, id, &error);
    return;
  }
  struct message_weight_info reply;
  catalog_describe(name, &reply);
  add_borrowers(session->supervisor, name->weight, &reply);
  session_reply(session, id, &message_weight_info_type, &reply, NULL, 0);
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

void cmd_weight_unload(struct session *session, uint32_t id, const void *body, struct packet *packet) {
  const struct message_weight_name *request = body;
  struct supervisor *supervisor = session->supervisor;
  struct catalog_weight *weight;
  struct error error;
  (void)packet;
  struct unloading *unloading = malloc(sizeof *unloading);
  enum status status = unloading == NULL
                           ? error_set(&error, STATUS_NOMEM, "no memory for the request")
                           : catalog_unname(&supervisor->catalog, request->name, session->user, &weight, &error);
  if (status != STATUS_OK) {
    free(unloading);
    session_fail(session, id, &error);
    return;
  }
  store_catalog(supervisor);
  log_info("unloaded \"%s\" for user %u: %u name%s, %u handle%s and %u borrow%s left", request->name, session->user.uid,
           weight->names, plural(weight->names), weight->handles, plural(weight->handles), weight->borrows,
           plural(weight->borrows));
  if (!catalog_unused(weight)) {
    struct message_weight_unload_reply reply = {.references = weight->names, .freed = 0};
    free(unloading);
    session_reply(session, id, &message_weight_unload_reply_type, &reply, NULL, 0);
    return;
  }
  *unloading = (struct unloading){.session = session, .id = id, .bytes = catalog_weight_bytes(weight)};
  session_wait(session);
  reclaim_weight(supervisor, weight, on_reclaimed, unloading);
}
