/* Kernels for products of two tensors: which there are, and which computes a product. Pure. */
#pragma once

#include "../../variant.h"
#include "../families/problem.h"
#include "product.h"
#include "tile.h"

/* "tensors" and "tensors_wide": general.h's kernel and Hopper's. */
extern const struct variant_family tensors_family, tensors_wide_family;

struct tensors_problem {
  struct kernel_device device;
  int64_t m, n, k;
  int align; /* bytes, a power of two: of x, W and their strides */
};

struct tensors_config {
  bool wide;
  struct wide_config tile; /* with `wide` */
  int slices;
};

bool tensors_is_variant(const struct variant *variant);
/* Whether both by rows are faster so than by the kernels of stored weights: K is long, and tiles are few. */
bool tensors_pay(const struct tensors_problem *problem);
/* What computes it where nobody says so. */
struct variant tensors_default(const struct tensors_problem *problem);
/* UNSUPPORTED with the reason, and *nearest is one that can. `nearest` may be NULL. */
MUST_CHECK enum status tensors_config(const struct tensors_problem *problem, const struct variant *variant,
                                      struct tensors_config *out, struct variant *nearest, struct error *error);
/* What is worth being measured; `all`: every one that can run. Returns how many. */
int tensors_list(const struct tensors_problem *problem, bool all, struct variant *out, int most);
/* Elements that the general kernel loads at a time. */
int tensors_vector(int align);
/* The slices with which the blocks fill the device once. */
int tensors_filling(const struct tensors_problem *problem, const struct tensors_config *config);
