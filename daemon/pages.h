/* Memory that a weight is written to. */
#pragma once

#include "bands.h"

/* Takes large pages for a mapping of memfd_map that nothing has been written to, by all threads: they cost a tenth of
 * what small ones do, a page fault each. CANCELLED where the watch says stop. */
MUST_CHECK enum status pages_take(uint8_t *at, uint64_t bytes, unsigned threads, struct watch *watch,
                                  struct error *error);
