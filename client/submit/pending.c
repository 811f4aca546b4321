#include "pending.h"

#include <stdlib.h>
#include <string.h>

enum { SLOT_BITS = 8, PART_BITS = 4 };

enum status pending_init(struct pending *pending, uint32_t slots, struct error *error) {
  memset(pending, 0, sizeof *pending);
  pending->requests = calloc(slots, sizeof *pending->requests);
  if (!pending->requests)
    return error_set(error, STATUS_NOMEM, "no memory for %u requests", slots);
  pending->slots = slots;
  for (uint32_t i = 0; i < slots; i++)
    pending->free_slots[i] = i;
  return STATUS_OK;
}

void pending_release(struct pending *pending) {
  free(pending->requests);
  memset(pending, 0, sizeof *pending);
}

struct request *pending_add(struct pending *pending, const struct ring_submission *submission,
                            const struct pending_part *parts, uint32_t part_count) {
  if (pending->used == pending->slots)
    return NULL;
  uint32_t slot = pending->free_slots[pending->slots - ++pending->used];
  struct request *request = &pending->requests[slot];
  request->ticket = ++pending->tickets << SLOT_BITS | slot;
  request->submission = *submission;
  request->part_count = request->open_parts = part_count;
  for (uint32_t i = 0; i < part_count; i++) {
    request->parts[i] = parts[i];
    request->parts[i].open = true;
    request->parts[i].losses = 0;
  }
  request->finished = 0;
  request->error.status = STATUS_OK;
  request->device_ns = request->queue_ns = 0;
  return request;
}

void pending_remove(struct pending *pending, struct request *request) {
  if (request->finished)
    pending->done--;
  request->ticket = 0;
  pending->free_slots[pending->slots - pending->used--] = (uint32_t)(request - pending->requests);
}

struct request *pending_find(const struct pending *pending, uint64_t ticket) {
  uint64_t slot = ticket & ((1u << SLOT_BITS) - 1);
  if (ticket == 0 || slot >= pending->slots || pending->requests[slot].ticket != ticket)
    return NULL;
  return &pending->requests[slot];
}

struct request *pending_finished(const struct pending *pending) {
  struct request *first = NULL;
  for (uint32_t i = 0; pending->done > 0 && i < pending->slots; i++) {
    struct request *request = &pending->requests[i];
    if (request->ticket && request->finished && (!first || request->finished < first->finished))
      first = request;
  }
  return first;
}

bool pending_part(const struct pending *pending, uint64_t tag, uint32_t device, struct request **request,
                  uint32_t *part) {
  *part = (uint32_t)(tag & ((1u << PART_BITS) - 1));
  *request = pending_find(pending, tag >> PART_BITS);
  return *request && *part < (*request)->part_count && (*request)->parts[*part].open &&
         (*request)->parts[*part].device == device;
}

uint64_t request_tag(const struct request *request, uint32_t part) {
  return request->ticket << PART_BITS | part;
}

void request_submission(const struct request *request, uint32_t part, struct ring_submission *out) {
  const struct pending_part *piece = &request->parts[part];
  *out = request->submission;
  out->tag = request_tag(request, part);
  out->weight = piece->handle;
  out->n = piece->n_count;
  out->y_offset += (uint64_t)piece->n_begin * gemm_type_bytes((enum gemm_type)out->y_type);
  if (out->bias_type != GEMM_TYPE_NONE)
    out->bias_offset += (uint64_t)piece->n_begin * gemm_type_bytes((enum gemm_type)out->bias_type);
}

static void part_end(struct pending *pending, struct request *request, uint32_t part) {
  request->parts[part].open = false;
  if (--request->open_parts == 0) {
    request->finished = ++pending->finishes;
    pending->done++;
  }
}

void pending_complete(struct pending *pending, struct request *request, uint32_t part,
                      const struct ring_completion *completion) {
  if (completion->status != STATUS_OK && request->error.status == STATUS_OK)
    ring_completion_to_error(completion, &request->error);
  request->device_ns = completion->device_ns > request->device_ns ? completion->device_ns : request->device_ns;
  request->queue_ns = completion->queue_ns > request->queue_ns ? completion->queue_ns : request->queue_ns;
  request->skipped = completion->skipped;
  part_end(pending, request, part);
}

void pending_fail(struct pending *pending, struct request *request, uint32_t part, const struct error *error) {
  if (request->error.status == STATUS_OK)
    request->error = *error;
  part_end(pending, request, part);
}
