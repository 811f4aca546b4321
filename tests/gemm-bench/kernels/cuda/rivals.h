/* cuBLASLt beside a backend: the same product by the library's algorithms, in device memory of its own. */
#pragma once

#include "../data.h"
#include "kernels/cuda/families/cublaslt/list.h"
#include "replay.h"

enum { RIVALS_MOST = 3 };

/* A way to the same y. */
struct rival {
  const char *name;
  enum library_scale scale;
  enum gemm_type d_type;          /* what the library writes */
  bool quantizes;                 /* x by our quantizer, before */
  bool passes;                    /* scales and y's type by our pass, behind */
  struct replay first, best;      /* first: the library's own choice; no graph where that is the best */
  double first_us;                /* when the algorithms were tried */
  cublasLtMatmulAlgo_t algorithm; /* that is queued */
};

struct rivals {
  struct library library;
  cudaStream_t stream;
  void *workspace;
  const struct data_weight *weight; /* the caller's, as the library reads it */
  int64_t n;                        /* padded to 16 */
  uint64_t each;                    /* bytes of a copy of W */
  int copies;
  uint8_t *w;
  float *w_scale, *bias; /* bias: NULL where there is none */
  int64_t m;
  enum gemm_type x_type, y_type;
  void *x, *codes, *d, *y; /* x: as it comes; codes: what the library reads */
  float *x_scale;
  struct rival rivals[RIVALS_MOST];
  int count;
};

/* The library at `path` (NULL: the usual names), on the device that is current. */
MUST_CHECK enum status rivals_open(struct rivals *rivals, const char *path, struct error *error);
void rivals_close(struct rivals *rivals);
/* The weight that the library computes with in the place of this one: INT2 as F16. */
struct gemm_weight rivals_weight(const struct gemm_weight *weight);
MUST_CHECK enum status rivals_load(struct rivals *rivals, const struct data_weight *weight, int copies,
                                   struct error *error);
void rivals_unload(struct rivals *rivals);
/* Takes x, lists what can be asked, tries its algorithms by turns of `turn_us`, and checks what the best one gives. */
MUST_CHECK enum status rivals_stage(struct rivals *rivals, const struct data_x *x, enum gemm_type y_type,
                                    double turn_us, struct error *error);
void rivals_unstage(struct rivals *rivals);
