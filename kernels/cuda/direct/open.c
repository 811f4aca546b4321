#include "open.h"

#include "../families/select.h"
#include "memo.h"

/* Addresses set apart for a lane's staging memory. */
#define STAGING_ADDRESSES ((uint64_t)4 << 30)

/* Of all such backends of the process. */
static _Atomic int lanes_all;

/* Other processes may run beside this one, under MPS. */
bool direct_crowded(const struct backend *backend) {
  enum { PROCESSES = 4 };
  int lanes = atomic_load_explicit(&lanes_all, memory_order_relaxed);
  return lanes * PROCESSES * KERNEL_WAITED_FOR >= backend->gpu.multiprocessors;
}

static enum status lane_open(struct backend *backend, struct slot *lane, struct error *error) {
  uint64_t workspace = backend->library.workspace_bytes;
  lane->selector = selector_open();
  lane->memo = memo_open(backend->driver);
  if (!lane->selector || !lane->memo)
    return error_set(error, STATUS_NOMEM, "no memory for the choices of kernels");
  enum status status = region_open(backend->driver, STAGING_ADDRESSES, backend->granularity, &lane->staging, error);
  if (status == STATUS_OK)
    status = region_open(backend->driver, workspace, backend->granularity, &lane->workspace, error);
  if (status == STATUS_OK)
    status = region_grow(backend->driver, backend->device, &lane->workspace, workspace, backend->granularity, error);
  return status;
}

enum status direct_open(struct backend *backend, const struct backend_config *config, struct error *error) {
  const struct driver *driver = backend->driver;
  backend->direct = true;
  backend->rows_most = config->rows_most;
  backend->pairs_most = config->pairs_most;
  backend->selector = selector_open(); /* of who asks for variants */
  if (!backend->selector)
    return error_set(error, STATUS_NOMEM, "no memory for the choices of kernels");
  enum status status = driver_check(driver, driver->cuDevicePrimaryCtxRetain(&backend->context, backend->device),
                                    "using the GPU", error);
  if (status == STATUS_OK)
    status = side_open(&backend->side, error);
  for (int i = 0; i < config->in_flight && status == STATUS_OK; i++, backend->slot_count++)
    status = lane_open(backend, &backend->slots[i], error);
  uint64_t share = backend->memory_total / 32 / (uint64_t)config->in_flight;
  backend->staging_most = share < STAGING_ADDRESSES ? share : STAGING_ADDRESSES;
  atomic_fetch_add_explicit(&lanes_all, backend->slot_count, memory_order_relaxed);
  return status;
}

void direct_close(struct backend *backend) {
  (void)cudaDeviceSynchronize();
  for (int i = 0; i < SLOTS_MAX; i++) {
    selector_close(backend->slots[i].selector);
    memo_close(backend->slots[i].memo);
  }
  atomic_fetch_sub_explicit(&lanes_all, backend->slot_count, memory_order_relaxed);
}
