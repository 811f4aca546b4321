/* Memory that a client makes for itself, to be handed over. */
#ifndef TESTS_SEALED_H
#define TESTS_SEALED_H

#include <stdint.h>

/* A memfd of `bytes` zeros with these seals (F_SEAL_...). Where there is none, the process is aborted. */
int sealed_memfd(uint64_t bytes, int seals);

#endif
