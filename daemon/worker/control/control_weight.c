/* Weights in slabs: weight_plan, weight_store, weight_attach, weight_copy, weight_verify, weight_read,
 * weight_detach. */
#include "control_weight.h"

#include "../../memfd.h"
#include "../../room.h"
#include "canonical.h"

#include <stdlib.h>
#include <sys/mman.h>

static struct gemm_weight placed_shape(const struct message_weight_place *place) {
  return (struct gemm_weight){.n = place->n,
                              .k = place->k,
                              .format = (enum gemm_format)place->format,
                              .scale = (enum gemm_scale)place->scale,
                              .input = place->input,
                              .experts = place->experts};
}

static enum status plan_weight(struct control *control, const struct gemm_weight *weight, struct backend_plan *out,
                               struct error *error) {
  enum status status = gemm_weight_check(weight, error);
  if (status == STATUS_OK)
    status = backend_takes(control->ops, weight->format, error);
  return status == STATUS_OK ? control->ops->weight_plan(control->backend, weight, out, error) : status;
}

static enum status begin_plan(struct control *control, struct control_task *task, struct error *error) {
  const struct message_weight_plan *ask = &task->request.weight_plan;
  struct gemm_weight weight = {.n = ask->n,
                               .k = ask->k,
                               .format = (enum gemm_format)ask->format,
                               .scale = (enum gemm_scale)ask->scale,
                               .input = ask->input,
                               .experts = ask->experts};
  struct backend_plan plan;
  enum status status = plan_weight(control, &weight, &plan, error);
  if (status == STATUS_OK)
    task->reply.weight_plan =
        (struct message_weight_plan_reply){.bytes = plan.bytes, .align = plan.align, .layout = plan.layout};
  return status;
}

/* The place lies in a slab and, for the layout of now, has the room and alignment that the backend wants. What an older
 * program has stored in another layout, which may take less, is the backend's to check. */
static enum status check_place(struct control *control, struct control_task *task, struct error *error) {
  const struct message_weight_place *place = &task->request.weight_place;
  struct gemm_weight weight = placed_shape(place);
  struct backend_plan plan;
  enum status status = plan_weight(control, &weight, &plan, error);
  if (status != STATUS_OK)
    return status;
  task->slab = idmap_find(&control->slabs, place->slab);
  if (task->slab == NULL)
    return error_set(error, STATUS_NOT_FOUND, "slab %u is not known", place->slab);
  bool as_planned = place->layout == plan.layout;
  if (as_planned && place->bytes < plan.bytes)
    return error_field(error, STATUS_INVALID, FIELD_BYTES, (int64_t)place->bytes, (int64_t)plan.bytes, INT64_MAX);
  if (place->bytes > task->slab->bytes || place->offset > task->slab->bytes - place->bytes)
    return error_set(error, STATUS_INVALID, "%llu bytes at %llu do not lie in slab %u of %llu bytes",
                     (unsigned long long)place->bytes, (unsigned long long)place->offset, place->slab,
                     (unsigned long long)task->slab->bytes);
  if (as_planned && plan.align > 1 && place->offset % plan.align != 0)
    return error_set(error, STATUS_INVALID, "a weight's offset must be a multiple of %llu, got %llu",
                     (unsigned long long)plan.align, (unsigned long long)place->offset);
  return STATUS_OK;
}

/* ---- attach: the bytes are in the slab already */

