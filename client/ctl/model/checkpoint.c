#include "checkpoint.h"

#include "../../../proto/weights/gptq.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static enum status parse(struct checkpoint *checkpoint, struct error *error) {
  uint64_t json_bytes;
  enum status status = safetensors_length(checkpoint->map, checkpoint->bytes, checkpoint->bytes, &json_bytes, error);
  if (status == STATUS_OK)
    status = safetensors_parse((const char *)checkpoint->map + SAFETENSORS_LENGTH_BYTES, json_bytes, checkpoint->bytes,
                               &checkpoint->file, error);
  if (status == STATUS_OK)
    return status;
  char sentence[ERROR_TEXT_BYTES];
  snprintf(sentence, sizeof sentence, "%s", error->text);
  return error_set(error, status, "%s: %s", safetensors_show(checkpoint->path).text, sentence);
}

enum status checkpoint_open(struct checkpoint *checkpoint, const char *path, struct error *error) {
  struct stat about;
  *checkpoint = (struct checkpoint){.path = path};
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe would wait for who writes */
  if (fd < 0)
    return error_set(error, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_SYSTEM, "%s: %s", path, strerror(errno));
  bool regular = fstat(fd, &about) == 0 && S_ISREG(about.st_mode);
  void *map =
      regular && about.st_size > 0 ? mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
  close(fd);
  if (map == MAP_FAILED)
    return error_set(error, STATUS_BAD_FILE, "%s: no regular file with anything in it", path);
  checkpoint->map = map;
  checkpoint->bytes = (size_t)about.st_size;
  return parse(checkpoint, error);
}

void checkpoint_close(struct checkpoint *checkpoint) {
  safetensors_free(&checkpoint->file);
  if (checkpoint->map != NULL)
    munmap((void *)(uintptr_t)checkpoint->map, checkpoint->bytes);
}

bool checkpoint_is_real(const struct safetensors_tensor *tensor) {
  return tensor->rank == 2 && tensor->elements > 0 &&
         (tensor->dtype == DTYPE_F32 || tensor->dtype == DTYPE_F16 || tensor->dtype == DTYPE_BF16);
}

enum status checkpoint_rows(const struct checkpoint *checkpoint, const struct safetensors_tensor *tensor, size_t begin,
                            size_t count, float most, float *out, struct error *error) {
  size_t columns = tensor->shape[1], first = begin * columns, element = tensor->dtype == DTYPE_F32 ? 4 : 2;
  safetensors_to_f32(tensor->dtype, checkpoint->map + tensor->begin + first * element, count * columns, out);
  for (size_t i = 0; i < count * columns; i++)
    if (!(fabsf(out[i]) <= most))
      return error_set(error, STATUS_BAD_FILE, "%s: tensor '%s': %g in row %zu, column %zu must be within +-%g",
                       checkpoint->path, safetensors_show(tensor->name).text, (double)out[i], (first + i) / columns,
                       (first + i) % columns, (double)most);
  return STATUS_OK;
}

/* ---- a file of codes */

static bool announce(json_t *header, const char *name, const char *dtype, uint64_t rows, uint64_t columns,
                     uint64_t element, uint64_t *offset) {
  uint64_t begin = *offset;
  *offset += rows * columns * element;
  return json_object_set_new(header, name,
                             json_pack("{s:s, s:[I,I], s:[I,I]}", "dtype", dtype, "shape", (json_int_t)rows,
                                       (json_int_t)columns, "data_offsets", (json_int_t)begin, (json_int_t)*offset)) ==
         0;
}

/* NAME_scale, to be freed. */
static char *scale_name(const char *name) {
  char *text;
  return asprintf(&text, "%s_scale", name) >= 0 ? text : NULL;
}

static enum status announce_tensor(json_t *header, const struct safetensors_tensor *tensor,
                                   const struct gptq_grid *grid, uint64_t *offset, struct error *error) {
  uint64_t n = tensor->shape[0], k = tensor->shape[1];
  char *scale = scale_name(tensor->name);
  /* the tensor or the scales may come first */
  const char *twice = json_object_get(header, tensor->name) != NULL             ? tensor->name
                      : scale != NULL && json_object_get(header, scale) != NULL ? scale
                                                                                : NULL;
  enum status status = STATUS_OK;
  if (twice != NULL)
    status = error_set(error, STATUS_EXISTS,
                       "'%s' would be the name of codes and of scales; --tensor says which weights are wanted",
                       safetensors_show(twice).text);
  else if (scale == NULL ||
           !announce(header, scale, grid->int8 ? "F32" : "F16", n, gptq_scales(grid, k), grid->int8 ? 4 : 2, offset) ||
           !announce(header, tensor->name,
                     grid->int8   ? "I8"
                     : grid->int4 ? "U16"
                                  : "U8",
                     n, grid->int8 ? k : k / 4, grid->int4 ? 2 : 1, offset))
    status = error_set(error, STATUS_NOMEM, "no memory for the header");
  free(scale);
  return status;
}

enum status checkpoint_write_header(FILE *out, const struct safetensors_tensor *const *tensors, size_t count,
                                    const struct gptq_grid *grid, struct error *error) {
  uint64_t offset = 0;
  json_t *header = json_object();
  enum status status = header != NULL ? STATUS_OK : error_set(error, STATUS_NOMEM, "no memory for the header");
  for (size_t i = 0; i < count && status == STATUS_OK; i++)
    status = announce_tensor(header, tensors[i], grid, &offset, error);
  char *text = status == STATUS_OK ? json_dumps(header, JSON_COMPACT) : NULL;
  json_decref(header);
  if (status != STATUS_OK)
    return status;
  if (text == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for the header");
  uint64_t length = strlen(text), padded = (length + 7) / 8 * 8;
  uint8_t first[SAFETENSORS_LENGTH_BYTES] = {0};
  for (size_t i = 0; i < sizeof first; i++)
    first[i] = (uint8_t)(padded >> (8 * i));
  bool good = fwrite(first, sizeof first, 1, out) == 1 && fprintf(out, "%s%*s", text, (int)(padded - length), "") >= 0;
  free(text);
  return good ? STATUS_OK : error_set(error, STATUS_SYSTEM, "writing the header: %s", strerror(errno));
}
