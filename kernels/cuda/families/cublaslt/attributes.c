#include "attributes.h"

/* The attributes behind the number, in the order of ALGORITHM_*. The last two are 16 bits wide. */
static const cublasLtMatmulAlgoConfigAttributes_t attribute_names[ALGORITHM_ATTRIBUTES] = {
    [ALGORITHM_ID] = CUBLASLT_ALGO_CONFIG_ID,
    [ALGORITHM_TILE] = CUBLASLT_ALGO_CONFIG_TILE_ID,
    [ALGORITHM_STAGES] = CUBLASLT_ALGO_CONFIG_STAGES_ID,
    [ALGORITHM_SPLIT_K] = CUBLASLT_ALGO_CONFIG_SPLITK_NUM,
    [ALGORITHM_REDUCTION] = CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME,
    [ALGORITHM_SWIZZLE] = CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING,
    [ALGORITHM_CUSTOM] = CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION,
    [ALGORITHM_INNER] = CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID,
    [ALGORITHM_CLUSTER] = CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID,
};

static size_t attribute_bytes(int attribute) {
  return attribute >= ALGORITHM_INNER ? sizeof(uint16_t) : sizeof(int32_t);
}

void attributes_get(const struct cublaslt *lt, const cublasLtMatmulAlgo_t *algorithm,
                    int32_t out[ALGORITHM_ATTRIBUTES]) {
  for (int i = 0; i < ALGORITHM_ATTRIBUTES; i++) {
    uint32_t value = 0;
    size_t written;
    (void)lt->cublasLtMatmulAlgoConfigGetAttribute(algorithm, attribute_names[i], &value, attribute_bytes(i), &written);
    out[i] = (int32_t)value;
  }
}

cublasStatus_t attributes_set(const struct cublaslt *lt, const int32_t attributes[ALGORITHM_ATTRIBUTES],
                              cublasLtMatmulAlgo_t *algorithm) {
  cublasStatus_t result = CUBLAS_STATUS_SUCCESS;
  for (int i = ALGORITHM_TILE; i < ALGORITHM_ATTRIBUTES && result == CUBLAS_STATUS_SUCCESS; i++) {
    uint32_t value = (uint32_t)attributes[i];
    result = lt->cublasLtMatmulAlgoConfigSetAttribute(algorithm, attribute_names[i], &value, attribute_bytes(i));
  }
  return result;
}
