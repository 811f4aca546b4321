#include "loads.h"

#include "../../context.h"
#include "../../net/closing.h"
#include "../../net/descriptors.h"
#include "../../net/foreign.h"
#include "../../session/session.h"
#include "../reclaim.h"
#include "answer.h"
#include "maker.h"
#include "placer.h"
#include "same.h"
#include "stamp.h"

#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LOADER_REQUEST = 1 }; /* the id of the one request that a loader gets */

void loads_init(struct loads *loads) {
  load_line_init(&loads->waiting);
  TAILQ_INIT(&loads->running);
  loads->running_count = 0;
  loads->aside = false;
}

static struct load *load_of(struct load_entry *entry) {
  return entry == NULL ? NULL : (struct load *)((uint8_t *)entry - offsetof(struct load, entry));
}

static void finish_move(struct load *load, bool moved) {
  struct session *session = load->session;
  reclaim_handle(load->supervisor, load->source);
  load->moved(load->mover, moved ? NULL : &load->error);
  free(load);
  session_release(session);
}

static void close_files(struct session *session, struct load_files *files) {
  while (files->count > 0)
    closing_start(files->fds[--files->count], &session->account->closing);
}

static void finish(struct load *load, const struct message_weight_info *info) {
  struct session *session = load->session;
  if (load->source != NULL) {
    finish_move(load, info != NULL);
    return;
  }
  struct session_request other = session->asked; /* loads run beside other requests */
  session->asked = load->asked;
  if (!load->cancelled && info != NULL) {
    session_reply(session, load->id, &message_weight_info_type, info, NULL, 0);
  } else if (!load->cancelled) {
    session_fail(session, load->id, &load->error);
  }
  session->asked = other;
  close_files(session, &load->files);
  if (load->canonical >= 0)
    closing_memory(load->canonical);
  if (load->found != NULL)
    reclaim_handle(load->supervisor, load->found);
  session->loads--;
  session->account->loads--;
  if (!session->ending)
    channel_settle(&session->channel);
  free(load);
  session_release(session);
}

static void start_next(struct supervisor *supervisor);

/* ---- the loader's process */

static void load_ended(struct load *load) {
  struct supervisor *supervisor = load->supervisor;
  TAILQ_REMOVE(&supervisor->loads->running, load, link);
  if (load->aside)
    supervisor->loads->aside = false;
  else
    supervisor->loads->running_count--;
  if (!load->answered && load->error.status == STATUS_OK)
    (void)error_set(&load->error, STATUS_INTERNAL, "the loader ended without an answer");
  if (load->numbers >= 0)
    closing_memory(load->numbers);
  load->numbers = -1;
  stamp_check(&load->request, &load->files, load->user.uid, &load->stamps[CATALOG_FILES]);
  if (load->error.status == STATUS_OK && !load->cancelled)
    placer_add(supervisor, load);
  else
    finish(load, NULL);
  start_next(supervisor);
}

static enum status start(struct load *load, struct error *error);

/* By a second loader, which sees nothing but the numbers. */
static bool start_again(struct load *load) {
  load->answered = false;
  return start(load, &load->error) == STATUS_OK;
}

/* The loader may have left numbers. */
static bool goes_on(struct load *load) {
  if (!load->answered || load->error.status != STATUS_OK || load->cancelled || load->done.numbers == 0)
    return false;
  return maker_take_numbers(load) && (maker_on_device(load) ? maker_convert(load) : start_again(load));
}

static void closed_one(struct load *load) {
  if (--load->open == 0 && !goes_on(load))
    load_ended(load);
}

static void on_handle_closed(uv_handle_t *handle) {
  closed_one(handle->data);
}

static void on_channel_closed(struct channel *channel) {
  closed_one(channel->owner);
}

static void on_exit_of_child(void *user, int64_t status, int signal) {
  struct load *load = user;
  (void)status; /* the answer says more */
  load->child = NULL;
  channel_drain(&load->channel);
  if (signal != 0 && !load->answered && load->error.status == STATUS_OK)
    (void)error_set(&load->error, STATUS_INTERNAL, "the loader was ended by signal %d (%s)%s", signal,
                    strsignal(signal), signal == SIGKILL ? ", as the kernel does where there is no more memory" : "");
  uv_close((uv_handle_t *)&load->timer, on_handle_closed);
  channel_close(&load->channel);
  closed_one(load);
}

static void on_timeout(uv_timer_t *timer) {
  struct load *load = timer->data;
  if (!load->answered)
    (void)error_set(&load->error, STATUS_TIMEOUT, "the load took longer than %lld s and was ended",
                    (long long)load->supervisor->config->load_timeout_s);
  child_kill(load->child);
}

