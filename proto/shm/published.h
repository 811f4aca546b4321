/* The tuned kernels of one device, for processes that launch kernels themselves: a table in memory that one process
 * writes and others have mapped for reading. A row is updated in place under a sequence lock: whoever reads one while
 * it is written reads it again. Nobody waits: what cannot be read after some tries counts as not there.
 *
 * The memory is a header of PUBLISHED_HEADER_BYTES and `rows` rows of PUBLISHED_ROW_BYTES. */
#pragma once

#include "../status.h"

#include <stdbool.h>
#include <stdint.h>

#define PUBLISHED_MAGIC 0x626e7574u
enum {
  PUBLISHED_VERSION = 1,
  PUBLISHED_ROWS = 4096, /* that gemmd makes; a power of two */
  PUBLISHED_ROWS_MOST = 1 << 20,
  PUBLISHED_HEADER_BYTES = 64,
  PUBLISHED_ROW_BYTES = 832,
  PUBLISHED_PROBES = 16, /* rows that one shape may be in */
};

/* Where the code of a kernel comes from. The numbers travel. */
enum published_kind {
  PUBLISHED_NONE = 0,
  PUBLISHED_BUILT_IN = 1,
  PUBLISHED_LIBRARY = 2,  /* somebody else's library: `identity` names its version, too */
  PUBLISHED_COMPILED = 3, /* made at run time */
};

/* What was found for a shape. Texts end with a NUL. */
struct published_row {
  char shape[128];    /* "int8-row-4096x4096-f16-f16-none-m64" */
  char identity[128]; /* that the times depend on: device, driver, library, source of the kernels */
  char kernel[256];   /* "cpu threads=2 block_m=16" */
  char built_in[256]; /* the fastest that needs neither library nor compiler, where `kernel` does; "": none is known */
  enum published_kind kind;        /* of `kernel` */
  uint64_t kernel_ns, built_in_ns; /* of one launch; 0: not known */
};

uint64_t published_bytes(uint32_t rows);

/* ---- the one that writes: one thread. `memory` is aligned to 64. */

/* In memory of published_bytes(rows), zeroed; `rows` is a power of two from PUBLISHED_PROBES on. */
void published_init(void *memory, uint32_t rows);
/* Puts a row in, or in the place of that of the same shape; where all places are taken, in that of one of them. */
void published_put(void *memory, const struct published_row *row);
/* Takes that of the shape out, if there is one. */
void published_remove(void *memory, const char *shape);

/* ---- those that read: any thread of any process. What is read is a copy. */

struct published {
  const uint8_t *memory; /* not owned */
  uint32_t rows;
};

/* PROTOCOL with the reason where the memory, of `bytes`, is no such table, VERSION where it is one of another kind. */
MUST_CHECK enum status published_open(struct published *out, const void *memory, uint64_t bytes, struct error *error);
/* Changes whenever a row does. */
uint64_t published_generation(const struct published *published);
/* False where there is no row of that shape. */
bool published_find(const struct published *published, const char *shape, struct published_row *out);
/* Row `index` < rows; false where it is empty. */
bool published_at(const struct published *published, uint32_t index, struct published_row *out);
