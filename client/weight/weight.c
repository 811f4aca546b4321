#include "../memory/tensor.h"
#include "../session/argument.h"
#include "../session/control.h"
#include "../submit/queue.h"
#include "handle.h"
#include "info.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int simple_call(gemmd_session *session, enum command command, const char *name, void *reply) {
  struct message_weight_name request = {.name = ""};
  enum status status = text_copy(session, request.name, sizeof request.name, name, "name");
  struct call call = {
      .command = command, .request = &request, .reply = reply, .fd = -1, .once = command == COMMAND_weight_unload};
  return session_result(status == STATUS_OK ? control_call(session, &call) : status);
}

/* ---- by name */

static enum status load_request(gemmd_session *session, const gemmd_load *load, struct message_weight_load *request) {
  *request = (struct message_weight_load){.format = (uint32_t)load->format,
                                          .scale = (uint32_t)load->scale,
                                          .method = (uint32_t)load->method,
                                          .replace = load->replace,
                                          .placement = (uint32_t)load->placement,
                                          .device = load->device,
                                          .devices = load->devices,
                                          .mode = (uint32_t)load->mode,
                                          .progress = load->progress != NULL,
                                          .experts = load->experts,
                                          .expert = load->expert,
                                          .trust = load->trust_size_and_time};
  enum status status = text_copy(session, request->name, sizeof request->name, load->name, "name");
  if (status == STATUS_OK)
    status = text_copy(session, request->tensor, sizeof request->tensor, load->tensor, "tensor");
  if (status == STATUS_OK && load->scale_tensor != NULL)
    status =
        text_copy(session, request->scale_tensor, sizeof request->scale_tensor, load->scale_tensor, "scale tensor");
  uint32_t most = sizeof request->more / sizeof *request->more;
  if (status == STATUS_OK && load->more_count > most)
    return error_set(&session->error, STATUS_INVALID, "more tensors must be 0..%u, got %u", most, load->more_count);
  for (; status == STATUS_OK && request->more_count < load->more_count; request->more_count++)
    status = text_copy(session, request->more[request->more_count].tensor, sizeof request->more->tensor,
                       load->more[request->more_count], "tensor");
  return status;
}

int gemmd_weight_load(gemmd_session *session, int fd, const gemmd_load *load, gemmd_weight_info *info) {
  struct message_weight_load request;
  struct message_weight_info reply;
  enum status status = load_request(session, load, &request);
  if (status == STATUS_OK && fd < 0)
    status = error_set(&session->error, STATUS_BAD_DESCRIPTOR, "descriptor %d is not open", fd);
  struct call call = {.command = COMMAND_weight_load,
                      .request = &request,
                      .reply = &reply,
                      .fd = fd,
                      .patient = true,
                      .progress = load->progress,
                      .user = load->user};
  if (status == STATUS_OK)
    status = control_call(session, &call);
  if (status == STATUS_OK && info != NULL)
    info_convert(&reply, info);
  return session_result(status);
}

/* ---- out of memory that the daemon has mapped */

static enum status take_request(gemmd_session *session, const gemmd_load *load, enum gemmd_type type, int64_t n,
                                int64_t k, struct message_weight_take *request) {
  *request = (struct message_weight_take){.format = (uint32_t)load->format,
                                          .scale = (uint32_t)load->scale,
                                          .method = (uint32_t)load->method,
                                          .replace = load->replace,
                                          .placement = (uint32_t)load->placement,
                                          .device = load->device,
                                          .devices = load->devices,
                                          .mode = (uint32_t)load->mode,
                                          .type = (uint32_t)type,
                                          .n = n,
                                          .k = k};
  return text_copy(session, request->name, sizeof request->name, load->name, "name");
}

int gemmd_weight_take(gemmd_session *session, const gemmd_load *load, const void *data, enum gemmd_type type, int64_t n,
                      int64_t k, gemmd_weight_info *info) {
  struct message_weight_take request;
  struct message_weight_info reply;
  struct tensor_place place;
  const struct gemmd_memory *memory = tensor_find(session, data);
  enum status status = take_request(session, load, type, n, k, &request);
  if (status == STATUS_OK && memory == NULL)
    status = error_set(&session->error, STATUS_INVALID, "data must lie in memory of gemmd_memory_open");
  struct call call = {
      .command = COMMAND_weight_take, .request = &request, .reply = &reply, .fd = -1, .patient = true, .once = true};
  if (status == STATUS_OK)
    do { /* the next daemon has another handle for the memory */
      tensor_place(memory, data, &place);
      request.memory = place.handle;
      request.offset = place.offset;
      status = control_call(session, &call);
    } while (status == STATUS_DISCONNECTED && !session->ended);
  if (status == STATUS_OK && info != NULL)
    info_convert(&reply, info);
  return session_result(status);
}

