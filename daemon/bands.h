/* Work on a weight, cut into bands of rows that threads take in order, while the calling thread watches. */
#pragma once

#include "../proto/status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BANDS_TICK_MS = 50 };

struct watch {
  _Atomic uint64_t done; /* bytes; any thread adds */
  uint64_t total;
  /* Called by the thread that started the work, about every BANDS_TICK_MS; false: stop. */
  bool (*tick)(void *user, uint64_t done, uint64_t total);
  void *user;
};

struct bands {
  uint64_t count;
  size_t scratch_bytes; /* each thread's own */
  unsigned threads;
  enum status (*work)(void *context, uint64_t band, void *scratch, struct error *error); /* any thread */
  void *context;
};

/* Works on all bands. The error is that of the first band that failed, whatever the number of threads; CANCELLED
 * where the watch said stop. No thread is left when it returns. */
MUST_CHECK enum status bands_run(const struct bands *bands, struct watch *watch, struct error *error);

/* One for each core that this process may use, up to as many as are worth it. */
unsigned bands_threads(void);
