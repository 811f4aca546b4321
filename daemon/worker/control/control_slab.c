/* Device memory: slab_create, slab_import, slab_free. */
#include "control_slab.h"

#include <stdlib.h>

/* A slab whose number is taken at once; it gets its memory in the work step, before any other command begins. */
static enum status reserve(struct control *control, struct control_task *task, uint32_t id, uint64_t bytes,
                           struct error *error) {
  if (bytes == 0)
    return error_field(error, STATUS_INVALID, FIELD_BYTES, 0, 1, INT64_MAX);
  struct control_slab *slab = calloc(1, sizeof *slab);
  if (slab == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for a slab's entry");
  slab->id = id;
  slab->bytes = bytes;
  enum status status = idmap_add(&control->slabs, id, slab, error);
  if (status != STATUS_OK)
    free(slab);
  else
    task->slab = slab;
  return status;
}

static void finish_reserved(struct control *control, struct control_task *task) {
  if (task->status != STATUS_OK)
    free(idmap_remove(&control->slabs, task->slab->id));
}

static enum status begin_create(struct control *control, struct control_task *task, struct error *error) {
  return reserve(control, task, task->request.slab_create.slab, task->request.slab_create.bytes, error);
}

static enum status work_create(struct control *control, struct control_task *task, struct error *error) {
  return control->ops->slab_create(control->backend, task->slab->bytes, &task->reply_fd, &task->slab->device, error);
}

static enum status begin_import(struct control *control, struct control_task *task, struct error *error) {
  return reserve(control, task, task->request.slab_import.slab, task->request.slab_import.bytes, error);
}

static enum status work_import(struct control *control, struct control_task *task, struct error *error) {
  return control->ops->slab_import(control->backend, task->fds[0], task->slab->bytes, &task->slab->device, error);
}

static enum status begin_free(struct control *control, struct control_task *task, struct error *error) {
  uint32_t id = task->request.slab_free.slab;
  struct control_slab *slab = idmap_find(&control->slabs, id);
  if (slab == NULL)
    return error_set(error, STATUS_NOT_FOUND, "slab %u is not known", id);
  if (slab->weights > 0)
    return error_set(error, STATUS_WRONG_STATE, "slab %u holds %u attached weight%s", id, slab->weights,
                     plural(slab->weights));
  task->slab = idmap_remove(&control->slabs, id);
  return STATUS_OK;
}

static enum status work_free(struct control *control, struct control_task *task, struct error *error) {
  control->ops->slab_close(control->backend, task->slab->device);
  return STATUS_OK;
}

static void finish_free(struct control *control, struct control_task *task) {
  free(task->slab);
}

void control_slab_close_all(struct control *control) {
  uint32_t id;
  for (struct control_slab *slab; (slab = idmap_any(&control->slabs, &id)) != NULL;) {
    idmap_remove(&control->slabs, id);
    control->ops->slab_close(control->backend, slab->device);
    free(slab);
  }
  idmap_close(&control->slabs);
}

const struct control_handler control_slab_handlers[] = {
    {.command = COMMAND_slab_create, .begin = begin_create, .work = work_create, .finish = finish_reserved},
    {.command = COMMAND_slab_import, .begin = begin_import, .work = work_import, .finish = finish_reserved},
    {.command = COMMAND_slab_free, .begin = begin_free, .work = work_free, .finish = finish_free},
    {.command = 0},
};
