/* A weight in a slab, as products take it. */
#pragma once

#include "../micro/micro.h"
#include "layout.h"

struct library_copy;

struct backend_weight {
  struct gemm_weight shape;
  struct cpu_layout layout;
  const uint8_t *panels;          /* of the slab; layout.total_bytes */
  struct backend_weight *experts; /* owned; each of the shape's as a weight by itself, which has none. NULL: none */
  struct library_copy *copy;      /* library.h's; NULL: none */
  const uint32_t *order;          /* of the slab, [shape.k]; NULL: x is read in its own order */
  float x_scale;                  /* with GEMM_INPUT_SCALE */
  bool extreme;                   /* a scale is too large or too small for sums in f32; with experts, one of any */
  bool ordinary;                  /* every scale is 0 or a number that f32 products stay within f32 with */
};

/* Fills in what follows from the panels and the scales. */
void cpu_weight_inspect(struct backend_weight *weight);
/* Panel `panel`, from element k on. `k` is a multiple of 4, where there are group scales of 128. */
const uint8_t *cpu_weight_panel(const struct backend_weight *weight, int64_t panel, int64_t k);
/* True for a number by which a row or column may be scaled in f32: neither the product with another of them and an s32
 * sum overflows, nor does it lose bits. */
bool cpu_weight_is_ordinary(double scale);
/* Scales of the panel's columns; 1 where there are none or they are in the sums already. */
const float *cpu_weight_scales(const struct backend_weight *weight, int64_t panel);
/* The scale of a 128x128 block. */
float cpu_weight_block_scale(const struct backend_weight *weight, int64_t panel, int64_t group);

/* One element of W without its scale, and the scale that it has: for whom speed does not matter. */
double cpu_weight_code(const struct backend_weight *weight, int64_t n, int64_t k);
double cpu_weight_scale(const struct backend_weight *weight, int64_t n, int64_t k);

/* All of W, which has no experts, as it was stored, into zeros of layout.canonical.total_bytes. */
void cpu_weight_canonical(const struct backend_weight *weight, uint8_t *canonical);
