/* A product over experts with INT2 weights in tiles, of more rows of x than a warp's instructions take, as the kernels
 * for it are launched with it. */
#ifndef KERNELS_CUDA_FAMILIES_SM90_GROUPED_INT2_MANY_PRODUCT_H
#define KERNELS_CUDA_FAMILIES_SM90_GROUPED_INT2_MANY_PRODUCT_H

#include "../../../experts/route.h"
#include "../int2_many/product.h"

/* Pointers are device memory. */
struct grouped_int2_many_product {
  struct int2_many_product of; /* m: pairs; n: of an expert, whose tiles and bias follow each other; y: [pairs, n] */
  int64_t k;
  int experts;
  struct experts_route route;
  bool y_sorted;
};

#endif
