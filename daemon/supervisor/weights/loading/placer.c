#include "placer.h"

#include "../../../log.h"
#include "../../context.h"
#include "../../session/session.h"
#include "../../workers/fleet.h"
#include "../lend.h"
#include "../pins.h"
#include "../placement.h"
#include "../reclaim.h"
#include "../store.h"
#include "load.h"
#include "same.h"
#include "stage.h"

#include <string.h>
#include <unistd.h>

enum { ATTEMPTS_MAX = 2 }; /* a worker may die once under a load */

void placer_init(struct placer *placer) {
  *placer = (struct placer){.busy = false};
  TAILQ_INIT(&placer->line);
}

static struct load *current(struct supervisor *supervisor) {
  return TAILQ_FIRST(&supervisor->placer->line);
}

static struct worker *worker_of(struct supervisor *supervisor, uint32_t device) {
  return &supervisor->fleet->workers[device];
}

static struct catalog_part *part_at_work(struct placer *placer) {
  return &placer->draft.parts[placer->draft.part_count];
}

static void work(struct supervisor *supervisor);
static void plan_part(struct supervisor *supervisor);
static void take_room(struct supervisor *supervisor);

/* ---- the end of one load */

static void finish(struct supervisor *supervisor, const struct message_weight_info *info) {
  struct load *load = current(supervisor);
  TAILQ_REMOVE(&supervisor->placer->line, load, link);
  supervisor->placer->busy = false;
  load->placed(load, info);
}

/* Gives back all that the draft has taken. */
static void undo(struct supervisor *supervisor) {
  struct placer *placer = supervisor->placer;
  const struct catalog_part *part = part_at_work(placer);
  if (placer->taken)
    reclaim_extent(supervisor, part->slab, part->offset);
  else if (placer->slab != 0)
    reclaim_slab(supervisor, placer->slab);
  placer->taken = false;
  placer->slab = 0;
  reclaim_parts(supervisor, &placer->draft, NULL, NULL);
  placer->draft.part_count = 0;
}

static void fail(struct supervisor *supervisor, const struct error *error) {
  struct load *load = current(supervisor);
  load->error = *error;
  undo(supervisor);
  if (error->status == STATUS_DEVICE_LOST && !load->cancelled && ++load->attempts < ATTEMPTS_MAX) {
    log_info("session %u: \"%s\" waits for the next worker", load->session->id, load->request.name);
    supervisor->placer->busy = false; /* and is tried again from the start */
    return;
  }
  finish(supervisor, NULL);
}

/* What was stored among weights of one class must not come under a name of another. */
static enum status check_class(struct supervisor *supervisor, const struct catalog_wish *wish, bool shared,
                               struct error *error) {
  const struct catalog_class of = supervisor->placer->of;
  if (shared || of.mode == MODE_DEFAULT || catalog_class_equal(of, catalog_class_wished(&supervisor->catalog, wish)))
    return STATUS_OK;
  return error_set(error, STATUS_BUSY, "the name \"%.160s\" has changed hands during the load", wish->name);
}

/* The load ends without the weight, which goes where nothing stands for it. */
static void refuse(struct supervisor *supervisor, struct catalog_weight *weight) {
  if (catalog_unused(weight))
    reclaim_weight(supervisor, weight, NULL, NULL);
  finish(supervisor, NULL);
}

/* The weight waits for its session's commit: nothing but its description is to be seen. */
static void stage(struct supervisor *supervisor, struct catalog_weight *weight, bool shared) {
  struct load *load = current(supervisor);
  struct message_weight_info info;
  struct catalog_wish wish = same_wish(load);
  if (stage_add(&load->session->stage, &wish, weight, &load->error) != STATUS_OK) {
    refuse(supervisor, weight);
    return;
  }
  const struct catalog_name name = {
      .text = load->request.name, .owner = load->user.uid, .mode = wish.mode, .weight = weight};
  catalog_describe(&name, &info);
  info.shared = shared;
  finish(supervisor, &info);
}

