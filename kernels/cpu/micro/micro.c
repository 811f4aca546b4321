#include "micro.h"

#include <stddef.h>
#include <string.h>

#if defined(__x86_64__)
extern const struct micro_ops micro_avx512_bf16, micro_avx512_vnni, micro_avx512, micro_avx2_vnni, micro_avx2;
#elif defined(__aarch64__)
extern const struct micro_ops micro_neon;
#endif
extern const struct micro_ops micro_generic;

const struct micro_ops *const micro_table[] = {
#if defined(__x86_64__)
    &micro_avx512_bf16, &micro_avx512_vnni,
    &micro_avx512,      &micro_avx2_vnni,
    &micro_avx2,
#elif defined(__aarch64__)
    &micro_neon,
#endif
    &micro_generic,     NULL,
};

const struct micro_ops *micro_choose(const char *name) {
  for (int i = 0; micro_table[i] != NULL; i++) {
    if ((name == NULL || strcmp(micro_table[i]->name, name) == 0) && micro_table[i]->usable()) {
      return micro_table[i];
    }
  }
  return NULL;
}
