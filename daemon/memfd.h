/* Sealed shared memory. */
#pragma once

#include "../proto/status.h"

#include <stdbool.h>
#include <stdint.h>

#define MEMFD_LARGE_PAGE ((uint64_t)2 << 20)

/* A memfd of `bytes`, zeroed, sealed against shrinking, growing and further seals. */
MUST_CHECK enum status memfd_make(const char *name, uint64_t bytes, int *fd, struct error *error);
/* The same, growable and unsealed, to be filled and sealed by memfd_freeze. */
MUST_CHECK enum status memfd_make_open(const char *name, uint64_t bytes, int *fd, struct error *error);
/* Seals against writing too; all writable mappings must be gone. */
MUST_CHECK enum status memfd_freeze(int fd, struct error *error);
/* A frozen memfd with these bytes. */
MUST_CHECK enum status memfd_fill(const char *name, const void *bytes, uint64_t length, int *fd, struct error *error);
/* BAD_DESCRIPTOR unless `fd` is a memfd of exactly `bytes`, sealed against shrinking (and writing, if `frozen`). */
MUST_CHECK enum status memfd_check(int fd, uint64_t bytes, bool frozen, struct error *error);
/* BAD_DESCRIPTOR unless `fd` is a memfd of exactly `bytes` that somebody else made and that is safe to map for reading
 * and writing: on tmpfs (huge pages may run out under a mapping, which then faults), and sealed so that neither its
 * size nor what may be done with it can change. */
MUST_CHECK enum status memfd_check_foreign(int fd, uint64_t bytes, struct error *error);
/* Maps all of it, shared, from a multiple of MEMFD_LARGE_PAGE on. NULL with *error otherwise. Give back with munmap. */
void *memfd_map(int fd, uint64_t bytes, bool writable, struct error *error);
/* Of a memfd that nothing has been written to: takes pages of MEMFD_LARGE_PAGE for `bytes` from `at` on, a multiple of
 * that in a writable mapping. Where the system does not let it, or is slow at it, they come one by one, small. */
void memfd_take_large_pages(uint8_t *at, uint64_t bytes);
