/* Borrowed weights: their slabs are mapped once, and each is attached by the code that the worker uses. */
#include "weight.h"
#include "error.h"
#include "tuned.h"

#include <stdlib.h>
#include <string.h>

/* ---- slabs; under direct_enter */

static enum status map_slab(struct gemmd_direct *direct, const gemmd_borrowed_part *part, struct mapped **out,
                            struct error *error) {
  for (struct mapped *mapped = direct->mapped; mapped != NULL; mapped = mapped->next)
    if (mapped->fd == part->fd) {
      *out = mapped;
      return STATUS_OK;
    }
  struct mapped *made = calloc(1, sizeof *made);
  if (made == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for a borrowed weight");
  enum status status = direct->ops->slab_import(direct->backend, part->fd, part->slab_bytes, &made->slab, error);
  if (status != STATUS_OK) {
    free(made);
    return status;
  }
  made->fd = part->fd;
  made->next = direct->mapped;
  direct->mapped = made;
  *out = made;
  return STATUS_OK;
}

static void unmap_unused(struct gemmd_direct *direct) {
  for (struct mapped **link = &direct->mapped; *link != NULL;) {
    struct mapped *mapped = *link;
    if (mapped->uses > 0) {
      link = &mapped->next;
      continue;
    }
    *link = mapped->next;
    direct->ops->slab_close(direct->backend, mapped->slab);
    free(mapped);
  }
}

/* ---- borrowing */

/* A copy of all of it on the device that this is. */
static const gemmd_borrowed_part *part_here(const struct gemmd_direct *direct, const gemmd_borrowed *borrowed,
                                            struct error *error) {
  unsigned count;
  const gemmd_borrowed_part *parts = gemmd_borrowed_parts(borrowed, &count);
  const gemmd_weight_info *info = gemmd_borrowed_info(borrowed);
  bool here = false;
  for (unsigned i = 0; i < count; i++) {
    bool same = memcmp(parts[i].device_uuid, direct->info.uuid, sizeof direct->info.uuid) == 0;
    if (same && parts[i].n_count == info->n)
      return &parts[i];
    here = here || same;
  }
  error_set(error, STATUS_UNSUPPORTED,
            here ? "the weight lies in parts on several devices, of which this is one"
                 : "the weight lies on another device than this");
  return NULL;
}

/* Under direct_enter. */
static enum status attach(struct gemmd_direct_weight *weight, const gemmd_borrowed_part *part, struct error *error) {
  struct gemmd_direct *direct = weight->direct;
  enum status status = backend_takes(direct->ops, weight->shape.format, error);
  if (status == STATUS_OK)
    status = map_slab(direct, part, &weight->mapped, error);
  if (status == STATUS_OK)
    status = direct->ops->weight_attach(direct->backend, &weight->shape, part->layout, weight->mapped->slab,
                                        part->offset, &weight->handle, error);
  if (status == STATUS_OK)
    weight->mapped->uses++;
  else
    unmap_unused(direct);
  return status;
}

static void weight_link(struct gemmd_direct_weight *weight) {
  struct gemmd_direct *direct = weight->direct;
  LIST_INSERT_HEAD(&direct->weights, weight, link);
}

static enum status take(struct gemmd_direct_weight *weight, struct error *error) {
  struct gemmd_direct *direct = weight->direct;
  weight->info = *gemmd_borrowed_info(weight->borrowed);
  weight->info.devices = 1;
  weight->shape = (struct gemm_weight){.n = weight->info.n,
                                       .k = weight->info.k,
                                       .format = (enum gemm_format)weight->info.format,
                                       .scale = (enum gemm_scale)weight->info.scale,
                                       .input = weight->info.input,
                                       .experts = weight->info.experts};
  const gemmd_borrowed_part *part = part_here(direct, weight->borrowed, error);
  if (part == NULL)
    return error->status;
  weight->info.bytes = part->bytes;
  void *saved = direct_enter(direct);
  enum status status = attach(weight, part, error);
  if (status == STATUS_OK)
    weight_link(weight);
  direct_leave(direct, saved);
  weight->device = part->device;
  if (status == STATUS_OK)
    tuned_refresh(direct, part->device);
  return status;
}

int gemmd_direct_borrow(gemmd_direct *direct, const char *name, gemmd_direct_weight **out) {
  struct error error = {0};
  *out = NULL;
  struct gemmd_direct_weight *weight = calloc(1, sizeof *weight);
  if (weight == NULL)
    return direct_result(error_set(&error, STATUS_NOMEM, "no memory for a borrowed weight"), &error);
  weight->direct = direct;
  enum status status = (enum status) - gemmd_weight_borrow(direct->session, name, &weight->borrowed);
  if (status != STATUS_OK)
    (void)error_set(&error, status, "%s", gemmd_error(direct->session));
  else
    status = take(weight, &error);
  if (status == STATUS_OK) {
    *out = weight;
    return GEMMD_OK;
  }
  gemmd_weight_return(weight->borrowed);
  free(weight);
  return direct_result(status, &error);
}

/* ---- giving back */

void weight_release(struct gemmd_direct_weight *weight) {
  struct gemmd_direct *direct = weight->direct;
  void *saved = direct_enter(direct);
  LIST_REMOVE(weight, link);
  direct->ops->weight_detach(direct->backend, weight->handle);
  weight->mapped->uses--;
  unmap_unused(direct);
  while (weight->kernels != NULL) {
    struct gemmd_direct_kernel *kernel = weight->kernels;
    weight->kernels = kernel->next;
    free(kernel);
  }
  direct_leave(direct, saved);
  tuned_forget(weight);
  gemmd_weight_return(weight->borrowed);
  free(weight);
}

int gemmd_direct_return(gemmd_direct_weight *weight) {
  struct error error = {0};
  if (weight == NULL)
    return GEMMD_OK;
  struct gemmd_direct *direct = weight->direct;
  pthread_mutex_lock(&direct->lock);
  unsigned plans = weight->plans;
  pthread_mutex_unlock(&direct->lock);
  if (plans > 0)
    return direct_result(
        error_set(&error, STATUS_BUSY, "%u plan%s name%s the weight", plans, plural(plans), plans == 1 ? "s" : ""),
        &error);
  if (direct->ops->weight_held != NULL && direct->ops->weight_held(direct->backend, weight->handle))
    return direct_result(error_set(&error, STATUS_BUSY, "a CUDA graph that has recorded products by the weight lives"),
                         &error);
  weight_release(weight);
  return GEMMD_OK;
}

const gemmd_weight_info *gemmd_direct_get_info(const gemmd_direct_weight *weight) {
  return &weight->info;
}

enum gemmd_borrowed_state gemmd_direct_look(gemmd_direct_weight *weight) {
  tuned_refresh(weight->direct, weight->device);
  return gemmd_borrowed_look(weight->borrowed);
}
