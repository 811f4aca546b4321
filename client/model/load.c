#include "../session/calls.h"
#include "../session/control.h"
#include "../session/session.h"
#include "../weight/info.h"
#include "experts.h"
#include "plan.h"

#include <stdlib.h>
#include <string.h>

enum { WIDTH = 2 }; /* loads under way: one is read while the other is copied to the device */

struct loading {
  struct gemmd_session *session;
  const gemmd_model *wanted;
  struct model_files files;
  struct model_plan plan;
  size_t next;
  struct error error; /* the first failure that ends all; status OK: none */
  gemmd_model_result result;
  gemmd_model_progress progress;
  struct loading_slot {
    struct loading *loading;
    const struct model_item *item;
    uint64_t under_way; /* bytes of the item; 0: it is none */
    uint64_t done;      /* bytes of the item that count as done */
    struct message_weight_load request;
    struct message_weight_info reply;
    int fds[LIMIT_MESSAGE_FDS];
    size_t fd_count;
  } slots[WIDTH];
};

/* ---- one load */

/* The files of all pieces, each once. */
static enum status choose_files(const struct loading *loading, struct loading_slot *slot, struct error *error) {
  bool config = loading->files.config.fd >= 0;
  uint32_t files[IMPORT_FILES], count = 0;
  for (uint32_t i = 0; i < slot->item->count; i++)
    for (uint32_t j = 0; j < slot->item->pieces[i]->file_count; j++) {
      uint32_t file = slot->item->pieces[i]->files[j], at = 0;
      while (at < count && files[at] != file)
        at++;
      if (at == IMPORT_FILES)
        return error_set(error, STATUS_UNSUPPORTED, "tensors of '%s' lie in more than %d files",
                         IMPORT_SHOW(slot->item->base), IMPORT_FILES);
      files[at] = file;
      count = at == count ? count + 1 : count;
    }
  for (uint32_t i = 0; i < count; i++)
    slot->fds[i] = loading->files.files[files[i]].fd;
  slot->fd_count = count;
  if (config)
    slot->fds[slot->fd_count++] = loading->files.config.fd;
  slot->request.config = config;
  return STATUS_OK;
}

static enum status copy_tensor(char to[LIMIT_NAME_BYTES], const struct model_item *item, uint32_t piece,
                               struct error *error) {
  const char *name = item->pieces[piece]->tensor->tensor->name;
  bool numbered = item->experts > 0 && item->pieces[piece]->experts == 0;
  if (numbered && !model_experts_pattern(name, to))
    return error_set(error, STATUS_UNSUPPORTED, "'%s' has no number of an expert, or is too long", IMPORT_SHOW(name));
  if (numbered)
    return STATUS_OK;
  if (strlen(name) >= LIMIT_NAME_BYTES)
    return error_set(error, STATUS_UNSUPPORTED, "the name '%s' is too long", IMPORT_SHOW(name));
  strcpy(to, name);
  return STATUS_OK;
}

static enum status make_request(const struct loading *loading, struct loading_slot *slot, struct error *error) {
  const gemmd_model *wanted = loading->wanted;
  const struct model_item *item = slot->item;
  slot->request = (struct message_weight_load){.format = item->format,
                                               .scale = item->scale,
                                               .method = item->method,
                                               .replace = wanted->replace,
                                               .placement = (uint32_t)wanted->placement,
                                               .device = wanted->device,
                                               .devices = wanted->devices,
                                               .mode = (uint32_t)wanted->mode,
                                               .progress = wanted->progress != NULL,
                                               .parts = wanted->ranks,
                                               .part = wanted->rank,
                                               .columns = item->columns,
                                               .staged = true,
                                               .trust = wanted->trust_size_and_time,
                                               .more_count = item->count - 1,
                                               .experts = item->experts};
  if (wanted->split_experts && item->experts > 0) {
    slot->request.parts = slot->request.part = 0;
    slot->request.experts = item->experts / wanted->ranks;
    slot->request.expert = wanted->rank * slot->request.experts;
  }
  memcpy(slot->request.name, item->name, sizeof slot->request.name);
  enum status status = copy_tensor(slot->request.tensor, item, 0, error);
  for (uint32_t i = 1; status == STATUS_OK && i < item->count; i++)
    status = copy_tensor(slot->request.more[i - 1].tensor, item, i, error);
  return status == STATUS_OK ? choose_files(loading, slot, error) : status;
}

/* Where there is no room gemmd says how much is wanted, of files it says what is wrong with which tensor. */
static void note_failure(struct loading *loading, const struct model_item *item, const struct error *cause) {
  if (loading->error.status != STATUS_OK)
    return;
  if (cause->status == STATUS_NOMEM)
    (void)error_set(&loading->error, cause->status, "'%s': %s", IMPORT_SHOW(item->name), cause->text);
  else
    loading->error = *cause;
}

static void fail_item(struct loading *loading, const struct model_item *item, const struct error *cause) {
  if (!loading->wanted->keep_going) {
    note_failure(loading, item, cause);
    return;
  }
  loading->result.failed++;
  if (loading->wanted->failed != NULL)
    loading->wanted->failed(loading->wanted->user, item->name, -(int)cause->status, cause->text);
}

/* ---- progress */

static void tell_progress(struct loading *loading) {
  if (loading->wanted->progress != NULL)
    loading->wanted->progress(loading->wanted->user, &loading->progress);
}