static void commit(struct supervisor *supervisor, struct catalog_weight *weight, bool shared) {
  struct load *load = current(supervisor);
  for (int mark = 0; mark < CATALOG_MARKS; mark++)
    if (load->stamps[mark].known)
      weight->stamps[mark] = load->stamps[mark];
  struct catalog_weight *before;
  struct message_weight_info info;
  struct catalog_wish wish = same_wish(load);
  if (check_class(supervisor, &wish, shared, &load->error) != STATUS_OK) {
    refuse(supervisor, weight);
    return;
  }
  if (load->request.staged) {
    stage(supervisor, weight, shared);
    return;
  }
  if (catalog_name(&supervisor->catalog, &wish, weight, &before, &load->error) != STATUS_OK) {
    refuse(supervisor, weight);
    return;
  }
  store_catalog(supervisor);
  if (before != NULL && catalog_unused(before))
    reclaim_weight(supervisor, before, NULL, NULL);
  pins_apply(supervisor, weight);
  catalog_describe(catalog_find(&supervisor->catalog, load->request.name), &info);
  info.shared = shared;
  char experts[32] = "";
  if (info.experts > 0)
    snprintf(experts, sizeof experts, "%u experts of ", info.experts);
  log_info("loaded \"%s\" for user %u: %s%lld x %lld %s/%s, %llu bytes%s", info.name, load->user.uid, experts,
           (long long)info.n, (long long)info.k, gemm_format_name(weight->shape.format),
           gemm_scale_name(weight->shape.scale), (unsigned long long)info.bytes,
           shared ? ", shared with equal content" : "");
  finish(supervisor, &info);
}

/* The names go over to the copy. Who has the weight open goes on with what it has. */
static void commit_move(struct supervisor *supervisor, struct catalog_weight *copy) {
  struct load *load = current(supervisor);
  static const struct message_weight_info done;
  if (catalog_move_names(&supervisor->catalog, load->source, load->of, copy) == 0) {
    reclaim_weight(supervisor, copy, NULL, NULL);
  } else {
    store_catalog(supervisor);
    pins_apply(supervisor, copy);
    log_info("moved \"%s\" of user %u into memory that can be lent: %llu bytes", load->request.name, load->of.owner,
             (unsigned long long)catalog_weight_bytes(copy));
  }
  finish(supervisor, &done);
}

static void commit_draft(struct supervisor *supervisor) {
  struct placer *placer = supervisor->placer;
  struct load *load = current(supervisor);
  struct catalog_weight *weight;
  struct error error;
  if (load->cancelled) {
    (void)error_set(&error, STATUS_CANCELLED, "the client is gone");
    fail(supervisor, &error);
  } else if (placer->spoiled) {
    (void)error_set(&error, STATUS_DEVICE_LOST, "a worker died during the load");
    fail(supervisor, &error);
  } else if (catalog_add(&supervisor->catalog, &placer->draft, &weight, &error) != STATUS_OK) {
    fail(supervisor, &error);
  } else if (load->source != NULL) {
    commit_move(supervisor, weight);
  } else {
    commit(supervisor, weight, false);
  }
}

/* ---- the parts, one after the other. Every answer ends with work(), which goes on with the next load if this one
 * has come to its end. */

static bool ask(struct supervisor *supervisor, enum command command, const void *body, const int *fds, size_t fd_count,
                worker_done done) {
  struct worker *worker = worker_of(supervisor, part_at_work(supervisor->placer)->device);
  struct error error;
  if (worker_ask(worker, command, body, fds, fd_count, done, supervisor, &error) == STATUS_OK)
    return true;
  fail(supervisor, &error);
  return false;
}

struct message_weight_place placer_place(const struct catalog_weight *weight, const struct catalog_part *part) {
  struct message_weight_place place = {.weight = weight->id,
                                       .slab = part->slab,
                                       .offset = part->offset,
                                       .bytes = part->bytes,
                                       .n = part->n_count,
                                       .k = weight->shape.k,
                                       .format = weight->shape.format,
                                       .scale = weight->shape.scale,
                                       .input = weight->shape.input,
                                       .experts = (uint32_t)weight->shape.experts,
                                       .layout = part->layout,
                                       .checksum = part->checksum};
  if (weight->placement == PLACEMENT_SPLIT) {
    place.n_begin = part->n_begin;
    place.n_total = weight->shape.n;
  }
  return place;
}

/* A copy of what is damaged already is of no use. */
static bool is_damaged(const struct load *load, uint32_t part, uint64_t checksum) {
  return load->source != NULL && load->source->parts[part].checksum != 0 &&
         load->source->parts[part].checksum != checksum;
}

static void fail_damaged(struct supervisor *supervisor) {
  struct load *load = current(supervisor);
  struct error error;
  if (!load->source->withdrawn)
    lend_withdraw(supervisor, load->source, "was damaged on its device");
  (void)error_set(&error, STATUS_NOT_FOUND, "the weight \"%.128s\" was damaged on its device, and must be loaded again",
                  load->request.name);
  supervisor->placer->draft.part_count++;
  fail(supervisor, &error);
}

