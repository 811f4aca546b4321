/* The files of the ggml backend share this; private.
 *
 * One device, one session. The weights of a model are handed to gemmd when its first product is asked for, and
 * forgotten when somebody writes to them through their buffer. Where gemmd lends them, products are computed in this
 * process by libgemmclient-direct, on the threads that ggml's CPU backend has too; else rows go through the session's
 * arena in pieces, so that its size bounds nothing but the rows in flight. */
#ifndef CLIENT_GGML_GEMMD_GGML_H
#define CLIENT_GGML_GEMMD_GGML_H

#include <gemmclient.h>
#include <gemmclient_direct.h>
#include <ggml-backend-impl.h>
#include <ggml.h>

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  SLOTS = 2,            /* while the rows of one are computed, the other is filled or emptied */
  SLOT_BYTES = 4 << 20, /* of rows of x, and of y */
  TYPES = GGML_TYPE_COUNT
};

/* Rows of x as a weight takes them, and y where ggml's place for it will not do; grows. */
struct scratch {
  void *data; /* owned */
  size_t bytes;
};

struct device {
  pthread_mutex_t lock; /* around everything below: ggml may compute from several threads */
  gemmd_session *session;
  gemmd_direct *direct; /* NULL: products by gemmd's worker */
  bool direct_tried;
  int threads; /* that compute direct products; 0: one for each core */
  struct {
    uint8_t *x, *y;
  } slots[SLOTS];
  struct scratch x, y;
  const struct ggml_tensor *x_source; /* whose rows lie in `x`; NULL: none's. Good for one graph */
  enum gemmd_type x_type;
  bool has_int4; /* gemmd's backend computes INT4A8 */
  char description[128];
  uint64_t memory_total, memory_used; /* of gemmd's devices, when the session began */
};

/* ---- device.c */

/* The only one; connected before anything else is called. */
struct device *device_get(void);
/* Once a process, before ggml sees a device. False, after a line that says why, where gemmd does not answer. */
bool device_connect(void);

/* ---- buffer.c */

/* What this process has open for a tensor in a buffer. */
struct open_weight {
  const uint8_t *data;
  size_t bytes;
  enum ggml_type type;
  gemmd_weight *weight;
  gemmd_direct_weight *direct; /* NULL: not lent */
};

/* context of a buffer */
struct memory {
  uint8_t *base;
  bool owned;                   /* else the caller's: a mapped file */
  bool handed;                  /* its weights have been handed over */
  struct ggml_tensor **tensors; /* owned; that lie in it, as ggml told. Weights' tensors live as long as the buffer */
  size_t tensor_count, tensor_capacity;
  struct open_weight *open; /* owned */
  size_t open_count, open_capacity;
};

ggml_backend_buffer_type_t buffer_type(void);
/* A buffer over memory that outlives it and that nobody writes to. */
ggml_backend_buffer_t buffer_from_pointer(void *pointer, size_t bytes);
/* By its type: ggml asks about operations with a buffer of no size, which has nothing but that. */
bool buffer_is_ours(ggml_backend_buffer_t buffer);

/* ---- report.c: what is said of a model, on stderr */

/* ggml asked for a weight to be put into our memory, and it stays in the CPU's. */
void report_left(const struct ggml_tensor *weight);
/* The same, and it is to come to ours. */
void report_coming(void);
/* A context begins: where no weight is to come, no product will, and the line is printed now. */
void report_begin(void);
/* gemmd has it, new or from an earlier process. `off`: relative error of its values in gemmd, 0: none. */
void report_taken(const struct ggml_tensor *weight, uint64_t bytes, bool lent, double off);
void report_refused(const struct ggml_tensor *weight, const char *why);
/* One line of what was told since the last. */
void report_print(void);

/* ---- types.c */

/* Types whose values gemmd can hold. */
bool type_supported(enum ggml_type type);
/* What a weight of that type is in gemmd. */
enum gemmd_format type_format(enum ggml_type type);
enum gemmd_scale type_scale(enum ggml_type type);
/* The type of rows that a weight of that type is multiplied with. */
enum gemmd_type type_x(enum ggml_type type);
/* count values as f16 or bf16; to nearest, ties to even. */
void rows_convert(const float *from, void *to, int64_t count, enum gemmd_type type);

/* ---- weight.c */

/* A weight that gemmd could have: a matrix that nothing computes. */
bool weight_fits(const struct ggml_tensor *tensor);
/* The open weight of a tensor in one of our buffers: as it was opened before, as gemmd knows it by name from an earlier
 * process, or loaded now; with it all others of a model's buffer. NULL where gemmd refused; gemmd_error says why. Valid
 * until the next call. Under the device's lock. */
const struct open_weight *weight_get(struct device *device, const struct ggml_tensor *tensor);
/* The same for one that gemmd does not have any more. */
const struct open_weight *weight_hand_again(struct device *device, const struct ggml_tensor *tensor);
/* Closes what lies between begin and begin + bytes. Takes the device's lock. */
void weight_forget(struct device *device, struct memory *memory, const uint8_t *begin, size_t bytes);

/* ---- encode.c */

/* A safetensors file in memory. */
struct file {
  int fd;
  uint8_t *map, *data; /* data: after the header */
  size_t bytes;
};

/* The tensor as gemmd loads it: "weight", and "weight_scale" of codes. errno says why not. */
bool encode(const struct ggml_tensor *tensor, struct file *out);
void encode_close(struct file *file);
/* How far gemmd's values of it are from ggml's: the root of the mean square over that of the values. */
double encode_error(const struct ggml_tensor *tensor);

/* ---- direct.c */

/* Opens the device for direct products, once. Where gemmd does not lend, products are its worker's. */
void direct_open(struct device *device);
/* y [rows, n] = x [rows, k] * W^T. GEMMD_OK or a negative status; gemmd_direct_error says why. */
int direct_compute(struct device *device, const struct open_weight *weight, const struct ggml_tensor *x,
                   struct ggml_tensor *y);

/* ---- product.c */

/* node = MUL_MAT of a supported weight and contiguous f32 rows. A negative status, after a line that says why. Under
 * the device's lock. */
int product_compute(struct device *device, struct ggml_tensor *node);

#endif