static void add_progress(struct loading_slot *slot, uint64_t done) {
  if (done > slot->done) {
    slot->loading->progress.bytes_done += done - slot->done;
    slot->done = done;
  }
}

/* A load counts what it reads and what it hashes; here bytes of the files are counted. */
static void on_progress(void *user, uint64_t done, uint64_t total) {
  struct loading_slot *slot = user;
  double part = total > 0 && done < total ? (double)done / (double)total : 1.0;
  add_progress(slot, (uint64_t)(part * (double)slot->item->bytes));
  tell_progress(slot->loading);
}

/* ---- all of them */

static uint64_t bytes_under_way(const struct loading *loading) {
  uint64_t bytes = 0;
  for (int i = 0; i < WIDTH; i++)
    bytes += loading->slots[i].under_way;
  return bytes;
}

static bool on_next(void *user, unsigned which, struct call *call) {
  struct loading *loading = user;
  struct loading_slot *slot = &loading->slots[which];
  struct error cause;
  while (loading->error.status == STATUS_OK && loading->next < loading->plan.count &&
         model_may_begin(&loading->plan.items[loading->next], bytes_under_way(loading))) {
    slot->item = &loading->plan.items[loading->next++];
    slot->loading = loading;
    slot->done = 0;
    cause = slot->item->error;
    if (cause.status == STATUS_OK && make_request(loading, slot, &cause) == STATUS_OK) {
      *call = (struct call){.command = COMMAND_weight_load,
                            .request = &slot->request,
                            .reply = &slot->reply,
                            .fd = slot->fds[0],
                            .more_fds = slot->fds + 1,
                            .more_fd_count = slot->fd_count - 1,
                            .progress = on_progress,
                            .user = slot};
      slot->under_way = slot->item->bytes;
      return true;
    }
    fail_item(loading, slot->item, &cause);
    add_progress(slot, slot->item->bytes);
  }
  return false;
}

static void on_done(void *user, unsigned which, enum status status) {
  struct loading *loading = user;
  struct loading_slot *slot = &loading->slots[which];
  slot->under_way = 0;
  add_progress(slot, slot->item->bytes);
  if (status == STATUS_OK) {
    gemmd_weight_info info;
    info_convert(&slot->reply, &info);
    loading->result.weights++;
    loading->result.shared += info.shared;
    loading->result.bytes += info.bytes;
    if (loading->wanted->loaded != NULL)
      loading->wanted->loaded(loading->wanted->user, &info);
  } else {
    struct error cause = loading->session->error;
    cause.status = status;
    fail_item(loading, slot->item, &cause);
  }
  loading->progress.weights_done++;
  tell_progress(loading);
}

static enum status load_all(struct loading *loading) {
  const struct calls calls = {.width = WIDTH, .next = on_next, .done = on_done, .user = loading};
  loading->progress = (gemmd_model_progress){.weights = (unsigned)loading->plan.count, .bytes = loading->plan.bytes};
  enum status status = calls_make(loading->session, &calls);
  if (status != STATUS_OK)
    return status; /* gemmd drops what the session has staged */
  return loading->error.status;
}

static enum status commit(struct loading *loading) {
  struct gemmd_session *session = loading->session;
  const gemmd_model *wanted = loading->wanted;
  struct message_weight_commit request = {.instead_of = ""};
  struct message_weight_commit_reply reply;
  if (wanted->replace && wanted->prefix != NULL)
    strcpy(request.instead_of, wanted->prefix); /* shorter than the names that begin with it */
  struct call call = {
      .command = COMMAND_weight_commit, .request = &request, .reply = &reply, .fd = -1, .patient = true, .once = true};
  enum status status = control_call(session, &call);
  if (status == STATUS_OK)
    loading->result.dropped = reply.dropped;
  return status;
}

/* Of what failed gemmd keeps nothing; the sentence stays. */
static void abandon(struct gemmd_session *session) {
  struct error cause = session->error;
  struct message_empty request = {0}, reply;
  struct call call = {.command = COMMAND_weight_abandon, .request = &request, .reply = &reply, .fd = -1, .once = true};
  if (!session->ended)
    (void)(control_call(session, &call) == STATUS_OK);
  session->error = cause;
}

static enum status run(struct loading *loading) {
  struct gemmd_session *session = loading->session;
  enum status status = model_files_open(session, loading->wanted->paths, loading->wanted->path_count, &loading->files);
  if (status == STATUS_OK)
    status = model_plan_make(&loading->files, loading->wanted, &loading->plan, &session->error);
  if (status != STATUS_OK)
    return status;
  status = load_all(loading);
  if (loading->error.status != STATUS_OK)
    session->error = loading->error;
  if (status == STATUS_OK)
    status = model_files_unchanged(&loading->files, &session->error);
  if (status == STATUS_OK && loading->result.weights > 0)
    status = commit(loading);
  if (status != STATUS_OK)
    abandon(session);
  return status;
}

int gemmd_model_load(gemmd_session *session, const gemmd_model *model, gemmd_model_result *result) {
  struct loading *loading = calloc(1, sizeof *loading);
  if (loading == NULL)
    return session_result(error_set(&session->error, STATUS_NOMEM, "no memory for a model"));
  loading->session = session;
  loading->wanted = model;
  loading->files.config.fd = -1;
  enum status status = run(loading);
  if (status == STATUS_OK && result != NULL)
    *result = loading->result;
  model_plan_free(&loading->plan);
  model_files_close(&loading->files);
  free(loading);
  return session_result(status);
}