static void on_stored(void *user, struct worker_answer *answer) {
  struct supervisor *supervisor = user;
  struct placer *placer = supervisor->placer;
  if (answer->status != STATUS_OK) {
    fail(supervisor, &answer->error);
  } else {
    uint64_t checksum = answer->body->weight_placed.checksum;
    placer->taken = false;
    placer->slab = 0;
    part_at_work(placer)->checksum = checksum;
    if (is_damaged(current(supervisor), placer->draft.part_count, checksum)) {
      fail_damaged(supervisor);
      work(supervisor);
      return;
    }
    placer->draft.part_count++;
    if (placer->draft.part_count < placer->part_target)
      plan_part(supervisor);
    else
      commit_draft(supervisor);
  }
  work(supervisor);
}

static void store_part(struct supervisor *supervisor) {
  struct placer *placer = supervisor->placer;
  struct message_weight_place body = placer_place(&placer->draft, part_at_work(placer));
  const struct load *load = current(supervisor);
  if (load->source == NULL) {
    ask(supervisor, COMMAND_weight_store, &body, &load->canonical, 1, on_stored);
  } else {
    body.from = load->source->id;
    ask(supervisor, COMMAND_weight_copy, &body, NULL, 0, on_stored);
  }
}

static void create_slab(struct supervisor *supervisor, uint64_t bytes);

/* The least that a slab for this part may have. */
static uint64_t least_slab_bytes(struct supervisor *supervisor) {
  const struct catalog_part *part = part_at_work(supervisor->placer);
  uint64_t granularity = worker_of(supervisor, part->device)->ready.slab_granularity;
  if (granularity == 0)
    granularity = 1;
  uint64_t pieces = gemm_ceil_div(part->bytes, granularity);
  return pieces > UINT64_MAX / granularity ? UINT64_MAX : pieces * granularity;
}

static void on_slab(void *user, struct worker_answer *answer) {
  struct supervisor *supervisor = user;
  struct placer *placer = supervisor->placer;
  struct error error;
  uint32_t device = part_at_work(placer)->device;
  if (answer->status == STATUS_NOMEM && placer->slab_bytes > least_slab_bytes(supervisor)) {
    create_slab(supervisor, least_slab_bytes(supervisor)); /* a whole slab does not fit any more; the weight may */
  } else if (answer->status != STATUS_OK) {
    fail(supervisor, &answer->error);
  } else if (answer->fd < 0) {
    (void)error_set(&error, STATUS_INTERNAL, "a worker made a slab without a descriptor");
    fail(supervisor, &error);
  } else if (catalog_slab_add(&supervisor->catalog, placer->slab, device, placer->slab_bytes, answer->fd, &error) !=
             STATUS_OK) {
    placer->slab = 0;
    fail(supervisor, &error);
  } else {
    catalog_slab_find(&supervisor->catalog, placer->slab)->of = placer->of;
    store_add_slab(placer->slab, answer->fd);
    answer->fd = -1; /* the catalog's */
    take_room(supervisor);
  }
  work(supervisor);
}

static void create_slab(struct supervisor *supervisor, uint64_t bytes) {
  struct placer *placer = supervisor->placer;
  placer->slab = catalog_next_slab(&supervisor->catalog);
  placer->slab_bytes = bytes;
  struct message_slab_create body = {.slab = placer->slab, .bytes = bytes};
  ask(supervisor, COMMAND_slab_create, &body, NULL, 0, on_slab);
}

static void take_room(struct supervisor *supervisor) {
  struct placer *placer = supervisor->placer;
  struct catalog_part *part = part_at_work(placer);
  struct error error;
  enum status status = catalog_take(&supervisor->catalog, part->device, placer->of, part->bytes, placer->plan_align,
                                    &part->slab, &part->offset, &error);
  if (status == STATUS_OK) {
    placer->taken = true;
    store_part(supervisor);
  } else if (status == STATUS_NOT_FOUND && placer->slab == 0) {
    uint64_t granularity = worker_of(supervisor, part->device)->ready.slab_granularity;
    uint64_t least = least_slab_bytes(supervisor), usual = (uint64_t)supervisor->config->slab_bytes;
    if (granularity > 1)
      usual -= usual % granularity;
    create_slab(supervisor, usual > least ? usual : least);
  } else {
    fail(supervisor, &error);
  }
}