int gemmd_weight_load_file(gemmd_session *session, const char *path, const gemmd_load *load, gemmd_weight_info *info) {
  int fd;
  enum status status = path_open(session, AT_FDCWD, path, &fd);
  if (status != STATUS_OK)
    return session_result(status);
  int result = gemmd_weight_load(session, fd, load, info);
  close(fd);
  return result;
}

int gemmd_weight_unload(gemmd_session *session, const char *name, uint64_t *freed) {
  struct message_weight_unload_reply reply;
  int result = simple_call(session, COMMAND_weight_unload, name, &reply);
  if (result == GEMMD_OK && freed != NULL)
    *freed = reply.freed;
  return result;
}

int gemmd_weight_stat(gemmd_session *session, const char *name, gemmd_weight_info *info) {
  struct message_weight_info reply;
  int result = simple_call(session, COMMAND_weight_info, name, &reply);
  if (result == GEMMD_OK)
    info_convert(&reply, info);
  return result;
}

int gemmd_weight_borrowers(gemmd_session *session, const char *name, gemmd_borrower *borrowers, unsigned most,
                           unsigned *count, gemmd_weight_info *info) {
  struct message_weight_info reply;
  int result = simple_call(session, COMMAND_weight_info, name, &reply);
  *count = 0;
  if (result == GEMMD_OK && info != NULL)
    info_convert(&reply, info);
  for (uint32_t i = 0; result == GEMMD_OK && i < reply.borrowers_count && i < most; i++)
    borrowers[(*count)++] = (gemmd_borrower){.pid = reply.borrowers[i].pid, .user = reply.borrowers[i].user};
  return result;
}

/* Names must grow from page to page, or the list would never end. */
static enum status page_check(gemmd_session *session, const struct message_weight_list_reply *page, const char *after) {
  for (uint32_t i = 0; i < page->weights_count; i++) {
    if (strcmp(page->weights[i].name, after) <= 0)
      return session_end(session, STATUS_PROTOCOL, "a list of weights came out of order");
    after = page->weights[i].name;
  }
  if (page->more && page->weights_count == 0)
    return session_end(session, STATUS_PROTOCOL, "a list of weights goes on after an empty page");
  return STATUS_OK;
}

static enum status list_pages(gemmd_session *session, struct message_weight_list_request *request,
                              struct message_weight_list_reply *page,
                              bool (*each)(void *user, const gemmd_weight_info *info), void *user) {
  struct call call = {.command = COMMAND_weight_list, .request = request, .reply = page, .fd = -1};
  do {
    enum status status = control_call(session, &call);
    if (status == STATUS_OK)
      status = page_check(session, page, request->after);
    if (status != STATUS_OK)
      return status;
    for (uint32_t i = 0; i < page->weights_count; i++) {
      gemmd_weight_info info;
      info_convert(&page->weights[i], &info);
      if (!each(user, &info))
        return STATUS_OK;
    }
    if (page->more)
      memcpy(request->after, page->weights[page->weights_count - 1].name, sizeof request->after);
  } while (page->more);
  return STATUS_OK;
}

int gemmd_weight_list(gemmd_session *session, const char *pattern,
                      bool (*each)(void *user, const gemmd_weight_info *info), void *user) {
  struct message_weight_list_request request = {.after = ""};
  enum status status = STATUS_OK;
  if (pattern != NULL)
    status = text_copy(session, request.pattern, sizeof request.pattern, pattern, "pattern");
  if (status != STATUS_OK)
    return session_result(status);
  struct message_weight_list_reply *page = malloc(sizeof *page);
  if (page == NULL)
    return session_result(error_set(&session->error, STATUS_NOMEM, "no memory for a list of weights"));
  status = list_pages(session, &request, page, each, user);
  free(page);
  return session_result(status);
}

/* ---- handles */

