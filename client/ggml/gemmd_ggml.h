/* The files of the ggml backend share this; private.
 *
 * One device, one session. Weights are handed to gemmd when they are first used and forgotten when somebody writes to
 * them; every write passes through this backend's buffers, because they do not count as host memory. Rows go through
 * the session's arena in pieces, so that its size bounds nothing but the rows in flight. */
#ifndef CLIENT_GGML_GEMMD_GGML_H
#define CLIENT_GGML_GEMMD_GGML_H

#include <gemmclient.h>
#include <ggml-backend-impl.h>
#include <ggml.h>

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  SLOTS = 2,           /* while the rows of one are computed, the other is filled or emptied */
  SLOT_BYTES = 4 << 20 /* of rows of x, and of y */
};

struct device {
  pthread_mutex_t lock; /* around everything below: ggml may compute from several threads */
  gemmd_session *session;
  struct {
    uint8_t *x, *y;
  } slots[SLOTS];
  char description[128];
  uint64_t memory_total, memory_used; /* of gemmd's devices, when the session began */
};

/* ---- backend.c */

/* The only one; connected before anything else is called. */
struct device *device_get(void);

/* ---- buffer.c */

/* What this process has open for a tensor in a buffer. */
struct open_weight {
  const uint8_t *data;
  size_t bytes;
  enum ggml_type type;
  gemmd_weight *weight;
};

/* context of a buffer */
struct memory {
  uint8_t *base;
  bool owned; /* else the caller's: a mapped file */
  struct open_weight *open;
  size_t open_count, open_capacity;
};

ggml_backend_buffer_type_t buffer_type(void);
/* A buffer over memory that outlives it and that nobody writes to. */
ggml_backend_buffer_t buffer_from_pointer(void *pointer, size_t bytes);
bool buffer_is_ours(ggml_backend_buffer_t buffer);

/* ---- weight.c */

/* Types whose values gemmd can hold. */
bool weight_type_supported(enum ggml_type type);
/* The open weight of a tensor in one of our buffers: as it was opened before, as gemmd knows it by name from an earlier
 * process, or loaded now. NULL where gemmd refused; gemmd_error says why. Under the device's lock. */
gemmd_weight *weight_get(struct device *device, const struct ggml_tensor *tensor);
/* Closes what lies between begin and begin + bytes. Takes the device's lock. */
void weight_forget(struct device *device, struct memory *memory, const uint8_t *begin, size_t bytes);

/* ---- product.c */

/* node = MUL_MAT of a supported weight and contiguous f32 rows. A negative status; gemmd_error says why. Under the
 * device's lock. */
int product_compute(struct device *device, struct ggml_tensor *node);

#endif