static void on_plan(void *user, struct worker_answer *answer) {
  struct supervisor *supervisor = user;
  struct placer *placer = supervisor->placer;
  if (answer->status != STATUS_OK) {
    fail(supervisor, &answer->error);
  } else {
    struct catalog_part *part = part_at_work(placer);
    const struct load *load = current(supervisor);
    const struct catalog_part *there = load->source != NULL ? &load->source->parts[placer->draft.part_count] : NULL;
    part->bytes = there != NULL ? there->bytes : answer->body->weight_plan.bytes;
    part->layout = there != NULL ? there->layout : answer->body->weight_plan.layout;
    placer->plan_align = answer->body->weight_plan.align;
    take_room(supervisor);
  }
  work(supervisor);
}

static void plan_part(struct supervisor *supervisor) {
  struct placer *placer = supervisor->placer;
  const struct catalog_part *part = part_at_work(placer);
  struct message_weight_plan body = {.n = part->n_count,
                                     .k = placer->draft.shape.k,
                                     .format = placer->draft.shape.format,
                                     .scale = placer->draft.shape.scale,
                                     .input = placer->draft.shape.input,
                                     .experts = (uint32_t)placer->draft.shape.experts};
  ask(supervisor, COMMAND_weight_plan, &body, NULL, 0, on_plan);
}

/* ---- the beginning of one load */

static bool devices_settled(struct supervisor *supervisor) {
  for (uint32_t i = 0; i < supervisor->fleet->count; i++)
    if (!worker_settled(worker_of(supervisor, i)))
      return false;
  return true;
}

static enum status make_draft(struct supervisor *supervisor, struct load *load, struct error *error) {
  struct placer *placer = supervisor->placer;
  placer->draft = (struct catalog_weight){
      .id = catalog_next_weight(&supervisor->catalog),
      .shape = {.n = load->done.n,
                .k = load->done.k,
                .format = (enum gemm_format)load->done.format,
                .scale = (enum gemm_scale)load->done.scale,
                .input = load->done.input,
                .experts = load->done.experts},
      .placement = (enum message_placement)load->request.placement,
      .hash_kind = load->hash_kind,
  };
  memcpy(placer->draft.hash, load->hash, sizeof placer->draft.hash);
  struct catalog_wish wish = same_wish(load);
  placer->of = lend_class(supervisor, catalog_class_wished(&supervisor->catalog, &wish));
  placer->taken = placer->spoiled = false;
  placer->slab = 0;
  struct placement_device devices[LIMIT_DEVICES];
  for (uint32_t i = 0; i < supervisor->fleet->count; i++) {
    const struct worker *worker = worker_of(supervisor, i);
    uint64_t used = catalog_device_usage(&supervisor->catalog, i).used, total = worker->ready.memory_total;
    devices[i] =
        (struct placement_device){.usable = worker_usable(worker), .free_bytes = used < total ? total - used : 0};
  }
  return placement_choose(&load->request, load->done.n, devices, supervisor->fleet->count, placer->draft.parts,
                          &placer->part_target, error);
}

/* The parts stay on their devices. */
static enum status make_copy(struct supervisor *supervisor, struct load *load, struct error *error) {
  struct placer *placer = supervisor->placer;
  placer->draft = *load->source;
  placer->draft.id = catalog_next_weight(&supervisor->catalog);
  placer->draft.names = placer->draft.handles = placer->draft.borrows = 0;
  placer->part_target = load->source->part_count;
  placer->draft.part_count = 0;
  placer->of = load->of;
  placer->taken = placer->spoiled = false;
  placer->slab = 0;
  for (uint32_t i = 0; i < placer->part_target; i++)
    if (!worker_usable(worker_of(supervisor, load->source->parts[i].device)))
      return error_set(error, STATUS_DEVICE_LOST, "device %u has no worker at the moment",
                       load->source->parts[i].device);
  return STATUS_OK;
}

/* Device memory counts for each owner of a name in full, shared or not: else one would pay when the other leaves. Names
 * count, too: each takes memory and time of this process, however small or shared its weight is. */
