#include "micro.h"

#include <stddef.h>
#include <string.h>

#if defined(__x86_64__)
extern const struct micro_ops micro_avx512, micro_avx2;
#elif defined(__aarch64__)
extern const struct micro_ops micro_neon;
#endif
extern const struct micro_ops micro_generic;

#if defined(__x86_64__)
/* What a set has of its own; the rest is that of the set before it. */
void micro_avx512_vnni(struct micro_ops *ops);
void micro_avx512_bf16(struct micro_ops *ops);
void micro_avx2_vnni(struct micro_ops *ops);

static struct micro_ops avx512_vnni, avx512_bf16, avx2_vnni;

/* As the library is loaded, before there are threads that read tables. */
__attribute__((constructor)) static void complete_sets(void) {
  avx512_vnni = micro_avx512;
  micro_avx512_vnni(&avx512_vnni);
  avx512_bf16 = avx512_vnni;
  micro_avx512_bf16(&avx512_bf16);
  avx2_vnni = micro_avx2;
  micro_avx2_vnni(&avx2_vnni);
}
#endif

const struct micro_ops *const micro_table[] = {
#if defined(__x86_64__)
    &avx512_bf16,   &avx512_vnni, &micro_avx512, &avx2_vnni, &micro_avx2,
#elif defined(__aarch64__)
    &micro_neon,
#endif
    &micro_generic, NULL,
};

const struct micro_ops *micro_choose(const char *name) {
  for (int i = 0; micro_table[i] != NULL; i++) {
    if ((name == NULL || strcmp(micro_table[i]->name, name) == 0) && micro_table[i]->usable()) {
      return micro_table[i];
    }
  }
  return NULL;
}
