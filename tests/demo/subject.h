/* What is multiplied: matrices of a checkpoint, and rows that fit them. */
#pragma once

#include "checkpoint.h"

#define SUBJECT_ROWS 32 /* of x */
#define SUBJECTS_MAX 12

/* One matrix with its input and what float64 makes of the two. */
struct subject {
  const struct tensor *tensor;
  int64_t m, n, k;
  bool known;         /* a matrix of all-MiniLM-L6-v2, or generated like one: what quantizing costs was measured */
  const char *source; /* of x, in words */
  float *w, *x;       /* [n, k], [m, k]; owned */
  double *y;          /* [m, n]: x * w^T with nothing quantized; owned */
};

/* The matrices to take: attention and feed-forward of layers 0 and 5 where the file has them (BERT's names), else the
 * largest others that fit the demo. Returns how many. */
size_t subject_choose(const struct checkpoint *checkpoint, const struct tensor *chosen[SUBJECTS_MAX]);

/* False where memory runs out. */
bool subject_make(struct subject *subject, const struct checkpoint *checkpoint, const struct tensor *tensor);
void subject_free(struct subject *subject);
