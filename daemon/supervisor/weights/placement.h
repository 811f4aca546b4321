/* Which devices a weight goes to. Pure. */
#pragma once

#include "../../../proto/wire/message.h"
#include "catalog.h"

#include <stdbool.h>

struct placement_device {
  bool usable;
  uint64_t free_bytes;
};

/* INVALID naming the field for a placement, device or number of devices that cannot be asked for on `device_count`
 * devices. For the request itself, before anything is loaded. */
MUST_CHECK enum status placement_check(const struct message_weight_load *request, uint32_t device_count,
                                       struct error *error);
/* Fills device, n_begin and n_count of *part_count parts. DEVICE_LOST where a device that was asked for is out of
 * order, or too few are left. */
MUST_CHECK enum status placement_choose(const struct message_weight_load *request, int64_t n,
                                        const struct placement_device *devices, uint32_t device_count,
                                        struct catalog_part *parts, uint32_t *part_count, struct error *error);
/* Whether a weight of n rows that lies there already lies as the request wants it, of whose devices `usable` are in
 * order: who asks for no place takes any. */
bool placement_fits(const struct message_weight_load *request, const struct catalog_weight *there, uint32_t usable);