static void take_answer(struct load *load, const struct message_head *head, struct message_body body,
                        struct packet *packet) {
  enum status status = STATUS_OK;
  load->answered = true;
  if (head->id != LOADER_REQUEST) {
    status = error_set(&load->error, STATUS_INTERNAL, "the loader answered what it was not asked");
  } else if (head->code != STATUS_OK) {
    message_decode_failure(head->code, body, &load->error);
  } else if ((status = message_decode_body(body, &message_load_done_type, &load->done, &load->error)) == STATUS_OK) {
    load->canonical = packet_take_fd(packet, 0);
    status = answer_check(load, &load->error);
  }
  if (status != STATUS_OK)
    child_kill(load->child);
  channel_close(&load->channel); /* it ends when its socket does */
}

static void pass_progress(struct load *load, struct message_body body) {
  struct message_weight_progress progress;
  struct error error;
  if (!load->request.progress ||
      message_decode_body(body, &message_weight_progress_type, &progress, &error) != STATUS_OK)
    return;
  progress.request = load->id;
  session_event(load->session, EVENT_weight_progress, &message_weight_progress_type, &progress);
}

static void on_packet(struct channel *channel, struct packet *packet) {
  struct load *load = channel->owner;
  struct message_head head;
  struct message_body body;
  struct error error;
  enum status status = message_decode_head(packet->bytes, packet->length, &head, &body, &error);
  if (status == STATUS_OK && head.kind == MESSAGE_REPLY) {
    take_answer(load, &head, body, packet);
  } else if (status == STATUS_OK && head.kind == MESSAGE_EVENT) {
    pass_progress(load, body);
  } else {
    (void)error_set(&load->error, STATUS_INTERNAL, "the loader sent what is no answer");
    child_kill(load->child);
  }
}

static void on_end(struct channel *channel, const struct error *cause) {
  struct load *load = channel->owner;
  if (cause->status != STATUS_DISCONNECTED)
    load->error = *cause;
  /* Its exit is reported too, but it may be stuck. */
  child_kill(load->child);
}

static enum status ask_loader(struct load *load, struct error *error) {
  struct message_head head = {.kind = MESSAGE_REQUEST, .id = LOADER_REQUEST, .code = COMMAND_load};
  load->request.old_hash = catalog_has_old_hash(&load->supervisor->catalog);
  if (load->numbers >= 0) {
    const struct message_weight_load request = maker_request(load); /* not raw */
    return channel_send(&load->channel, &head, &message_weight_load_type, &request, &load->numbers, 1, error);
  }
  load->request.raw = maker_wants_numbers(load);
  struct message_weight_load request = load->request;
  request.progress = request.progress && (!request.raw || maker_on_device(load)); /* of a second loader, else */
  return channel_send(&load->channel, &head, &message_weight_load_type, &request, load->files.fds, load->files.count,
                      error);
}

static enum status start(struct load *load, struct error *error) {
  static const struct channel_events events = {.packet = on_packet, .end = on_end, .closed = on_channel_closed};
  static const char *const mode[] = {"--load", NULL};
  struct supervisor *supervisor = load->supervisor;
  int socket;
  enum status status = child_start(&supervisor->loop, supervisor->children, mode, supervisor->config, on_exit_of_child,
                                   load, &load->child, &socket, error);
  if (status != STATUS_OK)
    return status;
  uv_timer_init(&supervisor->loop, &load->timer);
  load->timer.data = load;
  load->open = 2;
  uv_timer_start(&load->timer, on_timeout, (uint64_t)supervisor->config->load_timeout_s * 1000, 0);
  status = channel_open(&load->channel, &supervisor->loop, socket, 0, &events, load, &load->error);
  if (status == STATUS_OK) {
    load->open = 3;
    status = ask_loader(load, &load->error);
  } else {
    load->channel.closing = true;
  }
  if (status != STATUS_OK)
    child_kill(load->child); /* load->error is reported when the process is reaped */
  return STATUS_OK;
}

/* ---- the line */

/* The load that there is a place for; NULL: none waits, or there is none. */
static struct load *choose(struct supervisor *supervisor) {
  struct loads *loads = supervisor->loads;
  bool aside = loads->running_count >= supervisor->config->loaders_max;
  if (aside && loads->aside)
    return NULL;
  struct load *load = load_of(load_line_next(&loads->waiting, aside));
  if (load != NULL)
    load->aside = aside;
  return load;
}

static void start_next(struct supervisor *supervisor) {
  struct loads *loads = supervisor->loads;
  for (struct load *load; (load = choose(supervisor)) != NULL;) {
    if ((load->maker != NULL ? maker_make : start)(load, &load->error) != STATUS_OK) {
      finish(load, NULL);
      continue;
    }
    TAILQ_INSERT_TAIL(&loads->running, load, link);
    if (load->aside)
      loads->aside = true;
    else
      loads->running_count++;
  }
}

