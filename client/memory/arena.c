#include "arena.h"

void *gemmd_alloc(gemmd_session *session, size_t bytes) {
  uint64_t offset;
  if (!session->arena) {
    (void)session_gone(session);
    return NULL;
  }
  if (!heap_alloc(&session->heap, bytes, &offset)) {
    (void)error_set(&session->error, STATUS_NOMEM,
                    "no room for %zu bytes in the arena, the largest free piece has %llu", bytes,
                    (unsigned long long)heap_largest(&session->heap));
    return NULL;
  }
  return session->arena + offset;
}

void gemmd_free(gemmd_session *session, void *memory) {
  if (!memory)
    return;
  /* A foreign pointer gives some offset that was never handed out: the subtraction wraps, the search finds nothing. */
  uint64_t offset = (uintptr_t)memory - (uintptr_t)session->arena;
  if (!session->arena || !heap_free(&session->heap, offset))
    (void)error_set(&session->error, STATUS_INVALID, "memory to free is not from gemmd_alloc of this session");
}

enum status arena_offset(struct gemmd_session *session, const void *tensor, const char *what, uint64_t *offset) {
  /* Compared as numbers: the pointer may be into anything. */
  uintptr_t base = (uintptr_t)session->arena, address = (uintptr_t)tensor;
  if (tensor == NULL)
    return error_set(&session->error, STATUS_INVALID, "%s must not be NULL", what);
  if (address < base || address - base < session->tensor_offset || address - base >= session->arena_bytes)
    return error_set(&session->error, STATUS_INVALID, "%s must lie in the session's arena (gemmd_alloc)", what);
  *offset = address - base;
  return STATUS_OK;
}