static enum status check_cap(struct supervisor *supervisor, const struct load *load, const struct catalog_weight *same,
                             struct error *error) {
  const struct catalog_name *there = catalog_find(&supervisor->catalog, load->request.name);
  struct catalog_holding held = catalog_owner_holds(&supervisor->catalog, load->user.uid);
  struct catalog_holding staged = sessions_staged(supervisor->sessions, load->user.uid);
  held.names += staged.names;
  held.bytes += staged.bytes;
  uint64_t copies = load->request.placement != PLACEMENT_REPLICAS ? 1
                    : load->request.devices != 0                  ? load->request.devices
                                                                  : supervisor->fleet->count;
  uint64_t bytes = same != NULL ? catalog_weight_bytes(same) : load->done.bytes * copies;
  if (there != NULL && there->owner == load->user.uid)
    held.bytes -= catalog_weight_bytes(there->weight); /* makes room for what replaces it */
  enum status status = user_check_device(&supervisor->users, load->session->account, held.bytes, bytes, error);
  return status == STATUS_OK && there == NULL
             ? user_check_name(&supervisor->users, load->session->account, held.names, error)
             : status;
}

static void begin_move(struct supervisor *supervisor, struct load *load) {
  if (load->cancelled)
    (void)error_set(&load->error, STATUS_CANCELLED, "the client is gone");
  if (load->cancelled || make_copy(supervisor, load, &load->error) != STATUS_OK)
    finish(supervisor, NULL);
  else
    plan_part(supervisor);
}

/* Content that is stored under the hash of earlier versions keeps it, and so do its names and copies. */
static void choose_hash(const struct catalog *catalog, struct load *load) {
  bool old = load->request.old_hash && load->done.experts == 0 &&
             catalog_find_hash(catalog, load->done.old_hash, NULL) != NULL;
  load->hash_kind = old ? CATALOG_HASH_SEQUENTIAL : CATALOG_HASH_TREE;
  memcpy(load->hash, old ? load->done.old_hash : load->done.hash, sizeof load->hash);
}

static void begin(struct supervisor *supervisor) {
  struct load *load = current(supervisor);
  struct catalog *catalog = &supervisor->catalog;
  if (load->found == NULL)
    choose_hash(catalog, load);
  load->error.status = STATUS_OK;
  supervisor->placer->busy = true;
  if (load->source != NULL) {
    begin_move(supervisor, load);
    return;
  }
  struct catalog_wish wish = same_wish(load);
  struct catalog_weight *same = same_find(supervisor, load);
  if (load->cancelled || catalog_may_name(catalog, &wish, load->hash, same, &load->error) != STATUS_OK) {
    finish(supervisor, NULL);
    return;
  }
  if (check_cap(supervisor, load, same, &load->error) != STATUS_OK ||
      (load->found != NULL && same == NULL &&
       error_set(&load->error, STATUS_BUSY,
                 "what was made of these files before is of no use any more; load them again")))
    finish(supervisor, NULL);
  else if (same != NULL)
    commit(supervisor, same, true);
  else if (make_draft(supervisor, load, &load->error) != STATUS_OK)
    finish(supervisor, NULL);
  else
    plan_part(supervisor);
}

static void work(struct supervisor *supervisor) {
  struct placer *placer = supervisor->placer;
  while (!placer->busy && current(supervisor) != NULL &&
         (devices_settled(supervisor) || current(supervisor)->cancelled))
    begin(supervisor);
}

void placer_add(struct supervisor *supervisor, struct load *load) {
  struct placer *placer = supervisor->placer;
  struct load *behind = TAILQ_FIRST(&placer->line);
  if (placer->busy)
    behind = TAILQ_NEXT(behind, link);
  while (behind != NULL && (!load->entry.small || behind->entry.small))
    behind = TAILQ_NEXT(behind, link);
  if (behind != NULL)
    TAILQ_INSERT_BEFORE(behind, load, link);
  else
    TAILQ_INSERT_TAIL(&placer->line, load, link);
  work(supervisor);
}

void placer_session_left(struct supervisor *supervisor, struct session *session) {
  struct load *load;
  for (load = TAILQ_FIRST(&supervisor->placer->line); load != NULL; load = TAILQ_NEXT(load, link))
    if (load->session == session)
      load->cancelled = true;
  work(supervisor);
}

void placer_worker_lost(struct supervisor *supervisor, uint32_t device) {
  struct placer *placer = supervisor->placer;
  for (uint32_t i = 0; placer->busy && i < placer->draft.part_count; i++)
    placer->spoiled |= placer->draft.parts[i].device == device;
}

void placer_devices_changed(struct supervisor *supervisor) {
  work(supervisor);
}
