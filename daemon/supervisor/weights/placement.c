#include "placement.h"

enum status placement_check(const struct message_weight_load *request, uint32_t device_count, struct error *error) {
  if (request->placement > PLACEMENT_SPLIT)
    return error_set(error, STATUS_INVALID, "placement must be 0..%d, got %u", PLACEMENT_SPLIT, request->placement);
  if (request->device < -1 || request->device >= (int64_t)device_count)
    return error_field(error, STATUS_INVALID, FIELD_DEVICE, request->device, -1, (int64_t)device_count - 1);
  uint32_t most = device_count < LIMIT_PARTS ? device_count : LIMIT_PARTS;
  if (request->placement != PLACEMENT_SINGLE && request->devices > most)
    return error_set(error, STATUS_INVALID, "devices must be 0..%u, got %u", most, request->devices);
  return STATUS_OK;
}

/* The usable device that is best and not in `chosen` yet: the next one behind `first`, or that with most memory free
 * where first is -1. False where there is none. */
static bool next_device(int64_t first, const struct placement_device *devices, uint32_t device_count,
                        const struct catalog_part *chosen, uint32_t chosen_count, uint32_t *out) {
  bool found = false;
  for (uint32_t i = 0; i < device_count; i++) {
    uint32_t device = first < 0 ? i : (uint32_t)((first + i) % device_count);
    bool taken = !devices[device].usable;
    for (uint32_t c = 0; c < chosen_count; c++)
      taken |= chosen[c].device == device;
    if (taken || (found && devices[device].free_bytes <= devices[*out].free_bytes))
      continue;
    *out = device;
    found = true;
    if (first >= 0)
      return true;
  }
  return found;
}

static enum status choose_single(int64_t wanted, int64_t n, const struct placement_device *devices,
                                 uint32_t device_count, struct catalog_part *part, struct error *error) {
  if (wanted >= 0 && !devices[wanted].usable)
    return error_set(error, STATUS_DEVICE_LOST, "device %lld is out of order", (long long)wanted);
  *part = (struct catalog_part){.n_count = n};
  if (!next_device(wanted, devices, device_count, NULL, 0, &part->device))
    return error_set(error, STATUS_DEVICE_LOST, "no device is in order");
  return STATUS_OK;
}

static uint32_t parts_wanted(const struct message_weight_load *request, uint32_t usable) {
  return request->devices != 0 ? request->devices : usable < LIMIT_PARTS ? usable : LIMIT_PARTS;
}

enum status placement_choose(const struct message_weight_load *request, int64_t n,
                             const struct placement_device *devices, uint32_t device_count, struct catalog_part *parts,
                             uint32_t *part_count, struct error *error) {
  enum status status = placement_check(request, device_count, error);
  if (status != STATUS_OK)
    return status;
  *part_count = 1;
  if (request->placement == PLACEMENT_SINGLE)
    return choose_single(request->device, n, devices, device_count, parts, error);
  uint32_t usable = 0;
  for (uint32_t i = 0; i < device_count; i++)
    usable += devices[i].usable;
  uint32_t wanted = parts_wanted(request, usable);
  if (wanted == 0 || wanted > usable)
    return error_set(error, STATUS_DEVICE_LOST, "%u devices were asked for, %u are in order", wanted, usable);
  if (request->placement == PLACEMENT_SPLIT)
    wanted = catalog_split(n, wanted, parts);
  for (uint32_t i = 0; i < wanted; i++) {
    if (request->placement == PLACEMENT_REPLICAS)
      parts[i] = (struct catalog_part){.n_count = n};
    if (!next_device(request->device, devices, device_count, parts, i, &parts[i].device))
      return error_set(error, STATUS_DEVICE_LOST, "too few devices are in order");
  }
  *part_count = wanted;
  return STATUS_OK;
}

bool placement_fits(const struct message_weight_load *request, const struct catalog_weight *there, uint32_t usable) {
  struct catalog_part parts[LIMIT_PARTS];
  if (request->placement == PLACEMENT_SINGLE && request->device < 0)
    return true;
  if (request->placement != (uint32_t)there->placement ||
      (request->device >= 0 && (uint32_t)request->device != there->parts[0].device))
    return false;
  if (request->placement == PLACEMENT_SINGLE)
    return true;
  uint32_t wanted = parts_wanted(request, usable);
  if (wanted > 0 && request->placement == PLACEMENT_SPLIT) /* 0: no device is in order */
    wanted = catalog_split(there->shape.n, wanted, parts);
  return there->part_count == wanted;
}