static bool is_small(const struct load_files *files) {
  uint64_t left = LOAD_LINE_SMALL_BYTES;
  for (size_t i = 0; i < files->count; i++) {
    uint64_t bytes = foreign_file_bytes(files->fds[i]);
    if (bytes > left)
      return false;
    left -= bytes;
  }
  return true;
}

/* Whether the session may have one more. */
static enum status admit(struct session *session, struct error *error) {
  struct supervisor *supervisor = session->supervisor;
  if (session->loads >= SESSION_LOADS_MAX)
    return error_set(error, STATUS_BUSY, "%u loads of this session are under way", session->loads);
  if (supervisor->sessions->draining)
    return error_set(error, STATUS_SHUTTING_DOWN, "gemmd takes no new loads and ends with the sessions it has");
  if (!descriptors_left(session->user.admin))
    return error_set(error, STATUS_BUSY, "gemmd has no descriptors for another load at the moment");
  return user_add_load(&supervisor->users, session->account, error);
}

/* NULL: *error says why. */
static struct load *make_load(struct session *session, uint32_t id, const struct message_weight_load *request,
                              struct error *error) {
  if (admit(session, error) != STATUS_OK)
    return NULL;
  struct load *load = calloc(1, sizeof *load);
  if (load == NULL) {
    session->account->loads--;
    (void)error_set(error, STATUS_NOMEM, "no memory for a load");
    return NULL;
  }
  load->supervisor = session->supervisor;
  load->session = session;
  load->id = id;
  load->asked = session->asked;
  load->request = *request;
  load->user = session->user;
  load->canonical = load->numbers = -1;
  load->ended = load_ended;
  load->placed = finish;
  session->loads++;
  session_hold(session);
  return load;
}

static void line_up(struct load *load, bool small) {
  struct supervisor *supervisor = load->supervisor;
  load->entry = (struct load_entry){.turn = &load->session->account->load_turn, .small = small};
  load_line_add(&supervisor->loads->waiting, &load->entry);
  start_next(supervisor);
}

enum status loads_add(struct session *session, uint32_t id, const struct message_weight_load *request,
                      struct load_files *files, struct error *error) {
  struct load *load = make_load(session, id, request, error);
  if (load == NULL) {
    close_files(session, files);
    return error->status;
  }
  load->files = *files;
  stamp_make(request, files, load->user.uid, &load->stamps[CATALOG_FILES]);
  if (request->trust && same_find_stamp(load->supervisor, load, CATALOG_FILES))
    placer_add(load->supervisor, load);
  else
    line_up(load, is_small(files));
  return STATUS_OK;
}

enum status loads_take(struct session *session, uint32_t id, const struct message_weight_load *request,
                       struct worker *maker, const struct message_weight_make *make, struct error *error) {
  struct load *load = make_load(session, id, request, error);
  if (load == NULL)
    return error->status;
  load->maker = maker;
  load->make = *make;
  line_up(load,
          (uint64_t)make->n * (uint64_t)make->k * gemm_type_bytes((enum gemm_type)make->type) <= LOAD_LINE_SMALL_BYTES);
  return STATUS_OK;
}

enum status loads_move(struct session *session, struct catalog_weight *weight, struct catalog_class of,
                       const char *name, void (*moved)(void *user, const struct error *error), void *user,
                       struct error *error) {
  struct load *load = calloc(1, sizeof *load);
  if (load == NULL)
    return error_set(error, STATUS_NOMEM, "no memory to move a weight");
  load->supervisor = session->supervisor;
  load->session = session;
  snprintf(load->request.name, sizeof load->request.name, "%s", name);
  load->mover = user;
  load->canonical = load->numbers = -1;
  load->placed = finish;
  load->source = weight;
  load->of = of;
  load->moved = moved;
  weight->handles++;
  session_hold(session);
  placer_add(session->supervisor, load);
  return STATUS_OK;
}

void loads_session_left(struct supervisor *supervisor, struct session *session) {
  struct load_entry *entry, *next;
  for (entry = TAILQ_FIRST(&supervisor->loads->waiting.entries); entry != NULL; entry = next) {
    struct load *load = load_of(entry);
    next = TAILQ_NEXT(entry, link);
    if (load->session != session)
      continue;
    load_line_remove(&supervisor->loads->waiting, entry);
    load->cancelled = true;
    finish(load, NULL);
  }
  struct load *load;
  for (load = TAILQ_FIRST(&supervisor->loads->running); load != NULL; load = TAILQ_NEXT(load, link)) {
    if (load->session != session)
      continue;
    load->cancelled = true;
    child_kill(load->child);
  }
  placer_session_left(supervisor, session);
}
