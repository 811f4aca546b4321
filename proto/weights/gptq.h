/* 2-bit weights with the least output error: GPTQ (Frantar et al., "GPTQ: Accurate Post-Training Quantization for
 * Generative Pre-trained Transformers", 2022), for INT2's grid and groups of 128 along K.
 *
 * With H = x^T x over the rows x that a layer sees, a row w of W that becomes q adds (w - q) H (w - q)^T to the squared
 * error of the layer's output. Columns are quantized one after the other, and what is still to come takes back what it
 * can of the errors made. That is done here with the Cholesky factor of H itself: where H + damping = L L^T, with the
 * column that goes first in the last place, column r is rounded from w_r + sum over i > r of (w_i - q_i) L_ir / L_rr,
 * which gives the codes of Frantar's algorithm and needs no inverse (Chee et al., "QuIP: 2-Bit Quantization of Large
 * Language Models With Guarantees", 2023, theorem 6).
 *
 * A group's scale fits, by least squares, what the errors before it have made of the group's weights. Groups go by
 * falling sum of H's diagonal, and columns within their group by falling diagonal, so that the layout of the format
 * stays as it is. */
#ifndef WEIGHTS_GPTQ_H
#define WEIGHTS_GPTQ_H

#include "../status.h"

#include <stddef.h>
#include <stdint.h>

enum { GPTQ_GROUP = 128 };

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

/* Codes, one a byte, and scales (f16 bits) of w [n][k], of which all magnitudes must be at most QUANTIZE_INT2_MOST:
 * codes [n][k], scales [n][ceil(k / 128)]. NOMEM. */
MUST_CHECK enum status gptq_quantize(const struct gptq *gptq, const float *w, size_t n, uint8_t *codes,
                                     uint16_t *scales, unsigned threads, struct error *error);
/* The same by rounding: each group's scale and codes with the least squared error of the weights. */
void gptq_round(const float *w, size_t n, size_t k, uint8_t *codes, uint16_t *scales, unsigned threads);

/* The relative error of the output, |x (W - Q)^T| / |x W^T| in the Frobenius norm over the rows of which H is x^T x; 0
 * where x W^T is. NOMEM. */
MUST_CHECK enum status gptq_error(const double *h, const float *w, size_t n, size_t k, const uint8_t *codes,
                                  const uint16_t *scales, unsigned threads, double *out, struct error *error);

#endif
