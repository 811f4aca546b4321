/* Weights with the least output error: GPTQ (Frantar et al., "GPTQ: Accurate Post-Training Quantization for Generative
 * Pre-trained Transformers", 2022), for the grids of INT2, INT4 and INT8.
 *
 * With H = x^T x over the rows x that a layer sees, a row w of W that becomes q adds (w - q) H (w - q)^T to the squared
 * error of the layer's output. Columns are quantized one after the other, and what is still to come takes back what it
 * can of the errors made. That is done here with the Cholesky factor of H itself: where H + damping = L L^T, with the
 * column that goes first in the last place, column r is rounded from w_r + sum over i > r of (w_i - q_i) L_ir / L_rr,
 * which gives the codes of Frantar's algorithm and needs no inverse (Chee et al., "QuIP: 2-Bit Quantization of Large
 * Language Models With Guarantees", 2023, theorem 6). What is left of the error is the sum of the squares of what
 * rounding adds times L_rr, so that scales are compared by it without a product.
 *
 * A scale begins as the one that suits the weights: for INT2 and INT4 by least squares, of a group for what the errors
 * before it have made of its weights; for INT8 by the largest. Then it is searched: multiples of it, which clip more or
 * less, of which that with the least error of the output is kept. Groups go by falling sum of H's diagonal, and columns
 * within their group by falling diagonal, so that the layout of the format stays as it is. */
#pragma once

#include "../status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GPTQ_GROUP = 128 };

/* What codes are, and how many share a scale. A code is the number that it stands for: -1..2, -8..7 or -127..127. */
struct gptq_grid {
  bool int8;
  bool int4;   /* else INT2; scales of both are rounded to f16 */
  bool row;    /* a scale a row; else one for each GPTQ_GROUP columns. INT8 has only the first */
  bool search; /* multiples of the scale; else it stays what it begins as */
};

/* Scales of a row of k columns. */
size_t gptq_scales(const struct gptq_grid *grid, size_t k);

struct gptq {
  size_t k, groups;
  double *factor;   /* L, [k][k] */
  double *within;   /* [groups][128][128], of L's diagonal blocks: in row r 1 / L_rr, then L_ir / L_rr for i > r */
  uint32_t *column; /* [k]: which column of W is in this place; the last place goes first */
  uint32_t *group;  /* [groups]: groups in order of their places */
};

/* From H, [k][k] with its lower triangle filled, for any number of weights that see the same rows. `damping` times the
 * mean of H's diagonal is added to the diagonal. NOMEM; INVALID where H is 0, or not positive definite in spite of the
 * damping. Free with gptq_free, whatever is returned. */
MUST_CHECK enum status gptq_prepare(struct gptq *gptq, const double *h, size_t k, double damping, unsigned threads,
                                    struct error *error);
void gptq_free(struct gptq *gptq);

/* A matrix and what it becomes. */
struct gptq_weight {
  const float *w; /* [n][k]; but for INT8 all magnitudes at most QUANTIZE_INT2_MOST */
  size_t n, k;
  int8_t *codes; /* [n][k] */
  float *scales; /* [n][gptq_scales] */
};

MUST_CHECK enum status gptq_quantize(const struct gptq *gptq, const struct gptq_grid *grid,
                                     const struct gptq_weight *weight, unsigned threads, struct error *error);
/* The same by rounding, as the loader does: INT2's and INT4's scales and codes with the least squared error of the
 * weights, INT8's by the largest of a row. */
MUST_CHECK enum status gptq_round(const struct gptq_grid *grid, const struct gptq_weight *weight, unsigned threads,
                                  struct error *error);

/* The relative error of the output, |x (W - Q)^T| / |x W^T| in the Frobenius norm over the rows of which H is x^T x; 0
 * where x W^T is. NOMEM. */
MUST_CHECK enum status gptq_error(const double *h, const struct gptq_grid *grid, const struct gptq_weight *weight,
                                  unsigned threads, double *out, struct error *error);
