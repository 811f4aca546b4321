/* The algorithms that cuBLASLt has for a product, by their attributes. */
#pragma once

#include "library.h"

/* The heuristic's list first, then what else the library has with these tiles and stages (`all`: with every custom
 * option and cluster, too), as far as it says that they take the product. Returns how many, at most `most`. */
int library_list(struct library *library, const struct library_product *product, bool all,
                 int32_t (*out)[ALGORITHM_ATTRIBUTES], int most);
/* The algorithm of these attributes, where the library says that it takes the product; UNSUPPORTED. */
MUST_CHECK enum status library_algorithm(struct library *library, const struct library_product *product,
                                         const int32_t attributes[ALGORITHM_ATTRIBUTES], cublasLtMatmulAlgo_t *out,
                                         struct error *error);
/* Bytes that an algorithm which the library takes wants beside the tensors. */
uint64_t library_workspace(struct library *library, const struct library_product *product,
                           const int32_t attributes[ALGORITHM_ATTRIBUTES]);
