#include "table.h"

#include <stddef.h>

const struct kernel_family *const kernel_families[] = {
#define ROW(kernels, variants) &kernels,
    KERNEL_FAMILIES(ROW)
#undef ROW
        NULL};

const struct variant_family *const cuda_families[] = {
#define ROW(kernels, variants) &variants,
    KERNEL_FAMILIES(ROW)
#undef ROW
        NULL};

const struct kernel_family *kernel_family_of(const struct variant *variant) {
  for (int i = 0; variant && kernel_families[i]; i++)
    if (kernel_families[i]->variants == variant->family)
      return kernel_families[i];
  return NULL;
}
