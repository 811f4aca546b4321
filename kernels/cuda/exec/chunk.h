/* One run of rows of one product, from where it is staged to where its y goes; all of it queued on a slot's stream. */
#pragma once

#include "../state.h"
#include "chain.h"
#include "staging.h"

struct chunk {
  struct slot *slot;
  const struct backend_job *job; /* types, bias and kernel of this product; its x and y are those of the slot's job */
  const struct backend_weight *weight;
  struct staging at;
  int64_t row, rows, rows_padded; /* `row` of the slot's job */
  bool stays;                     /* y stays on the device, at v: the clock or the next product wants it there */
  bool follows;                   /* the kernel ahead lets the product start while it runs */
  bool in_row;                    /* and is a product, too, or little work behind one */
  void **y_rows;                  /* where the quantizer leaves pointers to rows of y that lie apart; NULL: nowhere */
  const void *v;                  /* where y has stayed */
  uint64_t v_stride;
};

/* What lies in staging memory at an offset. */
void *chunk_staged(const struct chunk *chunk, uint64_t offset);
/* True where x already is what the product reads. */
bool chunk_as_is(const struct backend_job *job);
/* True where x is quantized, or put in another order, on the device. */
bool chunk_quantizes(const struct chunk *chunk);
/* What the weight wants done to x, which is staged as it comes in rows of weight.k, and codes made of it where the
 * product reads those. */
cudaError_t chunk_input(const struct chunk *chunk);
/* Copies the bias in. */
cudaError_t chunk_bias(const struct chunk *chunk);
/* Copies x in and quantizes it where the product wants that, with the bias ahead of the first rows. */
MUST_CHECK enum status chunk_stage(struct chunk *chunk, struct error *error);
/* The same in two halves: x as it comes, and then what the product reads made of it. */
MUST_CHECK enum status chunk_stage_bare(struct chunk *chunk, struct error *error);
MUST_CHECK enum status chunk_quantize_bare(const struct chunk *chunk, struct error *error);
/* Where rows of y with so many bytes are to be written: in place where the device can reach it and they belong to one
 * job, else to `at`, from where chunk_y_out brings them there. */
void *chunk_y(const struct chunk *chunk, uint64_t at, uint64_t row_bytes, uint64_t *stride);
cudaError_t chunk_y_out(const struct chunk *chunk, void *y, uint64_t stride);
/* Where a kernel of ours writes what is to become y, or v where y stays; and then on its way where it does not. */
void *chunk_y_target(struct chunk *chunk, uint64_t *stride);
cudaError_t chunk_y_done(const struct chunk *chunk, void *y, uint64_t stride);
/* The same where sums are y. */
cudaError_t chunk_sums_done(struct chunk *chunk);
