#include "input.h"

#include "tiles.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SHOW(text_) safetensors_show(text_).text

static enum status differ(const struct source *source, uint32_t piece, const char *what, struct error *error) {
  return error_set(error, STATUS_UNSUPPORTED, "'%s' wants %s of x, '%s' another: they cannot be one weight",
                   SHOW(source->pieces[piece].from.name), what, SHOW(source->pieces[0].from.name));
}

static enum status check_scale(const struct import_weight *from, const struct import_input *input,
                               struct error *error) {
  if (!(input->input & GEMM_INPUT_SCALE) || (isfinite(input->scale) && input->scale >= 0x1p-126f))
    return STATUS_OK;
  return error_set(error, STATUS_BAD_FILE, "tensor '%s': x cannot be quantized by the scale %g",
                   SHOW(from->aux[IMPORT_X_SCALE]->tensor->name), (double)input->scale);
}

/* Piece `i` beside those before it. */
static enum status join(struct source *source, uint32_t i, const struct import_input *input, struct error *error) {
  const struct source_piece *piece = &source->pieces[i];
  bool ordered = (input->input & GEMM_INPUT_ORDER) != 0;
  if (ordered && source->weight.k != piece->from.k)
    return error_set(error, STATUS_UNSUPPORTED, "'%s' reads x in an order of its own: its columns cannot be cut",
                     SHOW(piece->from.name));
  if (i == 0) {
    source->weight.input = input->input;
    source->x_scale = input->scale;
    source->reorders = input->reorders;
    return STATUS_OK;
  }
  if (input->input != source->weight.input || input->reorders != source->reorders)
    return differ(source, i, "something", error);
  if (ordered && memcmp(input->order, source->order, (size_t)source->weight.k * sizeof *source->order) != 0)
    return differ(source, i, "an order", error);
  source->x_scale = input->scale > source->x_scale ? input->scale : source->x_scale;
  return STATUS_OK;
}

static enum status find(struct source *source, const struct tiles_aux *aux, struct error *error) {
  size_t bytes = (size_t)source->weight.k * sizeof(uint32_t);
  uint32_t *orders = calloc(2, bytes);
  enum status status = STATUS_OK;
  source->order = orders;
  if (orders == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for the order of %lld elements", (long long)source->weight.k);
  for (uint32_t i = 0; status == STATUS_OK && i < source->count; i++) {
    const struct import_weight *from = &source->pieces[i].from;
    struct import_input input = {.order = i == 0 ? orders : orders + source->weight.k};
    if (from->k != source->weight.k && (from->input & GEMM_INPUT_ORDER))
      return join(source, i, &(struct import_input){.input = GEMM_INPUT_ORDER}, error);
    if (from->importer->input)
      status = from->importer->input(from, &aux->data[i], &input, error);
    if (status == STATUS_OK)
      status = check_scale(from, &input, error);
    if (status == STATUS_OK)
      status = join(source, i, &input, error);
  }
  return status;
}

static bool asks(const struct source *source) {
  bool asked = false;
  for (uint32_t i = 0; i < source->count; i++)
    asked |= source->pieces[i].from.importer->input != NULL;
  return source->stored && asked;
}

enum status input_find(const struct files *files, struct source *source, struct error *error) {
  struct tiles_aux aux;
  if (!asks(source))
    return STATUS_OK;
  enum status status = tiles_aux_read(files, source, &aux, error);
  if (status == STATUS_OK)
    status = find(source, &aux, error);
  tiles_aux_free(&aux);
  return status == STATUS_OK ? gemm_layout_compute(&source->weight, &source->layout, error) : status;
}

void input_free(struct source *source) {
  free(source->order);
  source->order = NULL;
}

void input_reorder(const struct source *source, uint8_t *row, uint8_t *spare) {
  uint64_t k = (uint64_t)source->weight.k, bits = (uint64_t)gemm_format_facts(source->weight.format)->bits;
  uint64_t each = 8 / bits, mask = (1u << bits) - 1;
  memcpy(spare, row, k / each);
  memset(row, 0, k / each);
  for (uint64_t i = 0; i < k; i++) {
    uint64_t from = source->order[i];
    row[i / each] |= (uint8_t)((spare[from / each] >> from % each * bits & mask) << i % each * bits);
  }
}

void input_write(const struct source *source, void *canonical) {
  const struct gemm_layout *layout = &source->layout;
  uint8_t *to = canonical;
  if (source->weight.input & GEMM_INPUT_SCALE)
    memcpy(to + layout->input_offset, &source->x_scale, sizeof source->x_scale);
  if (source->weight.input & GEMM_INPUT_ORDER)
    memcpy(to + layout->order_offset, source->order, (size_t)source->weight.k * sizeof *source->order);
}
