/* weight_make, weight_convert: numbers that the device has, or that lie in a memfd, become a weight in canonical form,
 * in a memfd, with its hash: what a loader answers for a file. The line of commands keeps the memory open meanwhile. */
#include "control_make.h"

#include "../../hash.h"
#include "../../memfd.h"
#include "../../pages.h"
#include "../../room.h"
#include "control_tensor.h"

#include <string.h>
#include <sys/mman.h>

static struct gemm_weight wanted(const struct message_weight_make *make) {
  return (struct gemm_weight){
      .n = make->n, .k = make->k, .format = (enum gemm_format)make->format, .scale = (enum gemm_scale)make->scale};
}

static uint64_t bytes_of(const struct message_weight_make *make) {
  return (uint64_t)make->n * (uint64_t)make->k * gemm_type_bytes((enum gemm_type)make->type);
}

static enum status check(const struct control *control, const struct message_weight_make *make, struct error *error) {
  const struct gemm_weight weight = wanted(make);
  enum status status = gemm_weight_check(&weight, error);
  if (status != STATUS_OK)
    return status;
  if (make->type != GEMM_F32 && make->type != GEMM_F16 && make->type != GEMM_BF16)
    return error_set(error, STATUS_INVALID, "a weight is made of f32, f16 or bf16, got type %u", make->type);
  if (control->ops->weight_convert == NULL)
    return error_set(error, STATUS_UNSUPPORTED, "the %s backend makes no weights", control->ops->name);
  return STATUS_OK;
}

static enum status begin_make(struct control *control, struct control_task *task, struct error *error) {
  const struct message_weight_make *make = &task->request.weight_make;
  enum status status = check(control, make, error);
  if (status != STATUS_OK)
    return status;
  task->tensor = control_tensor_find(control, make->session, make->memory);
  if (task->tensor == NULL)
    return error_set(error, STATUS_NOT_FOUND, "handle %u of session %u stands for no memory", make->memory,
                     make->session);
  uint64_t there = task->tensor->engine.bytes;
  uint64_t bytes = bytes_of(make);
  if (bytes > there || make->offset > there - bytes)
    return error_set(error, STATUS_INVALID, "%llu bytes at %llu do not lie in memory of %llu bytes",
                     (unsigned long long)bytes, (unsigned long long)make->offset, (unsigned long long)there);
  return STATUS_OK;
}

static enum status begin_convert(struct control *control, struct control_task *task, struct error *error) {
  const struct message_weight_make *make = &task->request.weight_make;
  enum status status = check(control, make, error);
  return status == STATUS_OK ? memfd_check(task->fds[0], bytes_of(make), true, error) : status;
}

static bool go_on(void *user, uint64_t done, uint64_t total) {
  return true;
}

static enum status fill(struct control *control, const struct message_weight_make *make,
                        const struct backend_source *source, uint64_t bytes, void *canonical,
                        struct message_load_done *done, struct error *error) {
  const struct gemm_weight weight = wanted(make);
  struct watch watch = {.total = bytes, .tick = go_on};
  enum status status = pages_take(canonical, bytes, bands_threads(), &watch, error);
  if (status == STATUS_OK)
    status = control->ops->weight_convert(control->backend, &weight, source, canonical, error);
  if (status == STATUS_OK)
    status = hash_weight(&weight, canonical, bytes, bands_threads(), &watch, done->hash, error);
  if (status == STATUS_OK && make->old_hash)
    tree_sequential(&weight, canonical, bytes, done->old_hash);
  return status;
}

static enum status make_of(struct control *control, struct control_task *task, const struct backend_source *source,
                           struct error *error) {
  const struct message_weight_make *make = &task->request.weight_make;
  const struct gemm_weight weight = wanted(make);
  struct gemm_layout layout;
  enum status status = gemm_layout_compute(&weight, &layout, error);
  if (status == STATUS_OK)
    status = room_for(layout.total_bytes, error);
  if (status == STATUS_OK)
    status = memfd_make_open("gemmd-weight", layout.total_bytes, &task->reply_fd, error);
  if (status != STATUS_OK)
    return status;
  void *canonical = memfd_map(task->reply_fd, layout.total_bytes, true, error);
  if (canonical == NULL)
    return error->status;
  struct message_load_done *done = &task->reply.load_done;
  *done = (struct message_load_done){
      .n = make->n, .k = make->k, .format = make->format, .scale = make->scale, .bytes = layout.total_bytes};
  status = fill(control, make, source, layout.total_bytes, canonical, done, error);
  munmap(canonical, layout.total_bytes); /* sealing against writing needs it gone */
  return status == STATUS_OK ? memfd_freeze(task->reply_fd, error) : status;
}

static enum status work_make(struct control *control, struct control_task *task, struct error *error) {
  const struct message_weight_make *make = &task->request.weight_make;
  const struct control_tensor *tensor = task->tensor;
  const struct backend_source source = {.type = (enum gemm_type)make->type,
                                        .ternary = make->ternary,
                                        .memory = tensor->engine.memory,
                                        .x = tensor->engine.address + make->offset,
                                        .stride = (uint64_t)make->k * gemm_type_bytes((enum gemm_type)make->type)};
  return make_of(control, task, &source, error);
}

static enum status read_mapped(void *context, uint64_t offset, void *to, uint64_t bytes, struct error *error) {
  memcpy(to, (const uint8_t *)context + offset, bytes);
  return STATUS_OK;
}

static enum status work_convert(struct control *control, struct control_task *task, struct error *error) {
  const struct message_weight_make *make = &task->request.weight_make;
  void *numbers = memfd_map(task->fds[0], bytes_of(make), false, error);
  if (numbers == NULL)
    return error->status;
  const struct backend_source source = {
      .type = (enum gemm_type)make->type, .ternary = make->ternary, .read = read_mapped, .context = numbers};
  enum status status = make_of(control, task, &source, error);
  munmap(numbers, bytes_of(make));
  return status;
}

const struct control_handler control_make_handlers[] = {
    {.command = COMMAND_weight_make, .begin = begin_make, .work = work_make},
    {.command = COMMAND_weight_convert, .begin = begin_convert, .work = work_convert},
    {.command = 0},
};
