#include "load.h"

#include "../hash.h"
#include "../memfd.h"
#include "../pages.h"
#include "../room.h"
#include "convert.h"
#include "file.h"
#include "input.h"
#include "raw.h"
#include "source.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* What is loaded: one weight, or as many alike as it has experts. */
struct load {
  const struct files *files;
  const struct message_weight_load *request;
  struct gemm_weight weight;
  struct gemm_layout layout;
  enum gemm_type numbers; /* that a device makes the weight of; 0: it is made here */
  bool ternary;
  uint64_t bytes; /* of what is made */
  unsigned threads;
  struct watch watch;
};

static const char *first_name(const struct source *source) {
  return source->pieces[0].from.name;
}

/* One expert more, which must be as the first one is. */
static enum status add_expert(struct load *load, int64_t expert, struct error *error) {
  struct source source;
  enum status status = source_resolve(&load->files->model, load->request, expert, &source, error);
  if (status == STATUS_OK)
    status = input_find(load->files, &source, error);
  input_free(&source);
  if (status != STATUS_OK)
    return status;
  struct gemm_weight one = source.weight, *first = &load->weight;
  if (expert > 0 && (one.n != first->n || one.k != first->k || one.scale != first->scale || one.input != first->input))
    return error_set(error, STATUS_UNSUPPORTED,
                     "'%s' makes an expert of %lld x %lld with scales of mode %s, the first one has %lld x %lld and %s",
                     safetensors_show(first_name(&source)).text, (long long)one.n, (long long)one.k,
                     gemm_scale_name(one.scale), (long long)first->n, (long long)first->k,
                     gemm_scale_name(first->scale));
  load->weight = one;
  load->ternary = source.method == GEMM_METHOD_TERNARY;
  load->numbers = load->request->raw && load->request->experts == 0 ? raw_type(&source) : 0;
  load->watch.total += convert_bytes(&source);
  return STATUS_OK;
}

static enum status resolve(struct load *load, struct error *error) {
  enum status status = add_expert(load, 0, error);
  for (int64_t e = 1; status == STATUS_OK && e < load->request->experts; e++)
    status = add_expert(load, e, error);
  load->weight.experts = load->request->experts;
  if (status == STATUS_OK)
    status = gemm_layout_compute(&load->weight, &load->layout, error);
  load->bytes = load->layout.total_bytes;
  if (load->numbers != 0) /* no more than the file has */
    load->bytes = (uint64_t)load->weight.n * (uint64_t)load->weight.k * gemm_type_bytes(load->numbers);
  if (status == STATUS_OK)
    load->watch.total += load->bytes; /* it is hashed */
  return status;
}

/* An expert's codes, scales, zero points and factors lie where they lie among those of all. */
static enum status convert_expert(struct load *load, int64_t expert, uint8_t *canonical, struct error *error) {
  struct source source;
  enum status status = source_resolve(&load->files->model, load->request, expert, &source, error);
  if (status == STATUS_OK)
    status = input_find(load->files, &source, error);
  uint64_t before = (uint64_t)expert * source.layout.codes_bytes;
  source.layout.scales_offset = load->layout.scales_offset + (uint64_t)expert * source.layout.scales_bytes - before;
  source.layout.zeros_offset = load->layout.zeros_offset + (uint64_t)expert * source.layout.zeros_bytes - before;
  source.layout.factors_offset = load->layout.factors_offset + (uint64_t)expert * source.layout.factors_bytes - before;
  if (status == STATUS_OK)
    status = convert_run(load->files, &source, canonical + before, load->threads, &load->watch, error);
  if (status == STATUS_OK)
    input_write(&source, canonical);
  input_free(&source);
  return status;
}

static enum status copy_numbers(struct load *load, uint8_t *out, struct error *error) {
  struct source source;
  enum status status = source_resolve(&load->files->model, load->request, 0, &source, error);
  return status == STATUS_OK ? raw_run(load->files, &source, out, load->threads, &load->watch, error) : status;
}

static enum status fill(struct load *load, uint8_t *canonical, struct message_load_done *done, struct error *error) {
  enum status status = pages_take(canonical, load->bytes, load->threads, &load->watch, error);
  if (status == STATUS_OK && load->numbers != 0)
    status = copy_numbers(load, canonical, error);
  for (int64_t e = 0; status == STATUS_OK && load->numbers == 0 && e < gemm_matrices(&load->weight); e++)
    status = convert_expert(load, e, canonical, error);
  if (status != STATUS_OK)
    return status;
  *done = (struct message_load_done){.n = load->weight.n,
                                     .k = load->weight.k,
                                     .format = load->weight.format,
                                     .scale = load->weight.scale,
                                     .input = load->weight.input,
                                     .experts = (uint32_t)load->weight.experts,
                                     .bytes = load->bytes,
                                     .numbers = load->numbers,
                                     .ternary = load->ternary && load->numbers != 0};
  if (load->request->old_hash && load->numbers == 0)
    tree_sequential(&load->weight, canonical, done->bytes, done->old_hash);
  status = hash_weight(&load->weight, canonical, done->bytes, load->threads, &load->watch, done->hash, error);
  if (load->numbers != 0)
    tree_numbers(load->numbers, load->ternary, done->hash);
  return status;
}

static enum status load_tensors(struct load *load, struct message_load_done *done, int *memfd, struct error *error) {
  uint64_t bytes = load->bytes;
  int fd = -1;
  enum status status = room_for(bytes, error); /* a hostile file can be sparse and claim terabytes */
  if (status == STATUS_OK)
    status = memfd_make_open("gemmd-weight", bytes, &fd, error);
  if (status != STATUS_OK)
    return status;
  void *canonical = memfd_map(fd, bytes, true, error);
  if (canonical) {
    status = fill(load, canonical, done, error);
    munmap(canonical, bytes); /* sealing against writing needs it gone */
    if (status == STATUS_OK)
      status = memfd_freeze(fd, error);
  } else {
    status = error->status;
  }
  if (status == STATUS_OK)
    *memfd = fd;
  else
    close(fd);
  return status;
}

/* A matrix in memory is the one tensor that there is, by whatever name the weight is to have. */
static enum status open_files(struct files *files, struct message_weight_load *request, const int *fds, size_t count,
                              struct error *error) {
  if (request->matrix_type == 0)
    return files_open(files, fds, count, request->config, error);
  memcpy(request->tensor, request->name, sizeof request->tensor);
  const struct file_matrix matrix = {.name = request->tensor,
                                     .type = (enum gemm_type)request->matrix_type,
                                     .offset = request->matrix_offset,
                                     .n = request->matrix_n,
                                     .k = request->matrix_k};
  return files_open_matrix(files, fds[0], &matrix, error);
}

enum status load_run(const struct message_weight_load *request, const int *fds, size_t fd_count, unsigned threads,
                     bool (*tick)(void *user, uint64_t done, uint64_t total), void *user,
                     struct message_load_done *done, int *memfd, struct error *error) {
  struct files files;
  struct message_weight_load wish = *request;
  struct load load = {.files = &files, .request = &wish, .threads = threads, .watch = {.tick = tick, .user = user}};
  enum status status = open_files(&files, &wish, fds, fd_count, error);
  if (status == STATUS_OK)
    status = resolve(&load, error);
  if (status == STATUS_OK)
    status = load_tensors(&load, done, memfd, error);
  files_close(&files);
  return status;
}
