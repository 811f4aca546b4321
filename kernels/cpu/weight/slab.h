/* Memory for weights that outlives its process: a memfd, sealed against a change of size. It is written through the
 * descriptor and read through a mapping that cannot be written, so that no stray store of a kernel spoils a weight. */
#pragma once

#include "../../../proto/status.h"

#include <stdbool.h>
#include <stdint.h>

struct backend_slab;

/* *fd becomes the caller's; the slab keeps a descriptor of its own. NOMEM where the machine has not as much free. */
MUST_CHECK enum status cpu_slab_create(uint64_t bytes, int *fd, struct backend_slab **out, struct error *error);
/* BAD_DESCRIPTOR unless `fd` is a memfd of `bytes` that nobody can shrink. */
MUST_CHECK enum status cpu_slab_import(int fd, uint64_t bytes, struct backend_slab **out, struct error *error);
void cpu_slab_close(struct backend_slab *slab);

/* Before [offset, offset + bytes) is written for the first time: takes pages of 2 MiB for it, where the system lets it,
 * which are several times faster to write than small ones that are joined later. */
void cpu_slab_prepare(struct backend_slab *slab, uint64_t offset, uint64_t bytes);
MUST_CHECK enum status cpu_slab_write(struct backend_slab *slab, uint64_t offset, const void *data, uint64_t bytes,
                                      struct error *error);
/* NULL with *error where [offset, offset + bytes) is not in the slab. Valid until the slab is closed. */
const uint8_t *cpu_slab_read(const struct backend_slab *slab, uint64_t offset, uint64_t bytes, struct error *error);
/* Maps the pages of such a range now, so that the first product that reads them does not wait for them. `huge`: makes
 * them pages of 2 MiB, with what lies between the range and their ends, where the system lets it. */
void cpu_slab_touch(const struct backend_slab *slab, uint64_t offset, uint64_t bytes, bool huge);
