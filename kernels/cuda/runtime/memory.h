/* Device memory by the driver's virtual memory functions: allocations apart from the addresses at which they are
 * mapped. */
#pragma once

#include "driver.h"

#include <stdatomic.h>

/* The granularity of allocations of `device`. */
MUST_CHECK enum status memory_granularity(const struct driver *driver, CUdevice device, uint64_t *out,
                                          struct error *error);
/* Takes `bytes`, a multiple of the granularity; `exported`: may leave this process as a descriptor. */
MUST_CHECK enum status memory_create(const struct driver *driver, CUdevice device, uint64_t bytes, bool exported,
                                     CUmemGenericAllocationHandle *out, struct error *error);
/* What another process has exported on this device; BAD_DESCRIPTOR for anything else. `fd` stays the caller's. */
MUST_CHECK enum status memory_import(const struct driver *driver, CUdevice device, int fd,
                                     CUmemGenericAllocationHandle *out, struct error *error);
/* Maps all of an allocation at a new address, for `access`. */
MUST_CHECK enum status memory_map(const struct driver *driver, CUdevice device, CUmemGenericAllocationHandle handle,
                                  uint64_t bytes, CUmemAccess_flags access, CUdeviceptr *out, struct error *error);
void memory_unmap(const struct driver *driver, CUdeviceptr address, uint64_t bytes);

enum { REGION_PARTS = 64 };

/* Memory that one thread uses while another makes it longer: its address never changes and what is in it stays, so
 * nothing has to be freed or waited for. */
struct region {
  CUdeviceptr address;
  uint64_t reserved;                 /* bytes of addresses */
  _Atomic uint64_t bytes;            /* usable from `address` on */
  uint64_t part_bytes[REGION_PARTS]; /* of the allocations that it consists of */
  CUmemGenericAllocationHandle parts[REGION_PARTS];
  int part_count;
};

/* An empty region that may grow to `most` bytes. */
MUST_CHECK enum status region_open(const struct driver *driver, uint64_t most, uint64_t granularity, struct region *out,
                                   struct error *error);
/* Makes the region at least `bytes` long; NOMEM leaves it as it was. */
MUST_CHECK enum status region_grow(const struct driver *driver, CUdevice device, struct region *region, uint64_t bytes,
                                   uint64_t granularity, struct error *error);
/* Gives back what it consists of and keeps its addresses. Nothing uses what is in it any more. */
void region_empty(const struct driver *driver, struct region *region);
/* Nothing may use the region any more. A region of zeros is fine. */
void region_close(const struct driver *driver, struct region *region);
