/* An algorithm of cuBLASLt as numbers that can be kept: config.h names them. */
#pragma once

#include "../../runtime/cublaslt.h"
#include "config.h"

void attributes_get(const struct cublaslt *lt, const cublasLtMatmulAlgo_t *algorithm,
                    int32_t out[ALGORITHM_ATTRIBUTES]);
/* All but the number, which the algorithm has been made with. */
cublasStatus_t attributes_set(const struct cublaslt *lt, const int32_t attributes[ALGORITHM_ATTRIBUTES],
                              cublasLtMatmulAlgo_t *algorithm);
