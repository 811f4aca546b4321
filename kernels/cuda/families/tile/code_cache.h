/* Compiled kernels kept in files: one a key, written to a temporary name, synced and renamed. What is damaged, of
 * another key or not a regular file is a miss. */
#pragma once

#include "../../../../proto/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CODE_KEY_BYTES = 512, CODE_BYTES_MOST = 16 << 20 };

/* FNV-1a, 64 bits (Fowler, Noll, Vo), going on from `seed`. Tells files apart; not for hostile ones. */
uint64_t code_hash(const void *data, size_t bytes, uint64_t seed);

/* `key`: all that the code depends on, as text in one line. The caller frees *code. */
bool code_cache_load(const char *folder, const char *key, void **code, size_t *bytes);
/* Makes the folder where it is missing. SYSTEM with the reason. */
MUST_CHECK enum status code_cache_save(const char *folder, const char *key, const void *code, size_t bytes,
                                       struct error *error);
