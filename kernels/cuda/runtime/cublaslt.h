/* libcublasLt, opened at run time. */
#pragma once

#include "../../../proto/status.h"

#include <cublasLt.h>

#define CUBLASLT_FUNCTIONS(ROW)                                                                                        \
  ROW(cublasLtCreate)                                                                                                  \
  ROW(cublasLtDestroy)                                                                                                 \
  ROW(cublasLtGetVersion)                                                                                              \
  ROW(cublasLtMatmulDescCreate)                                                                                        \
  ROW(cublasLtMatmulDescDestroy)                                                                                       \
  ROW(cublasLtMatmulDescSetAttribute)                                                                                  \
  ROW(cublasLtMatrixLayoutCreate)                                                                                      \
  ROW(cublasLtMatrixLayoutDestroy)                                                                                     \
  ROW(cublasLtMatmulPreferenceCreate)                                                                                  \
  ROW(cublasLtMatmulPreferenceDestroy)                                                                                 \
  ROW(cublasLtMatmulPreferenceSetAttribute)                                                                            \
  ROW(cublasLtMatmulAlgoGetHeuristic)                                                                                  \
  ROW(cublasLtMatmulAlgoGetIds)                                                                                        \
  ROW(cublasLtMatmulAlgoInit)                                                                                          \
  ROW(cublasLtMatmulAlgoCheck)                                                                                         \
  ROW(cublasLtMatmulAlgoCapGetAttribute)                                                                               \
  ROW(cublasLtMatmulAlgoConfigGetAttribute)                                                                            \
  ROW(cublasLtMatmulAlgoConfigSetAttribute)                                                                            \
  ROW(cublasLtMatmul)

struct cublaslt {
  void *library;
#define ROW(name) __typeof__(&name) name;
  CUBLASLT_FUNCTIONS(ROW)
#undef ROW
};

/* Opens `path`, or where it is NULL or empty the usual names and then the toolkit's usual folders. Fills *out;
 * UNSUPPORTED with the reason otherwise. */
MUST_CHECK enum status cublaslt_open(const char *path, struct cublaslt *out, struct error *error);
void cublaslt_close(struct cublaslt *cublaslt);

/* OK, UNSUPPORTED where the library has no such product, NOMEM or INTERNAL; fills *error on failure.
 * A lost device shows at the product's event. */
enum status cublaslt_check(cublasStatus_t result, const char *doing, struct error *error);