/* What the daemon says of the parts must be something that products can be made of. */
static bool parts_fit(const struct gemmd_session *session, const struct message_weight_info *info) {
  int64_t next = 0;
  if (info->parts_count == 0 || (info->placement == PLACEMENT_SINGLE && info->parts_count != 1))
    return false;
  for (uint32_t i = 0; i < info->parts_count; i++) {
    const struct message_weight_part *part = &info->parts[i];
    /* Whole elements of GEMM_ALIGN, so that the first column of a part is aligned for every type of y and bias. */
    if (part->device >= session->devices || part->n_begin != next || part->n_begin % GEMM_ALIGN != 0 ||
        part->n_count < 1 || part->n_count > info->n - part->n_begin)
      return false;
    if (info->placement == PLACEMENT_SPLIT)
      next += part->n_count;
    else if (part->n_count != info->n)
      return false;
  }
  return info->placement != PLACEMENT_SPLIT || next == info->n;
}

static enum status weight_make(gemmd_session *session, const struct message_weight_info *from, gemmd_weight *weight) {
  struct gemm_weight shape = {.n = from->n,
                              .k = from->k,
                              .format = (enum gemm_format)from->format,
                              .scale = (enum gemm_scale)from->scale,
                              .input = from->input,
                              .experts = from->experts};
  struct error error;
  if (gemm_weight_check(&shape, &error) != STATUS_OK)
    return session_end(session, STATUS_PROTOCOL, "an opened weight cannot be: %s", error.text);
  if (from->placement > PLACEMENT_SPLIT || !parts_fit(session, from))
    return session_end(session, STATUS_PROTOCOL, "an opened weight has parts that do not fit together");
  weight->session = session;
  weight->shape = shape;
  weight->placement = (enum message_placement)from->placement;
  weight->part_count = from->parts_count;
  info_convert(from, &weight->info);
  for (uint32_t i = 0; i < from->parts_count; i++)
    weight->parts[i] = (struct pending_part){.device = from->parts[i].device,
                                             .handle = from->parts[i].handle,
                                             .n_begin = (uint32_t)from->parts[i].n_begin,
                                             .n_count = (uint32_t)from->parts[i].n_count};
  return STATUS_OK;
}

int gemmd_weight_open(gemmd_session *session, const char *name, gemmd_weight **out) {
  struct message_weight_info reply;
  *out = NULL;
  gemmd_weight *weight = calloc(1, sizeof *weight);
  if (weight == NULL)
    return session_result(error_set(&session->error, STATUS_NOMEM, "no memory for a weight"));
  enum status status = (enum status) - simple_call(session, COMMAND_weight_open, name, &reply);
  if (status == STATUS_OK)
    status = weight_make(session, &reply, weight);
  if (status != STATUS_OK) {
    free(weight);
    return session_result(status);
  }
  LIST_INSERT_HEAD(&session->weights, weight, link);
  for (uint32_t i = 0; i < weight->part_count && status == STATUS_OK; i++)
    status = queue_open(session, weight->parts[i].device, control_call);
  if (status != STATUS_OK) {
    struct error cause = session->error;
    gemmd_weight_close(weight);
    session->error = cause;
    return session_result(status);
  }
  *out = weight;
  return GEMMD_OK;
}

static enum status close_handles(const struct gemmd_weight *weight) {
  struct message_weight_close request = {.parts_count = weight->part_count};
  struct message_empty reply;
  for (uint32_t i = 0; i < weight->part_count; i++)
    request.parts[i] = (struct message_weight_part){.device = weight->parts[i].device,
                                                    .handle = weight->parts[i].handle,
                                                    .n_begin = weight->parts[i].n_begin,
                                                    .n_count = weight->parts[i].n_count};
  struct call call = {.command = COMMAND_weight_close, .request = &request, .reply = &reply, .fd = -1, .once = true};
  return control_call(weight->session, &call);
}

void gemmd_weight_close(gemmd_weight *weight) {
  if (weight == NULL)
    return;
  /* The handles are others where the next daemon was found meanwhile. Whatever it says, they are gone; its sentence
   * stays for gemmd_error. */
  while (!weight->missing && close_handles(weight) == STATUS_DISCONNECTED && !weight->session->ended)
    continue;
  weight_forget(weight);
}

const gemmd_weight_info *gemmd_weight_get_info(const gemmd_weight *weight) {
  return &weight->info;
}