static enum status begin_attach(struct control *control, struct control_task *task, struct error *error) {
  const struct message_weight_place *place = &task->request.weight_place;
  enum status status = check_place(control, task, error);
  if (status != STATUS_OK)
    return status;
  struct control_weight *weight = calloc(1, sizeof *weight);
  if (weight == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for a weight's entry");
  weight->id = place->weight;
  weight->slab = task->slab;
  weight->offset = place->offset;
  weight->bytes = place->bytes;
  weight->engine.shape = placed_shape(place);
  status = idmap_add(&control->weights, weight->id, weight, error);
  if (status != STATUS_OK)
    free(weight);
  else
    task->weight = weight;
  return status;
}

static enum status attach(struct control *control, struct control_task *task, struct error *error) {
  const struct message_weight_place *place = &task->request.weight_place;
  return control->ops->weight_attach(control->backend, &task->weight->engine.shape, place->layout, task->slab->device,
                                     place->offset, &task->weight->engine.device, error);
}

/* A damaged weight is attached all the same, so that what depends on it in the line is in order; it is the supervisor's
 * to see that nobody computes with it. */
static enum status work_attach(struct control *control, struct control_task *task, struct error *error) {
  const struct message_weight_place *place = &task->request.weight_place;
  uint64_t checksum;
  enum status status = attach(control, task, error);
  if (status != STATUS_OK || !place->verify)
    return status;
  status = control->ops->weight_checksum(control->backend, task->weight->engine.device, &checksum, error);
  if (status == STATUS_OK)
    task->reply.weight_placed.damaged = checksum != place->checksum;
  else
    control->ops->weight_detach(control->backend, task->weight->engine.device);
  return status;
}

/* ---- store: copies the bytes first */

static int64_t rows_in_memfd(const struct message_weight_place *place) {
  return place->n_total != 0 ? place->n_total : place->n;
}

static enum status check_canonical(const struct control_task *task, struct gemm_layout *whole, struct gemm_layout *part,
                                   struct error *error) {
  const struct message_weight_place *place = &task->request.weight_place;
  struct gemm_weight shape = placed_shape(place);
  enum status status = canonical_part_check(&shape, place->n_begin, rows_in_memfd(place), whole, part, error);
  return status == STATUS_OK ? memfd_check(task->fds[0], whole->total_bytes, true, error) : status;
}

static enum status begin_store(struct control *control, struct control_task *task, struct error *error) {
  const struct message_weight_place *place = &task->request.weight_place;
  struct gemm_weight shape = placed_shape(place);
  struct gemm_layout whole, part;
  struct backend_plan plan;
  enum status status = plan_weight(control, &shape, &plan, error);
  if (status == STATUS_OK && place->layout != plan.layout)
    return error_set(error, STATUS_UNSUPPORTED, "weights are stored in layout %u, got %u", plan.layout, place->layout);
  if (status == STATUS_OK)
    status = check_canonical(task, &whole, &part, error);
  return status == STATUS_OK ? begin_attach(control, task, error) : status;
}

/* The cpu backend's slabs are the host's memory. */
static enum status room_in_slab(const struct control *control, uint64_t bytes, struct error *error) {
  return control->ops->on_cores ? room_for(bytes, error) : STATUS_OK;
}

static enum status store_part(struct control *control, struct control_task *task, const void *whole,
                              const struct gemm_layout *whole_layout, const struct gemm_layout *part_layout,
                              struct error *error) {
  const struct message_weight_place *place = &task->request.weight_place;
  const struct gemm_weight *shape = &task->weight->engine.shape;
  void *part = malloc(part_layout->total_bytes);
  if (part == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for a part of %llu bytes",
                     (unsigned long long)part_layout->total_bytes);
  canonical_part_copy(shape->scale, whole_layout, whole, place->n_begin, part_layout, part);
  enum status status =
      control->ops->weight_store(control->backend, shape, part, task->slab->device, place->offset, error);
  free(part);
  return status;
}

static enum status work_store(struct control *control, struct control_task *task, struct error *error) {
  const struct message_weight_place *place = &task->request.weight_place;
  const struct gemm_weight *shape = &task->weight->engine.shape;
  struct gemm_layout whole_layout, part_layout;
  enum status status = check_canonical(task, &whole_layout, &part_layout, error);
  if (status == STATUS_OK)
    status = room_in_slab(control, place->bytes, error);
  if (status != STATUS_OK)
    return status;
  void *whole = memfd_map(task->fds[0], whole_layout.total_bytes, false, error);
  if (whole == NULL)
    return error->status;
  if (rows_in_memfd(place) == place->n)
    status = control->ops->weight_store(control->backend, shape, whole, task->slab->device, place->offset, error);
  else
    status = store_part(control, task, whole, &whole_layout, &part_layout, error);
  munmap(whole, whole_layout.total_bytes);
  if (status == STATUS_OK)
    status = attach(control, task, error);
  if (status != STATUS_OK)
    return status;
  status = control->ops->weight_checksum(control->backend, task->weight->engine.device,
                                         &task->reply.weight_placed.checksum, error);
  if (status != STATUS_OK)
    control->ops->weight_detach(control->backend, task->weight->engine.device);
  return status;
}

/* ---- copy: of a weight that is attached elsewhere. While it runs no other command does, so that the source stays; the
 * engine may compute with it, which only reads. */

static enum status find_source(struct control *control, const struct message_weight_place *place,
                               struct control_weight **out, struct error *error) {
  const struct gemm_weight shape = placed_shape(place);
  struct control_weight *source = idmap_find(&control->weights, place->from);
  if (source == NULL || source->detaching)
    return error_set(error, STATUS_NOT_FOUND, "weight %u is not attached", place->from);
  const struct gemm_weight *there = &source->engine.shape;
  if (source->bytes != place->bytes || there->n != shape.n || there->k != shape.k || there->format != shape.format ||
      there->scale != shape.scale || there->input != shape.input || there->experts != shape.experts)
    return error_set(error, STATUS_INVALID, "weight %u is not what is to be copied", place->from);
  *out = source;
  return STATUS_OK;
}

static enum status begin_copy(struct control *control, struct control_task *task, struct error *error) {
  enum status status = find_source(control, &task->request.weight_place, &task->source, error);
  return status == STATUS_OK ? begin_attach(control, task, error) : status;
}

static enum status work_copy(struct control *control, struct control_task *task, struct error *error) {
  const struct backend_ops *ops = control->ops;
  const struct control_weight *source = task->source, *weight = task->weight;
  uint64_t before, *after = &task->reply.weight_placed.checksum;
  enum status status = room_in_slab(control, weight->bytes, error);
  if (status == STATUS_OK)
    status = ops->weight_checksum(control->backend, source->engine.device, &before, error);
  if (status == STATUS_OK)
    status = ops->slab_copy(control->backend, source->slab->device, source->offset, weight->slab->device,
                            weight->offset, weight->bytes, error);
  if (status == STATUS_OK)
    status = attach(control, task, error);
  if (status != STATUS_OK)
    return status;
  status = ops->weight_checksum(control->backend, weight->engine.device, after, error);
  if (status == STATUS_OK && *after != before)
    status = error_set(error, STATUS_INTERNAL, "a weight was not copied as it was");
  if (status != STATUS_OK)
    ops->weight_detach(control->backend, weight->engine.device);
  return status;
}

/* ---- verify */

static enum status begin_verify(struct control *control, struct control_task *task, struct error *error) {
  uint32_t id = task->request.weight_id.weight;
  task->weight = idmap_find(&control->weights, id);
  if (task->weight == NULL || task->weight->detaching)
    return error_set(error, STATUS_NOT_FOUND, "weight %u is not attached", id);
  return STATUS_OK;
}

static enum status work_verify(struct control *control, struct control_task *task, struct error *error) {
  return control->ops->weight_checksum(control->backend, task->weight->engine.device,
                                       &task->reply.weight_placed.checksum, error);
}

/* ---- back into canonical form */

static enum status work_read(struct control *control, struct control_task *task, struct error *error) {
  struct gemm_layout layout;
  enum status status = gemm_layout_compute(&task->weight->engine.shape, &layout, error);
  if (status == STATUS_OK)
    status = memfd_make_open("gemmd-weight", layout.total_bytes, &task->reply_fd, error);
  if (status != STATUS_OK)
    return status;
  void *canonical = memfd_map(task->reply_fd, layout.total_bytes, true, error);
  if (canonical == NULL)
    return error->status;
  status = control->ops->weight_read(control->backend, task->weight->engine.device, canonical, error);
  munmap(canonical, layout.total_bytes); /* sealing against writing needs it gone */
  return status == STATUS_OK ? memfd_freeze(task->reply_fd, error) : status;
}

/* ---- all of them, and detach */

static void finish_attach(struct control *control, struct control_task *task) {
  if (task->status == STATUS_OK)
    task->slab->weights++;
  else
    free(idmap_remove(&control->weights, task->weight->id));
}

static enum status begin_detach(struct control *control, struct control_task *task, struct error *error) {
  uint32_t id = task->request.weight_id.weight;
  struct control_weight *weight = idmap_find(&control->weights, id);
  if (weight == NULL || weight->detaching)
    return error_set(error, STATUS_NOT_FOUND, "weight %u is not attached", id);
  weight->detaching = true;
  task->weight = weight;
  return STATUS_OK;
}

static void post_detach(struct control *control, struct control_task *task) {
  task->message.verb = ENGINE_WEIGHT_DETACH;
  task->message.weight = &task->weight->engine;
}

static void release_detach(struct control *control, struct control_task *task) {
  if (task->status == STATUS_OK)
    control->ops->weight_detach(control->backend, task->weight->engine.device);
}

static void finish_detach(struct control *control, struct control_task *task) {
  task->weight->detaching = false;
  if (task->status != STATUS_OK)
    return;
  task->weight->slab->weights--;
  free(idmap_remove(&control->weights, task->weight->id));
}

void control_weight_close_all(struct control *control) {
  uint32_t id;
  for (struct control_weight *weight; (weight = idmap_any(&control->weights, &id)) != NULL;) {
    idmap_remove(&control->weights, id);
    control->ops->weight_detach(control->backend, weight->engine.device);
    free(weight);
  }
  idmap_close(&control->weights);
}

const struct control_handler control_weight_handlers[] = {
    {.command = COMMAND_weight_plan, .begin = begin_plan},
    {.command = COMMAND_weight_store, .begin = begin_store, .work = work_store, .finish = finish_attach},
    {.command = COMMAND_weight_attach, .begin = begin_attach, .work = work_attach, .finish = finish_attach},
    {.command = COMMAND_weight_copy, .begin = begin_copy, .work = work_copy, .finish = finish_attach},
    {.command = COMMAND_weight_verify, .begin = begin_verify, .work = work_verify},
    {.command = COMMAND_weight_detach,
     .overtaken = true,
     .begin = begin_detach,
     .post = post_detach,
     .release = release_detach,
     .finish = finish_detach},
    {.command = COMMAND_weight_read, .begin = begin_verify, .work = work_read},
    {.command = 0},
};
