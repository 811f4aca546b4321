/* Tensors of ggml as weights of gemmd. Names there end in a hash of the tensor's bytes, so that the next process finds
 * the weight there. */
#include "gemmd_ggml.h"

#include <blake2.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST_COLUMNS = SLOT_BYTES / sizeof(float), MOST_INT8_COLUMNS = 131071 /* where exact sums end */ };

bool weight_fits(const struct ggml_tensor *tensor) {
  return type_supported(tensor->type) && tensor->op == GGML_OP_NONE && tensor->view_src == NULL &&
         ggml_is_contiguous(tensor) && tensor->ne[2] == 1 && tensor->ne[3] == 1 && tensor->ne[0] <= MOST_COLUMNS &&
         tensor->ne[1] <= MOST_COLUMNS && (tensor->type != GGML_TYPE_Q4_0 || device_get()->has_int4) &&
         (tensor->type != GGML_TYPE_Q8_0 || tensor->ne[0] <= MOST_INT8_COLUMNS);
}

/* ---- names */

static void weight_name(const struct ggml_tensor *tensor, char *out, size_t bytes) {
  uint8_t hash[16];
  char readable[GGML_MAX_NAME], hex[2 * sizeof hash + 1];
  blake2b_state state;
  blake2b_init(&state, sizeof hash);
  blake2b_update(&state, (const uint8_t *)tensor->ne, 2 * sizeof tensor->ne[0]);
  blake2b_update(&state, tensor->data, ggml_nbytes(tensor));
  blake2b_final(&state, hash, sizeof hash);
  for (size_t i = 0; i < sizeof hash; i++)
    snprintf(hex + 2 * i, 3, "%02x", hash[i]);
  snprintf(readable, sizeof readable, "%s", tensor->name[0] != '\0' ? tensor->name : "tensor");
  for (char *at = readable; *at != '\0'; at++)
    *at = *at > ' ' && *at <= '~' ? *at : '_';
  snprintf(out, bytes, "ggml/%s.%s.%s", readable, ggml_type_name(tensor->type), hex);
}

/* ---- loading */

static int weight_load(struct device *device, const struct ggml_tensor *tensor, const char *name) {
  struct file file;
  gemmd_load load = {.name = name,
                     .tensor = "weight",
                     .format = type_format(tensor->type),
                     .scale = type_scale(tensor->type),
                     .device = -1};
  if (!encode(tensor, &file)) {
    fprintf(stderr, "gemmd: no memory to hand %s over: %s\n", name, strerror(errno));
    return GEMMD_NOMEM;
  }
  int status = gemmd_weight_load(device->session, file.fd, &load, NULL);
  encode_close(&file);
  return status;
}

static int weight_find(struct device *device, const struct ggml_tensor *tensor, const char *name, gemmd_weight **out) {
  if (gemmd_weight_open(device->session, name, out) == GEMMD_OK)
    return GEMMD_OK;
  int status = weight_load(device, tensor, name);
  return status == GEMMD_OK || status == GEMMD_EXISTS /* somebody else was quicker */
             ? gemmd_weight_open(device->session, name, out)
             : status;
}

static bool weight_open(struct device *device, const struct ggml_tensor *tensor, struct open_weight *out) {
  char name[256];
  bool of_model = tensor->buffer->usage == GGML_BACKEND_BUFFER_USAGE_WEIGHTS;
  weight_name(tensor, name, sizeof name);
  *out = (struct open_weight){.data = tensor->data, .bytes = ggml_nbytes(tensor), .type = tensor->type};
  if (weight_find(device, tensor, name, &out->weight) != GEMMD_OK) {
    report_refused(tensor, gemmd_error(device->session));
    return false;
  }
  if (device->direct != NULL && gemmd_direct_borrow(device->direct, name, &out->direct) != GEMMD_OK)
    out->direct = NULL;
  /* What is no weight of a model will not be asked for by the next process. */
  if (!of_model)
    (void)gemmd_weight_unload(device->session, name, NULL);
  else
    report_taken(tensor, gemmd_weight_get_info(out->weight)->bytes, out->direct != NULL, encode_error(tensor));
  return true;
}

/* ---- what is open */

static const struct open_weight *find_open(const struct memory *memory, const struct ggml_tensor *tensor) {
  for (size_t i = 0; i < memory->open_count; i++) {
    const struct open_weight *open = &memory->open[i];
    const gemmd_weight_info *info = gemmd_weight_get_info(open->weight);
    if (open->data == tensor->data && open->type == tensor->type && info->n == tensor->ne[1] &&
        info->k == tensor->ne[0])
      return open;
  }
  return NULL;
}

/* The pages of a mapped file that gemmd has the content of: back to the kernel. Who reads them gets them anew. */
static void drop_pages(const struct ggml_tensor *tensor) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)tensor->data, end = begin + ggml_nbytes(tensor);
  begin = (begin + page - 1) / page * page;
  end = end / page * page;
  if (begin >= end)
    return;
#ifdef MADV_PAGEOUT
  (void)madvise((void *)begin, end - begin, MADV_PAGEOUT);
#endif
  (void)madvise((void *)begin, end - begin, MADV_DONTNEED);
}

static const struct open_weight *take(struct device *device, struct memory *memory, const struct ggml_tensor *tensor) {
  if (memory->open_count == memory->open_capacity) {
    size_t capacity = memory->open_capacity * 2 + 16;
    struct open_weight *grown = realloc(memory->open, capacity * sizeof *grown);
    if (grown == NULL)
      return NULL;
    memory->open = grown;
    memory->open_capacity = capacity;
  }
  struct open_weight *open = &memory->open[memory->open_count];
  if (!weight_open(device, tensor, open))
    return NULL;
  memory->open_count++;
  if (!memory->owned)
    drop_pages(tensor);
  return open;
}

/* All weights of a model at once, so that what is said of them comes before the first answer. */
static void take_all(struct device *device, struct memory *memory) {
  memory->handed = true;
  for (size_t i = 0; i < memory->tensor_count; i++)
    if (weight_fits(memory->tensors[i]) && find_open(memory, memory->tensors[i]) == NULL)
      (void)take(device, memory, memory->tensors[i]);
  report_print();
}

const struct open_weight *weight_get(struct device *device, const struct ggml_tensor *tensor) {
  struct memory *memory = tensor->buffer->context;
  direct_open(device);
  if (!memory->handed && tensor->buffer->usage == GGML_BACKEND_BUFFER_USAGE_WEIGHTS)
    take_all(device, memory);
  const struct open_weight *open = find_open(memory, tensor);
  return open != NULL ? open : take(device, memory, tensor);
}

static void forget(struct memory *memory, const uint8_t *begin, size_t bytes) {
  for (size_t i = memory->open_count; i-- > 0;) {
    struct open_weight *open = &memory->open[i];
    if (open->data < begin + bytes && begin < open->data + open->bytes) {
      (void)gemmd_direct_return(open->direct);
      gemmd_weight_close(open->weight);
      *open = memory->open[--memory->open_count];
    }
  }
}

const struct open_weight *weight_hand_again(struct device *device, const struct ggml_tensor *tensor) {
  forget(tensor->buffer->context, tensor->data, ggml_nbytes(tensor));
  return weight_get(device, tensor);
}

void weight_forget(struct device *device, struct memory *memory, const uint8_t *begin, size_t bytes) {
  pthread_mutex_lock(&device->lock);
  forget(memory, begin, bytes);
  pthread_mutex_unlock(&device->lock);
}
