#include "micro.h"

#include <stddef.h>

#if defined(__x86_64__)
extern const struct micro_ops micro_avx512, micro_avx2;
#endif
extern const struct micro_ops micro_generic;

const struct micro_ops *const micro_table[] = {
#if defined(__x86_64__)
    &micro_avx512,
    &micro_avx2,
#endif
    &micro_generic,
    NULL,
};

const struct micro_ops *micro_choose(void) {
  int i = 0;
  while (!micro_table[i]->usable()) {
    i++;
  }
  return micro_table[i];
}
